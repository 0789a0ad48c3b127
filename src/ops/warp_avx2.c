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

/* A point inside of the image: the pixel left of and above it, and how far it is on. */
typedef struct place {
    int32_t x, y;
    double dx, dy;
} place;

AVX2_INLINE place find_place(double x, double y)
{
    place at = {.x = pen__warp_floor(x - 0.5), .y = pen__warp_floor(y - 0.5)};
    at.dx = x - 0.5 - at.x;
    at.dy = y - 0.5 - at.y;
    return at;
}

/* Whether `size` by `size` taps from (x, y) on lie in the image, and `load` bytes from the first of
 * the last row in its buffer. */
AVX2_INLINE int has_room(const pen__image *im, int32_t x, int32_t y, int32_t size, size_t load)
{
    if (x < 0 || y < 0 || x + size > im->w || y + size > im->h)
        return 0;
    size_t last = ((size_t)(y + size - 1) * (size_t)im->w + (size_t)x) * 3;
    return last + load <= pen__image_bytes(im);
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

AVX2 static void bilinear_avx2(const pen__image *src, const double *x, const double *y, int n,
                               uint8_t *out)
{
    if (src->ch != 3) {
        pen__warp_kernels_c.bilinear(src, x, y, n, out);
        return;
    }
    size_t stride = (size_t)src->w * 3;
    for (int i = 0; i < n; i++, out += 3) {
        if (!pen__warp_inside(src, x[i], y[i]))
            continue;
        place at = find_place(x[i], y[i]);
        if (!has_room(src, at.x, at.y, 2, 8)) {
            pen__warp_kernels_c.bilinear(src, x + i, y + i, 1, out);
            continue;
        }
        const uint8_t *px = src->px + (size_t)at.y * stride + (size_t)at.x * 3;
        __m256d dx = _mm256_set1_pd(at.dx), dy = _mm256_set1_pd(at.dy);
        __m256d above = lerp_row(px, dx), below = lerp_row(px + stride, dx);
        __m256d value = _mm256_add_pd(above, _mm256_mul_pd(_mm256_sub_pd(below, above), dy));
        store_pixel(out, _mm256_cvttpd_epi32(value));
    }
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

AVX2 static void bicubic_avx2(const pen__image *src, const double *x, const double *y, int n,
                              uint8_t *out)
{
    if (src->ch != 3) {
        pen__warp_kernels_c.bicubic(src, x, y, n, out);
        return;
    }
    size_t stride = (size_t)src->w * 3;
    for (int i = 0; i < n; i++, out += 3) {
        if (!pen__warp_inside(src, x[i], y[i]))
            continue;
        place at = find_place(x[i], y[i]);
        if (!has_room(src, at.x - 1, at.y - 1, 4, 16)) {
            pen__warp_kernels_c.bicubic(src, x + i, y + i, 1, out);
            continue;
        }
        const uint8_t *px = src->px + (size_t)(at.y - 1) * stride + (size_t)(at.x - 1) * 3;
        __m256d rows[4], dx = _mm256_set1_pd(at.dx);
        for (int j = 0; j < 4; j++)
            rows[j] = cubic_row(px + (size_t)j * stride, dx);
        __m256d value = cubic_column(rows, _mm256_set1_pd(at.dy));
        value = _mm256_min_pd(_mm256_max_pd(value, _mm256_setzero_pd()), _mm256_set1_pd(255.0));
        store_pixel(out, _mm256_cvttpd_epi32(value));
    }
}

const pen__warp_kernels pen__warp_kernels_avx2 = {
    .bilinear = bilinear_avx2,
    .bicubic = bicubic_avx2,
};
#else
typedef int pen__warp_avx2_is_empty;
#endif
