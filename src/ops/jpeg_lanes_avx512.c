/* jpeg_lanes_avx512.c - entropy decoding in sixteen lanes, two groups of eight.
 *
 * One look-up is what jpeg_bits.h does, for eight streams: entry, bits, position.  What is a branch
 * there and often guessed wrong, the block's end, is a mask here; DCs are symbols like
 * others; and values are taken from the data, so that code and value need not both fit into the
 * 11 bits that are looked up.  While one group waits for its entries, the other goes on.
 *
 * Branches are left for codes over 11 bits, and for pairs of symbols of which only the
 * first belongs to the block: one look-up of eight lanes in thirty.
 *
 * Every look-up moves a lane on, by a position or to the next block, or finds the data unsound, so
 * there is an end.  A lane that runs out of bytes finds zeros without moving, and
 * cannot arrive where it should.
 */
#include "ops/jpeg_lanes.h"

#if defined(__x86_64__)
#include <string.h>

#include "ops/jpeg_gather_avx512.h"

enum {
    IDLE = 7,      /* the block of a lane without one */
    MAX_PAST = 17, /* bytes from a stretch's last: enough to tell that it was left behind */
};
_Static_assert(MAX_PAST + 8 < PEN__JPEG_LANE_ZEROS, "refills stay within the zeros");

/* Lanes that have nothing to do take no bits and write zeros to the spare room. */
typedef struct group {
    __m512i bits, n_bits; /* as in pen__jpeg_bits */
    __m512i next, last;   /* offsets in the bytes; next goes no further than last */
    __m512i k;            /* zigzag position */
    __m512i base, stop;   /* the block's first coefficient, and that of the last block */
    __m512i route;        /* of the block, see route_of() */
    __m512i table;        /* where the entries for the next look-up begin */
    __m512i goal, end;    /* the stretch must end at the one bit or between the two */
    int n_busy;
} group;

/* In memory, since registers are scarce. */
typedef struct numbers {
    __m512i n7f, nff, nffff, ones, n56, n63, n64, dc_part;
    __m512i swap, code_bits, value_shift, run, distance, second; /* for shuffling bytes */
    __m512i routes;
    __m512i dc_first, ac_first, dc_n_long, ac_n_long; /* by the number of the next block */
} numbers;

typedef struct work {
    numbers c;
    const pen__jpeg_stretch *list;
    const uint16_t *order;
    int n, n_begun;
    const uint8_t *bytes;
    const uint64_t *entries;
    int16_t *coefs;
    uint32_t spare;
    bool is_bad;
    uint64_t routes[LANES];
} work;

/* --- one look-up --- */

/* To at least 56 bits. */
AVX512_INLINE void refill(group *g, const numbers *c, const uint8_t *bytes)
{
    __m512i more = _mm512_shuffle_epi8(gather_bytes(bytes, g->next), c->swap);
    g->bits = _mm512_or_si512(g->bits, _mm512_srlv_epi64(more, g->n_bits));
    __m512i n = _mm512_srli_epi64(_mm512_sub_epi64(c->n63, g->n_bits), 3);
    g->next = _mm512_min_epu64(_mm512_add_epi64(g->next, n), g->last);
    g->n_bits = _mm512_or_si512(g->n_bits, c->n56);
}

AVX512_INLINE __m512i look_up(const group *g, const uint64_t *entries)
{
    __m512i peek = _mm512_srli_epi64(g->bits, 64 - PEN__JPEG_LANE_BITS);
    return gather_entries(entries, sizeof(uint64_t), _mm512_add_epi64(peek, g->table));
}

AVX512_INLINE __m512i position_after(const group *g, __m512i e)
{
    return _mm512_add_epi64(g->k, _mm512_srli_epi64(e, 56));
}

AVX512_INLINE __mmask8 is_too_far(const numbers *c, __m512i after)
{
    return _mm512_cmpgt_epu64_mask(_mm512_and_si512(after, c->n7f), c->n64);
}

/* Store the coefficients of entries e, whose bits have not been taken yet.  Both go in one
 * word, with zeros over what is behind them: that comes later, or is spare. */
AVX512_INLINE void put(const group *g, const numbers *c, int16_t *coefs, __m512i e, __m512i second)
{
    __m512i x = _mm512_sllv_epi64(g->bits, _mm512_shuffle_epi8(e, c->code_bits));
    __m512i shift = _mm512_shuffle_epi8(e, c->value_shift);
    __mmask8 is_negative = _mm512_cmpge_epi64_mask(x, _mm512_setzero_si512());
    __m512i first = _mm512_srlv_epi64(x, shift);
    first = _mm512_mask_sub_epi64(first, is_negative, first, _mm512_srlv_epi64(c->ones, shift));
    second = _mm512_sllv_epi64(second, _mm512_shuffle_epi8(e, c->distance));
    __m512i both = _mm512_ternarylogic_epi64(first, c->nffff, second, 0xEA); /* a & b | c */
    __m512i at = _mm512_add_epi64(_mm512_add_epi64(g->base, g->k), _mm512_shuffle_epi8(e, c->run));
    _mm512_i64scatter_epi64(coefs, at, both, 2);
}

/* On by n bits and to position `after`.  Returns the lanes whose stretch ends. */
AVX512_INLINE __mmask8 advance(group *g, const numbers *c, __m512i n, __m512i after)
{
    g->bits = _mm512_sllv_epi64(g->bits, n);
    g->n_bits = _mm512_sub_epi64(g->n_bits, n);
    __mmask8 ends = _mm512_cmpge_epu64_mask(after, c->n64);
    __mmask8 is_last = _mm512_mask_cmpeq_epu64_mask(ends, g->base, g->stop);
    g->k = _mm512_mask_mov_epi64(after, ends, _mm512_setzero_si512());
    g->base = _mm512_mask_add_epi64(g->base, ends, g->base, c->n64);
    g->route = _mm512_mask_permutexvar_epi64(g->route, ends, g->route, c->routes);
    g->table = _mm512_srli_epi64(g->route, 32);
    g->table = _mm512_mask_and_epi64(g->table, ends, g->route, c->dc_part);
    return is_last;
}

/* --- what is unusual --- */

/* Entries for the next 16 bits of these lanes. */
AVX512_INLINE __m512i look_up_long(const group *g, const work *w, __mmask8 lanes)
{
    const numbers *c = &w->c;
    __mmask8 is_dc = _mm512_testn_epi64_mask(g->k, g->k);
    __m512i first = _mm512_mask_permutexvar_epi64(_mm512_permutexvar_epi64(g->route, c->ac_first),
                                                  is_dc, g->route, c->dc_first);
    __m512i n = _mm512_mask_permutexvar_epi64(_mm512_permutexvar_epi64(g->route, c->ac_n_long),
                                              is_dc, g->route, c->dc_n_long);
    /* what is before the first or behind the last leads to an entry that says so */
    __m512i i = _mm512_min_epu64(_mm512_sub_epi64(_mm512_srli_epi64(g->bits, 48), first), n);
    __m512i at = _mm512_add_epi64(_mm512_add_epi64(g->table, all(PEN__JPEG_LANE_SHORT)), i);
    return gather_entries(w->entries, sizeof(uint64_t), _mm512_maskz_mov_epi64(lanes, at));
}

/* One look-up for eight lanes of which one or more go too far: because a code is long, because code
 * and value are, because the second symbol belongs to the next block, or because the data are not
 * sound.  Leaves 56 bits. */
AVX512 __mmask8 step_with_care(group *g, work *w)
{
    const numbers *c = &w->c;
    refill(g, c, w->bytes);
    __m512i e = look_up(g, w->entries), after = position_after(g, e);
    __mmask8 is_far = is_too_far(c, after);
    __mmask8 is_long = _mm512_mask_testn_epi64_mask(is_far, e, c->nff);
    if (is_long) {
        e = _mm512_mask_mov_epi64(e, is_long, look_up_long(g, w, is_long));
        after = position_after(g, e);
        is_far = is_too_far(c, after);
        w->is_bad |= _mm512_mask_testn_epi64_mask(is_long, e, c->nff) != 0;
    }
    __m512i n = _mm512_and_si512(e, c->nff), second = _mm512_shuffle_epi8(e, c->second);
    /* the first symbol alone */
    __m512i n_value = _mm512_sub_epi64(c->n64, _mm512_shuffle_epi8(e, c->value_shift));
    __m512i n_first = _mm512_add_epi64(_mm512_shuffle_epi8(e, c->code_bits), n_value);
    __m512i run = _mm512_shuffle_epi8(e, c->run);
    __m512i after_first = _mm512_add_epi64(_mm512_add_epi64(g->k, run), all(1));
    w->is_bad |= _mm512_mask_cmpgt_epu64_mask(is_far, after_first, c->n64) != 0;
    if (w->is_bad)
        return 0;
    n = _mm512_mask_mov_epi64(n, is_far, n_first);
    after = _mm512_mask_mov_epi64(after, is_far, after_first);
    put(g, c, w->coefs, e, _mm512_mask_mov_epi64(second, is_far, _mm512_setzero_si512()));
    __mmask8 is_last = advance(g, c, n, after);
    refill(g, c, w->bytes);
    return is_last;
}

/* Give a lane the next stretch, or nothing to do: then it reads zeros for ever. */
AVX512_INLINE void begin_stretch(group *g, work *w, __mmask8 lane)
{
    uint64_t word = 0, route = IDLE;
    uint32_t zeros = w->list[0].end_bit / 8 + 1;
    pen__jpeg_stretch s = {8 * zeros, 8 * zeros, w->spare, 0, true};
    if (w->n_begun < w->n) {
        s = w->list[w->order[w->n_begun++]];
        memcpy(&word, w->bytes + s.first_bit / 8, sizeof word);
        word = __builtin_bswap64(word) << s.first_bit % 8;
        route = w->routes[0];
        g->n_busy++;
    }
#define SET(v, x) v = _mm512_mask_set1_epi64(v, lane, (int64_t)(x))
    SET(g->bits, word);
    SET(g->n_bits, 56 - s.first_bit % 8);
    SET(g->next, s.first_bit / 8 + 7);
    SET(g->last, s.end_bit / 8 + MAX_PAST);
    SET(g->k, 0);
    SET(g->base, s.first_coef);
    SET(g->stop, s.first_coef + s.n_coefs - 64);
    SET(g->route, route);
    SET(g->table, route & 0xFFFFFFF8);
    SET(g->goal, s.is_cut ? s.first_bit : s.end_bit);
    SET(g->end, s.end_bit);
#undef SET
}

/* The stretches of these lanes have ended. */
AVX512 void change_stretches(group *g, work *w, unsigned lanes)
{
    __m512i arrived = _mm512_sub_epi64(_mm512_slli_epi64(g->next, 3), g->n_bits);
    w->is_bad |= _mm512_mask_cmplt_epu64_mask((__mmask8)lanes, arrived, g->goal) != 0 ||
                 _mm512_mask_cmpgt_epu64_mask((__mmask8)lanes, arrived, g->end) != 0;
    for (; lanes; lanes &= lanes - 1) {
        g->n_busy--;
        begin_stretch(g, w, (__mmask8)(lanes & -lanes));
    }
}

/* --- the whole --- */

/* One look-up of eight lanes.  False when there is no more to do for them. */
AVX512_INLINE bool step(group *g, work *w, const uint64_t *entries, int16_t *coefs)
{
    const numbers *c = &w->c;
    __m512i e = look_up(g, entries), after = position_after(g, e);
    __mmask8 is_last;
    if (UNLIKELY(is_too_far(c, after))) {
        group copy = *g; /* whose address may be taken */
        is_last = step_with_care(&copy, w);
        *g = copy;
        if (w->is_bad)
            return false;
    } else {
        put(g, c, coefs, e, _mm512_shuffle_epi8(e, c->second));
        is_last = advance(g, c, _mm512_and_si512(e, c->nff), after);
    }
    if (UNLIKELY(is_last)) {
        group copy = *g;
        change_stretches(&copy, w, is_last);
        *g = copy;
        return g->n_busy > 0 && !w->is_bad;
    }
    return true;
}

/* For shuffling: byte i of each entry, or bytes i and i + 1. */
AVX512_INLINE __m512i field(int i, bool is_wide)
{
    const char z = -128, lo = (char)i, hi = is_wide ? (char)(i + 1) : z;
    const char next_lo = (char)(i + 8), next_hi = is_wide ? (char)(i + 9) : z;
    return _mm512_broadcast_i32x4(
        _mm_setr_epi8(lo, hi, z, z, z, z, z, z, next_lo, next_hi, z, z, z, z, z, z));
}

/* Of a table's first entry, counted from the idle one. */
static uint64_t place_of(const pen__jpeg_lane_codes *codes, const pen__jpeg_lane_table *table)
{
    ptrdiff_t n_bytes = (const uint8_t *)table - (const uint8_t *)codes->idle;
    return (uint64_t)n_bytes / sizeof *codes->idle;
}

/* The next block's number, of which only three bits count where routes are chosen by it, where
 * the entries for DCs begin (they lie at multiples of eight), and those for ACs in the upper half.
 */
static uint64_t route_of(const pen__jpeg_lane_codes *codes, int b)
{
    uint64_t next = b + 1 < codes->n_blocks ? (uint64_t)b + 1 : 0;
    uint64_t dc = place_of(codes, codes->dc[b]), ac = place_of(codes, codes->ac[b]);
    return next | dc | ac << 32;
}

/* Of the tables, in the order in which blocks name their successors. */
AVX512_INLINE void set_longs(const pen__jpeg_lane_codes *codes,
                             const pen__jpeg_lane_table *const *tables, __m512i *first, __m512i *n)
{
    int64_t by_next[2][LANES] = {{0}};
    for (int b = 0; b < codes->n_blocks; b++) {
        int next = b + 1 < codes->n_blocks ? b + 1 : 0;
        by_next[0][next] = tables[b]->first_long;
        by_next[1][next] = tables[b]->n_long;
    }
    *first = _mm512_loadu_si512(by_next[0]);
    *n = _mm512_loadu_si512(by_next[1]);
}

AVX512 void set_numbers(work *w, const pen__jpeg_lane_codes *codes)
{
    numbers *c = &w->c;
    c->n7f = all(127), c->nff = all(0xFF), c->nffff = all(0xFFFF), c->ones = all(-1);
    c->n56 = all(56), c->n63 = all(63), c->n64 = all(64), c->dc_part = all(0xFFFFFFF8);
    c->swap =
        _mm512_broadcast_i32x4(_mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8));
    c->code_bits = field(1, false), c->value_shift = field(2, false), c->run = field(3, false);
    c->distance = field(4, false), c->second = field(5, true);
    memset(w->routes, 0, sizeof w->routes);
    for (int b = 0; b < codes->n_blocks; b++)
        w->routes[b] = route_of(codes, b);
    w->routes[IDLE] = IDLE;
    c->routes = _mm512_loadu_si512(w->routes);
    set_longs(codes, codes->dc, &c->dc_first, &c->dc_n_long);
    set_longs(codes, codes->ac, &c->ac_first, &c->ac_n_long);
}

AVX512 void begin_group(group *g, work *w)
{
    memset(g, 0, sizeof *g);
    for (int lane = 0; lane < LANES; lane++)
        begin_stretch(g, w, (__mmask8)(1 << lane));
}

TARGET bool pen__jpeg_lanes_avx512(const pen__jpeg_lane_codes *codes, const uint8_t *bytes,
                                   const pen__jpeg_stretch *list, const uint16_t *order, int n,
                                   int16_t *coefs, uint32_t spare)
{
    if (n == 0)
        return true;
    const uint64_t *entries = codes->idle; /* and all others behind it */
    work w;
    w.list = list, w.order = order, w.n = n, w.n_begun = 0, w.is_bad = false;
    w.bytes = bytes, w.entries = entries, w.coefs = coefs, w.spare = spare;
    set_numbers(&w, codes);
    group a, b, one, copy;
    begin_group(&copy, &w), a = copy;
    begin_group(&copy, &w), b = copy;
    bool has_a = a.n_busy > 0, has_b = b.n_busy > 0;
    while (has_a && has_b) {
        refill(&a, &w.c, bytes);
        refill(&b, &w.c, bytes);
        for (int i = 0; i < 3 && has_a && has_b; i++) {
            has_a = step(&a, &w, entries, coefs);
            has_b = step(&b, &w, entries, coefs);
        }
    }
    one = has_a ? a : b;
    for (bool has_one = has_a || has_b; has_one && !w.is_bad;) {
        refill(&one, &w.c, bytes);
        for (int i = 0; i < 3 && has_one; i++)
            has_one = step(&one, &w, entries, coefs);
    }
    return !w.is_bad;
}

TARGET bool pen__jpeg_lanes_finish_avx512(const uint8_t *component_of, int mcu_blocks,
                                          int16_t *coefs, uint32_t n_blocks, int32_t *dc,
                                          uint8_t *n_coefs)
{
    int b = 0;
    bool is_sound = true;
    for (uint32_t i = 0; i < n_blocks; i++, coefs += 64) {
        __m512i lo = _mm512_loadu_si512(coefs), hi = _mm512_loadu_si512(coefs + 32);
        uint64_t used = (uint64_t)_mm512_test_epi16_mask(hi, hi) << 32 |
                        (uint64_t)_mm512_test_epi16_mask(lo, lo);
        n_coefs[i] = (uint8_t)(64 - __builtin_clzll(used | 1));
        int32_t *last = &dc[component_of[b]];
        *last += coefs[0];
        is_sound &= *last == (int16_t)*last;
        coefs[0] = (int16_t)*last;
        b = b + 1 < mcu_blocks ? b + 1 : 0;
    }
    return is_sound;
}
#endif
