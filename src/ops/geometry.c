/* geometry.c - flips, crops and turns.
 *
 * A crop may hang over the image; which pixel stands there is a function from a
 * coordinate outside to one inside, the same for rows and columns.  The eight
 * EXIF turns are one loop over the destination with two steps through the source.
 */
#include "ops/geometry.h"

#include <stdbool.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/geometry_kernels.h"

/* ---- flips ------------------------------------------------------------------ */

void pen__hflip_row_c(uint8_t *row, int32_t w, int ch)
{
    uint8_t *left = row, *right = row + (size_t)(w - 1) * (size_t)ch;
    for (; left < right; left += ch, right -= ch)
        for (int c = 0; c < ch; c++) {
            uint8_t keep = left[c];
            left[c] = right[c];
            right[c] = keep;
        }
}

void pen__hflip(pen__image *im)
{
    void (*flip_row)(uint8_t *, int32_t, int) = pen__hflip_row_c;
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX2)
        flip_row = pen__hflip_row_avx2;
#endif
    size_t stride = (size_t)im->w * (size_t)im->ch;
    for (int32_t y = 0; y < im->h; y++)
        flip_row(im->px + (size_t)y * stride, im->w, im->ch);
}

static void swap_bytes(uint8_t *a, uint8_t *b, size_t n)
{
    uint8_t keep[512];
    while (n > 0) {
        size_t step = n < sizeof keep ? n : sizeof keep;
        memcpy(keep, a, step);
        memcpy(a, b, step);
        memcpy(b, keep, step);
        a += step;
        b += step;
        n -= step;
    }
}

void pen__vflip(pen__image *im)
{
    size_t stride = (size_t)im->w * (size_t)im->ch;
    for (int32_t top = 0, bottom = im->h - 1; top < bottom; top++, bottom--)
        swap_bytes(im->px + (size_t)top * stride, im->px + (size_t)bottom * stride, stride);
}

/* ---- crop ------------------------------------------------------------------- */

/* Where the pixel at coordinate i of an axis with n comes from; -1: the fill.
 * Folding is periodic, so overhangs larger than the image stay inside. */
static int32_t pad_source(int32_t i, int32_t n, pen_padding mode)
{
    if (i >= 0 && i < n)
        return i;
    if (mode == PEN_PADDING_CONSTANT)
        return -1;
    if (mode == PEN_PADDING_EDGE || n == 1)
        return i < 0 ? 0 : n - 1;
    int64_t period = mode == PEN_PADDING_REFLECT ? 2 * ((int64_t)n - 1) : 2 * (int64_t)n;
    int64_t at = i % period;
    if (at < 0)
        at += period;
    if (at >= n) /* on the way back; symmetric shows the border pixel twice */
        at = mode == PEN_PADDING_REFLECT ? period - at : period - 1 - at;
    return (int32_t)at;
}

static void fill_pixels(uint8_t *out, size_t n, int ch, const uint8_t *fill)
{
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < ch; c++)
            *out++ = fill[c];
}

/* Pixels [from, to) of a row that lie outside the image. */
static uint8_t *pad_pixels(uint8_t *out, const uint8_t *row, int32_t from, int32_t to, int32_t n,
                           int ch, pen_padding mode, const uint8_t *fill)
{
    for (int32_t i = from; i < to; i++) {
        int32_t at = pad_source(i, n, mode);
        const uint8_t *px = at < 0 ? fill : row + (size_t)at * (size_t)ch;
        for (int c = 0; c < ch; c++)
            *out++ = px[c];
    }
    return out;
}

static int32_t clamp(int32_t value, int32_t lo, int32_t hi)
{
    return value < lo ? lo : value > hi ? hi : value;
}

void pen__crop(const pen__image *src, pen__rect box, pen_padding mode, const uint8_t *fill,
               pen__image *dst)
{
    int ch = src->ch;
    size_t src_stride = (size_t)src->w * (size_t)ch, dst_stride = (size_t)box.w * (size_t)ch;
    int32_t right = box.x + box.w;
    int32_t in_from = clamp(box.x, 0, src->w), in_to = clamp(right, in_from, src->w);
    /* a box wholly to one side of the image has no middle part */
    int32_t pad_to = in_to > in_from ? in_from : right;
    size_t middle = (size_t)(in_to - in_from) * (size_t)ch;
    for (int32_t y = 0; y < box.h; y++) {
        uint8_t *out = dst->px + (size_t)y * dst_stride;
        int32_t row_at = pad_source(box.y + y, src->h, mode);
        if (row_at < 0) {
            fill_pixels(out, (size_t)box.w, ch, fill);
            continue;
        }
        const uint8_t *row = src->px + (size_t)row_at * src_stride;
        out = pad_pixels(out, row, box.x, pad_to, src->w, ch, mode, fill);
        if (middle == 0)
            continue;
        memcpy(out, row + (size_t)in_from * (size_t)ch, middle);
        pad_pixels(out + middle, row, in_to, right, src->w, ch, mode, fill);
    }
    dst->w = box.w;
    dst->h = box.h;
    dst->ch = ch;
}

/* ---- EXIF orientation -------------------------------------------------------- */

/* Turned pixel (x, y) is stored pixel (x, y), mirrored and swapped like this:
 * first x and y change places if `swap`, then each may count from the far end. */
typedef struct turn {
    bool swap, flip_x, flip_y; /* flips are of the stored coordinates */
} turn;

static turn turn_of(int orientation)
{
    static const turn turns[9] = {
        {0, 0, 0}, {0, 0, 0}, {0, 1, 0}, /* -, upright, mirrored */
        {0, 1, 1}, {0, 0, 1},            /* half a turn, upside down */
        {1, 0, 0}, {1, 0, 1},            /* transposed, quarter turn */
        {1, 1, 1}, {1, 1, 0},            /* transversed, three quarters */
    };
    return turns[orientation >= 1 && orientation <= 8 ? orientation : 1];
}

pen__rect pen__orient_rect(pen__rect turned, int orientation, int32_t stored_w, int32_t stored_h)
{
    turn t = turn_of(orientation);
    pen__rect r = turned;
    if (t.swap)
        r = (pen__rect){turned.y, turned.x, turned.h, turned.w};
    if (t.flip_x)
        r.x = stored_w - r.x - r.w;
    if (t.flip_y)
        r.y = stored_h - r.y - r.h;
    return r;
}

/* Side of the squares a turn works through, so that both sides stay in cache. */
#define TILE 32

static void turn_tile(const uint8_t *src, ptrdiff_t step_x, ptrdiff_t step_y, int32_t w, int32_t h,
                      int ch, uint8_t *dst, size_t dst_stride)
{
    for (int32_t y = 0; y < h; y++) {
        const uint8_t *in = src + y * step_y;
        uint8_t *out = dst + (size_t)y * dst_stride;
        for (int32_t x = 0; x < w; x++, in += step_x, out += ch)
            for (int c = 0; c < ch; c++)
                out[c] = in[c];
    }
}

void pen__orient(const pen__image *src, int orientation, pen__image *dst)
{
    turn t = turn_of(orientation);
    int ch = src->ch;
    dst->w = t.swap ? src->h : src->w;
    dst->h = t.swap ? src->w : src->h;
    dst->ch = ch;
    /* bytes from one stored pixel to the next along stored x and y */
    ptrdiff_t along_x = t.flip_x ? -ch : ch;
    ptrdiff_t stride = (ptrdiff_t)src->w * ch, along_y = t.flip_y ? -stride : stride;
    const uint8_t *origin = src->px;
    if (t.flip_x)
        origin += stride - ch;
    if (t.flip_y)
        origin += (src->h - 1) * stride;
    ptrdiff_t step_x = t.swap ? along_y : along_x, step_y = t.swap ? along_x : along_y;
    size_t dst_stride = (size_t)dst->w * (size_t)ch;
    for (int32_t y = 0; y < dst->h; y += TILE)
        for (int32_t x = 0; x < dst->w; x += TILE)
            turn_tile(origin + x * step_x + y * step_y, step_x, step_y, clamp(dst->w - x, 0, TILE),
                      clamp(dst->h - y, 0, TILE), ch,
                      dst->px + (size_t)y * dst_stride + (size_t)x * (size_t)ch, dst_stride);
}

/* ---- grey to three channels ---------------------------------------------------- */

void pen__spread(const pen__image *src, pen__image *dst)
{
    size_t n = (size_t)src->w * (size_t)src->h;
    dst->w = src->w;
    dst->h = src->h;
    dst->ch = 3;
    for (size_t i = 0; i < n; i++)
        dst->px[3 * i] = dst->px[3 * i + 1] = dst->px[3 * i + 2] = src->px[i];
}
