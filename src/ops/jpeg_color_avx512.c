/* jpeg_color_avx512.c - chroma upsampling and colour conversion of JPEG rows with AVX-512.
 *
 * 64 pixels at a time, in 16-bit words: 32 that stand at even places and 32 at odd ones.  Bytes
 * come apart that way without moving, upsampling makes its two new samples that way, and packing to
 * bytes puts both in the halves of each quarter, from where a permutation of bytes (VBMI) takes
 * them to their places among r g b.  At the ends, masks keep what is not part of the row from being
 * written; what is read beside it is the slack that rows of planes have.
 */
#include "ops/jpeg_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET      "avx2,avx512f,avx512bw,avx512vl,avx512vnni,avx512vbmi"
#define SIMD        __attribute__((target(TARGET)))
#define SIMD_INLINE static inline __attribute__((target(TARGET), always_inline))

enum { BLOCK = 64 }; /* pixels */

/* ---- colour ------------------------------------------------------------------ */

/* Words at even and at odd places. */
typedef struct words {
    __m512i even, odd;
} words;

typedef struct rgb_words {
    __m512i r, g, b;
} rgb_words;

/* The upper halves of a's dwords in the lower halves, b's where they are. */
SIMD_INLINE __m512i upper_halves(__m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(a, 16), b);
}

/* -0.34414 blue - 0.71414 red, where 0.71414 is too large for int16 and goes as 1 less
 * 0.28586. */
SIMD_INLINE __m512i green_part(__m512i blue, __m512i red)
{
    const __m512i weights = _mm512_set1_epi32((int)(18734U << 16 | (uint16_t)-22554));
    const __m512i half = _mm512_set1_epi32(1 << 15);
    __m512i first = _mm512_mask_blend_epi16(0xAAAAAAAA, blue, _mm512_slli_epi32(red, 16));
    __m512i second = upper_halves(blue, red);
    first = _mm512_dpwssd_epi32(half, first, weights);
    second = _mm512_dpwssd_epi32(half, second, weights);
    return _mm512_sub_epi16(upper_halves(first, second), red);
}

/* x + x * weight / 2^15, rounded. */
SIMD_INLINE __m512i and_part(__m512i x, short weight)
{
    return _mm512_add_epi16(x, _mm512_mulhrs_epi16(x, _mm512_set1_epi16(weight)));
}

/* Light, and colour differences from -128 to 127; weights as in jpeg_color_avx2.c. */
SIMD_INLINE rgb_words convert(__m512i y, __m512i blue, __m512i red)
{
    return (rgb_words){.r = _mm512_add_epi16(y, and_part(red, 13173)),
                       .g = _mm512_add_epi16(y, green_part(blue, red)),
                       .b = _mm512_add_epi16(y, and_part(blue, 25297))};
}

SIMD_INLINE words apart(__m512i bytes)
{
    return (words){_mm512_and_si512(bytes, _mm512_set1_epi16(255)), _mm512_srli_epi16(bytes, 8)};
}

SIMD_INLINE words less_128(words w)
{
    const __m512i middle = _mm512_set1_epi16(128);
    return (words){_mm512_sub_epi16(w.even, middle), _mm512_sub_epi16(w.odd, middle)};
}

/* ---- to r g b --------------------------------------------------------------------- */

/* Where pixel p is after packing, three times. */
#define AT(p)    ((p) / 16 * 16 + (p) % 16 / 2 + (p) % 2 * 8)
#define THREE(p) AT(p), AT(p), AT(p)
#define FOUR(p)  THREE(p), THREE((p) + 1), THREE((p) + 2), THREE((p) + 3)
#define PX_16(p) FOUR(p), FOUR((p) + 4), FOUR((p) + 8), FOUR((p) + 12)

static const _Alignas(64) uint8_t places[3 * BLOCK] = {PX_16(0), PX_16(16), PX_16(32), PX_16(48)};

/* 192 bytes, of which those in [from, to) are stored. */
SIMD_INLINE void store_rgb(uint8_t *dst, __m512i r, __m512i g, __m512i b, int32_t from, int32_t to)
{
    /* bytes whose number is 0 modulo 3; what is 1 or 2 comes one or two bits later */
    const uint64_t thirds = 0x9249249249249249U;
    for (int v = 0; v < 3; v++) {
        const __m512i place = _mm512_load_si512(places + 64 * v);
        /* 64 is 1 modulo 3: each vector begins one channel further */
        uint64_t is_g = v == 0 ? thirds << 1 : v == 1 ? thirds : thirds << 2;
        uint64_t is_b = v == 0 ? thirds << 2 : v == 1 ? thirds << 1 : thirds;
        __m512i out = _mm512_permutexvar_epi8(place, r);
        out = _mm512_mask_permutexvar_epi8(out, is_g, place, g);
        out = _mm512_mask_permutexvar_epi8(out, is_b, place, b);
        int32_t first = from - 64 * v, end = to - 64 * v;
        if (first <= 0 && end >= 64) {
            _mm512_storeu_si512(dst + 64 * v, out);
        } else if (first < 64 && end > 0) {
            __mmask64 which = end >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << end) - 1;
            which &= first <= 0 ? ~(uint64_t)0 : ~(uint64_t)0 << first;
            _mm512_mask_storeu_epi8(dst + 64 * v, which, out);
        }
    }
}

SIMD_INLINE void convert_block(words y, words blue, words red, uint8_t *rgb, int32_t from,
                               int32_t to)
{
    rgb_words even = convert(y.even, blue.even, red.even), odd = convert(y.odd, blue.odd, red.odd);
    store_rgb(rgb, _mm512_packus_epi16(even.r, odd.r), _mm512_packus_epi16(even.g, odd.g),
              _mm512_packus_epi16(even.b, odd.b), from, to);
}

SIMD void pen__jpeg_ycc_to_rgb_avx512(const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                                      uint8_t *rgb, int32_t n)
{
    for (int32_t i = 0; i < n; i += BLOCK) {
        int32_t n_left = n - i < BLOCK ? n - i : BLOCK;
        __mmask64 which = ~(uint64_t)0 >> (BLOCK - n_left);
        convert_block(apart(_mm512_maskz_loadu_epi8(which, y + i)),
                      less_128(apart(_mm512_maskz_loadu_epi8(which, cb + i))),
                      less_128(apart(_mm512_maskz_loadu_epi8(which, cr + i))), rgb + 3 * i, 0,
                      3 * n_left);
    }
}

/* ---- with upsampling ------------------------------------------------------------------ */

/* 3 * near + far of 32 samples. */
SIMD_INLINE __m512i lean_rows(const uint8_t *near, const uint8_t *far)
{
#define PAIR(i)   (i), 32 + (i)
#define PAIRS4(i) PAIR(i), PAIR((i) + 1), PAIR((i) + 2), PAIR((i) + 3)
    static const _Alignas(64) uint8_t pairs[64] = {PAIRS4(0),  PAIRS4(4),  PAIRS4(8),  PAIRS4(12),
                                                   PAIRS4(16), PAIRS4(20), PAIRS4(24), PAIRS4(28)};
    __m512i rows =
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)near)),
                           _mm256_loadu_si256((const void *)far), 1);
    rows = _mm512_permutexvar_epi8(_mm512_load_si512(pairs), rows);
    return _mm512_maddubs_epi16(rows, _mm512_set1_epi16(1 << 8 | 3));
}

/* 32 samples to 64, less 128. */
SIMD_INLINE words upsample(const uint8_t *near, const uint8_t *far)
{
    __m512i last = lean_rows(near - 1, far - 1), here = lean_rows(near, far),
            next = lean_rows(near + 1, far + 1);
    __m512i three = _mm512_add_epi16(_mm512_add_epi16(here, here), here);
    __m512i even = _mm512_add_epi16(three, _mm512_set1_epi16(8 - 128 * 16));
    __m512i odd = _mm512_add_epi16(three, _mm512_set1_epi16(7 - 128 * 16));
    return (words){_mm512_srai_epi16(_mm512_add_epi16(even, last), 4),
                   _mm512_srai_epi16(_mm512_add_epi16(odd, next), 4)};
}

SIMD void pen__jpeg_h2v2_to_rgb_avx512(const uint8_t *y, pen__jpeg_chroma cb, pen__jpeg_chroma cr,
                                       uint8_t *rgb, int32_t n, int32_t n_left_out)
{
    int32_t end = n + n_left_out;
    y -= n_left_out;
    rgb -= 3 * n_left_out;
    for (int32_t i = 0; i < end; i += BLOCK) {
        int32_t at = i / 2;
        convert_block(apart(_mm512_loadu_si512(y + i)), upsample(cb.near + at, cb.far + at),
                      upsample(cr.near + at, cr.far + at), rgb + 3 * i, i == 0 ? 3 * n_left_out : 0,
                      3 * (end - i));
    }
}
#else
typedef int pen__jpeg_color_avx512_is_empty;
#endif
