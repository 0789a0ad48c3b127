/* jpeg_color_avx2.c - chroma upsampling and colour conversion of JPEG rows with AVX2.
 *
 * Upsampling works in 16 bits on 16 samples, and writes even and odd results as the two
 * bytes of a 16-bit word.  It runs past the end of a row, into the slack.  Colour
 * conversion takes 32 pixels; the last 32 of a row overlap those before them, because
 * nothing may be written behind the pixels.
 */
#include "ops/jpeg_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2        __attribute__((target("avx2")))
#define AVX2_INLINE static inline __attribute__((target("avx2"), always_inline))

AVX2_INLINE __m256i load_wide(const uint8_t *p)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p));
}

/* 3a + b */
AVX2_INLINE __m256i lean(__m256i a, __m256i b)
{
    return _mm256_add_epi16(_mm256_add_epi16(a, a), _mm256_add_epi16(a, b));
}

AVX2_INLINE __m256i lean_rows(const uint8_t *near, const uint8_t *far)
{
    return lean(load_wide(near), load_wide(far));
}

AVX2 void pen__jpeg_upsample_h2v2_avx2(const uint8_t *near, const uint8_t *far, uint8_t *dst,
                                       int32_t n)
{
    const __m256i up = _mm256_set1_epi16(8), down = _mm256_set1_epi16(7);
    for (int32_t i = 0; i < n; i += 16) {
        __m256i last = lean_rows(near + i - 1, far + i - 1), here = lean_rows(near + i, far + i),
                next = lean_rows(near + i + 1, far + i + 1);
        __m256i even = _mm256_srli_epi16(_mm256_add_epi16(lean(here, last), up), 4);
        __m256i odd = _mm256_srli_epi16(_mm256_add_epi16(lean(here, next), down), 4);
        _mm256_storeu_si256((void *)(dst + 2 * i),
                            _mm256_or_si256(even, _mm256_slli_epi16(odd, 8)));
    }
}

AVX2 void pen__jpeg_upsample_h2v1_avx2(const uint8_t *src, uint8_t *dst, int32_t n)
{
    const __m256i down = _mm256_set1_epi16(1), up = _mm256_set1_epi16(2);
    for (int32_t i = 0; i < n; i += 16) {
        __m256i last = load_wide(src + i - 1), here = load_wide(src + i),
                next = load_wide(src + i + 1);
        __m256i even = _mm256_srli_epi16(_mm256_add_epi16(lean(here, last), down), 2);
        __m256i odd = _mm256_srli_epi16(_mm256_add_epi16(lean(here, next), up), 2);
        _mm256_storeu_si256((void *)(dst + 2 * i),
                            _mm256_or_si256(even, _mm256_slli_epi16(odd, 8)));
    }
}

AVX2 void pen__jpeg_upsample_h1v2_avx2(const uint8_t *near, const uint8_t *far, uint8_t *dst,
                                       int32_t n, int bias)
{
    const __m256i rounding = _mm256_set1_epi16((short)bias);
    for (int32_t i = 0; i < n; i += 16) {
        __m256i sum = _mm256_add_epi16(lean_rows(near + i, far + i), rounding);
        __m256i quarter = _mm256_srli_epi16(sum, 2);
        __m128i bytes =
            _mm_packus_epi16(_mm256_castsi256_si128(quarter), _mm256_extracti128_si256(quarter, 1));
        _mm_storeu_si128((void *)(dst + i), bytes);
    }
}

/* x + x * weight / 2^15, rounded. */
AVX2_INLINE __m256i and_part(__m256i x, short weight)
{
    return _mm256_add_epi16(x, _mm256_mulhrs_epi16(x, _mm256_set1_epi16(weight)));
}

/* -0.34414 blue - 0.71414 red, where 0.71414 is too large for int16 and goes as 1 less
 * 0.28586. */
AVX2_INLINE __m256i green_part(__m256i blue, __m256i red)
{
    const __m256i weights = _mm256_set1_epi32((int)(18734U << 16 | (uint16_t)-22554));
    const __m256i half = _mm256_set1_epi32(1 << 15);
    __m256i lo = _mm256_madd_epi16(_mm256_unpacklo_epi16(blue, red), weights);
    __m256i hi = _mm256_madd_epi16(_mm256_unpackhi_epi16(blue, red), weights);
    lo = _mm256_srai_epi32(_mm256_add_epi32(lo, half), 16);
    hi = _mm256_srai_epi32(_mm256_add_epi32(hi, half), 16);
    return _mm256_sub_epi16(_mm256_packs_epi32(lo, hi), red);
}

/* 16 pixels in 16-bit words, light y and colour differences. */
typedef struct words {
    __m256i r, g, b;
} words;

AVX2_INLINE words convert(__m256i y, __m256i cb, __m256i cr)
{
    const __m256i middle = _mm256_set1_epi16(128);
    __m256i blue = _mm256_sub_epi16(cb, middle), red = _mm256_sub_epi16(cr, middle);
    words out;
    /* 1.772 is 1 + 25297 / 2^15.  1.402 is 1 + 13172.5 / 2^15; half a unit more changes none of
     * the 256 results. */
    out.r = _mm256_add_epi16(y, and_part(red, 13173));
    out.g = _mm256_add_epi16(y, green_part(blue, red));
    out.b = _mm256_add_epi16(y, and_part(blue, 25297));
    return out;
}

#define BOTH_LANES(...) _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))

/* 16 pixels of each lane as three vectors of 16 bytes: r g b r g b ... */
AVX2_INLINE void store_rgb(uint8_t *dst, __m256i r, __m256i g, __m256i b)
{
    const __m256i r0 = BOTH_LANES(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5);
    const __m256i g0 = BOTH_LANES(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1);
    const __m256i b0 = BOTH_LANES(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
    const __m256i r1 = BOTH_LANES(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1);
    const __m256i g1 = BOTH_LANES(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10);
    const __m256i b1 = BOTH_LANES(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1);
    const __m256i r2 = BOTH_LANES(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1);
    const __m256i g2 = BOTH_LANES(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1);
    const __m256i b2 = BOTH_LANES(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15);
    const __m256i order[3][3] = {{r0, g0, b0}, {r1, g1, b1}, {r2, g2, b2}};
    for (int i = 0; i < 3; i++) {
        __m256i out = _mm256_or_si256(_mm256_shuffle_epi8(r, order[i][0]),
                                      _mm256_or_si256(_mm256_shuffle_epi8(g, order[i][1]),
                                                      _mm256_shuffle_epi8(b, order[i][2])));
        _mm_storeu_si128((void *)(dst + 16 * i), _mm256_castsi256_si128(out));
        _mm_storeu_si128((void *)(dst + 48 + 16 * i), _mm256_extracti128_si256(out, 1));
    }
}

AVX2_INLINE void convert_32(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i vy = _mm256_loadu_si256((const void *)y), vb = _mm256_loadu_si256((const void *)cb),
            vr = _mm256_loadu_si256((const void *)cr);
    words lo = convert(_mm256_unpacklo_epi8(vy, zero), _mm256_unpacklo_epi8(vb, zero),
                       _mm256_unpacklo_epi8(vr, zero));
    words hi = convert(_mm256_unpackhi_epi8(vy, zero), _mm256_unpackhi_epi8(vb, zero),
                       _mm256_unpackhi_epi8(vr, zero));
    store_rgb(rgb, _mm256_packus_epi16(lo.r, hi.r), _mm256_packus_epi16(lo.g, hi.g),
              _mm256_packus_epi16(lo.b, hi.b));
}

AVX2 void pen__jpeg_ycc_to_rgb_avx2(const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                                    uint8_t *rgb, int32_t n)
{
    if (n < 32) {
        pen__jpeg_ycc_to_rgb_c(y, cb, cr, rgb, n);
        return;
    }
    for (int32_t i = 0; i + 32 <= n; i += 32)
        convert_32(y + i, cb + i, cr + i, rgb + 3 * i);
    if (n % 32)
        convert_32(y + n - 32, cb + n - 32, cr + n - 32, rgb + 3 * (n - 32));
}
#endif
