/* resize_c.c - the passes of a resize in plain C: the reference for the SIMD twins.
 *
 * Sums fit an int32: the weights of an output add up to 2^22, and even with
 * Lanczos' negative lobes cut off at an edge the positive ones stay below 1.3
 * times that; 255 * 1.3 * 2^22 < 2^31.
 */
#include "ops/resize_kernels.h"

/* The weights are used as they are. */
static void prepare_horizontal_c(pen__taps *taps, int ch)
{
    (void)taps;
    (void)ch;
}

static void prepare_vertical_c(pen__taps *taps)
{
    (void)taps;
}

static void row_grey_c(const pen__taps *taps, const uint8_t *src, uint8_t *dst)
{
    for (int32_t i = 0; i < taps->count; i++) {
        const int32_t *weight = taps->weight + (size_t)i * (size_t)taps->stride;
        const uint8_t *in = src + taps->start[i];
        int32_t sum = PEN__TAPS_HALF;
        for (int32_t t = 0; t < taps->used[i]; t++)
            sum += in[t] * weight[t];
        dst[i] = pen__taps_clip(sum);
    }
}

static void row_rgb_c(const pen__taps *taps, const uint8_t *src, uint8_t *dst)
{
    for (int32_t i = 0; i < taps->count; i++, dst += 3) {
        const int32_t *weight = taps->weight + (size_t)i * (size_t)taps->stride;
        const uint8_t *in = src + (size_t)taps->start[i] * 3;
        int32_t r = PEN__TAPS_HALF, g = PEN__TAPS_HALF, b = PEN__TAPS_HALF;
        for (int32_t t = 0; t < taps->used[i]; t++, in += 3) {
            r += in[0] * weight[t];
            g += in[1] * weight[t];
            b += in[2] * weight[t];
        }
        dst[0] = pen__taps_clip(r);
        dst[1] = pen__taps_clip(g);
        dst[2] = pen__taps_clip(b);
    }
}

static void horizontal_c(const pen__taps *taps, const uint8_t *src, size_t src_stride,
                         int32_t n_rows, int ch, uint8_t *dst, size_t dst_stride)
{
    for (int32_t y = 0; y < n_rows; y++, src += src_stride, dst += dst_stride) {
        if (ch == 3)
            row_rgb_c(taps, src, dst);
        else
            row_grey_c(taps, src, dst);
    }
}

/* Bytes summed at a time: their sums stay in L1. */
#define CHUNK 512

static void vertical_c(const pen__taps *taps, int32_t i, const uint8_t *src, size_t src_stride,
                       size_t n_bytes, uint8_t *dst)
{
    const int32_t *weight = taps->weight + (size_t)i * (size_t)taps->stride;
    for (size_t at = 0; at < n_bytes; at += CHUNK) {
        size_t n = n_bytes - at < CHUNK ? n_bytes - at : CHUNK;
        int32_t sum[CHUNK];
        for (size_t x = 0; x < n; x++)
            sum[x] = PEN__TAPS_HALF;
        for (int32_t t = 0; t < taps->used[i]; t++) {
            const uint8_t *in = src + (size_t)t * src_stride + at;
            for (size_t x = 0; x < n; x++)
                sum[x] += in[x] * weight[t];
        }
        for (size_t x = 0; x < n; x++)
            dst[at + x] = pen__taps_clip(sum[x]);
    }
}

const pen__resize_kernels pen__resize_kernels_c = {prepare_horizontal_c, prepare_vertical_c,
                                                   horizontal_c, vertical_c};
