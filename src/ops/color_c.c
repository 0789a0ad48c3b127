/* color_c.c - colour kernels in plain C: the reference for the SIMD twins.
 *
 * Hue follows Pillow's RGB -> HSV -> RGB with HSV rounded to uint8 in between.
 * Where Pillow mixes float and double, so does this: the types below are part of
 * the result.
 */
#include "ops/color_kernels.h"

static void blend_level_c(uint8_t *px, size_t n_bytes, uint8_t level, float factor)
{
    uint8_t table[256];
    for (int v = 0; v < 256; v++)
        table[v] = pen__blend(level, v, factor);
    for (size_t i = 0; i < n_bytes; i++)
        px[i] = table[px[i]];
}

static void blend_grey_c(uint8_t *px, size_t n_px, float factor)
{
    for (; n_px > 0; n_px--, px += 3) {
        int grey = pen__grey_of(px);
        for (int c = 0; c < 3; c++)
            px[c] = pen__blend(grey, px[c], factor);
    }
}

static uint64_t sum_grey_c(const uint8_t *px, size_t n_px)
{
    uint64_t sum = 0;
    for (; n_px > 0; n_px--, px += 3)
        sum += pen__grey_of(px);
    return sum;
}

static void to_grey_c(const uint8_t *src, size_t n_px, uint8_t *dst)
{
    for (size_t i = 0; i < n_px; i++)
        dst[i] = pen__grey_of(src + 3 * i);
}

/* ---- hue -------------------------------------------------------------------- */

typedef struct hsv {
    uint8_t h, s, v;
} hsv;

static hsv rgb_to_hsv(int r, int g, int b)
{
    int most = r > g ? r : g, least = r < g ? r : g;
    most = most > b ? most : b;
    least = least < b ? least : b;
    if (most == least)
        return (hsv){0, 0, (uint8_t)most};
    float range = (float)(most - least);
    float saturation = range / (float)most;
    float from_r = (float)(most - r) / range;
    float from_g = (float)(most - g) / range;
    float from_b = (float)(most - b) / range;
    float sixths; /* -1 .. 5 */
    if (r == most)
        sixths = from_b - from_g;
    else if (g == most)
        sixths = (float)(2.0 + (double)from_r - (double)from_b);
    else
        sixths = (float)(4.0 + (double)from_g - (double)from_r);
    double turn = (double)sixths / 6.0 + 1.0; /* in [0.8, 2): its fraction is exact */
    float hue = (float)(turn >= 1.0 ? turn - 1.0 : turn);
    return (hsv){(uint8_t)(hue * 255.0), (uint8_t)(saturation * 255.0), (uint8_t)most};
}

/* For x >= 0, half up: what Pillow's round() gives for all of its 2^24 inputs. */
static uint8_t round_to_byte(double x)
{
    return (uint8_t)(x + 0.5);
}

static void hsv_to_rgb(hsv in, uint8_t *rgb)
{
    int sector = in.h * 6 / 255;
    float rest = (float)(in.h * 6.0 / 255.0 - sector);
    float saturation = (float)(in.s / 255.0);
    uint8_t v = in.v;
    uint8_t low = round_to_byte(v * (1.0 - (double)saturation));
    uint8_t falling = round_to_byte(v * (1.0 - (double)(saturation * rest)));
    uint8_t rising = round_to_byte(v * (1.0 - (double)saturation * (1.0 - (double)rest)));
    const uint8_t sectors[7][3] = {{v, rising, low},  {falling, v, low}, {low, v, rising},
                                   {low, falling, v}, {rising, low, v},  {v, low, falling},
                                   {v, rising, low}};
    for (int c = 0; c < 3; c++)
        rgb[c] = sectors[sector][c];
}

static void shift_hue_c(uint8_t *px, size_t n_px, uint8_t shift)
{
    for (; n_px > 0; n_px--, px += 3) {
        hsv at = rgb_to_hsv(px[0], px[1], px[2]);
        at.h = (uint8_t)(at.h + shift);
        hsv_to_rgb(at, px);
    }
}

const pen__color_kernels pen__color_kernels_c = {
    .blend_level = blend_level_c,
    .blend_grey = blend_grey_c,
    .sum_grey = sum_grey_c,
    .to_grey = to_grey_c,
    .shift_hue = shift_hue_c,
};
