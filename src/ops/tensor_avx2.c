/* tensor_avx2.c - pixels to tensors by arithmetic, eight values at a time.
 *
 * Each loop is written once for all dtypes: the dtype is a constant where it is
 * inlined.  Float32 stores go around the cache (they stream) where alignment
 * allows: a batch is larger than the cache and read later by someone else, so
 * loading its lines only to overwrite them would double the traffic.  Narrower
 * types make a quarter of a line at a time, and there streaming lost.
 */
#include "ops/tensor_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET        __attribute__((target("avx2,fma,f16c")))
#define TARGET_INLINE static inline __attribute__((target("avx2,fma,f16c"), always_inline))

/* ---- values ---------------------------------------------------------------------- */

/* One vector's constants. */
typedef struct affine {
    __m256 scale, scale_rest, mean, inverse, inverse_rest;
} affine;

TARGET_INLINE __m256 evaluate(__m256i bytes, affine by)
{
    __m256 v = _mm256_cvtepi32_ps(bytes);
    __m256 x = _mm256_fmadd_ps(v, by.scale, _mm256_mul_ps(v, by.scale_rest));
    x = _mm256_sub_ps(x, by.mean);
    return _mm256_fmadd_ps(x, by.inverse, _mm256_mul_ps(x, by.inverse_rest));
}

TARGET_INLINE __m128i to_bf16(__m256 value)
{
    __m256i bits = _mm256_castps_si256(value);
    __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    bits = _mm256_add_epi32(bits, _mm256_add_epi32(is_odd, _mm256_set1_epi32(0x7FFF)));
    bits = _mm256_srli_epi32(bits, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
}

/* Store eight values at element `at`.  `streams` is for float32 alone. */
TARGET_INLINE void store(void *dst, size_t at, __m256 value, const pen_dtype dtype,
                         const bool streams)
{
    float *wide = (float *)dst + at;
    uint16_t *narrow = (uint16_t *)dst + at;
    if (dtype == PEN_DTYPE_FLOAT16)
        _mm_storeu_si128((void *)narrow, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    else if (dtype == PEN_DTYPE_BFLOAT16)
        _mm_storeu_si128((void *)narrow, to_bf16(value));
    else if (streams)
        _mm256_stream_ps(wide, value);
    else
        _mm256_storeu_ps(wide, value);
}

TARGET_INLINE affine affine_of_channel(const pen__tensor_formula *formula, int c)
{
    return (affine){_mm256_set1_ps(formula->scale), _mm256_set1_ps(formula->scale_rest),
                    _mm256_set1_ps(formula->mean[c]), _mm256_set1_ps(formula->inverse[c]),
                    _mm256_set1_ps(formula->inverse_rest[c])};
}

/* Constants of eight interleaved values, the first being of channel 8k mod 3. */
TARGET static affine affine_of_phase(const pen__tensor_formula *formula, int k)
{
    float mean[8], inverse[8], inverse_rest[8];
    for (int i = 0; i < 8; i++) {
        int c = (8 * k + i) % 3;
        mean[i] = formula->mean[c];
        inverse[i] = formula->inverse[c];
        inverse_rest[i] = formula->inverse_rest[c];
    }
    return (affine){_mm256_set1_ps(formula->scale), _mm256_set1_ps(formula->scale_rest),
                    _mm256_loadu_ps(mean), _mm256_loadu_ps(inverse), _mm256_loadu_ps(inverse_rest)};
}

/* ---- loops ------------------------------------------------------------------------ */

/* Eight RGB pixels, four in each lane; reads 28 bytes. */
TARGET_INLINE __m256i load_eight(const uint8_t *px)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)px)),
                                   _mm_loadu_si128((const void *)(px + 12)), 1);
}

/* Pixels that must be left for load_eight. */
#define ROOM 10

/* Sixteen pixels at a time: they make one whole cache line of float32 in each of
 * the three planes, which streaming wants in one go. */
TARGET_INLINE size_t planes_from_rgb(const pen__tensor_formula *formula, const uint8_t *px,
                                     size_t n, void *dst, const pen_dtype dtype, const bool streams)
{
    const __m256i red = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, -1, -1, 3, -1, -1, -1, 6, -1, -1, -1, 9, -1, -1, -1));
    affine by[3];
    for (int c = 0; c < 3; c++)
        by[c] = affine_of_channel(formula, c);
    size_t i = 0;
    for (; i + 8 + ROOM <= n; i += 16) {
        __m256i first = load_eight(px + 3 * i), second = load_eight(px + 3 * i + 24);
        for (size_t c = 0; c < 3; c++) {
            __m256i wanted = _mm256_add_epi32(red, _mm256_set1_epi32((int)c));
            __m256 values[2] = {evaluate(_mm256_shuffle_epi8(first, wanted), by[c]),
                                evaluate(_mm256_shuffle_epi8(second, wanted), by[c])};
            store(dst, c * n + i, values[0], dtype, streams);
            store(dst, c * n + i + 8, values[1], dtype, streams);
        }
    }
    return i;
}

/* One plane, or three from the same grey. */
TARGET_INLINE size_t planes_from_grey(const pen__tensor_formula *formula, int n_ch,
                                      const uint8_t *px, size_t n, void *dst, const pen_dtype dtype,
                                      const bool streams)
{
    size_t end = n & ~(size_t)7;
    for (int c = 0; c < n_ch; c++) {
        affine by = affine_of_channel(formula, c);
        for (size_t i = 0; i < end; i += 8) {
            __m256i in = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(px + i)));
            store(dst, (size_t)c * n + i, evaluate(in, by), dtype, streams);
        }
    }
    return end;
}

TARGET_INLINE size_t interleaved(const pen__tensor_formula *formula, const uint8_t *px, size_t n,
                                 void *dst, const pen_dtype dtype, const bool streams)
{
    affine by[3];
    for (int k = 0; k < 3; k++)
        by[k] = affine_of_phase(formula, k);
    size_t end = n & ~(size_t)7;
    for (size_t i = 0; i < 3 * end; i += 24)
        for (size_t k = 0; k < 3; k++) {
            size_t at = i + 8 * k;
            __m256i in = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(px + at)));
            store(dst, at, evaluate(in, by[k]), dtype, streams);
        }
    return end;
}

/* RGB bytes to three planes of bytes. */
TARGET static size_t split_bytes(const uint8_t *px, size_t n, uint8_t *dst)
{
    const __m256i gather = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1));
    const __m256i join = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    size_t i = 0;
    for (; i + ROOM <= n; i += 8) {
        __m256i in = _mm256_shuffle_epi8(load_eight(px + 3 * i), gather);
        in = _mm256_permutevar8x32_epi32(in, join);
        __m128i red_green = _mm256_castsi256_si128(in);
        _mm_storel_epi64((void *)(dst + i), red_green);
        _mm_storel_epi64((void *)(dst + n + i), _mm_unpackhi_epi64(red_green, red_green));
        _mm_storel_epi64((void *)(dst + 2 * n + i), _mm256_extracti128_si256(in, 1));
    }
    return i;
}

TARGET_INLINE size_t run(const pen__tensor_table *table, const pen__image *src, pen_layout layout,
                         void *dst, const pen_dtype dtype, const bool streams)
{
    size_t n = (size_t)src->w * (size_t)src->h;
    if (src->ch == 1 && (layout == PEN_LAYOUT_NCHW || table->channels == 1))
        return planes_from_grey(&table->formula, table->channels, src->px, n, dst, dtype, streams);
    if (src->ch == 1)
        return 0; /* grey to interleaved RGB is rare: the table does it */
    if (layout == PEN_LAYOUT_NCHW)
        return planes_from_rgb(&table->formula, src->px, n, dst, dtype, streams);
    return interleaved(&table->formula, src->px, n, dst, dtype, streams);
}

TARGET static size_t run_float32(const pen__tensor_table *table, const pen__image *src,
                                 pen_layout layout, void *dst)
{
    if (!pen__tensor_can_stream(src, dst))
        return run(table, src, layout, dst, PEN_DTYPE_FLOAT32, false);
    size_t done = run(table, src, layout, dst, PEN_DTYPE_FLOAT32, true);
    _mm_sfence(); /* whoever learns that the tensor is finished also sees it */
    return done;
}

TARGET size_t pen__to_tensor_avx2(const pen__tensor_table *table, const pen__image *src,
                                  pen_layout layout, void *dst)
{
    switch (table->dtype) {
    case PEN_DTYPE_FLOAT32:
        return run_float32(table, src, layout, dst);
    case PEN_DTYPE_FLOAT16:
        return run(table, src, layout, dst, PEN_DTYPE_FLOAT16, false);
    case PEN_DTYPE_BFLOAT16:
        return run(table, src, layout, dst, PEN_DTYPE_BFLOAT16, false);
    default:
        if (layout == PEN_LAYOUT_NCHW && src->ch == 3)
            return split_bytes(src->px, (size_t)src->w * (size_t)src->h, dst);
        return 0;
    }
}
#else
typedef int pen__tensor_avx2_is_empty;
#endif
