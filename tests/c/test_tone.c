/* test_tone.c - values worked out by hand from ImageOps' rules. */
#include "pixels.h"

#include "ops/tone.h"

static const int32_t sizes[][3] = {{1, 1, 1}, {1, 1, 3}, {1, 17, 3}, {33, 1, 1}, {31, 7, 3}};

static void posterize_three(pen__image *im)
{
    pen__posterize(im, 3);
}

static void solarize_middle(pen__image *im)
{
    pen__solarize(im, 127.5F);
}

typedef void tone_op(pen__image *im);
static tone_op *const ops[] = {pen__invert, posterize_three, solarize_middle, pen__autocontrast,
                               pen__equalize};

/* Every byte value in one row. */
static pen__image ramp(uint8_t px[256])
{
    for (int v = 0; v < 256; v++)
        px[v] = (uint8_t)v;
    return (pen__image){px, 256, 1, 1};
}

static void invert_posterize_and_solarize_follow_their_formulas(void **state)
{
    (void)state;
    uint8_t px[256];
    pen__image im = ramp(px);
    pen__invert(&im);
    for (int v = 0; v < 256; v++)
        assert_int_equal(px[v], 255 - v);
    for (int bits = 0; bits <= 8; bits++) {
        ramp(px);
        pen__posterize(&im, bits);
        for (int v = 0; v < 256; v++)
            assert_int_equal(px[v], v >> (8 - bits) << (8 - bits));
    }
    static const float thresholds[] = {-3.0F, 0.0F, 0.5F, 127.0F, 127.5F, 255.0F, 255.5F, 400.0F};
    for (size_t t = 0; t < sizeof thresholds / sizeof thresholds[0]; t++) {
        ramp(px);
        pen__solarize(&im, thresholds[t]);
        for (int v = 0; v < 256; v++)
            assert_int_equal(px[v], (float)v < thresholds[t] ? v : 255 - v);
    }
}

static void autocontrast_stretches_each_channel_by_itself(void **state)
{
    (void)state;
    /* red from 50 to 100, green already full, blue of one value */
    uint8_t px[9] = {50, 0, 7, 75, 255, 7, 100, 128, 7};
    const uint8_t want[9] = {0, 0, 7, 127, 255, 7, 254, 128, 7};
    /* 25 * 5.1 is truncated; so is 100 * 5.1 - 255, which as doubles falls short of 255 */
    pen__image im = {px, 3, 1, 3};
    pen__autocontrast(&im);
    assert_memory_equal(px, want, 9);
}

static void equalize_counts_in_steps(void **state)
{
    (void)state;
    /* 600 pixels of 10, 20 and 30, 200 each: step (400 / 255) = 1, so 10 becomes 0, 20
     * becomes 200 and 30 would be 400 */
    uint8_t px[600];
    pen__image im = {px, 600, 1, 1};
    for (int i = 0; i < 600; i++)
        px[i] = (uint8_t)(10 * (i % 3 + 1));
    pen__equalize(&im);
    for (int i = 0; i < 600; i++)
        assert_int_equal(px[i], i % 3 == 0 ? 0 : i % 3 == 1 ? 200 : 255);
}

static void equalize_leaves_small_and_even_images_alone(void **state)
{
    (void)state;
    uint8_t few[4] = {1, 2, 3, 200}, same[900];
    pen__image small = {few, 2, 2, 1}, even = {same, 300, 3, 1};
    memset(same, 9, sizeof same);
    pen__equalize(&small);
    pen__equalize(&even);
    assert_memory_equal(few, ((uint8_t[4]){1, 2, 3, 200}), 4);
    for (int i = 0; i < 900; i++)
        assert_int_equal(same[i], 9);
}

static void no_byte_beside_the_image_is_touched(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t op = 0; op < sizeof ops / sizeof ops[0]; op++) {
            block b = noise_block((size_t)(sizes[s][0] * sizes[s][1] * sizes[s][2]), 3, 5);
            pen__image im = {b.at, sizes[s][0], sizes[s][1], sizes[s][2]};
            ops[op](&im);
            block_free(b);
        }
}

static void grey_stands_for_three_equal_channels(void **state)
{
    (void)state;
    for (size_t op = 0; op < sizeof ops / sizeof ops[0]; op++) {
        uint8_t grey[700], rgb[700 * 3];
        for (int i = 0; i < 700; i++)
            grey[i] = rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = (uint8_t)(20 + i * i % 199);
        pen__image narrow = {grey, 70, 10, 1}, wide = {rgb, 70, 10, 3};
        ops[op](&narrow);
        ops[op](&wide);
        for (int i = 0; i < 700 * 3; i++)
            assert_int_equal(rgb[i], grey[i / 3]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invert_posterize_and_solarize_follow_their_formulas),
        cmocka_unit_test(autocontrast_stretches_each_channel_by_itself),
        cmocka_unit_test(equalize_counts_in_steps),
        cmocka_unit_test(equalize_leaves_small_and_even_images_alone),
        cmocka_unit_test(no_byte_beside_the_image_is_touched),
        cmocka_unit_test(grey_stands_for_three_equal_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
