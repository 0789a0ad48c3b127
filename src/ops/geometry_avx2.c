/* geometry_avx2.c - reversing a row with byte shuffles.
 *
 * Blocks of 16 bytes from both ends change places.  For RGB a block holds five
 * pixels and one byte that is not its own; that byte is put back unchanged.
 */
#include "ops/geometry_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

/* Both blocks reversed; they must not overlap. */
AVX2 static void swap_blocks_rgb(uint8_t *left, uint8_t *right)
{
    /* left keeps its last byte, right its first */
    const __m128i to_left = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, -1);
    const __m128i to_right = _mm_setr_epi8(-1, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2);
    const __m128i last = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1);
    const __m128i first = _mm_setr_epi8(-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    __m128i a = _mm_loadu_si128((const void *)left), b = _mm_loadu_si128((const void *)right);
    __m128i new_left = _mm_or_si128(_mm_shuffle_epi8(b, to_left), _mm_and_si128(a, last));
    __m128i new_right = _mm_or_si128(_mm_shuffle_epi8(a, to_right), _mm_and_si128(b, first));
    _mm_storeu_si128((void *)left, new_left);
    _mm_storeu_si128((void *)right, new_right);
}

AVX2 static void swap_blocks_grey(uint8_t *left, uint8_t *right)
{
    const __m128i reverse = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    __m128i a = _mm_loadu_si128((const void *)left), b = _mm_loadu_si128((const void *)right);
    _mm_storeu_si128((void *)left, _mm_shuffle_epi8(b, reverse));
    _mm_storeu_si128((void *)right, _mm_shuffle_epi8(a, reverse));
}

AVX2 void pen__hflip_row_avx2(uint8_t *row, int32_t w, int ch)
{
    uint8_t *left = row, *right = row + (size_t)w * (size_t)ch; /* right: one past */
    while (right - left >= 32) {
        if (ch == 3)
            swap_blocks_rgb(left, right - 16);
        else
            swap_blocks_grey(left, right - 16);
        left += ch == 3 ? 15 : 16;
        right -= ch == 3 ? 15 : 16;
    }
    pen__hflip_row_c(left, (int32_t)((right - left) / ch), ch);
}
#else
typedef int pen__geometry_avx2_is_empty;
#endif
