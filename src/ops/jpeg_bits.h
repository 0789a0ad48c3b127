/* jpeg_bits.h - the innermost part of entropy decoding: bits, symbols, blocks.
 *
 * Private to jpeg_scan.c (one row of MCUs at a time) and jpeg_pair.c (two).  All of it is
 * inlined, so that a stream's state lives in registers.
 *
 * What decides the speed is the chain from one look-up to the next: shift, load,
 * shift.  Hence two symbols a look-up, stores that happen whether needed or not, and
 * one refill for three look-ups.
 *
 * Nothing here checks for the end of data: the chunk has zeros behind it (jpeg_scan.c).
 */
#ifndef PEN_OPS_JPEG_BITS_H
#define PEN_OPS_JPEG_BITS_H

#include <string.h>

#include "ops/jpeg_scan.h"

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

/* In zigzag order, what runs on goes into the room behind the block. */
ALWAYS_INLINE size_t place_of(size_t k, bool is_zigzag)
{
    return is_zigzag ? k : natural_or_dc[k];
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

static __attribute__((noinline, unused)) int long_symbol(const pen__jpeg_long_codes *codes,
                                                         int peek)
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
                                  const pen__jpeg_ac_entry *e, size_t k, int16_t *block,
                                  bool is_zigzag)
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
        block[place_of(k + run, is_zigzag)] = (int16_t)value;
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
ALWAYS_INLINE int read_ac(pen__jpeg_bits *in, const pen__jpeg_ac_table *table, int16_t *block,
                          bool is_zigzag)
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
                k = read_long_ac(in, table, e, k, block, is_zigzag);
                if (k >= 64)
                    return count_coefs(k);
                break;
            }
            if (block) {
                block[place_of(k + e->first, is_zigzag)] = e->first_value;
                block[place_of(k + e->second, is_zigzag)] = e->second_value;
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

#endif
