/* jpeg_scan.c - bits to coefficients.
 *
 * Three layers: the chunk (bytes without stuffing, up to the next marker), the bits
 * (a 64-bit word, filled eight bytes at a time without asking), and the blocks.
 * No layer checks for the end of data inside an MCU: before each MCU the chunk is made
 * to hold as many bytes as one can take, or all that are left and zeros
 * behind; whether zeros were read is asked afterwards.
 *
 * What decides the speed is the chain from one look-up to the next: shift, load,
 * shift.  Hence two symbols a look-up, stores that happen whether needed or not, and
 * one refill for three look-ups.
 *
 * Damage that libjpeg repairs or ignores must not pass here as sound.  So: a marker's
 * 0xFF is never part of fill bytes, a restart marker comes exactly where it is due with
 * less than a byte of padding before it, and data that end without a marker
 * are refused as soon as that is seen, because libjpeg might look at them, too.
 */
#include "ops/jpeg_scan.h"

#include <string.h>

#include "base/cpu.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))
/* Without this, compilers compute the entry's address apart, and that is in the chain. */
#define HIDE_ORIGIN(p) __asm__("" : "+r"(p))
#define UNLIKELY(x)    __builtin_expect(!!(x), 0)

/* Zigzag to natural order.  Positions past 63 come from look-ups that ran on after
 * the last coefficient; they land on the DC, which is written last. */
static const uint8_t natural_or_dc[128] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/* --- the chunk --- */

/* Bits in the chunk that have not been read; negative if zeros behind them were. */
static int64_t bits_left(const pen__jpeg_scan *scan)
{
    return (scan->end - scan->in.next) * 8 + scan->in.n_bits;
}

/* Append bytes without their stuffing until the chunk is full or a marker comes. */
static bool unstuff(pen__jpeg_scan *scan)
{
    const uint8_t *src = scan->src + scan->at, *src_end = scan->src + scan->len;
    uint8_t *dst = scan->end, *dst_end = scan->chunk + PEN__JPEG_CHUNK_BYTES;
    while (dst < dst_end) {
        size_t n = (size_t)(src_end - src), room = (size_t)(dst_end - dst);
        n = n < room ? n : room;
        const uint8_t *ff = memchr(src, 0xFF, n);
        size_t n_plain = ff ? (size_t)(ff - src) : n;
        memcpy(dst, src, n_plain);
        dst += n_plain;
        src += n_plain;
        if (src_end - src < 2) /* no marker before the end */
            return false;
        if (!ff)
            break;
        if (src[1] != 0) {
            scan->is_at_marker = true;
            break;
        }
        *dst++ = 0xFF;
        src += 2;
    }
    scan->at = (size_t)(src - scan->src);
    scan->end = dst;
    memset(dst, 0, PEN__JPEG_CHUNK_SLACK);
    return !scan->is_at_marker || src[1] != 0xFF;
}

/* Whole bytes that wait in the word go back to the chunk. */
static void put_back(pen__jpeg_bits *in)
{
    in->next -= in->n_bits >> 3;
    in->n_bits &= 7;
    in->bits &= ~(UINT64_MAX >> in->n_bits);
}

/* Make the chunk hold one more MCU, or all that comes before the next marker. */
static bool fill_chunk(pen__jpeg_scan *scan)
{
    if (scan->is_at_marker)
        return bits_left(scan) >= 0;
    put_back(&scan->in);
    size_t n_left = (size_t)(scan->end - scan->in.next);
    memmove(scan->chunk, scan->in.next, n_left);
    scan->in.next = scan->chunk;
    scan->end = scan->chunk + n_left;
    if (!unstuff(scan))
        return false;
    /* at a marker every MCU comes here, to see that it does not overrun */
    scan->safe = scan->is_at_marker ? scan->chunk - 1 : scan->end - PEN__JPEG_MAX_MCU_BYTES - 8;
    return true;
}

static bool begin_chunk(pen__jpeg_scan *scan, size_t at)
{
    scan->at = at;
    scan->in = (pen__jpeg_bits){0, 0, scan->chunk};
    scan->end = scan->chunk;
    scan->is_at_marker = false;
    return fill_chunk(scan);
}

/* --- bits --- */

ALWAYS_INLINE uint64_t load_be64(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* From 0 to 63 bits to at least 56. */
ALWAYS_INLINE void refill(pen__jpeg_bits *in)
{
    in->bits |= load_be64(in->next) >> in->n_bits;
    in->next += (63 - in->n_bits) >> 3;
    in->n_bits |= 56;
}

ALWAYS_INLINE void take(pen__jpeg_bits *in, int n)
{
    in->bits <<= n;
    in->n_bits -= n;
}

/* The signed number in the `size` bits, 0 to 15, behind the next n bits. */
ALWAYS_INLINE int peek_value(const pen__jpeg_bits *in, int n, int size)
{
    int value = (int)(in->bits << n >> 1 >> (63 - size)), half = 1 << size >> 1;
    int is_negative = (value - half) >> 31; /* all ones or none: a branch would often be wrong */
    return value + (is_negative & (1 - 2 * half));
}

/* --- blocks --- */

static __attribute__((noinline)) int long_symbol(const pen__jpeg_long_codes *codes, int peek)
{
    return pen__jpeg_long_symbol(codes, peek);
}

/* The difference to the last DC.  Needs 31 bits. */
ALWAYS_INLINE int read_dc(pen__jpeg_bits *in, const pen__jpeg_dc_table *table, bool *is_bad)
{
    pen__jpeg_dc_entry e = table->entries[in->bits >> (64 - PEN__JPEG_DC_BITS)];
    if (UNLIKELY(e.bits == 0)) {
        int found = long_symbol(&table->codes, (int)(in->bits >> 48));
        *is_bad |= found < 0;
        e.size = found < 0 ? 0 : (uint8_t)(found >> 8);
        e.code_bits = found & 31;
        e.bits = (uint8_t)(e.code_bits + e.size);
    }
    int difference = peek_value(in, e.code_bits, e.size);
    take(in, e.bits);
    return difference;
}

/* One symbol that is not complete in the table, at position k, with 31 bits ready.  Returns
 * the position after it, with PEN__JPEG_EOB added where the block ends, or
 * something over 64 and below PEN__JPEG_EOB if it is not sound. */
ALWAYS_INLINE size_t read_long_ac(pen__jpeg_bits *in, const pen__jpeg_ac_table *table,
                                  const pen__jpeg_ac_entry *e, size_t k, int16_t *block)
{
    int symbol = e->first_value, n = e->first_bits;
    if (n == 0) {
        int found = long_symbol(&table->codes, (int)(in->bits >> 48));
        if (found < 0)
            return PEN__JPEG_EOB - 1;
        symbol = found >> 8;
        n = found & 31;
    }
    size_t run = (size_t)symbol >> 4;
    int size = symbol & 15, value = peek_value(in, n, size);
    take(in, n + size);
    if (size == 0) {
        if (symbol != 0 && run != 15)
            return PEN__JPEG_EOB - 1;
        return symbol == 0 ? k + PEN__JPEG_EOB : k + 16;
    }
    if (block)
        block[natural_or_dc[k + run]] = (int16_t)value;
    return k + run + 1;
}

/* The position after a block's last symbol to its number of coefficients; 0: unsound. */
ALWAYS_INLINE int count_coefs(size_t after)
{
    if (after == 64)
        return 64;
    return after > PEN__JPEG_EOB && after <= PEN__JPEG_EOB + 64 ? (int)after - PEN__JPEG_EOB : 0;
}

/* The block ends in a look-up.  Where its first symbol fills the last coefficient, the
 * second belongs to the next block. */
ALWAYS_INLINE int end_block(pen__jpeg_bits *in, const pen__jpeg_ac_entry *e, size_t k)
{
    bool has_two = e->bits != e->first_bits;
    if (UNLIKELY(has_two && k + e->first == 63)) {
        take(in, e->first_bits);
        return 64;
    }
    take(in, e->bits);
    return count_coefs(k + e->advance);
}

/* The block's AC coefficients.  Returns the number of coefficients up to which any
 * may differ from zero, counting the DC, or 0 if the data are not sound.  block[0] is
 * spoilt.  A NULL block keeps nothing. */
ALWAYS_INLINE int read_ac(pen__jpeg_bits *in, const pen__jpeg_ac_table *table, int16_t *block)
{
    for (size_t k = 1;;) {
        refill(in);
        /* 56 bits: two look-ups of 11, and one more or the longest symbol there is, of 31 */
        for (int i = 0; i < 3; i++) {
            const pen__jpeg_ac_entry *e = &table->entries[in->bits >> (64 - PEN__JPEG_AC_BITS)];
            int n_bits = e->bits;
            HIDE_ORIGIN(e);
            size_t after = k + e->advance;
            if (UNLIKELY(n_bits == 0)) {
                k = read_long_ac(in, table, e, k, block);
                if (k >= 64)
                    return count_coefs(k);
                break;
            }
            if (block) {
                block[natural_or_dc[k + e->first]] = e->first_value;
                block[natural_or_dc[k + e->second]] = e->second_value;
            }
            if (after >= 64)
                return end_block(in, e, k);
            take(in, n_bits);
            k = after;
        }
    }
}

/* Not by memset, which compilers turn into a string instruction that takes longer than the block
 * itself. */
ALWAYS_INLINE void clear_block(int16_t *block)
{
    typedef int16_t eight __attribute__((vector_size(16), aligned(2), may_alias));
    for (int i = 0; i < 64; i += 8)
        *(eight *)(block + i) = (eight){0};
}

/* With `keep` false the blocks are parsed only. */
ALWAYS_INLINE bool read_mcu(pen__jpeg_scan *scan, bool keep, int16_t *blocks, uint8_t *n_coefs)
{
    pen__jpeg_bits in = scan->in; /* a copy, so that it lives in registers */
    bool is_bad = false;
    for (int b = 0; b < scan->n_blocks; b++) {
        int c = scan->component_of[b];
        int16_t *block = keep ? blocks + 64 * b : NULL;
        if (keep)
            clear_block(block);
        refill(&in);
        int32_t dc = scan->dc[c] + read_dc(&in, scan->dc_tables[c], &is_bad);
        int n =
            keep ? read_ac(&in, scan->ac_tables[c], block) : read_ac(&in, scan->ac_tables[c], NULL);
        is_bad |= n == 0 || dc != (int16_t)dc;
        if (is_bad)
            return false;
        scan->dc[c] = dc;
        if (keep) {
            block[0] = (int16_t)dc;
            n_coefs[b] = (uint8_t)n;
        }
    }
    scan->in = in;
    return true;
}

/* --- MCUs --- */

static bool pass_restart_marker(pen__jpeg_scan *scan)
{
    while (!scan->is_at_marker)
        if (bits_left(scan) >= 8 + 64 || !fill_chunk(scan))
            return false;
    int64_t n_left = bits_left(scan);
    if (n_left < 0 || n_left >= 8 || scan->src[scan->at + 1] != 0xD0 + scan->next_restart)
        return false;
    scan->next_restart = (scan->next_restart + 1) & 7;
    scan->mcus_to_restart = scan->restart_interval;
    memset(scan->dc, 0, sizeof scan->dc);
    return begin_chunk(scan, scan->at + 2);
}

/* What comes before each MCU. */
ALWAYS_INLINE bool prepare(pen__jpeg_scan *scan)
{
    if (scan->restart_interval) {
        if (scan->mcus_to_restart == 0 && !pass_restart_marker(scan))
            return false;
        scan->mcus_to_restart--;
    }
    return scan->in.next <= scan->safe || fill_chunk(scan);
}

ALWAYS_INLINE bool skip_mcus(pen__jpeg_scan *scan, int32_t n_mcus)
{
    for (int32_t i = 0; i < n_mcus; i++)
        if (!prepare(scan) || !read_mcu(scan, false, NULL, NULL))
            return false;
    return true;
}

#if defined(__x86_64__)
/* The same with shifts that do not go through the flags. */
#define BMI2 __attribute__((target("bmi2")))
BMI2 static bool scan_mcu_bmi2(pen__jpeg_scan *scan, int16_t *blocks, uint8_t *n_coefs)
{
    return prepare(scan) && read_mcu(scan, true, blocks, n_coefs);
}

BMI2 static bool scan_skip_bmi2(pen__jpeg_scan *scan, int32_t n_mcus)
{
    return skip_mcus(scan, n_mcus);
}
#endif

bool pen__jpeg_scan_mcu(pen__jpeg_scan *scan, int16_t *blocks, uint8_t *n_coefs)
{
#if defined(__x86_64__)
    if (scan->has_bmi2)
        return scan_mcu_bmi2(scan, blocks, n_coefs);
#endif
    return prepare(scan) && read_mcu(scan, true, blocks, n_coefs);
}

bool pen__jpeg_scan_skip(pen__jpeg_scan *scan, int32_t n_mcus)
{
#if defined(__x86_64__)
    if (scan->has_bmi2)
        return scan_skip_bmi2(scan, n_mcus);
#endif
    return skip_mcus(scan, n_mcus);
}

bool pen__jpeg_scan_is_sound(const pen__jpeg_scan *scan)
{
    return bits_left(scan) >= 0;
}

bool pen__jpeg_scan_is_at_end(pen__jpeg_scan *scan)
{
    enum { M_EOI = 0xD9 };
    while (!scan->is_at_marker)
        if (bits_left(scan) >= 8 + 64 || !fill_chunk(scan))
            return false;
    int64_t n_left = bits_left(scan);
    return n_left >= 0 && n_left < 8 && scan->src[scan->at + 1] == M_EOI;
}

bool pen__jpeg_scan_start(pen__jpeg_scan *scan, const pen__jpeg_frame *frame,
                          pen__jpeg_tables *tables, const uint8_t *src, size_t len, uint8_t *chunk,
                          const pen__jpeg_mark *mark)
{
    pen__jpeg_mark first = {.at = frame->scan_at, .mcus_to_restart = frame->restart_interval};
    if (!mark)
        mark = &first;
    *scan = (pen__jpeg_scan){.src = src,
                             .len = len,
                             .chunk = chunk,
                             .restart_interval = frame->restart_interval,
                             .mcus_to_restart = mark->mcus_to_restart,
                             .next_restart = mark->next_restart,
                             .has_bmi2 = (pen__cpu_flags() & PEN__CPU_AVX2) != 0};
    memcpy(scan->dc, mark->dc, sizeof scan->dc);
    for (int c = 0; c < frame->n_components; c++) {
        int n = c == 0 ? frame->mcu_h * frame->mcu_v : 1;
        while (n-- > 0)
            scan->component_of[scan->n_blocks++] = (uint8_t)c;
        scan->dc_tables[c] = pen__jpeg_dc_table_for(tables, frame->components[c].dc);
        scan->ac_tables[c] = pen__jpeg_ac_table_for(tables, frame->components[c].ac);
        if (!scan->dc_tables[c] || !scan->ac_tables[c])
            return false;
    }
    if (!begin_chunk(scan, mark->at))
        return false;
    refill(&scan->in);
    take(&scan->in, mark->n_bits);
    return true;
}
