/* jpeg_color_c.c - chroma upsampling and colour conversion of JPEG rows in plain C.
 *
 * Upsampling puts each new sample a quarter of the way to its neighbour: weights 3 and 1 in
 * each direction.  Roundings alternate, up in one and down in the next, as libjpeg's
 * do.  At the image's edge the caller has repeated the last sample, which comes to the
 * same as libjpeg's special cases there.
 */
#include "ops/jpeg_kernels.h"

void pen__jpeg_upsample_h2v2_c(const uint8_t *near, const uint8_t *far, uint8_t *dst, int32_t n)
{
    int last = 3 * near[-1] + far[-1], here = 3 * near[0] + far[0];
    for (int32_t i = 0; i < n; i++) {
        int next = 3 * near[i + 1] + far[i + 1];
        dst[2 * i] = (uint8_t)((3 * here + last + 8) >> 4);
        dst[2 * i + 1] = (uint8_t)((3 * here + next + 7) >> 4);
        last = here;
        here = next;
    }
}

void pen__jpeg_upsample_h2v1_c(const uint8_t *src, uint8_t *dst, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        dst[2 * i] = (uint8_t)((3 * src[i] + src[i - 1] + 1) >> 2);
        dst[2 * i + 1] = (uint8_t)((3 * src[i] + src[i + 1] + 2) >> 2);
    }
}

void pen__jpeg_upsample_h1v2_c(const uint8_t *near, const uint8_t *far, uint8_t *dst, int32_t n,
                               int bias)
{
    for (int32_t i = 0; i < n; i++)
        dst[i] = (uint8_t)((3 * near[i] + far[i] + bias) >> 2);
}

static uint8_t clip(int value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* The weights 1.402, 0.71414, 0.34414 and 1.772 in 16-bit fixed point; green's two
 * are summed before rounding. */
void pen__jpeg_ycc_to_rgb_c(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb,
                            int32_t n)
{
    enum { HALF = 1 << 15 };
    for (int32_t i = 0; i < n; i++, rgb += 3) {
        int blue = cb[i] - 128, red = cr[i] - 128;
        rgb[0] = clip(y[i] + ((91881 * red + HALF) >> 16));
        rgb[1] = clip(y[i] + ((-22554 * blue - 46802 * red + HALF) >> 16));
        rgb[2] = clip(y[i] + ((116130 * blue + HALF) >> 16));
    }
}
