/* test_augmix_ops.c - values of torchvision's tensor functions, and fused against plain code. */
#include "pixels.h"

#include "ops/augmix_ops.h"
#include "ops/filter.h"
#include "ops/warp.h"

static const double still[2] = {0.0, 0.0};

static void expect_rgb(void (*op)(pen__image *, double, bool), double factor, const uint8_t want[3])
{
    uint8_t px[3] = {200, 100, 51};
    pen__image im = {px, 1, 1, 3};
    op(&im, factor, true);
    assert_memory_equal(px, want, 3);
}

static void colour_blends_as_tensors_do(void **state)
{
    (void)state;
    uint8_t px[3] = {101, 255, 7};
    pen__image im = {px, 3, 1, 1};
    pen__tensor_path_brightness(&im, 1.9);
    assert_memory_equal(px, ((uint8_t[3]){191, 255, 13}), 3);
    expect_rgb(pen__tensor_path_saturation, 0.0, (uint8_t[3]){124, 124, 124});
    expect_rgb(pen__tensor_path_saturation, 0.5, (uint8_t[3]){162, 112, 87});
    expect_rgb(pen__tensor_path_saturation, 1.9, (uint8_t[3]){255, 78, 0});
    expect_rgb(pen__tensor_path_contrast, 0.5, (uint8_t[3]){162, 112, 87});
    expect_rgb(pen__tensor_path_contrast, 1.9, (uint8_t[3]){255, 78, 0});
}

/* 0.2989 + 0.587 + 0.114 is 0.9999: the grey of a grey pixel is one less. */
static void narrow_rgb_is_not_grey(void **state)
{
    (void)state;
    uint8_t px[2] = {100, 100};
    pen__image rgb = {px, 1, 1, 1}, grey = {px + 1, 1, 1, 1};
    pen__tensor_path_saturation(&rgb, 0.0, true);
    pen__tensor_path_saturation(&grey, 0.0, false);
    assert_int_equal(px[0], 99);
    assert_int_equal(px[1], 100);
    px[0] = 100;
    pen__tensor_path_contrast(&rgb, 0.0, true);
    pen__tensor_path_contrast(&grey, 0.0, false);
    assert_int_equal(px[0], 99);
    assert_int_equal(px[1], 100);
}

static void autocontrast_reaches_both_ends(void **state)
{
    (void)state;
    uint8_t px[9] = {50, 9, 0, 75, 9, 255, 100, 9, 128};
    pen__image im = {px, 3, 1, 3};
    pen__tensor_path_autocontrast(&im);
    assert_memory_equal(px, ((uint8_t[9]){0, 9, 0, 127, 9, 255, 255, 9, 128}), 9);
}

static void sharpness_blends_the_border_with_itself(void **state)
{
    (void)state;
    uint8_t scratch[64];
    static const struct {
        double factor;
        uint8_t border, middle;
    } cases[] = {{0.0, 42, 103}, {0.1, 42, 112}, {1.0, 42, 200}, {1.5, 42, 248}, {1.9, 41, 255}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t px[9] = {42, 42, 42, 42, 200, 42, 42, 42, 42};
        pen__image im = {px, 3, 3, 1};
        assert_true(pen__sharpness_scratch(3, 3, 1) <= sizeof scratch);
        pen__tensor_path_sharpness(&im, cases[i].factor, scratch);
        for (int k = 0; k < 9; k++)
            assert_int_equal(px[k], k == 4 ? cases[i].middle : cases[i].border);
    }
}

static void small_images_are_not_sharpened(void **state)
{
    (void)state;
    uint8_t px[6] = {1, 2, 3, 4, 5, 6};
    pen__image im = {px, 2, 3, 1};
    pen__tensor_path_sharpness(&im, 1.9, NULL);
    assert_memory_equal(px, ((uint8_t[6]){1, 2, 3, 4, 5, 6}), 6);
}

/* ---- affine --------------------------------------------------------------------------- */

static void moving_by_whole_pixels_leaves_black(void **state)
{
    (void)state;
    const uint8_t want[4] = {0, 10, 40, 100};
    uint8_t px[4] = {10, 40, 100, 250}, out[4];
    const double right[2] = {1.0, 0.0};
    double m[6];
    pen__image src = {px, 4, 1, 1}, dst = {.px = out};
    pen__affine_matrix(m, still, 0.0, right, 1.0, still);
    pen__tensor_path_affine(&src, m, PEN_FILTER_BILINEAR, &dst);
    assert_memory_equal(out, want, 4);
    memset(out, 7, sizeof out);
    pen__tensor_path_affine(&src, m, PEN_FILTER_NEAREST, &dst);
    assert_memory_equal(out, want, 4);
}

static void shear_gives_torch_s_pixels(void **state)
{
    (void)state;
    const uint8_t row[4] = {10, 40, 100, 250};
    const uint8_t want[16] = {14, 48, 119, 219, 21, 62, 156, 156, 29, 78, 194, 94, 36, 92, 231, 31};
    const double corner[2] = {-2.0, -10.0}, shear[2] = {pen__shear_degrees(0.25), 0.0};
    uint8_t px[80], out[80];
    double m[6];
    for (int i = 0; i < 80; i++)
        px[i] = row[i % 4];
    pen__image src = {px, 4, 20, 1}, dst = {.px = out};
    pen__affine_matrix(m, corner, 0.0, still, 1.0, shear);
    pen__tensor_path_affine(&src, m, PEN_FILTER_BILINEAR, &dst);
    assert_memory_equal(out, want, 16);
}

static void compare_levels(int32_t w, int32_t h, int32_t ch, double angle, pen_filter filter)
{
    size_t n = (size_t)(w * h * ch);
    block px = noise_block(n, 1, 9), want = block_new(n, 0), got = block_new(n, 3);
    pen__image src = {px.at, w, h, ch}, a = {.px = want.at}, b = {.px = got.at};
    double m[6];
    pen__affine_matrix(m, still, angle, still, 1.0, still);
    scalar_only();
    pen__tensor_path_affine(&src, m, filter, &a);
    all_features();
    pen__tensor_path_affine(&src, m, filter, &b);
    assert_true(b.w == w && b.h == h && b.ch == ch);
    assert_memory_equal(got.at, want.at, n);
    block_free(px);
    block_free(want);
    block_free(got);
}

static void fused_instructions_give_the_scalar_bytes(void **state)
{
    (void)state;
    static const int32_t sizes[][2] = {{1, 1}, {1, 9}, {9, 1}, {8, 8}, {9, 8}, {61, 33}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int32_t ch = 1; ch <= 3; ch += 2)
            for (double angle = -30.0; angle <= 30.0; angle += 7.5) {
                compare_levels(sizes[s][0], sizes[s][1], ch, angle, PEN_FILTER_NEAREST);
                compare_levels(sizes[s][0], sizes[s][1], ch, angle, PEN_FILTER_BILINEAR);
            }
}

static void mixing_adds_and_truncates(void **state)
{
    (void)state;
    uint8_t a[3] = {10, 100, 255}, b[3] = {20, 201, 255}, out[3];
    float mix[3] = {0.0F, 0.0F, 0.0F};
    pen__image first = {a, 1, 1, 3}, second = {b, 1, 1, 3}, dst = {out, 1, 1, 3};
    pen__tensor_path_add(mix, &first, 0.25F);
    pen__tensor_path_add(mix, &second, 0.75F);
    pen__tensor_path_finish(mix, &dst);
    assert_memory_equal(out, ((uint8_t[3]){17, 175, 255}), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(colour_blends_as_tensors_do),
        cmocka_unit_test(narrow_rgb_is_not_grey),
        cmocka_unit_test(autocontrast_reaches_both_ends),
        cmocka_unit_test(sharpness_blends_the_border_with_itself),
        cmocka_unit_test(small_images_are_not_sharpened),
        cmocka_unit_test(moving_by_whole_pixels_leaves_black),
        cmocka_unit_test(shear_gives_torch_s_pixels),
        cmocka_unit_test(fused_instructions_give_the_scalar_bytes),
        cmocka_unit_test(mixing_adds_and_truncates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
