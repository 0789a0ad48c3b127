/* jpeg_idct_avx2.c - the IDCT with AVX2, two blocks at a time, one in each lane.
 *
 * A vector holds one row of both blocks.  The first pass runs down the columns, a transpose
 * within the lanes turns the second pass into the same code, and the bytes are
 * transposed back at the end.  Where both blocks have only the first ten coefficients
 * in zigzag order, rows and columns 4 to 7 are zero, and more than half of the work
 * falls away without changing a result.
 */
#include "ops/jpeg_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2        __attribute__((target("avx2")))
#define AVX2_INLINE static inline __attribute__((target("avx2"), always_inline))

/* A row of 16 32-bit sums as two halves: of columns 0 to 3 and of columns 4 to 7. */
typedef struct wide {
    __m256i lo, hi;
} wide;

AVX2_INLINE wide add(wide a, wide b)
{
    return (wide){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}

AVX2_INLINE wide sub(wide a, wide b)
{
    return (wide){_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}

/* x and y side by side, for dot(). */
AVX2_INLINE wide beside(__m256i x, __m256i y)
{
    return (wide){_mm256_unpacklo_epi16(x, y), _mm256_unpackhi_epi16(x, y)};
}

/* x * a + y * b */
AVX2_INLINE __m256i dot_half(__m256i xy, int a, int b)
{
    return _mm256_madd_epi16(xy, _mm256_set1_epi32((int)((uint32_t)b << 16 | (uint16_t)a)));
}

AVX2_INLINE wide dot(wide xy, int a, int b)
{
    return (wide){dot_half(xy.lo, a, b), dot_half(xy.hi, a, b)};
}

/* x << 13 */
AVX2_INLINE wide scaled(__m256i x)
{
    wide top = beside(_mm256_setzero_si256(), x);
    return (wide){_mm256_srai_epi32(top.lo, 16 - PEN__IDCT_BITS),
                  _mm256_srai_epi32(top.hi, 16 - PEN__IDCT_BITS)};
}

/* Rounded, shifted and saturated to int16. */
AVX2_INLINE __m256i narrow(wide x, int shift)
{
    __m256i half = _mm256_set1_epi32(1 << (shift - 1));
    return _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(x.lo, half), shift),
                              _mm256_srai_epi32(_mm256_add_epi32(x.hi, half), shift));
}

/* Sums and differences of the even part e and the odd part o. */
AVX2_INLINE void join(__m256i v[8], wide e0, wide e1, wide e2, wide e3, const wide o[4], int shift)
{
    wide even[4] = {add(e0, e3), add(e1, e2), sub(e1, e2), sub(e0, e3)};
    for (int i = 0; i < 4; i++) {
        v[i] = narrow(add(even[i], o[3 - i]), shift);
        v[7 - i] = narrow(sub(even[i], o[3 - i]), shift);
    }
}

AVX2_INLINE void pass_full(__m256i v[8], int shift)
{
    wide e0 = scaled(_mm256_add_epi16(v[0], v[4])), e1 = scaled(_mm256_sub_epi16(v[0], v[4]));
    wide v26 = beside(v[2], v[6]);
    wide e2 = dot(v26, PEN__IDCT_0_541, PEN__IDCT_0_541 - PEN__IDCT_1_847);
    wide e3 = dot(v26, PEN__IDCT_0_541 + PEN__IDCT_0_765, PEN__IDCT_0_541);
    wide z34 = beside(_mm256_add_epi16(v[7], v[3]), _mm256_add_epi16(v[5], v[1]));
    wide s3 = dot(z34, PEN__IDCT_1_175 - PEN__IDCT_1_961, PEN__IDCT_1_175);
    wide s4 = dot(z34, PEN__IDCT_1_175, PEN__IDCT_1_175 - PEN__IDCT_0_390);
    wide v71 = beside(v[7], v[1]), v53 = beside(v[5], v[3]);
    wide o[4] = {
        add(dot(v71, PEN__IDCT_0_298 - PEN__IDCT_0_899, -PEN__IDCT_0_899), s3),
        add(dot(v53, PEN__IDCT_2_053 - PEN__IDCT_2_562, -PEN__IDCT_2_562), s4),
        add(dot(v53, -PEN__IDCT_2_562, PEN__IDCT_3_072 - PEN__IDCT_2_562), s3),
        add(dot(v71, -PEN__IDCT_0_899, PEN__IDCT_1_501 - PEN__IDCT_0_899), s4),
    };
    join(v, e0, e1, e2, e3, o, shift);
}

/* One half of a pass with v[4] to v[7] zero: all constants of an input merge into one.
 * Takes v[0] << 13, v[2] beside zero and v[1] beside v[3]. */
AVX2_INLINE void sums_low(__m256i e0, __m256i v2, __m256i v13, int shift, __m256i out[8])
{
    enum {
        S3_3 = PEN__IDCT_1_175 - PEN__IDCT_1_961, /* what v[3] adds to s3 above, ... */
        S4_1 = PEN__IDCT_1_175 - PEN__IDCT_0_390,
    };
    e0 = _mm256_add_epi32(e0, _mm256_set1_epi32(1 << (shift - 1)));
    __m256i e2 = dot_half(v2, PEN__IDCT_0_541, 0);
    __m256i e3 = dot_half(v2, PEN__IDCT_0_541 + PEN__IDCT_0_765, 0);
    const __m256i odd[4] = {
        dot_half(v13, S4_1 + PEN__IDCT_1_501 - PEN__IDCT_0_899, PEN__IDCT_1_175),
        dot_half(v13, PEN__IDCT_1_175, S3_3 + PEN__IDCT_3_072 - PEN__IDCT_2_562),
        dot_half(v13, S4_1, PEN__IDCT_1_175 - PEN__IDCT_2_562),
        dot_half(v13, PEN__IDCT_1_175 - PEN__IDCT_0_899, S3_3),
    };
    const __m256i even[4] = {_mm256_add_epi32(e0, e3), _mm256_add_epi32(e0, e2),
                             _mm256_sub_epi32(e0, e2), _mm256_sub_epi32(e0, e3)};
    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_srai_epi32(_mm256_add_epi32(even[i], odd[i]), shift);
        out[7 - i] = _mm256_srai_epi32(_mm256_sub_epi32(even[i], odd[i]), shift);
    }
}

/* Down the columns 0 to 3, the others being zero, and transposed: v[0] to v[3]. */
AVX2_INLINE void first_pass_low(__m256i v[8], int shift)
{
    __m256i rows[8], a[4], b[4];
    sums_low(scaled(v[0]).lo, beside(v[2], _mm256_setzero_si256()).lo, beside(v[1], v[3]).lo, shift,
             rows);
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_packs_epi32(rows[i], rows[4 + i]);
    for (int i = 0; i < 2; i++) {
        b[i] = _mm256_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
        b[2 + i] = _mm256_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
    }
    __m256i top01 = _mm256_unpacklo_epi32(b[0], b[1]), top23 = _mm256_unpackhi_epi32(b[0], b[1]);
    __m256i end01 = _mm256_unpacklo_epi32(b[2], b[3]), end23 = _mm256_unpackhi_epi32(b[2], b[3]);
    v[0] = _mm256_unpacklo_epi64(top01, end01);
    v[1] = _mm256_unpackhi_epi64(top01, end01);
    v[2] = _mm256_unpacklo_epi64(top23, end23);
    v[3] = _mm256_unpackhi_epi64(top23, end23);
}

AVX2_INLINE void second_pass_low(__m256i v[8], int shift)
{
    wide e0 = scaled(v[0]), v2 = beside(v[2], _mm256_setzero_si256()), v13 = beside(v[1], v[3]);
    __m256i lo[8], hi[8];
    sums_low(e0.lo, v2.lo, v13.lo, shift, lo);
    sums_low(e0.hi, v2.hi, v13.hi, shift, hi);
    for (int i = 0; i < 8; i++)
        v[i] = _mm256_packs_epi32(lo[i], hi[i]);
}

/* 8x8 int16 in each lane. */
AVX2_INLINE void transpose(__m256i v[8])
{
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++)
        for (int half = 0; half < 2; half++) {
            __m256i x = a[4 * i + half], y = a[4 * i + 2 + half];
            b[4 * i + 2 * half] = _mm256_unpacklo_epi32(x, y);
            b[4 * i + 2 * half + 1] = _mm256_unpackhi_epi32(x, y);
        }
    for (int i = 0; i < 4; i++) {
        v[2 * i] = _mm256_unpacklo_epi64(b[i], b[4 + i]);
        v[2 * i + 1] = _mm256_unpackhi_epi64(b[i], b[4 + i]);
    }
}

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
