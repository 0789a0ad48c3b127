/* augmix_ops.c - torchvision's tensor functions: colour, sharpness, affine, mixing.
 *
 * Each sum here has the order and the roundings of torch's kernels.  Where those
 * fuse a multiplication with an addition, so does this; fmaf is defined to the
 * bit, in libm or as one instruction, so the code that uses it is compiled twice
 * and gives the same bytes.
 */
#include "ops/augmix_ops.h"

#include <math.h>
#include <string.h>

#include "base/cpu.h"

static uint8_t clip_to_byte(float v)
{
    return (uint8_t)(v <= 0.0F ? 0.0F : v >= 255.0F ? 255.0F : v);
}

static size_t pixel_count(const pen__image *im)
{
    return (size_t)im->w * (size_t)im->h;
}

/* ---- colour --------------------------------------------------------------------------- */

/* ratio * image + (1 - ratio) * other, each product rounded by itself. */
typedef struct blend {
    float keep, rest;
} blend;

static blend make_blend(double factor)
{
    return (blend){(float)factor, (float)(1.0 - factor)};
}

static uint8_t mix_values(blend by, uint8_t value, float other)
{
    return clip_to_byte(by.keep * (float)value + by.rest * other);
}

static void blend_with_level(pen__image *im, blend by, float level)
{
    uint8_t table[256];
    size_t n = pen__image_bytes(im);
    for (int v = 0; v < 256; v++)
        table[v] = mix_values(by, (uint8_t)v, level);
    for (size_t i = 0; i < n; i++)
        im->px[i] = table[im->px[i]];
}

void pen__tensor_path_brightness(pen__image *im, double factor)
{
    blend_with_level(im, make_blend(factor), 0.0F);
}

static float grey_of(uint8_t r, uint8_t g, uint8_t b)
{
    return (float)(uint8_t)((0.2989F * (float)r + 0.587F * (float)g) + 0.114F * (float)b);
}

/* Grey of pixel i. */
static float grey_at(const pen__image *im, size_t i, bool rgb)
{
    const uint8_t *px = im->px + i * (size_t)im->ch;
    if (!rgb)
        return px[0];
    return im->ch == 3 ? grey_of(px[0], px[1], px[2]) : grey_of(px[0], px[0], px[0]);
}

/* torch adds up in eight lanes, then what is over and the lanes.  Lanes are whole numbers, exact
 * up to 2^24; the sum of all is not, for images of more than some 300 x 300. */
static float mean_grey(const pen__image *im, bool rgb)
{
    enum { LANES = 8 };
    uint64_t lanes[LANES] = {0};
    size_t n = pixel_count(im), whole = n < LANES ? 0 : n - n % LANES;
    float sum = 0.0F;
    for (size_t i = 0; i < whole; i++)
        lanes[i % LANES] += (uint64_t)grey_at(im, i, rgb);
    for (size_t i = whole; i < n; i++)
        sum += grey_at(im, i, rgb);
    for (int lane = 0; lane < LANES; lane++)
        sum += (float)lanes[lane];
    return sum / (float)n;
}

void pen__tensor_path_contrast(pen__image *im, double factor, bool rgb)
{
    blend_with_level(im, make_blend(factor), mean_grey(im, rgb || im->ch == 3));
}

void pen__tensor_path_saturation(pen__image *im, double factor, bool rgb)
{
    blend by = make_blend(factor);
    size_t n = pixel_count(im);
    if (im->ch == 1 && !rgb)
        return;
    for (size_t i = 0; i < n; i++) {
        float grey = grey_at(im, i, true);
        for (int c = 0; c < im->ch; c++) {
            uint8_t *value = im->px + i * (size_t)im->ch + c;
            *value = mix_values(by, *value, grey);
        }
    }
}

static void stretch_channel(pen__image *im, int c)
{
    size_t n = pen__image_bytes(im), step = (size_t)im->ch;
    uint8_t least = 255, most = 0, table[256];
    for (size_t i = (size_t)c; i < n; i += step) {
        least = im->px[i] < least ? im->px[i] : least;
        most = im->px[i] > most ? im->px[i] : most;
    }
    if (least >= most)
        return;
    float scale = 1.0F / (float)(most - least) * 255.0F; /* torch divides a number so */
    for (int v = least; v <= most; v++)
        table[v] = clip_to_byte((float)(v - least) * scale);
    for (size_t i = (size_t)c; i < n; i += step)
        im->px[i] = table[im->px[i]];
}

void pen__tensor_path_autocontrast(pen__image *im)
{
    for (int c = 0; c < im->ch; c++)
        stretch_channel(im, c);
}

/* ---- sharpness ------------------------------------------------------------------------ */

/* The row's values blended with themselves, which is not always what they were. */
static void sharpen_border(uint8_t *px, size_t n, blend by)
{
    for (size_t i = 0; i < n; i++)
        px[i] = mix_values(by, px[i], px[i]);
}

static void sharpen_inside(const uint8_t *const rows[3], size_t n, size_t ch, blend by,
                           uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        int sum = 4 * rows[1][ch + i];
        for (int r = 0; r < 3; r++)
            sum += rows[r][i] + rows[r][ch + i] + rows[r][2 * ch + i];
        out[i] = mix_values(by, rows[1][ch + i], (float)((sum + 6) / 13));
    }
}

void pen__tensor_path_sharpness(pen__image *im, double factor, void *scratch)
{
    size_t ch = (size_t)im->ch, row_bytes = (size_t)im->w * ch;
    uint8_t *above = scratch, *here = above + row_bytes;
    blend by = make_blend(factor);
    if (im->w < 3 || im->h < 3)
        return;
    memcpy(above, im->px, row_bytes);
    sharpen_border(im->px, row_bytes, by);
    for (int32_t y = 1; y < im->h - 1; y++) {
        uint8_t *row = im->px + (size_t)y * row_bytes;
        memcpy(here, row, row_bytes);
        const uint8_t *const rows[3] = {above, here, row + row_bytes};
        sharpen_inside(rows, row_bytes - 2 * ch, ch, by, row + ch);
        sharpen_border(row, ch, by);
        sharpen_border(row + row_bytes - ch, ch, by);
        uint8_t *freed = above;
        above = here;
        here = freed;
    }
    sharpen_border(im->px + (size_t)(im->h - 1) * row_bytes, row_bytes, by);
}

/* ---- affine --------------------------------------------------------------------------- */

/* One row of torchvision's grid and of torch's grid_sample for it. */
typedef struct grid {
    const pen__image *src;
    float x[3], y[3]; /* the matrix, for coordinates of -1 .. 1 */
    bool is_small;    /* torch multiplies small matrices without fusing */
    bool is_bilinear;
} grid;

#define INLINE static inline __attribute__((always_inline))

/* From the output's coordinates, counted from the middle, to a place in the input. */
INLINE float place_on_axis(const float m[3], float x, float y, bool is_small, int32_t size)
{
    float sum = m[0] * x;
    sum = is_small ? sum + m[1] * y : fmaf(m[1], y, sum);
    return fmaf(sum + m[2] + 1.0F, (float)size / 2.0F, -0.5F);
}

/* The pixel there, or black. */
INLINE const uint8_t *tap(const pen__image *im, float x, float y)
{
    static const uint8_t black[3] = {0, 0, 0};
    if (!(x >= 0.0F && x < (float)im->w && y >= 0.0F && y < (float)im->h))
        return black;
    return im->px + ((size_t)(int32_t)y * (size_t)im->w + (size_t)(int32_t)x) * (size_t)im->ch;
}

INLINE void sample_bilinear(const pen__image *im, int ch, float x, float y, uint8_t *out)
{
    float left = floorf(x), top = floorf(y);
    float east = x - left, west = 1.0F - east, south = y - top, north = 1.0F - south;
    const uint8_t *nw = tap(im, left, top), *ne = tap(im, left + 1.0F, top);
    const uint8_t *sw = tap(im, left, top + 1.0F), *se = tap(im, left + 1.0F, top + 1.0F);
    for (int c = 0; c < ch; c++) {
        float sum = (float)nw[c] * (north * west);
        sum = fmaf((float)ne[c], north * east, sum);
        sum = fmaf((float)sw[c], south * west, sum);
        sum = fmaf((float)se[c], south * east, sum);
        out[c] = (uint8_t)(int32_t)rintf(sum);
    }
}

INLINE void sample_nearest(const pen__image *im, int ch, float x, float y, uint8_t *out)
{
    const uint8_t *px = tap(im, rintf(x), rintf(y));
    for (int c = 0; c < ch; c++)
        out[c] = px[c];
}

/* `ch` is a constant where this is inlined, so that its loops unroll. */
INLINE void sample_with(const grid *g, int ch, int32_t row, uint8_t *out)
{
    const pen__image *im = g->src;
    float y = (float)row - (float)(im->h - 1) * 0.5F;
    for (int32_t i = 0; i < im->w; i++, out += ch) {
        float x = (float)i - (float)(im->w - 1) * 0.5F;
        float at_x = place_on_axis(g->x, x, y, g->is_small, im->w);
        float at_y = place_on_axis(g->y, x, y, g->is_small, im->h);
        if (g->is_bilinear)
            sample_bilinear(im, ch, at_x, at_y, out);
        else
            sample_nearest(im, ch, at_x, at_y, out);
    }
}

INLINE void sample_row(const grid *g, int32_t row, uint8_t *out)
{
    if (g->src->ch == 3)
        sample_with(g, 3, row, out);
    else
        sample_with(g, 1, row, out);
}

static void sample_row_c(const grid *g, int32_t row, uint8_t *out)
{
    sample_row(g, row, out);
}

#if defined(__x86_64__)
/* The same, with fmaf, floorf and rintf as instructions. */
__attribute__((target("avx2,fma"))) static void sample_row_avx2(const grid *g, int32_t row,
                                                                uint8_t *out)
{
    sample_row(g, row, out);
}
#endif

typedef void row_sampler(const grid *g, int32_t row, uint8_t *out);

static row_sampler *pick_sampler(void)
{
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX2)
        return sample_row_avx2;
#endif
    return sample_row_c;
}

void pen__tensor_path_affine(const pen__image *src, const double m[6], pen_filter filter,
                             pen__image *dst)
{
    grid g = {.src = src, .is_bilinear = filter == PEN_FILTER_BILINEAR};
    g.is_small = 6 * pixel_count(src) < 400;
    for (int i = 0; i < 3; i++) {
        g.x[i] = (float)m[i] / ((float)src->w * 0.5F);
        g.y[i] = (float)m[3 + i] / ((float)src->h * 0.5F);
    }
    *dst = (pen__image){dst->px, src->w, src->h, src->ch};
    row_sampler *sample = pick_sampler();
    for (int32_t y = 0; y < dst->h; y++)
        sample(&g, y, dst->px + (size_t)y * (size_t)dst->w * (size_t)dst->ch);
}

/* ---- mixing --------------------------------------------------------------------------- */

void pen__tensor_path_add(float *mix, const pen__image *im, float weight)
{
    size_t n = pen__image_bytes(im);
    for (size_t i = 0; i < n; i++)
        mix[i] += weight * (float)im->px[i];
}

void pen__tensor_path_finish(const float *mix, pen__image *dst)
{
    size_t n = pen__image_bytes(dst);
    for (size_t i = 0; i < n; i++)
        dst->px[i] = clip_to_byte(mix[i]);
}
