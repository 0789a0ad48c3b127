/* jpeg_pair.c - two rows of MCUs decoded at once, in one thread.
 *
 * Entropy decoding waits most of the time: for the look-up that says where the next
 * one is, and after each branch that was guessed wrong.  A second stream of bits,
 * from another place in the file, fills those gaps.  Look-ups of the two streams
 * alternate; each goes from block to block on its own, through a real branch at
 * the block's end, so that a long block of one does not hold up the other.
 */
#include <stddef.h>

#include "ops/jpeg_bits.h"

typedef struct lane {
    pen__jpeg_bits in;
    size_t k; /* zigzag position in the block */
    const pen__jpeg_ac_table *table;
    int16_t *block; /* NULL: nothing is kept */
    int b;          /* which block of its MCU */
    int32_t n_left; /* MCUs, this one included */
    pen__jpeg_scan *scan;
    uint8_t *n_coefs;
} lane;

typedef enum verdict { GOING, DONE, BAD } verdict;

/* The DC, and all is ready for the first AC coefficient: 56 bits. */
ALWAYS_INLINE bool begin_block(lane *l, bool keep)
{
    pen__jpeg_scan *scan = l->scan;
    bool is_bad = false;
    int c = scan->component_of[l->b];
    if (keep)
        clear_block(l->block);
    refill(&l->in);
    int32_t dc = scan->dc[c] + read_dc(&l->in, scan->dc_tables[c], &is_bad);
    refill(&l->in);
    scan->dc[c] = dc;
    l->table = scan->ac_tables[c];
    l->k = 1;
    return !is_bad && dc == (int16_t)dc;
}

ALWAYS_INLINE bool begin_mcu(lane *l)
{
    pen__jpeg_scan *scan = l->scan;
    l->b = 0;
    if (scan->restart_interval == 0 && l->in.next <= scan->safe)
        return true;
    scan->in = l->in;
    bool is_ready = pen__jpeg_scan_prepare(scan);
    l->in = scan->in;
    return is_ready;
}

/* The block had n coefficients.  On to the next one. */
ALWAYS_INLINE verdict next_block(lane *l, int n, bool keep)
{
    if (UNLIKELY(n == 0))
        return BAD;
    if (keep) {
        l->block[0] = (int16_t)l->scan->dc[l->scan->component_of[l->b]];
        *l->n_coefs++ = (uint8_t)n;
        l->block += 64;
    }
    if (++l->b == l->scan->n_blocks) {
        if (--l->n_left == 0)
            return DONE;
        if (UNLIKELY(!begin_mcu(l)))
            return BAD;
    }
    return begin_block(l, keep) ? GOING : BAD;
}

/* One look-up, with 31 bits ready. */
ALWAYS_INLINE verdict step(lane *l, bool keep, bool is_zigzag)
{
    const pen__jpeg_ac_entry *e = &l->table->entries[l->in.bits >> (64 - PEN__JPEG_AC_BITS)];
    int n_bits = e->bits;
    HIDE_ORIGIN(e);
    size_t after = l->k + e->advance;
    if (UNLIKELY(n_bits == 0)) {
        l->k = read_long_ac(&l->in, l->table, e, l->k, keep ? l->block : NULL, is_zigzag);
        if (l->k >= 64)
            return next_block(l, count_coefs(l->k), keep);
        refill(&l->in);
        return GOING;
    }
    if (keep) {
        l->block[place_of(l->k + e->first, is_zigzag)] = e->first_value;
        l->block[place_of(l->k + e->second, is_zigzag)] = e->second_value;
    }
    if (after >= 64)
        return next_block(l, end_block(&l->in, e, l->k), keep);
    take(&l->in, n_bits);
    l->k = after;
    return GOING;
}

ALWAYS_INLINE bool begin_lane(lane *l, pen__jpeg_scan *scan, int32_t n_mcus, int16_t *block,
                              uint8_t *n_coefs, bool keep)
{
    *l = (lane){.in = scan->in, .scan = scan, .n_left = n_mcus, .block = block, .n_coefs = n_coefs};
    return begin_mcu(l) && begin_block(l, keep);
}

ALWAYS_INLINE bool finish_lane(lane *l, bool keep, bool is_zigzag)
{
    for (;;) {
        refill(&l->in);
        for (int i = 0; i < 3; i++) {
            verdict v = step(l, keep, is_zigzag);
            if (UNLIKELY(v != GOING))
                return v == DONE;
        }
    }
}

ALWAYS_INLINE bool run_both(lane *a, lane *b, bool keep, bool is_zigzag)
{
    for (;;) {
        refill(&a->in);
        refill(&b->in);
        /* 56 bits: two look-ups of 11, and one more or the longest symbol there is, of 31 */
        for (int i = 0; i < 3; i++) {
            verdict v = step(a, keep, is_zigzag);
            if (UNLIKELY(v != GOING))
                return v == DONE && finish_lane(b, keep, is_zigzag);
            v = step(b, keep, is_zigzag);
            if (UNLIKELY(v != GOING))
                return v == DONE && finish_lane(a, keep, is_zigzag);
        }
    }
}

ALWAYS_INLINE bool scan_pair(pen__jpeg_scan *const scans[2], int32_t n_mcus,
                             int16_t *const blocks[2], uint8_t *const n_coefs[2], bool keep,
                             bool is_zigzag)
{
    lane a, b;
    if (!begin_lane(&a, scans[0], n_mcus, blocks[0], n_coefs[0], keep) ||
        !begin_lane(&b, scans[1], n_mcus, blocks[1], n_coefs[1], keep) ||
        !run_both(&a, &b, keep, is_zigzag))
        return false;
    scans[0]->in = a.in;
    scans[1]->in = b.in;
    return true;
}

ALWAYS_INLINE bool keep_or_skip(pen__jpeg_scan *const scans[2], int32_t n_mcus,
                                int16_t *const blocks[2], uint8_t *const n_coefs[2])
{
    if (!blocks[0])
        return scan_pair(scans, n_mcus, blocks, n_coefs, false, false);
    return scans[0]->is_zigzag ? scan_pair(scans, n_mcus, blocks, n_coefs, true, true)
                               : scan_pair(scans, n_mcus, blocks, n_coefs, true, false);
}

#if defined(__x86_64__)
__attribute__((target("bmi2"))) static bool scan_pair_bmi2(pen__jpeg_scan *const scans[2],
                                                           int32_t n_mcus, int16_t *const blocks[2],
                                                           uint8_t *const n_coefs[2])
{
    return keep_or_skip(scans, n_mcus, blocks, n_coefs);
}
#endif

bool pen__jpeg_scan_pair(pen__jpeg_scan *const scans[2], int32_t n_mcus, int16_t *const blocks[2],
                         uint8_t *const n_coefs[2])
{
    if (n_mcus == 0)
        return true;
#if defined(__x86_64__)
    if (scans[0]->has_bmi2)
        return scan_pair_bmi2(scans, n_mcus, blocks, n_coefs);
#endif
    return keep_or_skip(scans, n_mcus, blocks, n_coefs);
}
