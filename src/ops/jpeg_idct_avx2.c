/* jpeg_idct_avx2.c - the IDCT with AVX2, two blocks at a time, one in each lane.
 *
 * A vector holds one row of both blocks.
 */
#include "ops/jpeg_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2        __attribute__((target("avx2")))
#define AVX2_INLINE static inline __attribute__((target("avx2"), always_inline))

typedef __m256i vector;
#define V(name)     _mm256_##name
#define ZERO        _mm256_setzero_si256()
#define SIMD_INLINE AVX2_INLINE
#include "ops/jpeg_idct_passes.h"

AVX2_INLINE __m256i load_both(const void *a, const void *b)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(a)), _mm_loadu_si128(b),
                                   1);
}

/* Four vectors of bytes, each two columns of both blocks, to rows at their places. */
AVX2_INLINE void store_rows(const __m256i columns[4], const pen__jpeg_idct_job *a,
                            const pen__jpeg_idct_job *b)
{
    /* v[c] has samples of columns 2c and 2c+1, eight rows each */
    __m256i x0 = _mm256_unpacklo_epi8(columns[0], _mm256_srli_si256(columns[0], 8));
    __m256i x1 = _mm256_unpacklo_epi8(columns[1], _mm256_srli_si256(columns[1], 8));
    __m256i x2 = _mm256_unpacklo_epi8(columns[2], _mm256_srli_si256(columns[2], 8));
    __m256i x3 = _mm256_unpacklo_epi8(columns[3], _mm256_srli_si256(columns[3], 8));
    __m256i l0 = _mm256_unpacklo_epi16(x0, x1), l1 = _mm256_unpackhi_epi16(x0, x1);
    __m256i r0 = _mm256_unpacklo_epi16(x2, x3), r1 = _mm256_unpackhi_epi16(x2, x3);
    const __m256i rows[4] = {_mm256_unpacklo_epi32(l0, r0), _mm256_unpackhi_epi32(l0, r0),
                             _mm256_unpacklo_epi32(l1, r1), _mm256_unpackhi_epi32(l1, r1)};
    for (int i = 0; i < 4; i++) {
        __m128i of_a = _mm256_castsi256_si128(rows[i]), of_b = _mm256_extracti128_si256(rows[i], 1);
        _mm_storel_epi64((void *)(a->dst + 2 * i * a->stride), of_a);
        _mm_storel_epi64((void *)(a->dst + (2 * i + 1) * a->stride),
                         _mm_unpackhi_epi64(of_a, of_a));
        _mm_storel_epi64((void *)(b->dst + 2 * i * b->stride), of_b);
        _mm_storel_epi64((void *)(b->dst + (2 * i + 1) * b->stride),
                         _mm_unpackhi_epi64(of_b, of_b));
    }
}

/* Zero where all of the first row are small enough. */
AVX2_INLINE __m256i find_large(__m256i row0)
{
    return _mm256_xor_si256(_mm256_srai_epi16(row0, 13), _mm256_srai_epi16(row0, 15));
}

AVX2_INLINE __m256i transform_two(const pen__jpeg_idct_job *a, const pen__jpeg_idct_job *b,
                                  bool is_low)
{
    enum {
        SHIFT1 = PEN__IDCT_BITS - PEN__IDCT_PASS1_BITS,
        SHIFT2 = PEN__IDCT_BITS + PEN__IDCT_PASS1_BITS + 3
    };
    __m256i v[8], columns[4];
    for (int y = 0; y < (is_low ? 4 : 8); y++)
        v[y] = _mm256_mullo_epi16(load_both(a->coefs + 8 * y, b->coefs + 8 * y),
                                  load_both(a->quant + 8 * y, b->quant + 8 * y));
    __m256i large = find_large(v[0]);
    if (is_low) {
        first_pass_low(v, SHIFT1);
        second_pass_low(v, SHIFT2);
    } else {
        pass_full(v, SHIFT1);
        transpose(v);
        pass_full(v, SHIFT2);
    }
    for (int i = 0; i < 4; i++)
        columns[i] = _mm256_add_epi8(_mm256_packs_epi16(v[2 * i], v[2 * i + 1]),
                                     _mm256_set1_epi8((char)0x80));
    store_rows(columns, a, b);
    return large;
}

AVX2 bool pen__jpeg_idct_avx2(const pen__jpeg_idct_job *jobs, int n_jobs)
{
    __m256i large = _mm256_setzero_si256();
    for (int i = 0; i < n_jobs; i += 2) {
        const pen__jpeg_idct_job *a = &jobs[i], *b = i + 1 < n_jobs ? a + 1 : a;
        bool is_low = a->n_coefs <= PEN__JPEG_N_LOW && b->n_coefs <= PEN__JPEG_N_LOW;
        large =
            _mm256_or_si256(large, is_low ? transform_two(a, b, true) : transform_two(a, b, false));
    }
    return _mm256_testz_si256(large, large);
}
#endif
