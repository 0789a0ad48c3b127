/* color_kernels.h - loops over pixels for color.c, scalar and SIMD twins.
 *
 * All twins give the same bytes.  Pixels are RGB unless said otherwise.
 */
#ifndef PEN_OPS_COLOR_KERNELS_H
#define PEN_OPS_COLOR_KERNELS_H

#include <stddef.h>
#include <stdint.h>

typedef struct pen__color_kernels {
    /* Every byte v becomes level + factor * (v - level). */
    void (*blend_level)(uint8_t *px, size_t n_bytes, uint8_t level, float factor);
    /* The same with each pixel's own grey as level. */
    void (*blend_grey)(uint8_t *px, size_t n_px, float factor);
    /* Sum of all pixels' grey. */
    uint64_t (*sum_grey)(const uint8_t *px, size_t n_px);
    /* dst may be src. */
    void (*to_grey)(const uint8_t *src, size_t n_px, uint8_t *dst);
    /* Add `shift` to each pixel's hue, modulo 256. */
    void (*shift_hue)(uint8_t *px, size_t n_px, uint8_t shift);
} pen__color_kernels;

extern const pen__color_kernels pen__color_kernels_c;
#if defined(__x86_64__)
extern const pen__color_kernels pen__color_kernels_avx2;
#endif

/* ITU-R 601 luma in 16-bit fixed point. */
static inline uint8_t pen__grey_of(const uint8_t *rgb)
{
    return (uint8_t)((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

/* Pillow's Image.blend of one value, in float.  With 0 <= factor <= 1 it does not
 * clip; nothing leaves the range then, so clipping always gives the same. */
static inline uint8_t pen__blend(int level, int value, float factor)
{
    float mixed = (float)level + factor * (float)(value - level);
    return (uint8_t)(mixed <= 0.0F ? 0.0F : mixed >= 255.0F ? 255.0F : mixed);
}

#endif
