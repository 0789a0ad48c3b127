/* tensor_avx512.c - pixels to planes of floats, sixteen at a time: a whole cache line of float32.
 *
 * The arithmetic is tensor_avx2.c's.  Masks take care of the ends, so rows need nothing
 * behind them.  Interleaved layouts and bytes are left to AVX2.
 */
#include "ops/tensor_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET      "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vbmi"
#define SIMD        __attribute__((target(TARGET)))
#define SIMD_INLINE static inline __attribute__((target(TARGET), always_inline))

typedef struct affine {
    __m512 scale, scale_rest, mean, inverse, inverse_rest;
} affine;

SIMD_INLINE affine affine_of_channel(const pen__tensor_formula *formula, int c)
{
    return (affine){_mm512_set1_ps(formula->scale), _mm512_set1_ps(formula->scale_rest),
                    _mm512_set1_ps(formula->mean[c]), _mm512_set1_ps(formula->inverse[c]),
                    _mm512_set1_ps(formula->inverse_rest[c])};
}

SIMD_INLINE __m512 evaluate(__m512i bytes, affine by)
{
    __m512 v = _mm512_cvtepi32_ps(bytes);
    __m512 x = _mm512_fmadd_ps(v, by.scale, _mm512_mul_ps(v, by.scale_rest));
    x = _mm512_sub_ps(x, by.mean);
    return _mm512_fmadd_ps(x, by.inverse, _mm512_mul_ps(x, by.inverse_rest));
}

SIMD_INLINE __m256i to_bf16(__m512 value)
{
    __m512i bits = _mm512_castps_si512(value);
    __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    bits = _mm512_add_epi32(bits, _mm512_add_epi32(is_odd, _mm512_set1_epi32(0x7FFF)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
}

/* The values in `which` at element `at`; all of them if it streams. */
SIMD_INLINE void store(void *dst, size_t at, __mmask16 which, __m512 value, const pen_dtype dtype,
                       const bool streams)
{
    uint16_t *narrow = (uint16_t *)dst + at;
    if (dtype == PEN_DTYPE_FLOAT16)
        _mm256_mask_storeu_epi16(narrow, which, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    else if (dtype == PEN_DTYPE_BFLOAT16)
        _mm256_mask_storeu_epi16(narrow, which, to_bf16(value));
    else if (streams)
        _mm512_stream_ps((float *)dst + at, value);
    else
        _mm512_mask_storeu_ps((float *)dst + at, which, value);
}

SIMD_INLINE __mmask16 first_of_16(size_t n)
{
    return n >= 16 ? 0xFFFF : (__mmask16)((1U << n) - 1);
}

/* Three planes of n pixels. */
SIMD_INLINE void from_rgb(const pen__tensor_formula *formula, const uint8_t *px, size_t n,
                          void *dst, const pen_dtype dtype, const bool streams)
{
    const __m512i red =
        _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45);
    const __mmask64 low_bytes = 0x1111111111111111U;
    affine by[3];
    for (int c = 0; c < 3; c++)
        by[c] = affine_of_channel(formula, c);
    for (size_t i = 0; i < n; i += 16) {
        size_t n_here = n - i < 16 ? n - i : 16;
        __m512i in = _mm512_maskz_loadu_epi8(((uint64_t)1 << 3 * n_here) - 1, px + 3 * i);
        for (int c = 0; c < 3; c++) {
            __m512i wanted = _mm512_add_epi32(red, _mm512_set1_epi32(c));
            __m512i bytes = _mm512_maskz_permutexvar_epi8(low_bytes, wanted, in);
            store(dst, (size_t)c * n + i, first_of_16(n_here), evaluate(bytes, by[c]), dtype,
                  streams);
        }
    }
}

/* One plane, or three from the same grey. */
SIMD_INLINE void from_grey(const pen__tensor_formula *formula, int n_ch, const uint8_t *px,
                           size_t n, void *dst, const pen_dtype dtype, const bool streams)
{
    for (int c = 0; c < n_ch; c++) {
        affine by = affine_of_channel(formula, c);
        for (size_t i = 0; i < n; i += 16) {
            __mmask16 which = first_of_16(n - i);
            __m512i in = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(which, px + i));
            store(dst, (size_t)c * n + i, which, evaluate(in, by), dtype, streams);
        }
    }
}

SIMD_INLINE void run(const pen__tensor_table *table, const pen__image *src, void *dst,
                     const pen_dtype dtype, const bool streams)
{
    size_t n = (size_t)src->w * (size_t)src->h;
    if (src->ch == 3)
        from_rgb(&table->formula, src->px, n, dst, dtype, streams);
    else
        from_grey(&table->formula, table->channels, src->px, n, dst, dtype, streams);
}

SIMD size_t pen__to_tensor_avx512(const pen__tensor_table *table, const pen__image *src,
                                  pen_layout layout, void *dst)
{
    if (layout != PEN_LAYOUT_NCHW || table->dtype == PEN_DTYPE_UINT8)
        return 0;
    if (table->dtype == PEN_DTYPE_FLOAT16) {
        run(table, src, dst, PEN_DTYPE_FLOAT16, false);
    } else if (table->dtype == PEN_DTYPE_BFLOAT16) {
        run(table, src, dst, PEN_DTYPE_BFLOAT16, false);
    } else if (pen__tensor_can_stream(src, dst)) {
        run(table, src, dst, PEN_DTYPE_FLOAT32, true);
        _mm_sfence(); /* as in tensor_avx2.c */
    } else {
        run(table, src, dst, PEN_DTYPE_FLOAT32, false);
    }
    return (size_t)src->w * (size_t)src->h;
}
#else
typedef int pen__tensor_avx512_is_empty;
#endif
