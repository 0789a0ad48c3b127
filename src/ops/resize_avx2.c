/* resize_avx2.c - the passes of a resize with AVX2, the same bytes as resize_c.c.
 *
 * A weight has 23 bits and a sign, too many for the 16-bit multiply-add, so it
 * is split: weight = high * 2^11 + low with 0 <= low < 2^11.  Then
 *
 *     sum in*weight = (sum in*high) * 2^11 + sum in*low
 *
 * and each sum is one pmaddwd for two taps.  All of it is exact modulo 2^32, so
 * nothing can differ from the scalar sum.  Packed form, for taps in twos:
 *
 *     int32 { high0 | high1 << 16, low0 | low1 << 16 }
 *
 * and for grey rows, for taps in eights: int16 { high[8], low[8] }.
 *
 * Packed outputs all have the same number of taps.  Those at the right end would
 * look past the row, so they start further left, with zeros in front.  What is
 * left of over-reading stays within PEN__RESIZE_SLACK.
 */
#include "ops/resize_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define AVX2        __attribute__((target("avx2")))
#define AVX2_INLINE static inline __attribute__((target("avx2"), always_inline))
#define LOW_BITS    11

/* ---- packing -------------------------------------------------------------- */

/* The weight of tap t of output i, zero outside its taps. */
static int32_t weight_at(const pen__taps *taps, int32_t i, int32_t t)
{
    return t < 0 || t >= taps->used[i] ? 0
                                       : taps->weight[(size_t)i * (size_t)taps->stride + (size_t)t];
}

static int16_t high_part(int32_t weight)
{
    return (int16_t)(weight >> LOW_BITS);
}

static int16_t low_part(int32_t weight)
{
    return (int16_t)(weight & ((1 << LOW_BITS) - 1));
}

static int32_t pair(int16_t even, int16_t odd)
{
    return (int32_t)((uint32_t)(uint16_t)even | (uint32_t)(uint16_t)odd << 16);
}

/* `offset`: how many zeros go in front. */
static void pack_pairs(const pen__taps *taps, int32_t i, int32_t n_pairs, int32_t offset,
                       int32_t *out)
{
    for (int32_t p = 0; p < n_pairs; p++) {
        int32_t even = weight_at(taps, i, 2 * p - offset);
        int32_t odd = weight_at(taps, i, 2 * p + 1 - offset);
        *out++ = pair(high_part(even), high_part(odd));
        *out++ = pair(low_part(even), low_part(odd));
    }
}

static void pack_eights(const pen__taps *taps, int32_t i, int32_t n_eights, int32_t offset,
                        int16_t *out)
{
    for (int32_t e = 0; e < n_eights; e++, out += 16)
        for (int32_t t = 0; t < 8; t++) {
            int32_t weight = weight_at(taps, i, 8 * e + t - offset);
            out[t] = high_part(weight);
            out[8 + t] = low_part(weight);
        }
}

static int32_t pairs_of(const pen__taps *taps)
{
    return (taps->widest + 1) / 2;
}

static int32_t eights_of(const pen__taps *taps)
{
    return (taps->widest + 7) / 8;
}

static void prepare_horizontal_avx2(pen__taps *taps, int ch)
{
    int32_t n_taps = ch == 3 ? pairs_of(taps) * 2 : eights_of(taps) * 8;
    int32_t furthest = taps->extent > n_taps ? taps->extent - n_taps : 0;
    for (int32_t i = 0; i < taps->count; i++) {
        int32_t start = taps->start[i] < furthest ? taps->start[i] : furthest;
        int32_t *packed = (int32_t *)taps->packed + (size_t)i * (size_t)n_taps;
        taps->packed_start[i] = start;
        if (ch == 3)
            pack_pairs(taps, i, n_taps / 2, taps->start[i] - start, packed);
        else
            pack_eights(taps, i, n_taps / 8, taps->start[i] - start, (int16_t *)(void *)packed);
    }
}

static void prepare_vertical_avx2(pen__taps *taps)
{
    int32_t n_pairs = pairs_of(taps);
    for (int32_t i = 0; i < taps->count; i++)
        pack_pairs(taps, i, n_pairs, 0, (int32_t *)taps->packed + (size_t)i * (size_t)n_pairs * 2);
}

/* ---- shared pieces ---------------------------------------------------------- */

AVX2_INLINE __m256i join(__m256i high, __m256i low)
{
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, LOW_BITS), low);
    return _mm256_srai_epi32(sum, PEN__TAPS_BITS);
}

AVX2_INLINE void multiply_add(__m256i *high, __m256i *low, __m256i px, const int32_t *packed)
{
    *high = _mm256_add_epi32(*high, _mm256_madd_epi16(px, _mm256_set1_epi32(packed[0])));
    *low = _mm256_add_epi32(*low, _mm256_madd_epi16(px, _mm256_set1_epi32(packed[1])));
}

/* ---- horizontal, RGB: lane 0 is one row, lane 1 another ---------------------- */

/* One output pixel of rows a and b: int32 { r g b 0 } in each lane. */
AVX2_INLINE __m256i rgb_output(const uint8_t *a, const uint8_t *b, const int32_t *packed,
                               const int n_pairs)
{
    /* int16 { r0 r1 g0 g1 b0 b1 0 0 }, and the same of pixels 2 and 3 */
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    const __m256i second = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    __m256i high = _mm256_setzero_si256(), low = _mm256_set1_epi32(PEN__TAPS_HALF);
    for (int p = 0; p < n_pairs; p += 2, a += 12, b += 12, packed += 4) {
        __m256i px =
            _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)a)),
                                    _mm_loadu_si128((const void *)b), 1);
        multiply_add(&high, &low, _mm256_shuffle_epi8(px, first), packed);
        if (p + 1 < n_pairs)
            multiply_add(&high, &low, _mm256_shuffle_epi8(px, second), packed + 2);
    }
    return join(high, low);
}

/* Four output pixels of two rows to bytes, 12 in each lane. */
AVX2_INLINE __m256i rgb_bytes(const __m256i px[4])
{
    const __m256i close_gaps = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    __m256i all =
        _mm256_packus_epi16(_mm256_packs_epi32(px[0], px[1]), _mm256_packs_epi32(px[2], px[3]));
    return _mm256_shuffle_epi8(all, close_gaps);
}

/* Store four pixels of the n_left that the row still takes, or what it takes.
 * With two more to come behind them, all 16 bytes may be written. */
AVX2_INLINE void rgb_store(uint8_t *dst, __m128i bytes, int32_t n_left)
{
    if (n_left >= 6) {
        _mm_storeu_si128((void *)dst, bytes);
    } else if (n_left >= 4) {
        int32_t last = _mm_extract_epi32(bytes, 2);
        _mm_storel_epi64((void *)dst, bytes);
        memcpy(dst + 8, &last, sizeof last);
    } else {
        uint8_t copy[16];
        _mm_storeu_si128((void *)copy, bytes);
        memcpy(dst, copy, (size_t)n_left * 3);
    }
}

/* Four rows at once: enough independent sums to hide latency, and each weight is
 * loaded once for all.  n_pairs is a constant where it matters. */
AVX2_INLINE void rgb_rows(const pen__taps *taps, const uint8_t *const src[4], uint8_t *const dst[4],
                          const int n_pairs)
{
    const int32_t *packed = taps->packed, *start = taps->packed_start;
    for (int32_t x = 0; x < taps->count; x += 4) {
        __m256i upper[4], lower[4];
        for (int32_t j = 0; j < 4; j++) {
            int32_t i = x + j < taps->count ? x + j : taps->count - 1;
            size_t at = (size_t)start[i] * 3;
            const int32_t *weights = packed + (size_t)i * (size_t)n_pairs * 2;
            upper[j] = rgb_output(src[0] + at, src[1] + at, weights, n_pairs);
            lower[j] = rgb_output(src[2] + at, src[3] + at, weights, n_pairs);
        }
        __m256i bytes01 = rgb_bytes(upper), bytes23 = rgb_bytes(lower);
        size_t to = (size_t)x * 3;
        int32_t n_left = taps->count - x;
        rgb_store(dst[0] + to, _mm256_castsi256_si128(bytes01), n_left);
        rgb_store(dst[1] + to, _mm256_extracti128_si256(bytes01, 1), n_left);
        rgb_store(dst[2] + to, _mm256_castsi256_si128(bytes23), n_left);
        rgb_store(dst[3] + to, _mm256_extracti128_si256(bytes23, 1), n_left);
    }
}

AVX2 static void rgb_rows_by_width(const pen__taps *taps, const uint8_t *const src[4],
                                   uint8_t *const dst[4])
{
    int n_pairs = pairs_of(taps);
    switch (n_pairs) {
    case 1:
        rgb_rows(taps, src, dst, 1);
        break;
    case 2:
        rgb_rows(taps, src, dst, 2);
        break;
    case 3:
        rgb_rows(taps, src, dst, 3);
        break;
    default:
        rgb_rows(taps, src, dst, n_pairs);
    }
}

/* ---- horizontal, grey: lane 0 sums the high parts, lane 1 the low ----------- */

AVX2_INLINE __m256i grey_output(const uint8_t *src, const int16_t *packed, int32_t n_eights)
{
    __m256i sum = _mm256_setzero_si256();
    for (int32_t e = 0; e < n_eights; e++, src += 8, packed += 16) {
        int64_t eight;
        memcpy(&eight, src, sizeof eight);
        __m256i px = _mm256_unpacklo_epi8(_mm256_set1_epi64x(eight), _mm256_setzero_si256());
        sum =
            _mm256_add_epi32(sum, _mm256_madd_epi16(px, _mm256_loadu_si256((const void *)packed)));
    }
    return sum;
}

/* Bytes of four output pixels, the first being x; past the end, the last again. */
AVX2_INLINE int32_t grey_four(const pen__taps *taps, const uint8_t *src, int32_t x,
                              const int32_t n_eights)
{
    __m256i sum[4];
    for (int32_t j = 0; j < 4; j++) {
        int32_t i = x + j < taps->count ? x + j : taps->count - 1;
        const int16_t *packed = (const int16_t *)taps->packed + (size_t)i * (size_t)n_eights * 16;
        sum[j] = grey_output(src + taps->packed_start[i], packed, n_eights);
    }
    __m256i all =
        _mm256_hadd_epi32(_mm256_hadd_epi32(sum[0], sum[1]), _mm256_hadd_epi32(sum[2], sum[3]));
    __m128i high = _mm256_castsi256_si128(all), low = _mm256_extracti128_si256(all, 1);
    low = _mm_add_epi32(low, _mm_set1_epi32(PEN__TAPS_HALF));
    __m128i value =
        _mm_srai_epi32(_mm_add_epi32(_mm_slli_epi32(high, LOW_BITS), low), PEN__TAPS_BITS);
    value = _mm_packs_epi32(value, value);
    return _mm_cvtsi128_si32(_mm_packus_epi16(value, value));
}

AVX2_INLINE void grey_row(const pen__taps *taps, const uint8_t *src, uint8_t *dst,
                          const int32_t n_eights)
{
    int32_t x = 0, bytes;
    for (; x + 4 <= taps->count; x += 4) {
        bytes = grey_four(taps, src, x, n_eights);
        memcpy(dst + x, &bytes, 4);
    }
    if (x < taps->count) {
        bytes = grey_four(taps, src, x, n_eights);
        memcpy(dst + x, &bytes, (size_t)(taps->count - x));
    }
}

AVX2 static void grey_row_by_width(const pen__taps *taps, const uint8_t *src, uint8_t *dst)
{
    int32_t n_eights = eights_of(taps);
    if (n_eights == 1)
        grey_row(taps, src, dst, 1);
    else
        grey_row(taps, src, dst, n_eights);
}

static void horizontal_avx2(const pen__taps *taps, const uint8_t *src, size_t src_stride,
                            int32_t n_rows, int ch, uint8_t *dst, size_t dst_stride)
{
    if (ch != 3) {
        for (int32_t y = 0; y < n_rows; y++)
            grey_row_by_width(taps, src + (size_t)y * src_stride, dst + (size_t)y * dst_stride);
        return;
    }
    for (int32_t y = 0; y < n_rows; y += 4) {
        const uint8_t *from[4];
        uint8_t *to[4];
        for (int32_t k = 0; k < 4; k++) { /* past the end, the last row is done again */
            size_t row = (size_t)(y + k < n_rows ? y + k : n_rows - 1);
            from[k] = src + row * src_stride;
            to[k] = dst + row * dst_stride;
        }
        rgb_rows_by_width(taps, from, to);
    }
}

/* ---- vertical ------------------------------------------------------------------ */

/* 32 bytes of an output row.  `n_taps` rows, in twos; an odd last one goes with
 * itself, its partner's weight being zero. */
AVX2_INLINE void vertical_32(const int32_t *packed, int32_t n_taps, const uint8_t *src,
                             size_t src_stride, uint8_t *dst)
{
    const __m256i zero = _mm256_setzero_si256(), half = _mm256_set1_epi32(PEN__TAPS_HALF);
    __m256i high[4] = {zero, zero, zero, zero}, low[4] = {half, half, half, half};
    for (int32_t t = 0; t < n_taps; t += 2, packed += 2, src += 2 * src_stride) {
        __m256i even = _mm256_loadu_si256((const void *)src);
        __m256i odd = t + 1 < n_taps ? _mm256_loadu_si256((const void *)(src + src_stride)) : even;
        __m256i first = _mm256_unpacklo_epi8(even, odd), second = _mm256_unpackhi_epi8(even, odd);
        multiply_add(&high[0], &low[0], _mm256_unpacklo_epi8(first, zero), packed);
        multiply_add(&high[1], &low[1], _mm256_unpackhi_epi8(first, zero), packed);
        multiply_add(&high[2], &low[2], _mm256_unpacklo_epi8(second, zero), packed);
        multiply_add(&high[3], &low[3], _mm256_unpackhi_epi8(second, zero), packed);
    }
    __m256i words0 = _mm256_packs_epi32(join(high[0], low[0]), join(high[1], low[1]));
    __m256i words1 = _mm256_packs_epi32(join(high[2], low[2]), join(high[3], low[3]));
    _mm256_storeu_si256((void *)dst, _mm256_packus_epi16(words0, words1));
}

AVX2 static void vertical_avx2(const pen__taps *taps, int32_t i, const uint8_t *src,
                               size_t src_stride, size_t n_bytes, uint8_t *dst)
{
    if (n_bytes < 32) {
        pen__resize_kernels_c.vertical(taps, i, src, src_stride, n_bytes, dst);
        return;
    }
    const int32_t *packed = (const int32_t *)taps->packed + (size_t)i * (size_t)pairs_of(taps) * 2;
    size_t x = 0;
    for (; x + 32 <= n_bytes; x += 32)
        vertical_32(packed, taps->used[i], src + x, src_stride, dst + x);
    if (x < n_bytes) /* the end once more, from where a whole vector fits */
        vertical_32(packed, taps->used[i], src + n_bytes - 32, src_stride, dst + n_bytes - 32);
}

const pen__resize_kernels pen__resize_kernels_avx2 = {
    prepare_horizontal_avx2, prepare_vertical_avx2, horizontal_avx2, vertical_avx2};
#else
typedef int pen__resize_avx2_is_empty;
#endif
