/* jpeg_idct_avx512.c - the IDCT with AVX-512, four blocks at a time, from zigzag order.
 *
 * The twin of jpeg_idct_avx2.c, with a block in each 128-bit lane.  Blocks come as the entropy
 * decoder writes them, and a permutation of words brings them into rows: it costs less than putting
 * each coefficient into its place.
 */
#include "ops/jpeg_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl")))
#define AVX512_INLINE \
    static inline __attribute__((target("avx512f,avx512bw,avx512vl"), always_inline))

/* Zigzag position of each natural one. */
static const _Alignas(64) uint16_t zigzag_of[64] = {
    0,  1,  5,  6,  14, 15, 27, 28, 2,  4,  7,  13, 16, 26, 29, 42, 3,  8,  12, 17, 25, 30,
    41, 43, 9,  11, 18, 24, 31, 40, 44, 53, 10, 19, 23, 32, 39, 45, 52, 54, 20, 22, 33, 38,
    46, 51, 55, 60, 21, 34, 37, 47, 50, 56, 59, 61, 35, 36, 48, 49, 57, 58, 62, 63};

typedef __m512i vector;
#define V(name)     _mm512_##name
#define ZERO        _mm512_setzero_si512()
#define SIMD_INLINE AVX512_INLINE
#include "ops/jpeg_idct_passes.h"

/* Rows `half` * 4 and on of one block, dequantised. */
AVX512_INLINE __m512i load_rows(const pen__jpeg_idct_job *job, int half, bool is_low)
{
    __m512i order = _mm512_load_si512(zigzag_of + 32 * half);
    __m512i lo = _mm512_loadu_si512(job->coefs);
    __m512i rows = is_low
                       ? _mm512_permutexvar_epi16(order, lo)
                       : _mm512_permutex2var_epi16(lo, order, _mm512_loadu_si512(job->coefs + 32));
    return _mm512_mullo_epi16(rows, _mm512_loadu_si512(job->quant + 32 * half));
}

/* Four rows of each of four blocks, and then each row of all of them. */
AVX512_INLINE void gather_rows(const pen__jpeg_idct_job *const jobs[4], int half, bool is_low,
                               __m512i v[4])
{
    __m512i a = load_rows(jobs[0], half, is_low), b = load_rows(jobs[1], half, is_low);
    __m512i c = load_rows(jobs[2], half, is_low), d = load_rows(jobs[3], half, is_low);
    __m512i ab01 = _mm512_shuffle_i32x4(a, b, 0x44), ab23 = _mm512_shuffle_i32x4(a, b, 0xEE);
    __m512i cd01 = _mm512_shuffle_i32x4(c, d, 0x44), cd23 = _mm512_shuffle_i32x4(c, d, 0xEE);
    v[0] = _mm512_shuffle_i32x4(ab01, cd01, 0x88);
    v[1] = _mm512_shuffle_i32x4(ab01, cd01, 0xDD);
    v[2] = _mm512_shuffle_i32x4(ab23, cd23, 0x88);
    v[3] = _mm512_shuffle_i32x4(ab23, cd23, 0xDD);
}

AVX512_INLINE void store_two(__m128i rows, const pen__jpeg_idct_job *job, int y)
{
    _mm_storel_epi64((void *)(job->dst + y * job->stride), rows);
    _mm_storel_epi64((void *)(job->dst + (y + 1) * job->stride), _mm_unpackhi_epi64(rows, rows));
}

/* Four vectors of bytes, each two columns of the blocks, to rows at their places. */
AVX512_INLINE void store_rows(const __m512i columns[4], const pen__jpeg_idct_job *const jobs[4])
{
    const __m512i apart =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    __m512i x0 = _mm512_shuffle_epi8(columns[0], apart),
            x1 = _mm512_shuffle_epi8(columns[1], apart);
    __m512i x2 = _mm512_shuffle_epi8(columns[2], apart),
            x3 = _mm512_shuffle_epi8(columns[3], apart);
    __m512i l0 = _mm512_unpacklo_epi16(x0, x1), l1 = _mm512_unpackhi_epi16(x0, x1);
    __m512i r0 = _mm512_unpacklo_epi16(x2, x3), r1 = _mm512_unpackhi_epi16(x2, x3);
    const __m512i rows[4] = {_mm512_unpacklo_epi32(l0, r0), _mm512_unpackhi_epi32(l0, r0),
                             _mm512_unpacklo_epi32(l1, r1), _mm512_unpackhi_epi32(l1, r1)};
    for (int i = 0; i < 4; i++) {
        store_two(_mm512_castsi512_si128(rows[i]), jobs[0], 2 * i);
        store_two(_mm512_extracti32x4_epi32(rows[i], 1), jobs[1], 2 * i);
        store_two(_mm512_extracti32x4_epi32(rows[i], 2), jobs[2], 2 * i);
        store_two(_mm512_extracti32x4_epi32(rows[i], 3), jobs[3], 2 * i);
    }
}

/* Zero where all of the first row are small enough. */
AVX512_INLINE __m512i find_large(__m512i row0)
{
    return _mm512_xor_si512(_mm512_srai_epi16(row0, 13), _mm512_srai_epi16(row0, 15));
}

AVX512_INLINE __m512i transform_four(const pen__jpeg_idct_job *const jobs[4], bool is_low)
{
    enum {
        SHIFT1 = PEN__IDCT_BITS - PEN__IDCT_PASS1_BITS,
        SHIFT2 = PEN__IDCT_BITS + PEN__IDCT_PASS1_BITS + 3
    };
    __m512i v[8], columns[4];
    gather_rows(jobs, 0, is_low, v);
    __m512i large = find_large(v[0]);
    if (is_low) {
        first_pass_low(v, SHIFT1);
        second_pass_low(v, SHIFT2);
    } else {
        gather_rows(jobs, 1, false, v + 4);
        pass_full(v, SHIFT1);
        transpose(v);
        pass_full(v, SHIFT2);
    }
    for (int i = 0; i < 4; i++)
        columns[i] = _mm512_add_epi8(_mm512_packs_epi16(v[2 * i], v[2 * i + 1]),
                                     _mm512_set1_epi8((char)0x80));
    store_rows(columns, jobs);
    return large;
}

TARGET bool pen__jpeg_idct_avx512(const pen__jpeg_idct_job *jobs, int n_jobs)
{
    __m512i large = _mm512_setzero_si512();
    for (int i = 0; i < n_jobs; i += 4) {
        const pen__jpeg_idct_job *four[4];
        bool is_low = true;
        for (int j = 0; j < 4; j++) {
            four[j] = &jobs[i + j < n_jobs ? i + j : n_jobs - 1];
            is_low &= four[j]->n_coefs <= PEN__JPEG_N_LOW;
        }
        large = _mm512_or_si512(large,
                                is_low ? transform_four(four, true) : transform_four(four, false));
    }
    return _mm512_test_epi32_mask(large, large) == 0;
}
#endif
