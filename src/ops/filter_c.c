/* filter_c.c - filters in plain C: the reference for the SIMD twins. */
#include "ops/filter_kernels.h"

#include <math.h>

#include "base/fmath.h"
#include "ops/color_kernels.h"

/* Pillow's SMOOTH: the value five times, its neighbours once, by 13, rounded.  Pillow sums
 * floats; a sum of bytes by 13 is never nearer than 1/26 to a half, so integers
 * round the same way. */
static int smooth(const uint8_t *const rows[3], ptrdiff_t at, int ch)
{
    int sum = 4 * rows[1][at];
    for (int r = 0; r < 3; r++)
        sum += rows[r][at - ch] + rows[r][at] + rows[r][at + ch];
    return (sum + 6) / 13;
}

static void sharpen_row_c(const uint8_t *const rows[3], size_t n_bytes, int ch, float factor,
                          uint8_t *out)
{
    for (size_t i = 0; i < n_bytes; i++)
        out[i] = pen__blend(smooth(rows, (ptrdiff_t)i, ch), rows[1][i], factor);
}

/* fmaf, like a square root, is defined to the bit: any libm, or one instruction. */
static float sum_window(const pen__blur_window *window, size_t at)
{
    const float *weight = window->weights;
    float sum = 0.0F;
    for (int32_t j = 0; j < window->h; j++) {
        const float *value = window->rows[j] + at;
        for (int32_t k = 0; k < window->w; k++, value += window->ch)
            sum = fmaf(*value, *weight++, sum);
    }
    return sum;
}

static void blur_row_c(const pen__blur_window *window, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        /* of a large kernel, the roundings can add up to more than white */
        float sum = sum_window(window, i);
        out[i] = (uint8_t)(sum >= 255.0F ? 255.0 : pen__round_even((double)sum));
    }
}

const pen__filter_kernels pen__filter_kernels_c = {
    .sharpen_row = sharpen_row_c,
    .blur_row = blur_row_c,
};
