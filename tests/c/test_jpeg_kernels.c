/* test_jpeg_kernels.c - JPEG arithmetic: SIMD against scalar, and both against first
 * principles where that is possible. */
#include "pixels.h"

#include <math.h>

#include "images.h"
#include "ops/jpeg_frame.h"
#include "ops/jpeg_kernels.h"

static const pen__jpeg_kernels *scalar, *best;
static const pen__jpeg_kernels *simd[N_LEVELS]; /* the last is the best */

static int set_up(void **state)
{
    (void)state;
    scalar_only();
    scalar = pen__jpeg_kernels_get();
    for (int level = 0; level < N_LEVELS; level++) {
        pen__cpu_mask(levels[level]);
        best = simd[level] = pen__jpeg_kernels_get();
    }
    return 0;
}

/* Zigzag positions up to n_coefs get values of at most `most`, the others stay zero. */
static void roll_block(uint64_t *dice, int16_t *coefs, uint16_t *quant, int n_coefs, int most)
{
    static const uint8_t low[10] = {0, 1, 8, 16, 9, 2, 3, 10, 17, 24};
    memset(coefs, 0, 64 * sizeof *coefs);
    for (int i = 0; i < n_coefs; i++)
        if (roll(dice) % 3)
            coefs[n_coefs > 10 ? i : low[i]] = (int16_t)roll_between(dice, -most, most);
    for (int i = 0; i < 64; i++)
        quant[i] = (uint16_t)roll_between(dice, 1, most > 2000 ? 65535 : 40);
}

/* The same block in the order that the best kernel takes. */
static const int16_t *in_best_order(const int16_t *natural, int16_t *zigzag)
{
    for (int k = 0; k < 64; k++)
        zigzag[k] = natural[pen__jpeg_natural_order[k]];
    return best->is_zigzag ? zigzag : natural;
}

static void the_transform_of_any_blocks_equals_its_twin(void **state)
{
    (void)state;
    enum { MAX_JOBS = 9, STRIDE = 8 * MAX_JOBS + 3 };
    static const int most[] = {3, 40, 300, 32767};
    uint64_t dice = 1;
    for (int i = 0; i < 20000; i++) {
        int16_t coefs[MAX_JOBS][64], zigzag[MAX_JOBS][64];
        uint16_t quant[MAX_JOBS][64];
        pen__jpeg_idct_job jobs[2][MAX_JOBS];
        int n_jobs = roll_between(&dice, 0, MAX_JOBS);
        block planes[2] = {block_new(8 * STRIDE, (size_t)(i % 7)),
                           block_new(8 * STRIDE, (size_t)(i % 5))};
        for (int k = 0; k < n_jobs; k++) {
            int n_coefs = roll(&dice) % 2 ? roll_between(&dice, 1, 10) : 64;
            roll_block(&dice, coefs[k], quant[k], n_coefs, most[roll(&dice) % 4]);
            for (int j = 0; j < 2; j++)
                jobs[j][k] =
                    (pen__jpeg_idct_job){j == 0 ? coefs[k] : in_best_order(coefs[k], zigzag[k]),
                                         quant[k], planes[j].at + 8 * k + 1, STRIDE, n_coefs};
        }
        bool verdict = scalar->idct(jobs[0], n_jobs);
        assert_int_equal(best->idct(jobs[1], n_jobs), verdict);
        assert_memory_equal(planes[0].at, planes[1].at, 8 * STRIDE);
        block_free(planes[0]);
        block_free(planes[1]);
    }
}

/* What a block of samples is worth in coefficients, and back: within rounding. */
static void the_transform_is_an_inverse_cosine_transform(void **state)
{
    (void)state;
    uint64_t dice = 3;
    uint16_t quant[64];
    for (int i = 0; i < 64; i++)
        quant[i] = 1;
    for (int round = 0; round < 200; round++) {
        int16_t coefs[64], zigzag[64];
        uint8_t out[64];
        for (int i = 0; i < 64; i++)
            coefs[i] = (int16_t)roll_between(&dice, -60, 60);
        pen__jpeg_idct_job job = {in_best_order(coefs, zigzag), quant, out, 8, 64};
        assert_true(best->idct(&job, 1));
        for (int y = 0; y < 8; y++)
            for (int x = 0; x < 8; x++) {
                double sum = 0;
                for (int v = 0; v < 8; v++)
                    for (int u = 0; u < 8; u++)
                        sum += coefs[8 * v + u] * (u ? 1 : sqrt(0.5)) * (v ? 1 : sqrt(0.5)) *
                               cos((2 * x + 1) * u * M_PI / 16) * cos((2 * y + 1) * v * M_PI / 16);
                double wanted = fmin(fmax(sum / 4 + 128, 0), 255);
                assert_true(fabs(out[8 * y + x] - wanted) < 0.6);
            }
    }
}

static void large_first_rows_are_reported(void **state)
{
    (void)state;
    uint16_t quant[64];
    uint8_t out[64];
    for (int i = 0; i < 64; i++)
        quant[i] = 2;
    for (int x = 0; x < 8; x++)
        for (int value = 4090; value <= 4100; value++)
            for (int sign = -1; sign <= 1; sign += 2) {
                int16_t coefs[64] = {0}, zigzag[64];
                coefs[x] = (int16_t)(sign * value);
                pen__jpeg_idct_job job = {coefs, quant, out, 8, 64};
                bool is_small = 2 * value * sign >= -8192 && 2 * value * sign < 8192;
                assert_int_equal(scalar->idct(&job, 1), is_small);
                job.coefs = in_best_order(coefs, zigzag);
                assert_int_equal(best->idct(&job, 1), is_small);
            }
}

/* Rows with one sample before and the slack behind. */
static block row_block(int n, int offset, uint32_t seed)
{
    return noise_block((size_t)n + 1 + PEN__JPEG_ROW_SLACK, (size_t)offset, seed);
}

static void upsample_with(const pen__jpeg_kernels *k, int kernel, const uint8_t *near,
                          const uint8_t *far, uint8_t *out, int n)
{
    if (kernel == 0)
        k->upsample_h2v2(near, far, out, n);
    else if (kernel == 1)
        k->upsample_h2v1(near, out, n);
    else
        k->upsample_h1v2(near, far, out, n, kernel - 1);
}

static void upsampled_rows_of_any_length_equal_their_twins(void **state)
{
    (void)state;
    for (int n = 1; n <= 100; n++) {
        block near = row_block(n, n % 9, (uint32_t)n), far = row_block(n, n % 4, (uint32_t)n + 7);
        for (int kernel = 0; kernel < 4; kernel++) {
            size_t n_out = (size_t)(kernel < 2 ? 2 * n : n);
            block want = block_new(n_out + PEN__JPEG_ROW_SLACK, (size_t)(n % 5));
            upsample_with(scalar, kernel, near.at + 1, far.at + 1, want.at, n);
            for (int level = 0; level < N_LEVELS; level++) {
                block got = block_new(n_out + PEN__JPEG_ROW_SLACK, (size_t)(n % 3));
                upsample_with(simd[level], kernel, near.at + 1, far.at + 1, got.at, n);
                assert_memory_equal(got.at, want.at, n_out);
                block_free(got);
            }
            block_free(want);
        }
        block_free(near), block_free(far);
    }
}

static void flat_chroma_stays_flat_when_upsampled(void **state)
{
    (void)state;
    uint8_t row[20 + PEN__JPEG_ROW_SLACK], out[40 + PEN__JPEG_ROW_SLACK];
    for (int value = 0; value < 256; value++) {
        memset(row, value, sizeof row);
        for (int kernel = 0; kernel < 4; kernel++) {
            memset(out, value + 1, sizeof out);
            if (kernel == 0)
                best->upsample_h2v2(row + 1, row + 1, out, 18);
            else if (kernel == 1)
                best->upsample_h2v1(row + 1, out, 18);
            else
                best->upsample_h1v2(row + 1, row + 1, out, 18, kernel - 1);
            for (int i = 0; i < 18; i++)
                assert_int_equal(out[i], value);
        }
    }
}

/* Every pair of colour differences with a few lights, against rounded real numbers. */
static void every_colour_is_converted_right(void **state)
{
    (void)state;
    static const uint8_t lights[] = {0, 1, 77, 128, 200, 255};
    uint8_t y[256], cb[256], cr[256], rgb[2][256 * 3];
    for (int k = 0; k < 6; k++)
        for (int blue = 0; blue < 256; blue++) {
            for (int i = 0; i < 256; i++) {
                y[i] = lights[k];
                cb[i] = (uint8_t)blue;
                cr[i] = (uint8_t)i;
            }
            scalar->ycc_to_rgb(y, cb, cr, rgb[0], 256);
            for (int level = 0; level < N_LEVELS; level++) {
                simd[level]->ycc_to_rgb(y, cb, cr, rgb[1], 256);
                assert_memory_equal(rgb[0], rgb[1], sizeof rgb[0]);
            }
            for (int i = 0; i < 256; i++) {
                double wanted[3] = {y[i] + 1.402 * (i - 128),
                                    y[i] - 0.344136 * (blue - 128) - 0.714136 * (i - 128),
                                    y[i] + 1.772 * (blue - 128)};
                for (int c = 0; c < 3; c++)
                    assert_true(fabs(rgb[0][3 * i + c] - fmin(fmax(wanted[c], 0), 255)) < 0.51);
            }
        }
}

static void converted_rows_of_any_length_end_where_they_should(void **state)
{
    (void)state;
    for (int n = 1; n <= 200; n++) {
        size_t size = (size_t)n;
        block y = noise_block(size, (size_t)(n % 3), 1), cb = noise_block(size, (size_t)(n % 7), 2),
              cr = noise_block(size, (size_t)(n % 5), 3), want = block_new(3 * size, 0);
        scalar->ycc_to_rgb(y.at, cb.at, cr.at, want.at, n);
        for (int level = 0; level < N_LEVELS; level++) {
            block got = block_new(3 * size, (size_t)(n % 11));
            simd[level]->ycc_to_rgb(y.at, cb.at, cr.at, got.at, n);
            assert_memory_equal(got.at, want.at, 3 * size);
            block_free(got);
        }
        block_free(y), block_free(cb), block_free(cr), block_free(want);
    }
}

/* In one go as in two, from either half of the first chroma sample on. */
static void upsampling_with_conversion_equals_one_after_the_other(void **state)
{
    (void)state;
    for (int n = 1; n <= 260; n++)
        for (int n_left_out = 0; n_left_out < 2; n_left_out++) {
            int n_chroma = (n + n_left_out + 1) / 2;
            block rows[4], y = row_block(n, n % 7, (uint32_t)n), up[2];
            block want = block_new(3 * (size_t)n, 0);
            for (int k = 0; k < 4; k++)
                rows[k] = row_block(n_chroma, (n + k) % 5, (uint32_t)(5 * n + k));
            for (int k = 0; k < 2; k++) {
                up[k] = block_new(2 * (size_t)n_chroma, 0);
                scalar->upsample_h2v2(rows[2 * k].at + 1, rows[2 * k + 1].at + 1, up[k].at,
                                      n_chroma);
            }
            scalar->ycc_to_rgb(y.at + 1, up[0].at + n_left_out, up[1].at + n_left_out, want.at, n);
            for (int level = 0; level < N_LEVELS; level++) {
                if (!simd[level]->h2v2_to_rgb)
                    continue;
                block got = block_new(3 * (size_t)n, (size_t)(n % 11));
                simd[level]->h2v2_to_rgb(
                    y.at + 1, (pen__jpeg_chroma){rows[0].at + 1, rows[1].at + 1},
                    (pen__jpeg_chroma){rows[2].at + 1, rows[3].at + 1}, got.at, n, n_left_out);
                assert_memory_equal(got.at, want.at, want.n);
                block_free(got);
            }
            for (int k = 0; k < 4; k++)
                block_free(rows[k]);
            block_free(up[0]), block_free(up[1]), block_free(y), block_free(want);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_transform_of_any_blocks_equals_its_twin),
        cmocka_unit_test(the_transform_is_an_inverse_cosine_transform),
        cmocka_unit_test(large_first_rows_are_reported),
        cmocka_unit_test(upsampled_rows_of_any_length_equal_their_twins),
        cmocka_unit_test(flat_chroma_stays_flat_when_upsampled),
        cmocka_unit_test(every_colour_is_converted_right),
        cmocka_unit_test(converted_rows_of_any_length_end_where_they_should),
        cmocka_unit_test(upsampling_with_conversion_equals_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
