/* pixel_shapes.c - the shapes, and tables made of them.
 *
 * Shares were found on 215 crops of photographs (RandomResizedCrop to 224x224 of ImageNet and of
 * other photographs): histograms of residuals by image, plane and context in 24 groups, each moved
 * to the group in which it takes fewest bits, until none moved.  On crops of other files than
 * those, choosing among them takes 1.2 % more bits than knowing each histogram.  The last
 * one is level, for noise.
 */
#include "codec/pixel_shapes.h"

#include <pthread.h>
#include <stddef.h>

/* Sizes of residuals, from 0 on, that each shape has shares for. */
static const uint8_t n_sizes_of[PEN__PIXELS_SHAPES] = {
    3, 4, 4, 5, 5, 6, 7, 7, 9, 9, 12, 11, 14, 14, 17, 18, 21, 24, 28, 36, 48, 67, 101, 128};

/* Their shares of 4096, one shape after the other; what is left is the escape's. */
static const uint16_t shares_of_sizes[] = {
    4017, 36,  3,

    3857, 110, 8,   1,

    3513, 267, 20,  3,

    2824, 587, 43,  4,   1,

    2385, 777, 70,  6,   1,

    2112, 856, 119, 13,  2,   1,

    1853, 909, 178, 25,  5,   2,   1,

    1596, 950, 247, 42,  7,   2,   1,

    1494, 921, 286, 66,  17,  5,   2,   1,   1,

    1292, 904, 359, 99,  26,  8,   3,   1,   1,

    1187, 856, 382, 133, 46,  18,  8,   4,   2,   1,   1,  1,

    995,  806, 450, 184, 66,  25,  10,  4,   2,   1,   1,

    901,  744, 452, 217, 96,  43,  20,  10,  5,   3,   2,  1,  1,  1,

    753,  665, 474, 272, 135, 64,  30,  14,  7,   4,   2,  1,  1,  1,

    655,  589, 451, 295, 173, 94,  50,  28,  15,  9,   5,  3,  2,  1,  1,  1,  1,

    550,  512, 425, 312, 207, 128, 75,  45,  25,  15,  9,  6,  4,  2,  2,  1,  1,  1,

    458,  434, 382, 311, 231, 160, 107, 68,  44,  27,  18, 11, 7,  5,  3,  2,  2,  1,  1,  1,  1,

    373,  358, 329, 288, 238, 184, 137, 98,  69,  48,  33, 22, 15, 11, 8,  5,  4,  3,  2,  2,  1,
    1,    1,   1,

    298,  288, 270, 248, 223, 192, 157, 127, 97,  74,  56, 42, 31, 23, 17, 13, 9,  7,  5,  4,  3,
    2,    2,   1,   1,   1,   1,   1,

    231,  226, 215, 201, 188, 171, 154, 136, 117, 98,  81, 66, 54, 44, 35, 28, 23, 18, 14, 12, 9,
    7,    6,   5,   4,   3,   2,   2,   2,   1,   1,   1,  1,  1,  1,  1,

    166,  164, 156, 149, 142, 135, 128, 121, 111, 104, 95, 85, 76, 67, 59, 51, 45, 39, 34, 29, 25,
    21,   18,  15,  13,  11,  9,   8,   7,   6,   5,   5,  4,  3,  3,  2,  2,  2,  2,  1,  1,  1,
    1,    1,   1,   1,   1,   1,

    104,  101, 99,  97,  94,  91,  88,  86,  83,  80,  78, 75, 72, 69, 66, 62, 59, 56, 53, 49, 46,
    43,   39,  36,  34,  31,  28,  26,  24,  22,  20,  18, 16, 15, 13, 12, 11, 10, 9,  8,  7,  6,
    6,    5,   5,   4,   4,   4,   3,   3,   3,   2,   2,  2,  2,  2,  1,  1,  1,  1,  1,  1,  1,
    1,    1,   1,   1,

    72,   68,  68,  65,  62,  58,  58,  56,  53,  52,  49, 49, 46, 46, 45, 42, 42, 41, 39, 38, 38,
    37,   36,  35,  34,  32,  31,  30,  30,  28,  28,  27, 25, 25, 24, 22, 21, 21, 20, 19, 18, 17,
    17,   16,  15,  14,  14,  13,  14,  12,  12,  12,  12, 12, 12, 11, 12, 12, 12, 12, 13, 13, 15,
    16,   15,  12,  11,  9,   8,   7,   7,   6,   6,   5,  5,  4,  4,  4,  3,  3,  3,  3,  2,  2,
    2,    2,   2,   2,   1,   1,   1,   1,   1,   1,   1,  1,  1,  1,  1,  1,  1,

    16,   16,  16,  16,  16,  16,  16,  16,  16,  16,  16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16,
    16,   16,  16,  16,  16,  16,  16,  16,  16,  16,  16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16,
    16,   16,  16,  16,  16,  16,  16,  16,  16,  16,  16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16,
    16,   16,  16,  16,  16,  16,  16,  16,  16,  16,  16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16,
    16,   16,  16,  16,  16,  16,  16,  16,  16,  16,  16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16,
    16,   16,  16,  16,  16,  16,  16,  16,  16,  16,  16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16,
    16,   16,
};

static pen__pixel_shapes shapes;

/* -log2(share / 4096) in parts of a bit, by squaring: the same on every machine. */
static uint32_t cost_of(uint32_t share)
{
    uint32_t n_whole = 31 - (uint32_t)__builtin_clz(share);
    uint64_t x = ((uint64_t)share << 32) >> n_whole; /* 1 to 2 in 32 bits of fraction */
    uint32_t fraction = 0;
    for (uint32_t bit = PEN__PIXELS_COST_ONE / 2; bit > 0; bit /= 2) {
        x = (x >> 1) * (x >> 1) >> 30;
        if (x >> 33) {
            x >>= 1;
            fraction += bit;
        }
    }
    return PEN__RANS_BITS * PEN__PIXELS_COST_ONE - n_whole * PEN__PIXELS_COST_ONE - fraction;
}

/* For states below 2^31 the product with the rounded-up inverse gives the exact quotient. */
static pen__rans_symbol symbol_of(uint32_t first, uint32_t share)
{
    pen__rans_symbol s = {.most = share << (31 - PEN__RANS_BITS),
                          .inverse = UINT32_MAX,
                          .bias = first + PEN__RANS_TOTAL - 1,
                          .rest = (uint16_t)(PEN__RANS_TOTAL - share)};
    if (share == 1)
        return s; /* state * inverse >> 32 is state - 1, made up for by the bias */
    uint32_t shift = 0;
    while (share > 1U << shift)
        shift++;
    s.inverse = (uint32_t)((((uint64_t)1 << (shift + 31)) + share - 1) / share);
    s.shift = (uint8_t)(shift - 1);
    s.bias = first;
    return s;
}

pen__rans_symbol pen__rans_plain_symbol(uint8_t residual)
{
    enum { SHARE = PEN__RANS_TOTAL / 256 };
    return symbol_of((uint32_t)residual * SHARE, SHARE);
}

/* Slots [first, first + share) of a shape are this residual's, or the escape's. */
static void add_symbol(int shape, int residual, uint32_t first, uint32_t share)
{
    for (uint32_t i = 0; i < share; i++)
        shapes.slots[shape][first + i] = pen__rans_entry(residual, share, i);
}

static void add_direct(int shape, int residual, uint32_t first, uint32_t share)
{
    pen__rans_symbol *symbol = &shapes.symbols[shape][(uint8_t)residual];
    add_symbol(shape, residual, first, share);
    *symbol = symbol_of(first, share);
    symbol->is_direct = true;
}

static void build_shape(int shape, const uint16_t *shares, int n_sizes)
{
    uint32_t first = 0;
    for (int size = 0; size < n_sizes; size++) {
        add_direct(shape, size, first, shares[size]);
        shapes.costs[shape][size] = cost_of(shares[size]);
        first += shares[size];
        if (size == 0)
            continue;
        add_direct(shape, -size, first, shares[size]);
        first += shares[size];
    }
    uint32_t rest = PEN__RANS_TOTAL - first;
    add_symbol(shape, PEN__PIXELS_ESCAPE, first, rest);
    for (int size = n_sizes; size < PEN__PIXELS_SIZES; size++) {
        shapes.symbols[shape][size] = symbol_of(first, rest);
        shapes.symbols[shape][256 - size] = symbol_of(first, rest);
        shapes.costs[shape][size] = cost_of(rest) + 8 * PEN__PIXELS_COST_ONE;
    }
}

static void build(void)
{
    const uint16_t *at = shares_of_sizes;
    for (int shape = 0; shape < PEN__PIXELS_SHAPES; shape++) {
        build_shape(shape, at, n_sizes_of[shape]);
        at += n_sizes_of[shape];
    }
}

const pen__pixel_shapes *pen__pixel_shapes_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build);
    return &shapes;
}
