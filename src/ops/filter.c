/* filter.c - sharpness and Gaussian blur over the kernels.
 *
 * torchvision blurs a PIL image as a tensor: float32, reflected at the border,
 * one two-dimensional window of weights.  The weights and their sum follow torch's
 * own operations, and its convolution adds row by row with fused multiplications, so
 * the window is not taken apart into two passes: that would round differently.
 *
 * Weights need an exponential.  Ours is the nearest float32; torch's comes from
 * MKL, which misses it by one bit for one weight in ninety, and that moves one value
 * in ten million by one.  (torchvision's v2 computes the same weights by a softmax;
 * against that it is seven in a million, by one.)
 */
#include "ops/filter.h"

#include <string.h>

#include "base/cpu.h"
#include "base/fmath.h"
#include "ops/filter_kernels.h"

static const pen__filter_kernels *pick_kernels(void)
{
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX2)
        return &pen__filter_kernels_avx2;
#endif
    return &pen__filter_kernels_c;
}

/* ---- sharpness ----------------------------------------------------------------------- */

size_t pen__sharpness_scratch(int32_t w, int32_t h, int ch)
{
    (void)h;
    return 2 * (size_t)w * (size_t)ch;
}

/* Each row is replaced while the next one still needs it as it was: two rows are
 * kept.  The border has no neighbours and stays as it is. */
void pen__sharpness(pen__image *im, float factor, void *scratch)
{
    size_t ch = (size_t)im->ch, row_bytes = (size_t)im->w * ch;
    uint8_t *above = scratch, *here = above + row_bytes;
    if (im->w < 3 || im->h < 3)
        return;
    memcpy(above, im->px, row_bytes);
    for (int32_t y = 1; y < im->h - 1; y++) {
        uint8_t *row = im->px + (size_t)y * row_bytes;
        memcpy(here, row, row_bytes);
        const uint8_t *const rows[3] = {above + ch, here + ch, row + row_bytes + ch};
        pick_kernels()->sharpen_row(rows, row_bytes - 2 * ch, im->ch, factor, row + ch);
        uint8_t *freed = above;
        above = here;
        here = freed;
    }
}

/* ---- Gaussian blur -------------------------------------------------------------------- */

/* n values `step` apart, added as torch does: four sums taking turns, what is over
 * going to the first. */
static float add_in_fours(const float *v, int32_t n, int32_t step)
{
    float sums[4] = {0.0F, 0.0F, 0.0F, 0.0F};
    int32_t whole = n / 4 * 4;
    for (int32_t i = 0; i < whole; i++)
        sums[i % 4] += v[i * step];
    for (int32_t i = whole; i < n; i++)
        sums[0] += v[i * step];
    return sums[0] + sums[1] + sums[2] + sums[3];
}

/* torch's sum of a short row: eight lanes where there are eight values, what is
 * over first.  (From 512 values on, torch nests deeper.) */
static float add_as_torch(const float *v, int32_t n)
{
    enum { LANES = 8 };
    if (n < LANES)
        return add_in_fours(v, n, 1);
    int32_t rounds = n / LANES;
    float sum = 0.0F;
    for (int32_t i = rounds * LANES; i < n; i++)
        sum += v[i];
    for (int32_t lane = 0; lane < LANES; lane++)
        sum += add_in_fours(v + lane, rounds, LANES);
    return sum;
}

static void make_weights(float *weights, int32_t n, float sigma)
{
    for (int32_t i = 0; i < n; i++) {
        float distance = ((float)i - (float)(n - 1) * 0.5F) / sigma;
        float power = -0.5F * (distance * distance);
        weights[i] = power < -100.0F ? 0.0F : (float)pen__exp((double)power);
    }
    float sum = add_as_torch(weights, n);
    for (int32_t i = 0; i < n; i++)
        weights[i] /= sum;
}

/* What scratch holds, in this order. */
typedef struct blur_memory {
    const float **rows; // (kernel_h)
    float *ring;        // (kernel_h, w + kernel_w - 1, ch): image row y at y % kernel_h
    float *weights;     // (kernel_h, kernel_w)
    float *across, *down;
} blur_memory;

static size_t ring_row(const pen__blur *blur, int32_t w, int ch)
{
    return ((size_t)w + (size_t)blur->kernel_w - 1) * (size_t)ch;
}

size_t pen__gaussian_blur_scratch(const pen__blur *blur, int32_t w, int32_t h, int ch)
{
    (void)h;
    size_t kw = (size_t)blur->kernel_w, kh = (size_t)blur->kernel_h;
    return kh * sizeof(float *) + (kh * ring_row(blur, w, ch) + kh * kw + kw + kh) * sizeof(float);
}

static blur_memory lay_out(const pen__blur *blur, const pen__image *src, void *scratch)
{
    size_t kw = (size_t)blur->kernel_w, kh = (size_t)blur->kernel_h;
    blur_memory memory = {.rows = scratch};
    memory.ring = (float *)(void *)(memory.rows + kh);
    memory.weights = memory.ring + kh * ring_row(blur, src->w, src->ch);
    memory.across = memory.weights + kh * kw;
    memory.down = memory.across + kw;
    make_weights(memory.across, blur->kernel_w, blur->sigma_x);
    make_weights(memory.down, blur->kernel_h, blur->sigma_y);
    for (size_t j = 0; j < kh; j++)
        for (size_t k = 0; k < kw; k++)
            memory.weights[j * kw + k] = memory.down[j] * memory.across[k];
    return memory;
}

/* Reflection that does not repeat the edge. */
static int32_t reflect(int32_t at, int32_t size)
{
    return at < 0 ? -at : at < size ? at : 2 * (size - 1) - at;
}

static void widen_row(const pen__image *src, int32_t y, int32_t overhang, float *out)
{
    const uint8_t *row = src->px + (size_t)y * (size_t)src->w * (size_t)src->ch;
    for (int32_t x = -overhang; x < src->w + overhang; x++)
        for (int c = 0; c < src->ch; c++)
            *out++ = row[reflect(x, src->w) * src->ch + c];
}

void pen__gaussian_blur(const pen__image *src, const pen__blur *blur, pen__image *dst,
                        void *scratch, const atomic_bool *cancel)
{
    blur_memory memory = lay_out(blur, src, scratch);
    int32_t kh = blur->kernel_h, above = kh / 2, beside = blur->kernel_w / 2;
    size_t row_len = ring_row(blur, src->w, src->ch), n = (size_t)src->w * (size_t)src->ch;
    pen__blur_window window = {memory.rows, memory.weights, blur->kernel_w, kh, src->ch};
    *dst = (pen__image){dst->px, src->w, src->h, src->ch};
    int32_t loaded = 0;
    for (int32_t y = 0; y < src->h; y++) {
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
            return;
        /* reflected rows are among those from y - above to y + above */
        for (; loaded < src->h && loaded <= y + above; loaded++)
            widen_row(src, loaded, beside, memory.ring + (size_t)(loaded % kh) * row_len);
        for (int32_t j = 0; j < kh; j++)
            memory.rows[j] = memory.ring + (size_t)(reflect(y - above + j, src->h) % kh) * row_len;
        pick_kernels()->blur_row(&window, n, dst->px + (size_t)y * n);
    }
}
