/* color_avx2.c - colour kernels with AVX2, the same bytes as color_c.c.
 *
 * RGB is taken eight pixels at a time, four in each lane: a lane loads 16 bytes of
 * which 12 are its own, and a shuffle widens one channel to int32.  Loops stop
 * where a load would leave the buffer; the scalar twin does the rest.
 */
#include "ops/color_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2        __attribute__((target("avx2,fma")))
#define AVX2_INLINE static inline __attribute__((target("avx2,fma"), always_inline))

/* Pixels that must be left for a load of eight: 24 bytes, and 4 that are not theirs. */
#define ROOM 10

AVX2_INLINE __m256i load_eight(const uint8_t *px)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)px)),
                                   _mm_loadu_si128((const void *)(px + 12)), 1);
}

/* Channel c of the eight pixels as int32. */
AVX2_INLINE __m256i channel(__m256i px, int c)
{
    const __m256i red = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, -1, -1, 3, -1, -1, -1, 6, -1, -1, -1, 9, -1, -1, -1));
    const __m256i green = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(1, -1, -1, -1, 4, -1, -1, -1, 7, -1, -1, -1, 10, -1, -1, -1));
    const __m256i blue = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(2, -1, -1, -1, 5, -1, -1, -1, 8, -1, -1, -1, 11, -1, -1, -1));
    return _mm256_shuffle_epi8(px, c == 0 ? red : c == 1 ? green : blue);
}

/* Three int32 in 0..255 to the bytes of one. */
AVX2_INLINE __m256i join_bytes(__m256i a, __m256i b, __m256i c)
{
    return _mm256_or_si256(a, _mm256_or_si256(_mm256_slli_epi32(b, 8), _mm256_slli_epi32(c, 16)));
}

/* Eight pixels r g b x to 24 bytes. */
AVX2_INLINE void store_eight(uint8_t *px, __m256i rgbx)
{
    const __m256i close_gaps = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    __m256i bytes = _mm256_shuffle_epi8(rgbx, close_gaps);
    /* 12 bytes a lane: close the gap between the lanes, then 16 + 8 */
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7));
    _mm_storeu_si128((void *)px, _mm256_castsi256_si128(bytes));
    _mm_storel_epi64((void *)(px + 16), _mm256_extracti128_si256(bytes, 1));
}

/* pen__blend of eight values. */
AVX2_INLINE __m256i blend_eight(__m256i level, __m256i value, __m256 factor)
{
    __m256 spread = _mm256_cvtepi32_ps(_mm256_sub_epi32(value, level));
    __m256 mixed = _mm256_add_ps(_mm256_cvtepi32_ps(level), _mm256_mul_ps(factor, spread));
    mixed = _mm256_min_ps(_mm256_max_ps(mixed, _mm256_setzero_ps()), _mm256_set1_ps(255.0F));
    return _mm256_cvttps_epi32(mixed);
}

AVX2 static void blend_level_avx2(uint8_t *px, size_t n_bytes, uint8_t level, float factor)
{
    const __m256i base = _mm256_set1_epi32(level);
    const __m256 scale = _mm256_set1_ps(factor);
    const __m256i lane_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    size_t i = 0;
    for (; i + 32 <= n_bytes; i += 32) {
        __m256i mixed[4];
        for (int k = 0; k < 4; k++) {
            __m128i bytes = _mm_loadl_epi64((const void *)(px + i + 8 * k));
            mixed[k] = blend_eight(base, _mm256_cvtepu8_epi32(bytes), scale);
        }
        __m256i all = _mm256_packus_epi16(_mm256_packs_epi32(mixed[0], mixed[1]),
                                          _mm256_packs_epi32(mixed[2], mixed[3]));
        _mm256_storeu_si256((void *)(px + i), _mm256_permutevar8x32_epi32(all, lane_order));
    }
    pen__color_kernels_c.blend_level(px + i, n_bytes - i, level, factor);
}

/* Grey of the eight pixels as int32.  38470 is too large for an int16, so green
 * goes half with red and half with blue. */
AVX2_INLINE __m256i grey_of_eight(__m256i px)
{
    const __m256i red_green = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 1, -1, 3, -1, 4, -1, 6, -1, 7, -1, 9, -1, 10, -1));
    const __m256i green_blue = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(1, -1, 2, -1, 4, -1, 5, -1, 7, -1, 8, -1, 10, -1, 11, -1));
    __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(_mm256_shuffle_epi8(px, red_green),
                                                     _mm256_set1_epi32(19595 | 19235 << 16)),
                                   _mm256_madd_epi16(_mm256_shuffle_epi8(px, green_blue),
                                                     _mm256_set1_epi32(19235 | 7471 << 16)));
    return _mm256_srli_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(0x8000)), 16);
}

AVX2 static void blend_grey_avx2(uint8_t *px, size_t n_px, float factor)
{
    const __m256 scale = _mm256_set1_ps(factor);
    for (; n_px >= ROOM; n_px -= 8, px += 24) {
        __m256i in = load_eight(px), grey = grey_of_eight(in);
        store_eight(px, join_bytes(blend_eight(grey, channel(in, 0), scale),
                                   blend_eight(grey, channel(in, 1), scale),
                                   blend_eight(grey, channel(in, 2), scale)));
    }
    pen__color_kernels_c.blend_grey(px, n_px, factor);
}

AVX2 static uint64_t sum_grey_avx2(const uint8_t *px, size_t n_px)
{
    __m256i sum = _mm256_setzero_si256(); /* four uint64 */
    for (; n_px >= ROOM; n_px -= 8, px += 24)
        sum = _mm256_add_epi64(
            sum, _mm256_sad_epu8(grey_of_eight(load_eight(px)), _mm256_setzero_si256()));
    uint64_t part[4];
    _mm256_storeu_si256((void *)part, sum);
    return part[0] + part[1] + part[2] + part[3] + pen__color_kernels_c.sum_grey(px, n_px);
}

AVX2 static void to_grey_avx2(const uint8_t *src, size_t n_px, uint8_t *dst)
{
    for (; n_px >= ROOM; n_px -= 8, src += 24, dst += 8) {
        __m256i grey = grey_of_eight(load_eight(src));
        __m128i words =
            _mm_packs_epi32(_mm256_castsi256_si128(grey), _mm256_extracti128_si256(grey, 1));
        _mm_storel_epi64((void *)dst, _mm_packus_epi16(words, words));
    }
    pen__color_kernels_c.to_grey(src, n_px, dst);
}

/* ---- hue ---------------------------------------------------------------------
 *
 * All in single precision, where the scalar twin follows Pillow through doubles.
 * That these formulas round the same way is no theorem: a hue depends on three
 * bytes, and test_color.c goes through all 2^24 of them.
 */

typedef struct hsv_eight {
    __m256i h, s, v; /* int32 */
} hsv_eight;

/* Sixths of a turn, -1 .. 5.  With the largest channel at 1, the middle one at
 * `ratio` below it and the smallest at 0, the hue lies `ratio` behind or before
 * the corner that the smallest channel names. */
AVX2_INLINE __m256 sixths_of_turn(__m256i r, __m256i g, __m256i b, __m256i most, __m256i least,
                                  __m256 ratio)
{
    __m256i red_most = _mm256_cmpeq_epi32(r, most), green_most = _mm256_cmpeq_epi32(g, most);
    __m256i corner = _mm256_blendv_epi8(_mm256_set1_epi32(4), _mm256_set1_epi32(2), green_most);
    corner = _mm256_andnot_si256(red_most, corner);
    __m256i next = _mm256_blendv_epi8(r, b, green_most); /* the channel before the largest */
    next = _mm256_blendv_epi8(next, g, red_most);
    __m256i before = _mm256_cmpeq_epi32(next, least);
    __m256i one = _mm256_or_si256(before, _mm256_set1_epi32(1)); /* -1 or 1 */
    __m256 sign =
        _mm256_castsi256_ps(_mm256_andnot_si256(before, _mm256_set1_epi32((int)0x80000000U)));
    return _mm256_add_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(corner, one)),
                         _mm256_xor_ps(ratio, sign));
}

AVX2_INLINE hsv_eight hsv_of_eight(__m256i r, __m256i g, __m256i b)
{
    const __m256 full = _mm256_set1_ps(255.0F);
    __m256i most = _mm256_max_epi32(r, _mm256_max_epi32(g, b));
    __m256i least = _mm256_min_epi32(r, _mm256_min_epi32(g, b));
    __m256i range = _mm256_sub_epi32(most, least);
    __m256i has_color = _mm256_cmpgt_epi32(range, _mm256_setzero_si256());
    /* most - middle, middle being what the sum leaves */
    __m256i middle = _mm256_sub_epi32(_mm256_add_epi32(r, _mm256_add_epi32(g, b)),
                                      _mm256_add_epi32(most, least));
    __m256 range_f = _mm256_cvtepi32_ps(range);
    __m256 ratio = _mm256_div_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(most, middle)), range_f);
    __m256 sixths = sixths_of_turn(r, g, b, most, least, ratio);
    __m256 turn = _mm256_div_ps(sixths, _mm256_set1_ps(6.0F));
    __m256 wrapped = _mm256_fmadd_ps(sixths, _mm256_set1_ps(1.0F / 6.0F), _mm256_set1_ps(1.0F));
    turn = _mm256_blendv_ps(turn, wrapped, sixths); /* where the sign bit is set */
    __m256 saturation = _mm256_div_ps(range_f, _mm256_cvtepi32_ps(most));
    /* without colour the divisions gave NaN: the mask makes them 0 */
    __m256i h = _mm256_cvttps_epi32(_mm256_mul_ps(turn, full));
    __m256i s = _mm256_cvttps_epi32(_mm256_mul_ps(saturation, full));
    return (hsv_eight){_mm256_and_si256(h, has_color), _mm256_and_si256(s, has_color), most};
}

/* round(v * (1 - part / 65025)). */
AVX2_INLINE __m256i darken(__m256 v, __m256i part)
{
    __m256 share = _mm256_mul_ps(_mm256_cvtepi32_ps(part), _mm256_set1_ps(1.0F / 65025.0F));
    __m256 up = _mm256_add_ps(v, _mm256_set1_ps(0.5F));
    return _mm256_cvttps_epi32(_mm256_fnmadd_ps(v, share, up));
}

AVX2_INLINE __m256i rgb_of_eight(hsv_eight in)
{
    /* byte 0 is v, 1 the value in between, 2 the low one: r, g, b take these */
    const __m256i takes =
        _mm256_setr_epi32(0x020100, 0x020001, 0x010002, 0x000102, 0x000201, 0x010200, 0x020100, 0);
    const __m256i pixel_at =
        _mm256_broadcastsi128_si256(_mm_setr_epi32(0x00000000, 0x04040404, 0x08080808, 0x0C0C0C0C));
    const __m256i full = _mm256_set1_epi32(255);
    __m256i h6 = _mm256_add_epi32(_mm256_slli_epi32(in.h, 2), _mm256_slli_epi32(in.h, 1));
    /* h6 / 255 as (h6 + 1) * 257 >> 16, exact for 0 .. 1530 */
    __m256i next = _mm256_add_epi32(h6, _mm256_set1_epi32(1));
    __m256i sector = _mm256_srli_epi32(_mm256_add_epi32(_mm256_slli_epi32(next, 8), next), 16);
    __m256i rest = _mm256_sub_epi32(h6, _mm256_sub_epi32(_mm256_slli_epi32(sector, 8), sector));
    /* even sectors rise, odd ones fall */
    __m256i odd =
        _mm256_cmpgt_epi32(_mm256_and_si256(sector, _mm256_set1_epi32(1)), _mm256_setzero_si256());
    __m256i part = _mm256_blendv_epi8(_mm256_sub_epi32(full, rest), rest, odd);
    __m256 v = _mm256_cvtepi32_ps(in.v);
    __m256i between = darken(v, _mm256_madd_epi16(in.s, part));
    __m256i low = darken(v, _mm256_madd_epi16(in.s, full));
    __m256i order = _mm256_add_epi8(_mm256_permutevar8x32_epi32(takes, sector), pixel_at);
    return _mm256_shuffle_epi8(join_bytes(in.v, between, low), order);
}

AVX2 static void shift_hue_avx2(uint8_t *px, size_t n_px, uint8_t shift)
{
    for (; n_px >= ROOM; n_px -= 8, px += 24) {
        __m256i in = load_eight(px);
        hsv_eight at = hsv_of_eight(channel(in, 0), channel(in, 1), channel(in, 2));
        at.h = _mm256_and_si256(_mm256_add_epi32(at.h, _mm256_set1_epi32(shift)),
                                _mm256_set1_epi32(255));
        store_eight(px, rgb_of_eight(at));
    }
    pen__color_kernels_c.shift_hue(px, n_px, shift);
}

const pen__color_kernels pen__color_kernels_avx2 = {
    .blend_level = blend_level_avx2,
    .blend_grey = blend_grey_avx2,
    .sum_grey = sum_grey_avx2,
    .to_grey = to_grey_avx2,
    .shift_hue = shift_hue_avx2,
};
#else
typedef int pen__color_avx2_is_empty;
#endif
