/* pixels.h - test images with guard bytes around them. */
#ifndef PEN_TESTS_PIXELS_H
#define PEN_TESTS_PIXELS_H

#include "testing.h"

#include "base/cpu.h"
#include "base/mem.h"

/* A block of n bytes that starts `offset` bytes past an aligned address, with
 * guards before and behind.  Its end is the end of the allocation but for the
 * guard, which sanitizer builds leave out: there a read past the end is caught. */
typedef struct block {
    uint8_t *memory, *at;
    size_t n, offset;
} block;

#if defined(__SANITIZE_ADDRESS__)
enum { GUARD = 64, GUARD_BEHIND = 0 };
#else
enum { GUARD = 64, GUARD_BEHIND = 64 };
#endif

static inline block block_new(size_t n, size_t offset)
{
    block b = {.n = n, .offset = offset};
    b.memory = pen__aligned(64, GUARD + offset + n + GUARD_BEHIND);
    assert_non_null(b.memory);
    memset(b.memory, 0xA5, GUARD + offset + n + GUARD_BEHIND);
    b.at = b.memory + GUARD + offset;
    return b;
}

/* Check the guards and free. */
static inline void block_free(block b)
{
    for (size_t i = 0; i < GUARD + b.offset; i++)
        assert_int_equal(b.memory[i], 0xA5);
    for (int i = 0; i < GUARD_BEHIND; i++)
        assert_int_equal(b.at[b.n + (size_t)i], 0xA5);
    pen__free(b.memory);
}

/* Repeatable noise; a third of the values are 0 or 255, where clipping happens. */
static inline void fill_noise(uint8_t *px, size_t n, uint32_t seed)
{
    uint32_t r = seed * 2654435761U + 1;
    for (size_t i = 0; i < n; i++) {
        r = r * 1664525 + 1013904223;
        uint8_t v = (uint8_t)(r >> 24);
        px[i] = r >> 22 & 3 ? v : v & 1 ? 255 : 0;
    }
}

static inline block noise_block(size_t n, size_t offset, uint32_t seed)
{
    block b = block_new(n, offset);
    fill_noise(b.at, n, seed);
    return b;
}

static inline void scalar_only(void)
{
    pen__cpu_mask(0);
}

static inline void all_features(void)
{
    pen__cpu_mask(~0U);
}

/* Masks for every SIMD level; the processor may lack some, and does the next lower then. */
static const unsigned levels[] = {PEN__CPU_AVX2, ~0U};
enum { N_LEVELS = sizeof levels / sizeof levels[0] };

#endif
