/* warp_avx2.c - bilinear and bicubic sampling with AVX2, the same bytes as warp_c.c.
 *
 * The lanes are a pixel's channels, so a point's arithmetic is that of the scalar
 * twin, three channels at once.  A point whose taps touch the border, or whose
 * loads would leave the buffer, goes to the twin, and so do grey images.
 */
#include "ops/warp_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2        __attribute__((target("avx2,fma")))
#define AVX2_INLINE static inline __attribute__((target("avx2,fma"), always_inline))

/* What is to be done with the points, four at a time. */
typedef struct places {
    int32_t first[4]; /* the index of the first tap's pixel, or one of these: */
    double dx[4], dy[4];
} places;

enum { OUTSIDE = -2, NEAR_BORDER = -1 };

/* Points 0 .. 3.  The taps are `taps` by `taps` pixels from `before` left of and above the
 * pixel a point is in; those of the last row are loaded with `load` bytes at once. */
AVX2_INLINE places find_places(const pen__image *im, const double *x, const double *y, int taps,
                               int before, size_t load)
{
    const __m256d zero = _mm256_setzero_pd(), half = _mm256_set1_pd(0.5);
    const __m256d width = _mm256_set1_pd(im->w), height = _mm256_set1_pd(im->h);
    __m256d at_x = _mm256_loadu_pd(x), at_y = _mm256_loadu_pd(y);
    __m256d inside = _mm256_and_pd(_mm256_and_pd(_mm256_cmp_pd(at_x, zero, _CMP_GE_OQ),
                                                 _mm256_cmp_pd(at_x, width, _CMP_LT_OQ)),
                                   _mm256_and_pd(_mm256_cmp_pd(at_y, zero, _CMP_GE_OQ),
                                                 _mm256_cmp_pd(at_y, height, _CMP_LT_OQ)));
    at_x = _mm256_sub_pd(at_x, half);
    at_y = _mm256_sub_pd(at_y, half);
    __m256d left = _mm256_floor_pd(at_x), top = _mm256_floor_pd(at_y);
    places p;
    _mm256_storeu_pd(p.dx, _mm256_sub_pd(at_x, left));
    _mm256_storeu_pd(p.dy, _mm256_sub_pd(at_y, top));
    left = _mm256_sub_pd(left, _mm256_set1_pd(before));
    top = _mm256_sub_pd(top, _mm256_set1_pd(before));
    __m256d first = _mm256_add_pd(_mm256_mul_pd(top, width), left); /* exact */
    double last_first =
        ((double)pen__image_bytes(im) - (double)load) / 3.0 - (double)(taps - 1) * im->w;
    const __m256d over = _mm256_set1_pd(taps);
    __m256d room = _mm256_and_pd(_mm256_cmp_pd(left, zero, _CMP_GE_OQ),
                                 _mm256_cmp_pd(_mm256_add_pd(left, over), width, _CMP_LE_OQ));
    room = _mm256_and_pd(room, _mm256_cmp_pd(top, zero, _CMP_GE_OQ));
    room = _mm256_and_pd(room, _mm256_cmp_pd(first, _mm256_set1_pd(last_first), _CMP_LE_OQ));
    __m256d index = _mm256_blendv_pd(_mm256_set1_pd(NEAR_BORDER), first, room);
    index = _mm256_blendv_pd(_mm256_set1_pd(OUTSIDE), index, inside);
    _mm_storeu_si128((void *)p.first, _mm256_cvttpd_epi32(index));
    return p;
}

/* Three of four int32 in 0..255 to bytes. */
AVX2_INLINE void store_pixel(uint8_t *out, __m128i rgb)
{
    const __m128i low_bytes =
        _mm_setr_epi8(0, 4, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    uint32_t bytes = (uint32_t)_mm_cvtsi128_si32(_mm_shuffle_epi8(rgb, low_bytes));
    out[0] = (uint8_t)bytes;
    out[1] = (uint8_t)(bytes >> 8);
    out[2] = (uint8_t)(bytes >> 16);
}

/* Pixel k of the bytes as int32; the fourth lane is 0. */
AVX2_INLINE __m128i pixel(__m128i bytes, int k)
{
    const int first = 3 * k, none = (int)0x80808000;
    return _mm_shuffle_epi8(bytes, _mm_setr_epi32(none | first, none | (first + 1),
                                                  none | (first + 2), (int)0x80808080));
}

/* a + (b - a) * d along a row, where a is at `px` and b beside it. */
AVX2_INLINE __m256d lerp_row(const uint8_t *px, __m256d d)
{
    __m128i bytes = _mm_loadl_epi64((const void *)px);
    __m128i a = pixel(bytes, 0), b = pixel(bytes, 1);
    return _mm256_add_pd(_mm256_cvtepi32_pd(a),
                         _mm256_mul_pd(_mm256_cvtepi32_pd(_mm_sub_epi32(b, a)), d));
}

/* The pixel whose first tap is at px. */
AVX2_INLINE __m256d bilinear_point(const uint8_t *px, size_t stride, double along, double across)
{
    __m256d dx = _mm256_set1_pd(along), dy = _mm256_set1_pd(across);
    __m256d above = lerp_row(px, dx), below = lerp_row(px + stride, dx);
    return _mm256_add_pd(above, _mm256_mul_pd(_mm256_sub_pd(below, above), dy));
}

AVX2 static void bilinear_avx2(const pen__image *src, const double *x, const double *y, int n,
                               uint8_t *out)
{
    size_t stride = (size_t)src->w * 3;
    int i = 0;
    for (; src->ch == 3 && i + 4 <= n; i += 4) {
        places p = find_places(src, x + i, y + i, 2, 0, 8);
        for (int k = 0; k < 4; k++, out += 3) {
            if (p.first[k] >= 0) {
                const uint8_t *px = src->px + (size_t)p.first[k] * 3;
                store_pixel(out, _mm256_cvttpd_epi32(bilinear_point(px, stride, p.dx[k], p.dy[k])));
            } else if (p.first[k] == NEAR_BORDER) {
                pen__warp_kernels_c.bilinear(src, x + i + k, y + i + k, 1, out);
            }
        }
    }
    pen__warp_kernels_c.bilinear(src, x + i, y + i, n - i, out);
}

/* p1 + d * (p2 + d * (p3 + d * p4)). */
AVX2_INLINE __m256d polynomial(__m256d p1, __m256d p2, __m256d p3, __m256d p4, __m256d d)
{
    __m256d sum = _mm256_add_pd(p3, _mm256_mul_pd(d, p4));
    sum = _mm256_add_pd(p2, _mm256_mul_pd(d, sum));
    return _mm256_add_pd(p1, _mm256_mul_pd(d, sum));
}

/* The twin's cubic() of four neighbours; sums of bytes are exact in any order. */
AVX2_INLINE __m256d cubic_row(const uint8_t *px, __m256d d)
{
    __m128i bytes = _mm_loadu_si128((const void *)px);
    __m128i a = pixel(bytes, 0), b = pixel(bytes, 1), c = pixel(bytes, 2), e = pixel(bytes, 3);
    __m128i fall = _mm_sub_epi32(a, b), rise = _mm_sub_epi32(c, e);
    __m128i p3 = _mm_add_epi32(_mm_add_epi32(fall, fall), rise);
    __m128i p4 = _mm_sub_epi32(_mm_setzero_si128(), _mm_add_epi32(fall, rise));
    return polynomial(_mm256_cvtepi32_pd(b), _mm256_cvtepi32_pd(_mm_sub_epi32(c, a)),
                      _mm256_cvtepi32_pd(p3), _mm256_cvtepi32_pd(p4), d);
}

/* The twin's cubic() across rows, each sum in its order. */
AVX2_INLINE __m256d cubic_column(const __m256d v[4], __m256d d)
{
    __m256d minus = _mm256_xor_pd(v[0], _mm256_set1_pd(-0.0));
    __m256d p2 = _mm256_add_pd(minus, v[2]);
    __m256d p3 = _mm256_mul_pd(_mm256_set1_pd(2.0), _mm256_sub_pd(v[0], v[1]));
    p3 = _mm256_sub_pd(_mm256_add_pd(p3, v[2]), v[3]);
    __m256d p4 = _mm256_add_pd(_mm256_sub_pd(_mm256_add_pd(minus, v[1]), v[2]), v[3]);
    return polynomial(v[1], p2, p3, p4, d);
}

AVX2_INLINE __m256d bicubic_point(const uint8_t *px, size_t stride, double along, double across)
{
    __m256d rows[4], dx = _mm256_set1_pd(along);
    for (size_t j = 0; j < 4; j++)
        rows[j] = cubic_row(px + j * stride, dx);
    __m256d value = cubic_column(rows, _mm256_set1_pd(across));
    return _mm256_min_pd(_mm256_max_pd(value, _mm256_setzero_pd()), _mm256_set1_pd(255.0));
}

AVX2 static void bicubic_avx2(const pen__image *src, const double *x, const double *y, int n,
                              uint8_t *out)
{
    size_t stride = (size_t)src->w * 3;
    int i = 0;
    for (; src->ch == 3 && i + 4 <= n; i += 4) {
        places p = find_places(src, x + i, y + i, 4, 1, 16);
        for (int k = 0; k < 4; k++, out += 3) {
            if (p.first[k] >= 0) {
                const uint8_t *px = src->px + (size_t)p.first[k] * 3;
                store_pixel(out, _mm256_cvttpd_epi32(bicubic_point(px, stride, p.dx[k], p.dy[k])));
            } else if (p.first[k] == NEAR_BORDER) {
                pen__warp_kernels_c.bicubic(src, x + i + k, y + i + k, 1, out);
            }
        }
    }
    pen__warp_kernels_c.bicubic(src, x + i, y + i, n - i, out);
}

const pen__warp_kernels pen__warp_kernels_avx2 = {
    .bilinear = bilinear_avx2,
    .bicubic = bicubic_avx2,
};
#else
typedef int pen__warp_avx2_is_empty;
#endif
