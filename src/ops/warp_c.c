/* warp_c.c - bilinear and bicubic sampling in plain C: the reference for the SIMD twins.
 *
 * Pillow's formulas in Pillow's order, all in double: along the rows, then
 * across them, truncated at the end.  Taps that leave the image take its edge.
 */
#include "ops/warp_kernels.h"

static int32_t clip(int32_t at, int32_t size)
{
    return at < 0 ? 0 : at < size ? at : size - 1;
}

static const uint8_t *row_at(const pen__image *im, int32_t y)
{
    return im->px + (size_t)clip(y, im->h) * (size_t)im->w * (size_t)im->ch;
}

static void bilinear_c(const pen__image *src, const double *x, const double *y, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++, out += src->ch) {
        if (!pen__warp_inside(src, x[i], y[i]))
            continue;
        int32_t left = pen__warp_floor(x[i] - 0.5), top = pen__warp_floor(y[i] - 0.5);
        double dx = x[i] - 0.5 - left, dy = y[i] - 0.5 - top;
        const uint8_t *upper = row_at(src, top), *lower = row_at(src, top + 1);
        int32_t a = clip(left, src->w) * src->ch, b = clip(left + 1, src->w) * src->ch;
        for (int c = 0; c < src->ch; c++) {
            double above = upper[a + c] + (upper[b + c] - upper[a + c]) * dx;
            double below = lower[a + c] + (lower[b + c] - lower[a + c]) * dx;
            out[c] = (uint8_t)(above + (below - above) * dy);
        }
    }
}

/* The cubic through v[1] and v[2] with a = -1, at v[1] + d. */
static double cubic(const double v[4], double d)
{
    double p2 = -v[0] + v[2];
    double p3 = 2 * (v[0] - v[1]) + v[2] - v[3];
    double p4 = -v[0] + v[1] - v[2] + v[3];
    return v[1] + d * (p2 + d * (p3 + d * p4));
}

static void bicubic_c(const pen__image *src, const double *x, const double *y, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++, out += src->ch) {
        if (!pen__warp_inside(src, x[i], y[i]))
            continue;
        int32_t left = pen__warp_floor(x[i] - 0.5), top = pen__warp_floor(y[i] - 0.5);
        double dx = x[i] - 0.5 - left, dy = y[i] - 0.5 - top;
        for (int c = 0; c < src->ch; c++) {
            double rows[4];
            for (int j = 0; j < 4; j++) {
                const uint8_t *row = row_at(src, top - 1 + j) + c;
                double taps[4];
                for (int k = 0; k < 4; k++)
                    taps[k] = row[clip(left - 1 + k, src->w) * src->ch];
                rows[j] = cubic(taps, dx);
            }
            double v = cubic(rows, dy);
            out[c] = (uint8_t)(v <= 0.0 ? 0.0 : v >= 255.0 ? 255.0 : v);
        }
    }
}

const pen__warp_kernels pen__warp_kernels_c = {.bilinear = bilinear_c, .bicubic = bicubic_c};
