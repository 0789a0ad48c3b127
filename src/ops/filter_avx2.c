/* filter_avx2.c - filters with AVX2, the same bytes as filter_c.c.
 *
 * Loops stop where a vector would leave the row; the scalar twin does the rest.
 */
#include "ops/filter_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2        __attribute__((target("avx2,fma")))
#define AVX2_INLINE static inline __attribute__((target("avx2,fma"), always_inline))

AVX2_INLINE __m256i load_words(const uint8_t *px)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)px));
}

AVX2_INLINE __m256i add_three(const uint8_t *px, int ch)
{
    return _mm256_add_epi16(_mm256_add_epi16(load_words(px - ch), load_words(px)),
                            load_words(px + ch));
}

/* pen__blend of eight values. */
AVX2_INLINE __m256i blend_eight(__m128i level, __m128i value, __m256 factor)
{
    __m256i wide_level = _mm256_cvtepi16_epi32(level);
    __m256i spread = _mm256_sub_epi32(_mm256_cvtepi16_epi32(value), wide_level);
    __m256 mixed = _mm256_add_ps(_mm256_cvtepi32_ps(wide_level),
                                 _mm256_mul_ps(factor, _mm256_cvtepi32_ps(spread)));
    mixed = _mm256_min_ps(_mm256_max_ps(mixed, _mm256_setzero_ps()), _mm256_set1_ps(255.0F));
    return _mm256_cvttps_epi32(mixed);
}

/* Sixteen int32 in 0..255 to bytes. */
AVX2_INLINE void store_sixteen(uint8_t *out, __m256i low, __m256i high)
{
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
    __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((void *)out, bytes);
}

AVX2 static void sharpen_row_avx2(const uint8_t *const rows[3], size_t n_bytes, int ch,
                                  float factor, uint8_t *out)
{
    const __m256 scale = _mm256_set1_ps(factor);
    size_t i = 0;
    for (; i + 16 <= n_bytes; i += 16) {
        __m256i value = load_words(rows[1] + i);
        __m256i sum = _mm256_add_epi16(add_three(rows[0] + i, ch), add_three(rows[2] + i, ch));
        sum = _mm256_add_epi16(sum, add_three(rows[1] + i, ch));
        sum = _mm256_add_epi16(sum, _mm256_slli_epi16(value, 2));
        /* by 13, as times 20165 >> 18: exact for all sums of bytes */
        __m256i smooth = _mm256_mulhi_epu16(_mm256_add_epi16(sum, _mm256_set1_epi16(6)),
                                            _mm256_set1_epi16(20165));
        smooth = _mm256_srli_epi16(smooth, 2);
        store_sixteen(
            out + i,
            blend_eight(_mm256_castsi256_si128(smooth), _mm256_castsi256_si128(value), scale),
            blend_eight(_mm256_extracti128_si256(smooth, 1), _mm256_extracti128_si256(value, 1),
                        scale));
    }
    const uint8_t *const rest[3] = {rows[0] + i, rows[1] + i, rows[2] + i};
    pen__filter_kernels_c.sharpen_row(rest, n_bytes - i, ch, factor, out + i);
}

/* Windows at 8 * `vectors` values from `at` on; so many sums hide each other's latency. */
AVX2_INLINE void sum_windows(const pen__blur_window *window, size_t at, int vectors, __m256 *sums)
{
    const float *weight = window->weights;
    for (int v = 0; v < vectors; v++)
        sums[v] = _mm256_setzero_ps();
    for (int32_t j = 0; j < window->h; j++) {
        const float *value = window->rows[j] + at;
        for (int32_t k = 0; k < window->w; k++, value += window->ch) {
            __m256 by = _mm256_broadcast_ss(weight++);
            for (int v = 0; v < vectors; v++)
                sums[v] = _mm256_fmadd_ps(_mm256_loadu_ps(value + 8 * v), by, sums[v]);
        }
    }
}

AVX2 static void blur_row_avx2(const pen__blur_window *window, size_t n, uint8_t *out)
{
    enum { VECTORS = 8 };
    __m256 sums[VECTORS];
    size_t i = 0;
    for (; i + 8 * VECTORS <= n; i += 8 * VECTORS) {
        sum_windows(window, i, VECTORS, sums);
        for (int v = 0; v < VECTORS; v += 2)
            store_sixteen(out + i + 8 * v, _mm256_cvtps_epi32(sums[v]),
                          _mm256_cvtps_epi32(sums[v + 1]));
    }
    for (; i + 16 <= n; i += 16) {
        sum_windows(window, i, 2, sums);
        store_sixteen(out + i, _mm256_cvtps_epi32(sums[0]), _mm256_cvtps_epi32(sums[1]));
    }
    if (i == n)
        return;
    if (n >= 16) { /* once more, from the row's end */
        i = n - 16;
        sum_windows(window, i, 2, sums);
        store_sixteen(out + i, _mm256_cvtps_epi32(sums[0]), _mm256_cvtps_epi32(sums[1]));
    } else {
        pen__filter_kernels_c.blur_row(window, n, out);
    }
}

const pen__filter_kernels pen__filter_kernels_avx2 = {
    .sharpen_row = sharpen_row_avx2,
    .blur_row = blur_row_avx2,
};
#else
typedef int pen__filter_avx2_is_empty;
#endif
