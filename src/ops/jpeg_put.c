/* jpeg_put.c - bits to bytes with stuffing. */
#include "ops/jpeg_put.h"

#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE uint64_t big_endian(uint64_t word)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static void put_byte(pen__jpeg_put *put, uint8_t byte)
{
    int n = byte == 0xFF ? 2 : 1;
    if (put->end - put->at < n) {
        put->is_full = true;
        return;
    }
    *put->at++ = byte;
    if (n == 2)
        *put->at++ = 0;
}

static __attribute__((noinline)) void put_bytes(pen__jpeg_put *put, uint64_t word, int n)
{
    for (int i = 0; i < n; i++)
        put_byte(put, (uint8_t)(word >> (56 - 8 * i)));
}

/* Most words have no 0xFF: then all eight bytes are stored at once. */
ALWAYS_INLINE void put_word(pen__jpeg_put *put, uint64_t word)
{
    const uint64_t sevens = 0x7F7F7F7F7F7F7F7FU, ones = 0x0101010101010101U;
    bool has_ff = (((word & sevens) + ones) & word & ~sevens) != 0;
    if (__builtin_expect(has_ff || put->end - put->at < 8, 0)) {
        put_bytes(put, word, 8);
        return;
    }
    word = big_endian(word);
    memcpy(put->at, &word, sizeof word);
    put->at += 8;
}

/* The top n bits of `bits`, 1 to 64; the others are zero. */
ALWAYS_INLINE void put_top(pen__jpeg_put *put, uint64_t bits, int n)
{
    uint64_t word = put->word | bits >> put->n_bits;
    int n_all = put->n_bits + n;
    if (n_all < 64) {
        put->word = word;
        put->n_bits = n_all;
        return;
    }
    put_word(put, word);
    put->word = put->n_bits > 0 ? bits << (64 - put->n_bits) : 0;
    put->n_bits = n_all - 64;
}

void pen__jpeg_put_bits(pen__jpeg_put *put, uint32_t bits, int n)
{
    if (n > 0)
        put_top(put, (uint64_t)bits << (64 - n), n);
}

/* 64 bits from any bit on. */
ALWAYS_INLINE uint64_t load_bits(const uint8_t *src, int64_t from)
{
    uint64_t word;
    const uint8_t *at = src + (from >> 3);
    int n = (int)(from & 7);
    memcpy(&word, at, sizeof word);
    return big_endian(word) << n | (uint64_t)at[8] >> (8 - n);
}

void pen__jpeg_put_copy(pen__jpeg_put *put, const uint8_t *src, int64_t from, int64_t to)
{
    pen__jpeg_put p = *put; /* a copy, so that it lives in registers */
    for (; to - from >= 64; from += 64)
        put_top(&p, load_bits(src, from), 64);
    int n = (int)(to - from);
    if (n > 0)
        put_top(&p, load_bits(src, from) & ~(UINT64_MAX >> n), n);
    *put = p;
}

void pen__jpeg_put_end(pen__jpeg_put *put)
{
    int n_fill = -put->n_bits & 7;
    pen__jpeg_put_bits(put, (1U << n_fill) - 1, n_fill);
    put_bytes(put, put->word, put->n_bits / 8);
    put->word = 0;
    put->n_bits = 0;
}
