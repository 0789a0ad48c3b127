/* jpeg_kernels.h - the arithmetic of JPEG decoding, scalar and SIMD twins.
 *
 * All twins give the same bytes, and the same as libjpeg-turbo's accurate integer
 * IDCT, "fancy" upsampling and YCbCr conversion.  For coefficients that no encoder
 * writes, libjpeg-turbo's C and x86 SIMD code differ; these kernels follow the
 * SIMD code: products with the quantiser and sums of inputs wrap around in 16 bits, the
 * first pass's results and the samples saturate.
 */
#ifndef PEN_OPS_JPEG_KERNELS_H
#define PEN_OPS_JPEG_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows that kernels read from or write to, except for the final pixels, have this
 * many bytes of room behind them; what lies there does not matter. */
enum { PEN__JPEG_ROW_SLACK = 64 };

/* Blocks with at most so many coefficients are transformed in less time, if those
 * next to each other among the jobs are all of that kind. */
enum { PEN__JPEG_N_LOW = 10 };

typedef struct pen__jpeg_idct_job {
    const int16_t *coefs;  // (8, 8), or 64 in zigzag order
    const uint16_t *quant; // (8, 8)
    uint8_t *dst;          // 8 rows of 8 samples
    ptrdiff_t stride;
    int n_coefs; /* in zigzag order, up to which any may differ from zero */
} pen__jpeg_idct_job;

/* A row of chroma samples and the nearest row on the other side of the pixels. */
typedef struct pen__jpeg_chroma {
    const uint8_t *near, *far;
} pen__jpeg_chroma;

typedef struct pen__jpeg_kernels {
    /* Dequantise and transform n_jobs blocks.  False if values are so large that libjpeg
     * may take a short cut that rounds differently: then the samples do not count. */
    bool (*idct)(const pen__jpeg_idct_job *jobs, int n_jobs);
    /* Twice as many samples from n in a row and its nearest neighbour row; each
     * sample also looks at the one to its left or right, from near[-1] to near[n]. */
    void (*upsample_h2v2)(const uint8_t *near, const uint8_t *far, uint8_t *dst, int32_t n);
    /* The same within one row. */
    void (*upsample_h2v1)(const uint8_t *src, uint8_t *dst, int32_t n);
    /* The same across rows only; `bias` is 1 for the upper of the two new rows, else 2. */
    void (*upsample_h1v2)(const uint8_t *near, const uint8_t *far, uint8_t *dst, int32_t n,
                          int bias);
    /* n pixels; not a byte of `rgb` behind them is touched. */
    void (*ycc_to_rgb)(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb,
                       int32_t n);
    /* upsample_h2v2 and ycc_to_rgb in one go; NULL where it is not faster.  The first pixel stands
     * over the first chroma sample's left half, or over its right half if n_left_out is 1. */
    void (*h2v2_to_rgb)(const uint8_t *y, pen__jpeg_chroma cb, pen__jpeg_chroma cr, uint8_t *rgb,
                        int32_t n, int32_t n_left_out);
    bool is_zigzag; /* the order of coefficients that idct takes; quantisers have the natural one */
} pen__jpeg_kernels;

/* The pieces of the tables below. */
bool pen__jpeg_idct_c(const pen__jpeg_idct_job *jobs, int n_jobs);
void pen__jpeg_upsample_h2v2_c(const uint8_t *near, const uint8_t *far, uint8_t *dst, int32_t n);
void pen__jpeg_upsample_h2v1_c(const uint8_t *src, uint8_t *dst, int32_t n);
void pen__jpeg_upsample_h1v2_c(const uint8_t *near, const uint8_t *far, uint8_t *dst, int32_t n,
                               int bias);
void pen__jpeg_ycc_to_rgb_c(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb,
                            int32_t n);
#if defined(__x86_64__)
bool pen__jpeg_idct_avx2(const pen__jpeg_idct_job *jobs, int n_jobs);
bool pen__jpeg_idct_avx512(const pen__jpeg_idct_job *jobs, int n_jobs);
void pen__jpeg_upsample_h2v2_avx2(const uint8_t *near, const uint8_t *far, uint8_t *dst, int32_t n);
void pen__jpeg_upsample_h2v1_avx2(const uint8_t *src, uint8_t *dst, int32_t n);
void pen__jpeg_upsample_h1v2_avx2(const uint8_t *near, const uint8_t *far, uint8_t *dst, int32_t n,
                                  int bias);
void pen__jpeg_ycc_to_rgb_avx2(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb,
                               int32_t n);
void pen__jpeg_ycc_to_rgb_avx512(const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                                 uint8_t *rgb, int32_t n);
void pen__jpeg_h2v2_to_rgb_avx512(const uint8_t *y, pen__jpeg_chroma cb, pen__jpeg_chroma cr,
                                  uint8_t *rgb, int32_t n, int32_t n_left_out);
#endif

/* The best for this processor. */
const pen__jpeg_kernels *pen__jpeg_kernels_get(void);

/* The IDCT's constants, cos and sin of multiples of pi/16 by sqrt(2), times 2^13. */
enum {
    PEN__IDCT_BITS = 13,
    PEN__IDCT_PASS1_BITS = 2, /* extra precision between the passes */
    PEN__IDCT_0_298 = 2446,
    PEN__IDCT_0_390 = 3196,
    PEN__IDCT_0_541 = 4433,
    PEN__IDCT_0_765 = 6270,
    PEN__IDCT_0_899 = 7373,
    PEN__IDCT_1_175 = 9633,
    PEN__IDCT_1_501 = 12299,
    PEN__IDCT_1_847 = 15137,
    PEN__IDCT_1_961 = 16069,
    PEN__IDCT_2_053 = 16819,
    PEN__IDCT_2_562 = 20995,
    PEN__IDCT_3_072 = 25172,
};

/* A first row of dequantised values within +-2^13 can be shifted left by two bits
 * without leaving int16, which is what libjpeg's short cut for flat columns does. */
enum { PEN__IDCT_MAX_ROW0 = 1 << 13 };

#endif
