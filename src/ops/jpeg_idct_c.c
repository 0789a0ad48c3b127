/* jpeg_idct_c.c - the accurate integer IDCT in plain C, and the choice of kernels.
 *
 * Loeffler, Ligtenberg and Moschytz's 11-multiplication scheme, in the fixed point
 * and with the roundings of libjpeg's jidctint.  The constants are merged where two
 * products meet, which changes no result and is what the SIMD twin does.
 */
#include "base/cpu.h"
#include "ops/jpeg_kernels.h"

/* One line of eight, `step` apart, to eight before rounding.  Sums of two inputs are
 * 16-bit sums; everything else is 32-bit with wrap-around, hence unsigned. */
static void transform_line(const int16_t *in, int step, uint32_t out[8])
{
    int32_t i1 = in[step], i2 = in[2 * step], i3 = in[3 * step], i5 = in[5 * step],
            i6 = in[6 * step], i7 = in[7 * step];
    int16_t sum04 = (int16_t)(in[0] + in[4 * step]), dif04 = (int16_t)(in[0] - in[4 * step]);
    uint32_t e0 = (uint32_t)sum04 << PEN__IDCT_BITS, e1 = (uint32_t)dif04 << PEN__IDCT_BITS;
    uint32_t e2 = (uint32_t)(i2 * PEN__IDCT_0_541 + i6 * (PEN__IDCT_0_541 - PEN__IDCT_1_847));
    uint32_t e3 = (uint32_t)(i2 * (PEN__IDCT_0_541 + PEN__IDCT_0_765) + i6 * PEN__IDCT_0_541);
    int16_t z3 = (int16_t)(i7 + i3), z4 = (int16_t)(i5 + i1);
    uint32_t s3 = (uint32_t)(z3 * (PEN__IDCT_1_175 - PEN__IDCT_1_961) + z4 * PEN__IDCT_1_175);
    uint32_t s4 = (uint32_t)(z3 * PEN__IDCT_1_175 + z4 * (PEN__IDCT_1_175 - PEN__IDCT_0_390));
    uint32_t o0 = s3 + (uint32_t)(i7 * (PEN__IDCT_0_298 - PEN__IDCT_0_899) - i1 * PEN__IDCT_0_899);
    uint32_t o1 = s4 + (uint32_t)(i5 * (PEN__IDCT_2_053 - PEN__IDCT_2_562) - i3 * PEN__IDCT_2_562);
    uint32_t o2 = s3 + (uint32_t)(i3 * (PEN__IDCT_3_072 - PEN__IDCT_2_562) - i5 * PEN__IDCT_2_562);
    uint32_t o3 = s4 + (uint32_t)(i1 * (PEN__IDCT_1_501 - PEN__IDCT_0_899) - i7 * PEN__IDCT_0_899);
    out[0] = e0 + e3 + o3;
    out[7] = e0 + e3 - o3;
    out[1] = e1 + e2 + o2;
    out[6] = e1 + e2 - o2;
    out[2] = e1 - e2 + o1;
    out[5] = e1 - e2 - o1;
    out[3] = e0 - e3 + o0;
    out[4] = e0 - e3 - o0;
}

static int clamp(int32_t value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

static int32_t descale(uint32_t value, int n_bits)
{
    return (int32_t)(value + (1U << (n_bits - 1))) >> n_bits;
}

static bool transform(const pen__jpeg_idct_job *job)
{
    enum {
        SHIFT1 = PEN__IDCT_BITS - PEN__IDCT_PASS1_BITS,
        SHIFT2 = PEN__IDCT_BITS + PEN__IDCT_PASS1_BITS + 3
    };
    int16_t in[64], between[64];
    uint32_t line[8];
    for (int i = 0; i < 64; i++)
        in[i] = (int16_t)((uint32_t)job->coefs[i] * job->quant[i]);
    for (int x = 0; x < 8; x++) {
        transform_line(in + x, 8, line);
        for (int y = 0; y < 8; y++)
            between[8 * y + x] = (int16_t)clamp(descale(line[y], SHIFT1), INT16_MIN, INT16_MAX);
    }
    for (int y = 0; y < 8; y++) {
        transform_line(between + 8 * y, 1, line);
        for (int x = 0; x < 8; x++)
            job->dst[y * job->stride + x] =
                (uint8_t)(clamp(descale(line[x], SHIFT2), -128, 127) + 128);
    }
    for (int x = 0; x < 8; x++)
        if (in[x] < -PEN__IDCT_MAX_ROW0 || in[x] >= PEN__IDCT_MAX_ROW0)
            return false;
    return true;
}

bool pen__jpeg_idct_c(const pen__jpeg_idct_job *jobs, int n_jobs)
{
    bool is_sound = true;
    for (int i = 0; i < n_jobs; i++)
        is_sound &= transform(&jobs[i]);
    return is_sound;
}

static const pen__jpeg_kernels kernels_c = {
    pen__jpeg_idct_c,
    pen__jpeg_upsample_h2v2_c,
    pen__jpeg_upsample_h2v1_c,
    pen__jpeg_upsample_h1v2_c,
    pen__jpeg_ycc_to_rgb_c,
    NULL,
    false,
};
#if defined(__x86_64__)
static const pen__jpeg_kernels kernels_avx2 = {
    pen__jpeg_idct_avx2,
    pen__jpeg_upsample_h2v2_avx2,
    pen__jpeg_upsample_h2v1_avx2,
    pen__jpeg_upsample_h1v2_avx2,
    pen__jpeg_ycc_to_rgb_avx2,
    NULL,
    false,
};
static const pen__jpeg_kernels kernels_avx512 = {
    pen__jpeg_idct_avx512,
    pen__jpeg_upsample_h2v2_avx2,
    pen__jpeg_upsample_h2v1_avx2,
    pen__jpeg_upsample_h1v2_avx2,
    pen__jpeg_ycc_to_rgb_avx512,
    pen__jpeg_h2v2_to_rgb_avx512,
    true,
};
#endif

const pen__jpeg_kernels *pen__jpeg_kernels_get(void)
{
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX512)
        return &kernels_avx512;
    if (pen__cpu_flags() & PEN__CPU_AVX2)
        return &kernels_avx2;
#endif
    return &kernels_c;
}
