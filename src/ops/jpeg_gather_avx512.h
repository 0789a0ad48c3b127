/* jpeg_gather_avx512.h - words from eight places of memory, for the lanes of a vector.
 *
 * Private to jpeg_lanes_avx512.c and jpeg_count_avx512.c.  Not by the instructions for that: where
 * processors guard them against leaks, they take half as long again.
 */
#ifndef PEN_OPS_JPEG_GATHER_AVX512_H
#define PEN_OPS_JPEG_GATHER_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define TARGET        __attribute__((target("avx2,avx512f,avx512bw,avx512vl,bmi2")))
#define AVX512        TARGET static __attribute__((noinline))
#define AVX512_INLINE TARGET static inline __attribute__((always_inline))
#define UNLIKELY(x)   __builtin_expect(!!(x), 0)

enum { LANES = 8 };

AVX512_INLINE __m512i all(int64_t x)
{
    return _mm512_set1_epi64(x);
}

AVX512_INLINE __m128i two(const void *a, const void *b)
{
    long long second;
    memcpy(&second, b, sizeof second);
    return _mm_insert_epi64(_mm_loadl_epi64(a), second, 1);
}

AVX512_INLINE __m512i four_twos(__m128i a, __m128i b, __m128i c, __m128i d)
{
    __m256i lo = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
    __m256i hi = _mm256_inserti128_si256(_mm256_castsi128_si256(c), d, 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
}

/* Eight words of the bytes. */
AVX512_INLINE __m512i gather_bytes(const uint8_t *bytes, __m512i at)
{
#define TWO(x) two(bytes + _mm_cvtsi128_si64(x), bytes + _mm_extract_epi64(x, 1))
    __m128i a = _mm512_castsi512_si128(at), b = _mm512_extracti32x4_epi32(at, 1);
    __m128i c = _mm512_extracti32x4_epi32(at, 2), d = _mm512_extracti32x4_epi32(at, 3);
    return four_twos(TWO(a), TWO(b), TWO(c), TWO(d));
#undef TWO
}

/* Eight words of a table whose entries have so many bytes and all lie within the first 2^16. */
AVX512_INLINE __m512i gather_entries(const void *entries, size_t entry_bytes, __m512i at)
{
#define ENTRY(w, i) ((const uint8_t *)entries + entry_bytes * (uint16_t)((w) >> (16 * (i))))
    __m128i narrow = _mm512_cvtepi64_epi16(at);
    uint64_t lo = (uint64_t)_mm_cvtsi128_si64(narrow), hi = (uint64_t)_mm_extract_epi64(narrow, 1);
    return four_twos(two(ENTRY(lo, 0), ENTRY(lo, 1)), two(ENTRY(lo, 2), ENTRY(lo, 3)),
                     two(ENTRY(hi, 0), ENTRY(hi, 1)), two(ENTRY(hi, 2), ENTRY(hi, 3)));
#undef ENTRY
}

#endif
