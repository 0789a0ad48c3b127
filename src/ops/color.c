/* color.c - ImageEnhance, adjust_hue and convert("L") over the kernels.
 *
 * A grey image (ch == 1) stands for three equal channels: brightness and contrast
 * act on the one, saturation and hue leave equal channels as they are.
 */
#include "ops/color.h"

#include <string.h>

#include "base/cpu.h"
#include "ops/color_kernels.h"

static const pen__color_kernels *pick_kernels(void)
{
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX2)
        return &pen__color_kernels_avx2;
#endif
    return &pen__color_kernels_c;
}

static size_t pixel_count(const pen__image *im)
{
    return (size_t)im->w * (size_t)im->h;
}

/* The mean grey, rounded: int(ImageStat.Stat(L).mean[0] + 0.5). */
static uint8_t mean_grey(const pen__image *im)
{
    size_t n = pixel_count(im);
    uint64_t sum = 0;
    if (n == 0)
        return 0;
    if (im->ch == 3) {
        sum = pick_kernels()->sum_grey(im->px, n);
    } else {
        for (size_t i = 0; i < n; i++)
            sum += im->px[i];
    }
    return (uint8_t)((double)sum / (double)n + 0.5);
}

void pen__brightness(pen__image *im, float factor)
{
    pick_kernels()->blend_level(im->px, pen__image_bytes(im), 0, factor);
}

void pen__contrast(pen__image *im, float factor)
{
    pick_kernels()->blend_level(im->px, pen__image_bytes(im), mean_grey(im), factor);
}

void pen__saturation(pen__image *im, float factor)
{
    if (im->ch == 3)
        pick_kernels()->blend_grey(im->px, pixel_count(im), factor);
}

void pen__hue(pen__image *im, float factor)
{
    /* as torchvision: truncated to int32, then wrapped to uint8 */
    uint8_t shift = (uint8_t)(int32_t)((double)factor * 255.0);
    if (im->ch == 3)
        pick_kernels()->shift_hue(im->px, pixel_count(im), shift);
}

void pen__to_grey(const pen__image *src, pen__image *dst)
{
    size_t n = pixel_count(src);
    dst->w = src->w;
    dst->h = src->h;
    dst->ch = 1;
    if (src->ch == 3)
        pick_kernels()->to_grey(src->px, n, dst->px);
    else
        memmove(dst->px, src->px, n);
}
