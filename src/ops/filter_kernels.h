/* filter_kernels.h - loops over rows for filter.c, scalar and SIMD twins.
 *
 * All twins give the same bytes.
 */
#ifndef PEN_OPS_FILTER_KERNELS_H
#define PEN_OPS_FILTER_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Value i of a row is at rows[j][i + k * ch] for column k of the window's row j. */
typedef struct pen__blur_window {
    const float *const *rows; // (h), each n + (w - 1) * ch values
    const float *weights;     // (h, w)
    int32_t w, h, ch;
} pen__blur_window;

typedef struct pen__filter_kernels {
    /* Blend each of n_bytes values of a row with what smoothing over its eight neighbours
     * makes of it.  `ch` bytes before and after each of the three rows can be read. */
    void (*sharpen_row)(const uint8_t *const rows[3], size_t n_bytes, int ch, float factor,
                        uint8_t *out);
    /* Sum up n weighted windows and round, halves to even.  Values and weights are taken row by
     * row, each product added with one rounding: the order is part of the result. */
    void (*blur_row)(const pen__blur_window *window, size_t n, uint8_t *out);
} pen__filter_kernels;

extern const pen__filter_kernels pen__filter_kernels_c;
#if defined(__x86_64__)
extern const pen__filter_kernels pen__filter_kernels_avx2;
#endif

#endif
