/* test_color.c - SIMD against scalar, hue over every colour, and values worked out by hand. */
#include "pixels.h"

#include "ops/color.h"

typedef void color_op(pen__image *im, float factor);
static color_op *const ops[4] = {pen__brightness, pen__contrast, pen__saturation, pen__hue};

static const float factors[] = {0.0F, 0.3F, 0.5F, 0.999F, 1.0F, 1.001F, 1.4F, 2.0F, 7.5F, 1e9F};
static const float hues[] = {-0.5F, -0.31F, -0.003F, 0.0F, 0.004F, 0.1F, 0.25F, 0.4999F, 0.5F};

static void compare_levels(color_op *op, float factor, int32_t w, int32_t h, int32_t ch)
{
    size_t n = (size_t)(w * h * ch);
    block want = noise_block(n, 0, 7), got = noise_block(n, 3, 7);
    pen__image a = {want.at, w, h, ch}, b = {got.at, w, h, ch};
    scalar_only();
    op(&a, factor);
    all_features();
    op(&b, factor);
    assert_memory_equal(got.at, want.at, n);
    block_free(want);
    block_free(got);
}

static void simd_gives_the_scalar_bytes(void **state)
{
    (void)state;
    static const int32_t sizes[][2] = {{1, 1},  {3, 3},  {8, 1},  {10, 1}, {11, 1},
                                       {1, 17}, {31, 3}, {64, 5}, {67, 41}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int op = 0; op < 4; op++) {
            const float *list = op == 3 ? hues : factors;
            size_t n = op == 3 ? sizeof hues / sizeof hues[0] : sizeof factors / sizeof factors[0];
            for (size_t f = 0; f < n; f++) {
                compare_levels(ops[op], list[f], sizes[i][0], sizes[i][1], 3);
                compare_levels(ops[op], list[f], sizes[i][0], sizes[i][1], 1);
            }
        }
}

/* The SIMD hue rounds by other formulas than the scalar one: proof by trying
 * all colours, a slice of red at a time. */
static void hue_agrees_on_every_colour(void **state)
{
    (void)state;
    enum { N = 65536 };
    block want = block_new(N * 3, 0), got = block_new(N * 3, 0);
    pen__image a = {want.at, 256, 256, 3}, b = {got.at, 256, 256, 3};
    for (int red = 0; red < 256; red++) {
        for (int i = 0; i < N; i++) {
            got.at[3 * i] = (uint8_t)red;
            got.at[3 * i + 1] = (uint8_t)(i >> 8);
            got.at[3 * i + 2] = (uint8_t)i;
        }
        memcpy(want.at, got.at, N * 3);
        float factor = (float)(red - 128) / 256.0F;
        scalar_only();
        pen__hue(&a, factor);
        all_features();
        pen__hue(&b, factor);
        assert_memory_equal(got.at, want.at, N * 3);
    }
    block_free(want);
    block_free(got);
}

/* Every hue, saturation and value leads back to RGB the same way. */
static void hue_agrees_on_every_shift(void **state)
{
    (void)state;
    block want = noise_block(4099 * 3, 0, 8), got = noise_block(4099 * 3, 1, 8);
    pen__image a = {want.at, 4099, 1, 3}, b = {got.at, 4099, 1, 3};
    for (int shift = -127; shift <= 127; shift++) {
        fill_noise(want.at, 4099 * 3, (uint32_t)shift);
        memcpy(got.at, want.at, 4099 * 3);
        float factor = ((float)shift + (shift < 0 ? -0.25F : 0.25F)) / 255.0F;
        scalar_only();
        pen__hue(&a, factor);
        all_features();
        pen__hue(&b, factor);
        assert_memory_equal(got.at, want.at, 4099 * 3);
    }
    block_free(want);
    block_free(got);
}

static void expect_rgb(color_op *op, float factor, const uint8_t in[3], const uint8_t want[3])
{
    uint8_t px[3] = {in[0], in[1], in[2]};
    pen__image im = {px, 1, 1, 3};
    op(&im, factor);
    assert_memory_equal(px, want, 3);
}

static void single_pixels_come_out_as_worked_out_by_hand(void **state)
{
    (void)state;
    const uint8_t px[3] = {200, 100, 51};
    expect_rgb(pen__brightness, 0.5F, px, (uint8_t[3]){100, 50, 25}); /* truncates */
    expect_rgb(pen__brightness, 2.0F, px, (uint8_t[3]){255, 200, 102});
    expect_rgb(pen__brightness, 0.0F, px, (uint8_t[3]){0, 0, 0});
    /* grey: (200*19595 + 100*38470 + 51*7471 + 32768) >> 16 = 124 */
    expect_rgb(pen__saturation, 0.0F, px, (uint8_t[3]){124, 124, 124});
    expect_rgb(pen__saturation, 0.5F, px, (uint8_t[3]){162, 112, 87});
    expect_rgb(pen__saturation, 2.0F, px, (uint8_t[3]){255, 76, 0});
    expect_rgb(pen__contrast, 0.5F, px, (uint8_t[3]){162, 112, 87}); /* the mean is its grey */
    expect_rgb(pen__contrast, 1.0F, px, px);
    /* pure red, a third of a turn on: hue 85 is pure green */
    expect_rgb(pen__hue, 85.0F / 255.0F, (uint8_t[3]){255, 0, 0}, (uint8_t[3]){0, 255, 0});
    expect_rgb(pen__hue, 0.3F, (uint8_t[3]){80, 80, 80}, (uint8_t[3]){80, 80, 80});
}

static void contrast_rounds_the_mean_half_up(void **state)
{
    (void)state;
    uint8_t px[2] = {10, 11}; /* mean 10.5 becomes 11 */
    pen__image im = {px, 2, 1, 1};
    pen__contrast(&im, 0.0F);
    assert_int_equal(px[0], 11);
    assert_int_equal(px[1], 11);
}

static void grey_stands_for_three_equal_channels(void **state)
{
    (void)state;
    for (int op = 0; op < 4; op++) {
        uint8_t grey[256], rgb[256 * 3];
        for (int i = 0; i < 256; i++)
            grey[i] = rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = (uint8_t)(i * i >> 8);
        pen__image narrow = {grey, 256, 1, 1}, wide = {rgb, 256, 1, 3};
        float factor = op == 3 ? 0.3F : 1.7F;
        ops[op](&narrow, factor);
        ops[op](&wide, factor);
        for (int i = 0; i < 256 * 3; i++)
            assert_int_equal(rgb[i], grey[i / 3]);
    }
}

static void to_grey_works_in_place_and_matches_scalar(void **state)
{
    (void)state;
    for (int32_t w = 1; w < 70; w++) {
        size_t n = (size_t)w;
        block px = noise_block(n * 3, 1, (uint32_t)w), want = block_new(n, 0);
        pen__image src = {px.at, w, 1, 3}, dst = {.px = want.at}, same = src;
        scalar_only();
        pen__to_grey(&src, &dst);
        all_features();
        assert_int_equal(want.at[0],
                         (px.at[0] * 19595 + px.at[1] * 38470 + px.at[2] * 7471 + 32768) >> 16);
        pen__to_grey(&src, &same);
        assert_int_equal(same.ch, 1);
        assert_memory_equal(px.at, want.at, n);
        block_free(px);
        block_free(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simd_gives_the_scalar_bytes),
        cmocka_unit_test(hue_agrees_on_every_colour),
        cmocka_unit_test(hue_agrees_on_every_shift),
        cmocka_unit_test(single_pixels_come_out_as_worked_out_by_hand),
        cmocka_unit_test(contrast_rounds_the_mean_half_up),
        cmocka_unit_test(grey_stands_for_three_equal_channels),
        cmocka_unit_test(to_grey_works_in_place_and_matches_scalar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
