/* warp_kernels.h - sampling an image at given points, for warp.c, scalar and SIMD twins.
 *
 * All twins give the same bytes.
 */
#ifndef PEN_OPS_WARP_KERNELS_H
#define PEN_OPS_WARP_KERNELS_H

#include "ops/image.h"

/* Sample `src` at n points into n pixels of `out`.  A pixel whose point is not in
 * [0, w) x [0, h) is left as it is. */
typedef void pen__warp_sample(const pen__image *src, const double *x, const double *y, int n,
                              uint8_t *out);

typedef struct pen__warp_kernels {
    pen__warp_sample *bilinear, *bicubic;
} pen__warp_kernels;

extern const pen__warp_kernels pen__warp_kernels_c;
#if defined(__x86_64__)
extern const pen__warp_kernels pen__warp_kernels_avx2;
#endif

/* Written so that NaN is outside. */
static inline int pen__warp_inside(const pen__image *im, double x, double y)
{
    return x >= 0.0 && x < im->w && y >= 0.0 && y < im->h;
}

/* For x > -2^31. */
static inline int32_t pen__warp_floor(double x)
{
    int32_t whole = (int32_t)x;
    return whole - (x < whole);
}

#endif
