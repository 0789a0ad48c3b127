/* pixel_model.c - planes, predictions and activities, a row at a time.
 *
 * Loops are plain, without branches and over bytes or 16-bit numbers, so that compilers turn them
 * into vectors.
 */
#include "codec/pixel_model.h"

#include <string.h>

#include "base/cpu.h"

/* Finer where most samples are. */
#define TIMES_2(x)  x, x
#define TIMES_4(x)  TIMES_2(x), TIMES_2(x)
#define TIMES_8(x)  TIMES_4(x), TIMES_4(x)
#define TIMES_16(x) TIMES_8(x), TIMES_8(x)
#define TIMES_32(x) TIMES_16(x), TIMES_16(x)
#define TIMES_64(x) TIMES_32(x), TIMES_32(x)
const uint8_t pen__pixels_context_of[256] = {
    TIMES_2(0),                 /* 0 */
    TIMES_2(1),                 /* 2 */
    TIMES_2(2),                 /* 4 */
    TIMES_2(3),                 /* 6 */
    TIMES_4(4),                 /* 8 */
    TIMES_4(5),                 /* 12 */
    TIMES_4(6),   TIMES_2(6),   /* 16 */
    TIMES_8(7),                 /* 22 */
    TIMES_8(8),   TIMES_2(8),   /* 30 */
    TIMES_8(9),   TIMES_4(9),   /* 40 */
    TIMES_16(10),               /* 52 */
    TIMES_16(11), TIMES_4(11),  /* 68 */
    TIMES_32(12),               /* 88 */
    TIMES_32(13), TIMES_16(13), /* 120 */
    TIMES_64(14),               /* 168 */
    TIMES_16(15), TIMES_8(15),  /* 232 */
};

void pen__pixels_split(const uint8_t *px, int32_t w, int ch, uint8_t *restrict samples)
{
    if (ch == 1) {
        memcpy(samples, px, (size_t)w);
        return;
    }
    for (int32_t i = 0; i < 3 * w; i += 3) {
        uint8_t green = px[i + 1];
        samples[i] = green;
        samples[i + 1] = (uint8_t)(px[i] - green + PEN__PIXELS_FIRST);
        samples[i + 2] = (uint8_t)(px[i + 2] - green + PEN__PIXELS_FIRST);
    }
}

void pen__pixels_join(const uint8_t *samples, int32_t w, int ch, uint8_t *restrict px)
{
    if (ch == 1) {
        memcpy(px, samples, (size_t)w);
        return;
    }
    for (int32_t i = 0; i < 3 * w; i += 3) {
        uint8_t green = samples[i];
        px[i] = (uint8_t)(samples[i + 1] + green - PEN__PIXELS_FIRST);
        px[i + 1] = green;
        px[i + 2] = (uint8_t)(samples[i + 2] + green - PEN__PIXELS_FIRST);
    }
}

void pen__pixels_end_row(const pen__pixel_row *row, int32_t w, int ch)
{
    uint8_t *samples = row->samples, *sizes = row->sizes;
    int32_t n = w * ch;
    for (int c = 0; c < ch; c++) {
        samples[c - ch] = samples[c];
        samples[n + c] = samples[n + c - ch];
        sizes[c - ch] = sizes[c];
        sizes[n + c] = sizes[n + c - ch];
    }
}

static inline int distance(int a, int b)
{
    return a < b ? b - a : a - b;
}

static inline int smaller(int a, int b)
{
    return a < b ? a : b;
}

static inline int larger(int a, int b)
{
    return a > b ? a : b;
}

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE void look_above(const pen__pixel_row *above, int32_t w, int ch,
                              const pen__pixel_above *out)
{
    const uint8_t *n = above->samples, *size = above->sizes;
    int16_t *restrict slope = out->slope, *restrict calm = out->calm;
    uint8_t *restrict low = out->low, *restrict high = out->high;
    for (int32_t i = 0; i < w * ch; i++)
        slope[i] = (int16_t)(3 * n[i] - 2 * n[i - ch] + 2);
    for (int32_t i = 0; i < w * ch; i++)
        calm[i] = (int16_t)(distance(n[i], n[i - ch]) + distance(n[i], n[i + ch]) + size[i - ch] +
                            size[i] + size[i + ch]);
    for (int32_t i = 0; i < w * ch; i++) {
        low[i] = n[i] < n[i + ch] ? n[i] : n[i + ch];
        high[i] = n[i] > n[i + ch] ? n[i] : n[i + ch];
    }
}

/* Prediction is the sample to the left, and nothing is known of a row above. */
static void model_first(const pen__pixel_row *row, int32_t n, int ch, uint8_t *residuals,
                        uint8_t *activities)
{
    const uint8_t *at = row->samples;
    uint8_t *sizes = row->sizes;
    for (int32_t i = 0; i < n; i++) {
        residuals[i] = (uint8_t)(at[i] - at[i - ch]);
        sizes[i] = (uint8_t)distance((int8_t)residuals[i], 0);
        activities[i] = (uint8_t)smaller(2 * sizes[i - ch] + sizes[i - 2 * ch], 255);
    }
}

ALWAYS_INLINE void model_next(const pen__pixel_row *above, const pen__pixel_row *row, int32_t count,
                              int ch, uint8_t *restrict residuals, uint8_t *restrict activities)
{
    const uint8_t *n = above->samples, *at = row->samples, *size = above->sizes;
    uint8_t *restrict sizes = row->sizes;
    for (int32_t i = 0; i < count; i++) {
        int16_t left = at[i - ch], slope = (int16_t)(3 * n[i] - 2 * n[i - ch] + 2);
        int16_t low = (int16_t)smaller(left, smaller(n[i], n[i + ch]));
        int16_t high = (int16_t)larger(left, larger(n[i], n[i + ch]));
        int16_t guess = (int16_t)((int16_t)(3 * left + slope) >> 2);
        guess = (int16_t)smaller(larger(guess, low), high);
        residuals[i] = (uint8_t)(at[i] - guess);
    }
    for (int32_t i = 0; i < count; i++) {
        uint8_t r = residuals[i], minus = (uint8_t)(0 - r);
        sizes[i] = r < minus ? r : minus;
    }
    for (int32_t i = 0; i < count; i++) {
        int16_t sum = (int16_t)(distance(n[i], n[i - ch]) + distance(n[i], n[i + ch]) +
                                distance(at[i - ch], n[i - ch]));
        sum = (int16_t)(sum + size[i - ch] + size[i] + size[i + ch] + 2 * sizes[i - ch] +
                        sizes[i - 2 * ch]);
        activities[i] = (uint8_t)smaller(sum, 255);
    }
}

#if defined(__x86_64__)
/* The same with longer vectors. */
#define AVX2 __attribute__((target("avx2")))
AVX2 static void look_above_avx2(const pen__pixel_row *above, int32_t w, int ch,
                                 const pen__pixel_above *out)
{
    look_above(above, w, ch, out);
}

AVX2 static void model_next_avx2(const pen__pixel_row *above, const pen__pixel_row *row,
                                 int32_t count, int ch, uint8_t *residuals, uint8_t *activities)
{
    model_next(above, row, count, ch, residuals, activities);
}
#endif

void pen__pixels_look_above(const pen__pixel_row *above, int32_t w, int ch,
                            const pen__pixel_above *out)
{
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX2) {
        look_above_avx2(above, w, ch, out);
        return;
    }
#endif
    look_above(above, w, ch, out);
}

void pen__pixels_model(const pen__pixel_row *above, const pen__pixel_row *row, int32_t w, int ch,
                       bool is_first, uint8_t *residuals, uint8_t *activities)
{
    for (int c = 0; c < ch; c++) {
        row->samples[c - ch] = is_first ? PEN__PIXELS_FIRST : above->samples[c];
        row->sizes[c - ch] = row->sizes[c - 2 * ch] = 0;
    }
    if (is_first) {
        model_first(row, w * ch, ch, residuals, activities);
        return;
    }
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX2) {
        model_next_avx2(above, row, w * ch, ch, residuals, activities);
        return;
    }
#endif
    model_next(above, row, w * ch, ch, residuals, activities);
}
