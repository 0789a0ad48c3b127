/* resize_avx512.c - the horizontal pass of RGB rows where the processor can multiply and add four
 * bytes at once (VNNI); everything else is resize_avx2.c's.
 *
 * A weight has 23 bits and a sign; as three signed digits of eight bits,
 *
 *     weight = d2 * 2^16 + d1 * 2^8 + d0,
 *
 * it makes three sums of bytes by bytes, each exact modulo 2^32 as in resize_avx2.c, but
 * for four taps an instruction instead of two, and pixels need no widening.  Packed
 * form, for taps in fours: int8 { d0[4], d1[4], d2[4] }.
 *
 * Vectors stay at 256 bits, two rows each: with four rows in 512, loading rows into lanes
 * costs what the width saves.
 */
#include "ops/resize_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TARGET      "avx2,avx512f,avx512bw,avx512vl,avx512vnni"
#define SIMD        __attribute__((target(TARGET)))
#define SIMD_INLINE static inline __attribute__((target(TARGET), always_inline))

/* ---- packing -------------------------------------------------------------- */

static int32_t fours_of(const pen__taps *taps)
{
    return (taps->widest + 3) / 4;
}

/* `offset`: how many zeros go in front. */
static void pack_fours(const pen__taps *taps, int32_t i, int32_t n_fours, int32_t offset,
                       int8_t *out)
{
    const int32_t *weight = taps->weight + (size_t)i * (size_t)taps->stride;
    memset(out, 0, (size_t)n_fours * 12);
    for (int32_t t = 0; t < taps->used[i]; t++) {
        int32_t at = (t + offset) / 4 * 12 + (t + offset) % 4, rest = weight[t];
        for (int32_t digit = 0; digit < 3; digit++) {
            out[at + 4 * digit] = (int8_t)rest;
            rest = (rest - (int8_t)rest) / 256;
        }
    }
}

/* Outputs at the right end start further left, so that none looks far past the row. */
static void prepare_horizontal_avx512(const pen__taps *taps, int ch)
{
    if (ch != 3) {
        pen__resize_kernels_avx2.prepare_horizontal(taps, ch);
        return;
    }
    int32_t n_fours = fours_of(taps);
    int32_t furthest = taps->extent > 4 * n_fours ? taps->extent - 4 * n_fours : 0;
    for (int32_t i = 0; i < taps->count; i++) {
        int32_t start = taps->start[i] < furthest ? taps->start[i] : furthest;
        taps->packed_start[i] = start;
        pack_fours(taps, i, n_fours, taps->start[i] - start,
                   (int8_t *)taps->packed + (size_t)i * (size_t)n_fours * 12);
    }
}

static void prepare_vertical_avx512(const pen__taps *taps)
{
    pen__resize_kernels_avx2.prepare_vertical(taps);
}

/* ---- one output pixel of four rows -------------------------------------------- */

/* Three digits' sums of two rows, a lane each: int32 { r g b 0 }. */
typedef struct sums {
    __m256i digit[3];
} sums;

SIMD_INLINE sums sums_start(void)
{
    const __m256i zero = _mm256_setzero_si256();
    return (sums){{_mm256_set1_epi32(PEN__TAPS_HALF), zero, zero}};
}

SIMD_INLINE __m256i sums_join(const sums *s)
{
    __m256i upper = _mm256_add_epi32(_mm256_slli_epi32(s->digit[2], 8), s->digit[1]);
    __m256i all = _mm256_add_epi32(_mm256_slli_epi32(upper, 8), s->digit[0]);
    return _mm256_srai_epi32(all, PEN__TAPS_BITS);
}

/* Four pixels of two rows: in each lane { r0 r1 r2 r3 g0 ... b3, zeros }. */
SIMD_INLINE __m256i load_fours(const uint8_t *a, const uint8_t *b)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1));
    __m256i px = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)a)),
                                         _mm_loadu_si128((const void *)b), 1);
    return _mm256_shuffle_epi8(px, order);
}

SIMD_INLINE void rgb_output(const uint8_t *const src[4], size_t at, const int8_t *packed,
                            const int32_t n_fours, __m256i *upper, __m256i *lower)
{
    sums u = sums_start(), l = sums_start();
    for (int32_t f = 0; f < n_fours; f++, at += 12, packed += 12) {
        __m256i px_u = load_fours(src[0] + at, src[1] + at);
        __m256i px_l = load_fours(src[2] + at, src[3] + at);
        for (int32_t digit = 0; digit < 3; digit++) {
            int32_t four;
            memcpy(&four, packed + 4 * digit, sizeof four);
            __m256i weights = _mm256_set1_epi32(four);
            u.digit[digit] = _mm256_dpbusd_epi32(u.digit[digit], px_u, weights);
            l.digit[digit] = _mm256_dpbusd_epi32(l.digit[digit], px_l, weights);
        }
    }
    *upper = sums_join(&u);
    *lower = sums_join(&l);
}

/* ---- rows ---------------------------------------------------------------------- */

/* Four output pixels of two rows to bytes, 12 in each lane. */
SIMD_INLINE __m256i rgb_bytes(const __m256i px[4])
{
    const __m256i close_gaps = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    __m256i all =
        _mm256_packus_epi16(_mm256_packs_epi32(px[0], px[1]), _mm256_packs_epi32(px[2], px[3]));
    return _mm256_shuffle_epi8(all, close_gaps);
}

/* n_fours is a constant where it matters. */
SIMD_INLINE void rgb_rows(const pen__taps *taps, const uint8_t *const src[4], uint8_t *const dst[4],
                          const int32_t n_fours)
{
    const int8_t *packed = taps->packed;
    for (int32_t x = 0; x < taps->count; x += 4) {
        __m256i upper[4], lower[4];
        for (int32_t j = 0; j < 4; j++) {
            int32_t i = x + j < taps->count ? x + j : taps->count - 1;
            rgb_output(src, (size_t)taps->packed_start[i] * 3,
                       packed + (size_t)i * (size_t)n_fours * 12, n_fours, &upper[j], &lower[j]);
        }
        __m256i bytes01 = rgb_bytes(upper), bytes23 = rgb_bytes(lower);
        int32_t n_left = taps->count - x;
        __mmask16 which = n_left >= 4 ? 0xFFF : (__mmask16)((1 << 3 * n_left) - 1);
        size_t to = (size_t)x * 3;
        _mm_mask_storeu_epi8(dst[0] + to, which, _mm256_castsi256_si128(bytes01));
        _mm_mask_storeu_epi8(dst[1] + to, which, _mm256_extracti128_si256(bytes01, 1));
        _mm_mask_storeu_epi8(dst[2] + to, which, _mm256_castsi256_si128(bytes23));
        _mm_mask_storeu_epi8(dst[3] + to, which, _mm256_extracti128_si256(bytes23, 1));
    }
}

SIMD static void rgb_rows_by_width(const pen__taps *taps, const uint8_t *const src[4],
                                   uint8_t *const dst[4])
{
    int32_t n_fours = fours_of(taps);
    switch (n_fours) {
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
        rgb_rows(taps, src, dst, n_fours);
    }
}

static void horizontal_avx512(const pen__taps *taps, const uint8_t *src, size_t src_stride,
                              int32_t n_rows, int ch, uint8_t *dst, size_t dst_stride)
{
    if (ch != 3) {
        pen__resize_kernels_avx2.horizontal(taps, src, src_stride, n_rows, ch, dst, dst_stride);
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

static void vertical_avx512(const pen__taps *taps, int32_t i, const uint8_t *src, size_t src_stride,
                            size_t n_bytes, uint8_t *dst)
{
    pen__resize_kernels_avx2.vertical(taps, i, src, src_stride, n_bytes, dst);
}

const pen__resize_kernels pen__resize_kernels_avx512 = {
    prepare_horizontal_avx512, prepare_vertical_avx512, horizontal_avx512, vertical_avx512};
#else
typedef int pen__resize_avx512_is_empty;
#endif
