/* geometry_avx2.c - reversing a row with byte shuffles.
 *
 * Blocks from both ends change places: 16 bytes of grey, five pixels of RGB.  Those are
 * 15 bytes, stored as two overlapping eights: a store of 16 would touch the next
 * block, whose load then waits for it.
 */
#include "ops/geometry_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

/* Five pixels from each end; `right` is where its block of 16 bytes starts, the first of
 * which is not part of it. */
AVX2 static void swap_blocks_rgb(uint8_t *left, uint8_t *right)
{
    /* bytes 0..14 reversed by pixels, the last eight of them in the upper half */
    const __m128i of_right = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 8, 9, 4, 5, 6, 1, 2, 3);
    const __m128i of_left = _mm_setr_epi8(12, 13, 14, 9, 10, 11, 6, 7, 7, 8, 3, 4, 5, 0, 1, 2);
    __m128i a = _mm_loadu_si128((const void *)left), b = _mm_loadu_si128((const void *)right);
    __m128i to_left = _mm_shuffle_epi8(b, of_right), to_right = _mm_shuffle_epi8(a, of_left);
    _mm_storel_epi64((void *)left, to_left);
    _mm_storel_epi64((void *)(left + 7), _mm_unpackhi_epi64(to_left, to_left));
    _mm_storel_epi64((void *)(right + 1), to_right);
    _mm_storel_epi64((void *)(right + 8), _mm_unpackhi_epi64(to_right, to_right));
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
    int step = ch == 3 ? 15 : 16;
    uint8_t *left = row, *right = row + (size_t)w * (size_t)ch; /* right: one past */
    /* the last two blocks may overlap: both are loaded before either is stored */
    for (; right - left >= 16; left += step, right -= step) {
        if (ch == 3)
            swap_blocks_rgb(left, right - 16);
        else
            swap_blocks_grey(left, right - 16);
    }
    if (right > left)
        pen__hflip_row_c(left, (int32_t)((right - left) / ch), ch);
}
#else
typedef int pen__geometry_avx2_is_empty;
#endif
