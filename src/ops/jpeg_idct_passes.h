/* jpeg_idct_passes.h - the two passes of the IDCT, for vectors of any width.
 *
 * Private to jpeg_idct_avx2.c and jpeg_idct_avx512.c, which define before they include it:
 *
 *     vector         holds one row of two or of four blocks, a block in each 128-bit lane
 *     V(name)        the width's intrinsic of that name
 *     ZERO           a vector of zeros
 *     SIMD_INLINE    how its functions are declared
 *
 * The first pass runs down the columns, a transpose within the lanes turns the second pass
 * into the same code, and the bytes are transposed back at the end.  Where all blocks have only
 * the first ten coefficients in zigzag order, rows and columns 4 to 7 are zero, and more than
 * half of the work falls away without changing a result.
 */
#ifndef PEN_OPS_JPEG_IDCT_PASSES_H
#define PEN_OPS_JPEG_IDCT_PASSES_H

#include <immintrin.h>

#include "ops/jpeg_kernels.h"

/* A row of 32-bit sums of all blocks as two halves: of columns 0 to 3 and of columns 4 to 7. */
typedef struct wide {
    vector lo, hi;
} wide;

SIMD_INLINE wide add(wide a, wide b)
{
    return (wide){V(add_epi32)(a.lo, b.lo), V(add_epi32)(a.hi, b.hi)};
}

SIMD_INLINE wide sub(wide a, wide b)
{
    return (wide){V(sub_epi32)(a.lo, b.lo), V(sub_epi32)(a.hi, b.hi)};
}

/* x and y side by side, for dot(). */
SIMD_INLINE wide beside(vector x, vector y)
{
    return (wide){V(unpacklo_epi16)(x, y), V(unpackhi_epi16)(x, y)};
}

/* x * a + y * b */
SIMD_INLINE vector dot_half(vector xy, int a, int b)
{
    return V(madd_epi16)(xy, V(set1_epi32)((int)((uint32_t)b << 16 | (uint16_t)a)));
}

SIMD_INLINE wide dot(wide xy, int a, int b)
{
    return (wide){dot_half(xy.lo, a, b), dot_half(xy.hi, a, b)};
}

/* x << 13 */
SIMD_INLINE wide scaled(vector x)
{
    wide top = beside(ZERO, x);
    return (wide){V(srai_epi32)(top.lo, 16 - PEN__IDCT_BITS),
                  V(srai_epi32)(top.hi, 16 - PEN__IDCT_BITS)};
}

/* Rounded, shifted and saturated to int16. */
SIMD_INLINE vector narrow(wide x, int shift)
{
    vector half = V(set1_epi32)(1 << (shift - 1));
    return V(packs_epi32)(V(srai_epi32)(V(add_epi32)(x.lo, half), shift),
                          V(srai_epi32)(V(add_epi32)(x.hi, half), shift));
}

/* Sums and differences of the even part e and the odd part o. */
SIMD_INLINE void join(vector v[8], wide e0, wide e1, wide e2, wide e3, const wide o[4], int shift)
{
    wide even[4] = {add(e0, e3), add(e1, e2), sub(e1, e2), sub(e0, e3)};
    for (int i = 0; i < 4; i++) {
        v[i] = narrow(add(even[i], o[3 - i]), shift);
        v[7 - i] = narrow(sub(even[i], o[3 - i]), shift);
    }
}

SIMD_INLINE void pass_full(vector v[8], int shift)
{
    wide e0 = scaled(V(add_epi16)(v[0], v[4])), e1 = scaled(V(sub_epi16)(v[0], v[4]));
    wide v26 = beside(v[2], v[6]);
    wide e2 = dot(v26, PEN__IDCT_0_541, PEN__IDCT_0_541 - PEN__IDCT_1_847);
    wide e3 = dot(v26, PEN__IDCT_0_541 + PEN__IDCT_0_765, PEN__IDCT_0_541);
    wide z34 = beside(V(add_epi16)(v[7], v[3]), V(add_epi16)(v[5], v[1]));
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
SIMD_INLINE void sums_low(vector e0, vector v2, vector v13, int shift, vector out[8])
{
    enum {
        S3_3 = PEN__IDCT_1_175 - PEN__IDCT_1_961, /* what v[3] adds to s3 above, ... */
        S4_1 = PEN__IDCT_1_175 - PEN__IDCT_0_390,
    };
    e0 = V(add_epi32)(e0, V(set1_epi32)(1 << (shift - 1)));
    vector e2 = dot_half(v2, PEN__IDCT_0_541, 0);
    vector e3 = dot_half(v2, PEN__IDCT_0_541 + PEN__IDCT_0_765, 0);
    const vector odd[4] = {
        dot_half(v13, S4_1 + PEN__IDCT_1_501 - PEN__IDCT_0_899, PEN__IDCT_1_175),
        dot_half(v13, PEN__IDCT_1_175, S3_3 + PEN__IDCT_3_072 - PEN__IDCT_2_562),
        dot_half(v13, S4_1, PEN__IDCT_1_175 - PEN__IDCT_2_562),
        dot_half(v13, PEN__IDCT_1_175 - PEN__IDCT_0_899, S3_3),
    };
    const vector even[4] = {V(add_epi32)(e0, e3), V(add_epi32)(e0, e2), V(sub_epi32)(e0, e2),
                            V(sub_epi32)(e0, e3)};
    for (int i = 0; i < 4; i++) {
        out[i] = V(srai_epi32)(V(add_epi32)(even[i], odd[i]), shift);
        out[7 - i] = V(srai_epi32)(V(sub_epi32)(even[i], odd[i]), shift);
    }
}

/* Down the columns 0 to 3, the others being zero, and transposed: v[0] to v[3]. */
SIMD_INLINE void first_pass_low(vector v[8], int shift)
{
    vector rows[8], a[4], b[4];
    sums_low(scaled(v[0]).lo, beside(v[2], ZERO).lo, beside(v[1], v[3]).lo, shift, rows);
    for (int i = 0; i < 4; i++)
        a[i] = V(packs_epi32)(rows[i], rows[4 + i]);
    for (int i = 0; i < 2; i++) {
        b[i] = V(unpacklo_epi16)(a[2 * i], a[2 * i + 1]);
        b[2 + i] = V(unpackhi_epi16)(a[2 * i], a[2 * i + 1]);
    }
    vector top01 = V(unpacklo_epi32)(b[0], b[1]), top23 = V(unpackhi_epi32)(b[0], b[1]);
    vector end01 = V(unpacklo_epi32)(b[2], b[3]), end23 = V(unpackhi_epi32)(b[2], b[3]);
    v[0] = V(unpacklo_epi64)(top01, end01);
    v[1] = V(unpackhi_epi64)(top01, end01);
    v[2] = V(unpacklo_epi64)(top23, end23);
    v[3] = V(unpackhi_epi64)(top23, end23);
}

SIMD_INLINE void second_pass_low(vector v[8], int shift)
{
    wide e0 = scaled(v[0]), v2 = beside(v[2], ZERO), v13 = beside(v[1], v[3]);
    vector lo[8], hi[8];
    sums_low(e0.lo, v2.lo, v13.lo, shift, lo);
    sums_low(e0.hi, v2.hi, v13.hi, shift, hi);
    for (int i = 0; i < 8; i++)
        v[i] = V(packs_epi32)(lo[i], hi[i]);
}

/* 8x8 int16 in each lane. */
SIMD_INLINE void transpose(vector v[8])
{
    vector a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = V(unpacklo_epi16)(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = V(unpackhi_epi16)(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++)
        for (int half = 0; half < 2; half++) {
            vector x = a[4 * i + half], y = a[4 * i + 2 + half];
            b[4 * i + 2 * half] = V(unpacklo_epi32)(x, y);
            b[4 * i + 2 * half + 1] = V(unpackhi_epi32)(x, y);
        }
    for (int i = 0; i < 4; i++) {
        v[2 * i] = V(unpacklo_epi64)(b[i], b[4 + i]);
        v[2 * i + 1] = V(unpackhi_epi64)(b[i], b[4 + i]);
    }
}

#endif
