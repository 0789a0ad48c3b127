/* test_filter.c - SIMD against scalar, and values worked out by hand. */
#include "pixels.h"

#include "base/cpu.h"
#include "ops/filter.h"
#include "ops/filter_kernels.h"

static const int32_t sizes[][2] = {{1, 1}, {1, 9},  {9, 1},  {2, 2},   {3, 3},
                                   {6, 4}, {8, 11}, {21, 7}, {64, 12}, {71, 5}};

static void sharpen(pen__image *im, float factor)
{
    block scratch = block_new(pen__sharpness_scratch(im->w, im->h, im->ch), 0);
    pen__sharpness(im, factor, scratch.at);
    block_free(scratch);
}

static void sharpness_gives_the_scalar_bytes(void **state)
{
    (void)state;
    static const float factors[] = {0.0F, 0.4F, 1.0F, 1.9F, 2.0F, 40.0F};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++)
            for (int32_t ch = 1; ch <= 3; ch += 2) {
                size_t n = (size_t)(sizes[s][0] * sizes[s][1] * ch);
                block want = noise_block(n, 0, 3), got = noise_block(n, 5, 3);
                pen__image a = {want.at, sizes[s][0], sizes[s][1], ch};
                pen__image b = {got.at, sizes[s][0], sizes[s][1], ch};
                scalar_only();
                sharpen(&a, factors[f]);
                all_features();
                sharpen(&b, factors[f]);
                assert_memory_equal(got.at, want.at, n);
                block_free(want);
                block_free(got);
            }
}

static void sharpness_mixes_with_the_smoothed_image(void **state)
{
    (void)state;
    static const struct {
        float factor;
        uint8_t middle;
    } cases[] = {{0.0F, 103}, {1.0F, 200}, {0.5F, 151}, {1.5F, 248}, {2.0F, 255}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* (8 * 42 + 5 * 200) / 13 = 102.8; the border stays */
        uint8_t px[9] = {42, 42, 42, 42, 200, 42, 42, 42, 42};
        pen__image im = {px, 3, 3, 1};
        sharpen(&im, cases[i].factor);
        for (int k = 0; k < 9; k++)
            assert_int_equal(px[k], k == 4 ? cases[i].middle : 42);
    }
}

/* ---- blur ---------------------------------------------------------------------------- */

static void blur_block(const pen__image *src, const pen__blur *blur, pen__image *dst)
{
    block scratch = block_new(pen__gaussian_blur_scratch(blur, src->w, src->h, src->ch), 0);
    pen__gaussian_blur(src, blur, dst, scratch.at, NULL);
    assert_int_equal(dst->w, src->w);
    assert_int_equal(dst->h, src->h);
    assert_int_equal(dst->ch, src->ch);
    block_free(scratch);
}

static void compare_blurs(const pen__blur *blur, int32_t w, int32_t h, int32_t ch)
{
    size_t n = (size_t)(w * h * ch);
    block px = noise_block(n, 1, 11), want = block_new(n, 0), got = block_new(n, 3);
    pen__image src = {px.at, w, h, ch}, a = {.px = want.at}, b = {.px = got.at};
    scalar_only();
    blur_block(&src, blur, &a);
    all_features();
    blur_block(&src, blur, &b);
    assert_memory_equal(got.at, want.at, n);
    block_free(px);
    block_free(want);
    block_free(got);
}

static void blur_gives_the_scalar_bytes(void **state)
{
    (void)state;
    static const pen__blur blurs[] = {
        {1, 1, 1.0F, 1.0F}, {3, 3, 0.5F, 0.5F},  {5, 3, 1.7F, 0.1F},
        {3, 9, 0.1F, 2.0F}, {13, 9, 5.0F, 0.3F},
    };
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t k = 0; k < sizeof blurs / sizeof blurs[0]; k++)
            if (blurs[k].kernel_w / 2 < sizes[s][0] && blurs[k].kernel_h / 2 < sizes[s][1])
                for (int32_t ch = 1; ch <= 3; ch += 2)
                    compare_blurs(&blurs[k], sizes[s][0], sizes[s][1], ch);
}

static void blur_reflects_without_repeating_the_edge(void **state)
{
    (void)state;
    /* sigma so large that the three weights are a third each */
    const pen__blur blur = {3, 1, 1e6F, 1.0F};
    uint8_t px[4] = {10, 40, 100, 250}, out[4];
    const uint8_t want[4] = {30, 50, 130, 150}; /* (40 10 40) (10 40 100) ... (100 250 100) */
    pen__image src = {px, 4, 1, 1}, dst = {.px = out};
    blur_block(&src, &blur, &dst);
    assert_memory_equal(out, want, 4);
    const pen__blur down = {1, 3, 1.0F, 1e6F};
    pen__image column = {px, 1, 4, 1};
    blur_block(&column, &down, &dst);
    assert_memory_equal(out, want, 4);
}

static void a_narrow_blur_changes_nothing(void **state)
{
    (void)state;
    /* the nearest neighbours weigh exp(-50) */
    const pen__blur blur = {7, 7, 0.1F, 0.1F};
    block px = noise_block(40 * 9 * 3, 0, 2), out = block_new(40 * 9 * 3, 0);
    pen__image src = {px.at, 40, 9, 3}, dst = {.px = out.at};
    blur_block(&src, &blur, &dst);
    assert_memory_equal(out.at, px.at, px.n);
    block_free(px);
    block_free(out);
}

static void a_flat_image_stays_flat(void **state)
{
    (void)state;
    for (int value = 0; value < 256; value += 51) {
        const pen__blur blur = {23, 23, 2.0F, 7.7F};
        block px = block_new(24 * 24, 0), out = block_new(24 * 24, 0);
        memset(px.at, value, px.n);
        pen__image src = {px.at, 24, 24, 1}, dst = {.px = out.at};
        blur_block(&src, &blur, &dst);
        assert_memory_equal(out.at, px.at, px.n);
        block_free(px);
        block_free(out);
    }
}

static void a_cancelled_blur_leaves_off(void **state)
{
    (void)state;
    const pen__blur blur = {3, 3, 1.0F, 1.0F};
    const atomic_bool cancel = true;
    block px = noise_block(64, 0, 2), out = block_new(64, 0);
    block scratch = block_new(pen__gaussian_blur_scratch(&blur, 8, 8, 1), 0);
    memset(out.at, 77, out.n);
    pen__image src = {px.at, 8, 8, 1}, dst = {.px = out.at};
    pen__gaussian_blur(&src, &blur, &dst, scratch.at, &cancel);
    for (size_t i = 0; i < out.n; i++)
        assert_int_equal(out.at[i], 77);
    block_free(px);
    block_free(out);
    block_free(scratch);
}

/* Each product of a white window may round up, and a large kernel has so many of them that
 * their sum is nearer to 256 than to 255. */
static void roundings_do_not_turn_white_into_black(void **state)
{
    (void)state;
    enum { SIDE = 501, N = 24 };
    const float *rows[SIDE];
    float values[N + SIDE - 1], *weights = malloc(SIDE * SIDE * sizeof *weights);
    uint8_t out[N], white[N];
    memset(white, 255, sizeof white);
    for (int i = 0; i < N + SIDE - 1; i++)
        values[i] = 255.0F;
    for (int i = 0; i < SIDE; i++)
        rows[i] = values;
    for (int i = 0; i < SIDE * SIDE; i++)
        weights[i] = (1.0F / SIDE) * (1.0F / SIDE);
    const pen__blur_window window = {rows, weights, SIDE, SIDE, 1};
    pen__filter_kernels_c.blur_row(&window, N, out);
    assert_memory_equal(out, white, N);
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX2) {
        pen__filter_kernels_avx2.blur_row(&window, N, out);
        assert_memory_equal(out, white, N);
    }
#endif
    free(weights);
}

/* Impulses at some distances, blurred: the weights themselves, as torch 2.13 rounds them. */
static void weights_are_those_of_the_gaussian(void **state)
{
    (void)state;
    const pen__blur blur = {5, 5, 1.0F, 1.0F};
    uint8_t px[81] = {0}, out[81];
    px[40] = 255;
    /* 255 * exp(-(dx^2 + dy^2) / 2) / 2.48369^2... */
    const uint8_t want[5][5] = {{1, 3, 6, 3, 1},
                                {3, 15, 25, 15, 3},
                                {6, 25, 41, 25, 6},
                                {3, 15, 25, 15, 3},
                                {1, 3, 6, 3, 1}};
    pen__image src = {px, 9, 9, 1}, dst = {.px = out};
    blur_block(&src, &blur, &dst);
    for (int y = 0; y < 5; y++)
        for (int x = 0; x < 5; x++)
            assert_int_equal(out[9 * (y + 2) + x + 2], want[y][x]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharpness_gives_the_scalar_bytes),
        cmocka_unit_test(sharpness_mixes_with_the_smoothed_image),
        cmocka_unit_test(blur_gives_the_scalar_bytes),
        cmocka_unit_test(blur_reflects_without_repeating_the_edge),
        cmocka_unit_test(a_narrow_blur_changes_nothing),
        cmocka_unit_test(a_flat_image_stays_flat),
        cmocka_unit_test(a_cancelled_blur_leaves_off),
        cmocka_unit_test(roundings_do_not_turn_white_into_black),
        cmocka_unit_test(weights_are_those_of_the_gaussian),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
