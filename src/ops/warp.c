/* warp.c - Image.transform: where each output pixel comes from, and what is there.
 *
 * Pillow has three ways to walk, and they differ in the last bit, so they are all here:
 *
 *   nearest, affine    steps of 16.16 fixed point along a row and from row to row
 *   the same, where a step is along one axis only or the points leave 16 bits:
 *                      steps in double, which add their rounding errors up
 *   everything else    each point computed from its own x and y, a few at a time,
 *                      then handed to a kernel
 *
 * Rows are filled first; what lies outside of the input stays as it is.
 */
#include "ops/warp.h"

#include <string.h>

#include "base/cpu.h"
#include "ops/warp_kernels.h"

enum { CHUNK = 64 }; /* points computed at a time */

static const pen__warp_kernels *pick_kernels(void)
{
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX2)
        return &pen__warp_kernels_avx2;
#endif
    return &pen__warp_kernels_c;
}

static uint8_t *row_of(const pen__image *im, int32_t y)
{
    return im->px + (size_t)y * (size_t)im->w * (size_t)im->ch;
}

static void fill_image(const pen__image *im, const uint8_t fill[3])
{
    size_t row_bytes = (size_t)im->w * (size_t)im->ch;
    if (im->h == 0)
        return;
    for (size_t i = 0; i < row_bytes; i++)
        im->px[i] = fill[i % (size_t)im->ch];
    for (int32_t y = 1; y < im->h; y++)
        memcpy(row_of(im, y), im->px, row_bytes);
}

static void copy_pixel(const pen__image *src, int32_t x, int32_t y, uint8_t *out)
{
    const uint8_t *in = row_of(src, y) + (size_t)x * (size_t)src->ch;
    out[0] = in[0];
    if (src->ch == 3) {
        out[1] = in[1];
        out[2] = in[2];
    }
}

/* ---- nearest, affine --------------------------------------------------------------- */

static double magnitude(double v)
{
    return v < 0.0 ? -v : v;
}

static bool fits_fixed(const double *m, double x, double y)
{
    return magnitude(x * m[0] + y * m[1] + m[2]) < 32768.0 &&
           magnitude(x * m[3] + y * m[4] + m[5]) < 32768.0;
}

static bool can_step_fixed(const double *m, const pen__image *dst)
{
    return (m[1] != 0.0 || m[3] != 0.0) && fits_fixed(m, 0, 0) && fits_fixed(m, dst->w, dst->h) &&
           fits_fixed(m, 0, dst->h) && fits_fixed(m, dst->w, 0);
}

/* Nearest 16.16, half up.  A step that does not fit is taken only once, on a
 * single row or column: its value does not matter, only that it is defined. */
static uint32_t to_fixed(double v)
{
    double scaled = v * 65536.0 + 0.5;
    if (!(magnitude(scaled) < 0x1p31))
        return 0;
    return (uint32_t)pen__warp_floor(scaled);
}

/* Unsigned, because the step past a row's end may wrap. */
static void step_fixed(const pen__image *src, const double *m, pen__image *dst)
{
    uint32_t dx_x = to_fixed(m[0]), dx_y = to_fixed(m[1]);
    uint32_t dy_x = to_fixed(m[3]), dy_y = to_fixed(m[4]);
    uint32_t row_x = to_fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
    uint32_t row_y = to_fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
    for (int32_t y = 0; y < dst->h; y++, row_x += dx_y, row_y += dy_y) {
        uint32_t at_x = row_x, at_y = row_y;
        uint8_t *out = row_of(dst, y);
        for (int32_t x = 0; x < dst->w; x++, out += dst->ch, at_x += dx_x, at_y += dy_x) {
            int32_t in_x = (int32_t)at_x >> 16, in_y = (int32_t)at_y >> 16;
            if (in_x >= 0 && in_x < src->w && in_y >= 0 && in_y < src->h)
                copy_pixel(src, in_x, in_y, out);
        }
    }
}

static void step_double(const pen__image *src, const double *m, pen__image *dst)
{
    double row_x = m[2] + m[1] * 0.5 + m[0] * 0.5;
    double row_y = m[5] + m[4] * 0.5 + m[3] * 0.5;
    for (int32_t y = 0; y < dst->h; y++, row_x += m[1], row_y += m[4]) {
        double at_x = row_x, at_y = row_y;
        uint8_t *out = row_of(dst, y);
        for (int32_t x = 0; x < dst->w; x++, out += dst->ch, at_x += m[0], at_y += m[3])
            if (pen__warp_inside(src, at_x, at_y))
                copy_pixel(src, (int32_t)at_x, (int32_t)at_y, out);
    }
}

/* ---- point by point ------------------------------------------------------------------ */

static void find_points(const pen__warp_spec *spec, int32_t first, int32_t row, int n, double *x,
                        double *y)
{
    const double *m = spec->m;
    double out_y = row + 0.5;
    if (spec->kind == PEN__WARP_AFFINE) {
        for (int i = 0; i < n; i++) {
            double out_x = first + i + 0.5;
            x[i] = m[0] * out_x + m[1] * out_y + m[2];
            y[i] = m[3] * out_x + m[4] * out_y + m[5];
        }
    } else {
        for (int i = 0; i < n; i++) {
            double out_x = first + i + 0.5, depth = m[6] * out_x + m[7] * out_y + 1;
            x[i] = (m[0] * out_x + m[1] * out_y + m[2]) / depth;
            y[i] = (m[3] * out_x + m[4] * out_y + m[5]) / depth;
        }
    }
}

static void nearest(const pen__image *src, const double *x, const double *y, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++, out += src->ch)
        if (pen__warp_inside(src, x[i], y[i]))
            copy_pixel(src, (int32_t)x[i], (int32_t)y[i], out);
}

static void sample_points(const pen__image *src, const pen__warp_spec *spec, pen__image *dst)
{
    pen__warp_sample *sample = spec->filter == PEN_FILTER_BILINEAR  ? pick_kernels()->bilinear
                               : spec->filter == PEN_FILTER_BICUBIC ? pick_kernels()->bicubic
                                                                    : nearest;
    double x[CHUNK], y[CHUNK];
    for (int32_t row = 0; row < dst->h; row++)
        for (int32_t first = 0; first < dst->w; first += CHUNK) {
            int n = dst->w - first < CHUNK ? dst->w - first : CHUNK;
            find_points(spec, first, row, n, x, y);
            sample(src, x, y, n, row_of(dst, row) + (size_t)first * (size_t)dst->ch);
        }
}

void pen__warp(const pen__image *src, const pen__warp_spec *spec, pen__image *dst)
{
    dst->w = spec->out_w;
    dst->h = spec->out_h;
    dst->ch = src->ch;
    fill_image(dst, spec->fill);
    if (spec->kind != PEN__WARP_AFFINE || spec->filter != PEN_FILTER_NEAREST)
        sample_points(src, spec, dst);
    else if (can_step_fixed(spec->m, dst))
        step_fixed(src, spec->m, dst);
    else
        step_double(src, spec->m, dst);
}
