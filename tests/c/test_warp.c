/* test_warp.c - SIMD against scalar, and values worked out by hand. */
#include "pixels.h"

#include <math.h>

#include <penstock/error.h>

#include "ops/warp.h"

static const pen_filter filters[3] = {PEN_FILTER_NEAREST, PEN_FILTER_BILINEAR, PEN_FILTER_BICUBIC};

static pen__warp_spec affine(pen_filter filter, int32_t w, int32_t h, const double m[6])
{
    pen__warp_spec spec = {
        .kind = PEN__WARP_AFFINE, .filter = filter, .fill = {1, 2, 3}, .out_w = w, .out_h = h};
    memcpy(spec.m, m, 6 * sizeof m[0]);
    return spec;
}

static void compare_levels(const pen__warp_spec *spec, int32_t w, int32_t h, int32_t ch)
{
    size_t n = (size_t)(w * h * ch), n_out = (size_t)(spec->out_w * spec->out_h * ch);
    block px = noise_block(n, 1, 5), want = block_new(n_out, 0), got = block_new(n_out, 3);
    pen__image src = {px.at, w, h, ch}, a = {.px = want.at}, b = {.px = got.at};
    scalar_only();
    pen__warp(&src, spec, &a);
    all_features();
    pen__warp(&src, spec, &b);
    assert_true(b.w == spec->out_w && b.h == spec->out_h && b.ch == ch);
    assert_memory_equal(got.at, want.at, n_out);
    block_free(px);
    block_free(want);
    block_free(got);
}

static void simd_gives_the_scalar_bytes(void **state)
{
    (void)state;
    static const int32_t sizes[][2] = {{1, 1}, {1, 9}, {9, 1}, {2, 2}, {4, 5}, {13, 8}, {70, 33}};
    static const double matrices[][8] = {
        {1, 0, 0},
        {0.7, 0.2, 0.3, -0.2, 0.9, 1.1},
        {-1.3, 0.4, 9.7, 0.1, 1.2, -0.6},
        {0.01, 0, 0.4, 0, 0.01, 0.2},
        {0.9, 0.1, 0.25, -0.1, 1.1, 0.5, 0.01, -0.003},
    };
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t k = 0; k < sizeof matrices / sizeof matrices[0]; k++)
            for (int f = 0; f < 3; f++) {
                pen__warp_spec spec = affine(filters[f], sizes[s][0] + 3, sizes[s][1], matrices[k]);
                if (k == 4) {
                    spec.kind = PEN__WARP_PERSPECTIVE;
                    memcpy(spec.m, matrices[k], sizeof spec.m);
                }
                compare_levels(&spec, sizes[s][0], sizes[s][1], 3);
                compare_levels(&spec, sizes[s][0], sizes[s][1], 1);
            }
}

static void expect_row(pen_filter filter, const double m[6], const uint8_t in[4],
                       const uint8_t want[4])
{
    uint8_t px[4], out[4];
    memcpy(px, in, 4);
    pen__image src = {px, 4, 1, 1}, dst = {.px = out};
    pen__warp_spec spec = affine(filter, 4, 1, m);
    pen__warp(&src, &spec, &dst);
    assert_memory_equal(out, want, 4);
}

static void rows_come_out_as_worked_out_by_hand(void **state)
{
    (void)state;
    const uint8_t in[4] = {0, 100, 201, 101};
    const double same[6] = {1, 0, 0, 0, 1, 0}, left[6] = {1, 0, 1, 0, 1, 0};
    const double half[6] = {1, 0, 0.5, 0, 1, 0}, twice[6] = {2, 0, -0.5, 0, 1, 0};
    for (int f = 0; f < 3; f++) {
        expect_row(filters[f], same, in, in);
        expect_row(filters[f], left, in, (uint8_t[4]){100, 201, 101, 1});
    }
    expect_row(PEN_FILTER_NEAREST, half, in, (uint8_t[4]){100, 201, 101, 1});
    expect_row(PEN_FILTER_BILINEAR, half, in, (uint8_t[4]){50, 150, 151, 1});
    /* at a half the cubic weighs -1/8, 5/8, 5/8, -1/8 */
    expect_row(PEN_FILTER_BICUBIC, half, in, (uint8_t[4]){37, 175, 163, 1});
    expect_row(PEN_FILTER_NEAREST, twice, in, (uint8_t[4]){0, 201, 1, 1});
}

static void outside_is_filled_by_channel(void **state)
{
    (void)state;
    uint8_t px[3] = {9, 8, 7}, out[18];
    const double m[6] = {1, 0, -1, 0, 1, 0};
    pen__image src = {px, 1, 1, 3}, dst = {.px = out};
    for (int f = 0; f < 3; f++) {
        pen__warp_spec spec = affine(filters[f], 3, 2, m);
        pen__warp(&src, &spec, &dst);
        assert_memory_equal(
            out, ((uint8_t[18]){1, 2, 3, 9, 8, 7, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}), 18);
    }
}

static void wild_matrices_stay_inside_the_buffers(void **state)
{
    (void)state;
    static const double values[] = {0, 1, -1, 1e-300, 40000.5, -70000, 1e18, -1e300, INFINITY, NAN};
    enum { N = sizeof values / sizeof values[0] };
    block px = noise_block(7 * 5 * 3, 0, 1), out = block_new(4 * 3 * 3, 0);
    pen__image src = {px.at, 7, 5, 3}, dst = {.px = out.at};
    for (int round = 0; round < 4 * N * N; round++)
        for (int f = 0; f < 3; f++) {
            pen__warp_spec spec = {.filter = filters[f], .out_w = 4, .out_h = 3};
            spec.kind = round & 1 ? PEN__WARP_AFFINE : PEN__WARP_PERSPECTIVE;
            unsigned pick = (unsigned)round;
            for (unsigned i = 0; i < 8; pick = pick * 7 + ++i)
                spec.m[i] = values[pick % N];
            pen__warp(&src, &spec, &dst);
        }
    block_free(px);
    block_free(out);
}

static void grey_stands_for_three_equal_channels(void **state)
{
    (void)state;
    uint8_t grey[20 * 11], rgb[20 * 11 * 3], grey_out[16 * 16], rgb_out[16 * 16 * 3];
    fill_noise(grey, sizeof grey, 4);
    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = grey[i / 3];
    const double m[6] = {1.1, -0.3, 2.0, 0.3, 0.8, -1.0};
    for (int f = 0; f < 3; f++) {
        pen__warp_spec spec = affine(filters[f], 16, 16, m);
        spec.fill[1] = spec.fill[2] = spec.fill[0];
        pen__image narrow = {grey, 20, 11, 1}, wide = {rgb, 20, 11, 3};
        pen__image a = {.px = grey_out}, b = {.px = rgb_out};
        pen__warp(&narrow, &spec, &a);
        pen__warp(&wide, &spec, &b);
        for (size_t i = 0; i < sizeof rgb_out; i++)
            assert_int_equal(rgb_out[i], grey_out[i / 3]);
    }
}

/* ---- rotation ---------------------------------------------------------------------------- */

static void expect_turn(double angle, bool expand, int32_t w, int32_t h, const uint8_t *want)
{
    uint8_t px[6] = {1, 2, 3, 4, 5, 6}, out[6];
    const uint8_t black[3] = {0};
    pen__image src = {px, 3, 2, 1}, dst = {.px = out};
    int32_t out_w, out_h;
    pen__rotate_size(3, 2, angle, expand, NULL, &out_w, &out_h);
    assert_int_equal(out_w, w);
    assert_int_equal(out_h, h);
    pen__rotate(&src, angle, expand, NULL, PEN_FILTER_BICUBIC, black, &dst);
    assert_true(dst.w == w && dst.h == h && dst.ch == 1);
    assert_memory_equal(out, want, 6);
}

static void quarter_turns_move_pixels(void **state)
{
    (void)state;
    expect_turn(0.0, false, 3, 2, (uint8_t[6]){1, 2, 3, 4, 5, 6});
    expect_turn(-360.0, true, 3, 2, (uint8_t[6]){1, 2, 3, 4, 5, 6});
    expect_turn(180.0, false, 3, 2, (uint8_t[6]){6, 5, 4, 3, 2, 1});
    expect_turn(90.0, true, 2, 3, (uint8_t[6]){3, 6, 2, 5, 1, 4});
    expect_turn(-90.0, true, 2, 3, (uint8_t[6]){4, 1, 5, 2, 6, 3});
    expect_turn(630.0, true, 2, 3, (uint8_t[6]){4, 1, 5, 2, 6, 3});
}

static void a_given_center_is_turned_around(void **state)
{
    (void)state;
    /* a quarter turn around the corner of the first pixel's far side */
    uint8_t px[6] = {1, 2, 3, 4, 5, 6}, out[6];
    const double center[2] = {1.0, 1.0};
    const uint8_t fill[3] = {9, 9, 9};
    pen__image src = {px, 3, 2, 1}, dst = {.px = out};
    pen__rotate(&src, 90.0, false, center, PEN_FILTER_NEAREST, fill, &dst);
    assert_memory_equal(out, ((uint8_t[6]){2, 5, 9, 1, 4, 9}), 6);
}

static void expanding_makes_room_for_the_corners(void **state)
{
    (void)state;
    static const struct {
        double angle;
        int32_t w, h;
    } cases[] = {
        {45.0, 109, 109}, {30.0, 113, 95}, {-30.0, 113, 95}, {1.0, 103, 53}, {90.0, 51, 101}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t w, h;
        pen__rotate_size(101, 51, cases[i].angle, true, NULL, &w, &h);
        assert_int_equal(w, cases[i].w);
        assert_int_equal(h, cases[i].h);
        pen__rotate_size(101, 51, cases[i].angle, false, NULL, &w, &h);
        assert_true(w == 101 && h == 51);
    }
}

/* ---- matrices ---------------------------------------------------------------------------- */

static void affine_matrices_invert_what_is_asked_for(void **state)
{
    (void)state;
    const double center[2] = {16, 12}, still[2] = {0, 0}, moved[2] = {3, -2}, shear[2] = {45, 0};
    double m[6];
    pen__affine_matrix(m, center, 0.0, moved, 1.0, still);
    assert_true(m[0] == 1 && m[1] == 0 && m[2] == -3 && m[3] == 0 && m[4] == 1 && m[5] == 2);
    pen__affine_matrix(m, center, 0.0, still, 2.0, still);
    assert_true(m[0] == 0.5 && m[2] == 8 && m[4] == 0.5 && m[5] == 6);
    pen__affine_matrix(m, center, 90.0, still, 1.0, still);
    assert_true(fabs(m[0]) < 1e-15 && m[1] == 1 && m[3] == -1 && fabs(m[4]) < 1e-15);
    pen__affine_matrix(m, center, 0.0, still, 1.0, shear);
    assert_true(m[0] == 1 && fabs(m[1] - 1) < 1e-15 && fabs(m[2] + 12) < 1e-13 && m[4] == 1);
}

static void perspective_leads_from_end_to_start(void **state)
{
    (void)state;
    static const int32_t start[8] = {0, 0, 223, 0, 223, 167, 0, 167};
    static const int32_t ends[][8] = {{0, 0, 223, 0, 223, 167, 0, 167},
                                      {31, 12, 200, 3, 190, 160, 5, 101},
                                      {111, 83, 112, 0, 223, 167, 0, 150}};
    double m[8];
    for (size_t e = 0; e < 3; e++) {
        assert_int_equal(pen__perspective_coeffs(m, start, ends[e]), 0);
        for (int i = 0; i < 4; i++) {
            double x = ends[e][2 * i], y = ends[e][2 * i + 1], depth = m[6] * x + m[7] * y + 1;
            assert_true(fabs((m[0] * x + m[1] * y + m[2]) / depth - start[2 * i]) < 1e-3);
            assert_true(fabs((m[3] * x + m[4] * y + m[5]) / depth - start[2 * i + 1]) < 1e-3);
        }
        for (int i = 0; i < 8; i++)
            assert_true(m[i] == (double)(float)m[i]); /* torchvision rounds them so */
    }
    pen__perspective_coeffs(m, start, start);
    for (int i = 0; i < 8; i++)
        assert_true(m[i] == (i == 0 || i == 4 ? 1.0 : 0.0));
}

static void corners_in_one_point_have_no_perspective(void **state)
{
    (void)state;
    static const int32_t start[8] = {0, 0, 9, 0, 9, 9, 0, 9}, point[8] = {4, 4, 4, 4, 4, 4, 4, 4};
    static const int32_t line[8] = {0, 0, 3, 3, 6, 6, 9, 9};
    double m[8];
    assert_int_equal(pen__perspective_coeffs(m, start, point), PEN_EINVAL);
    assert_int_equal(pen__perspective_coeffs(m, start, line), PEN_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simd_gives_the_scalar_bytes),
        cmocka_unit_test(rows_come_out_as_worked_out_by_hand),
        cmocka_unit_test(outside_is_filled_by_channel),
        cmocka_unit_test(wild_matrices_stay_inside_the_buffers),
        cmocka_unit_test(grey_stands_for_three_equal_channels),
        cmocka_unit_test(quarter_turns_move_pixels),
        cmocka_unit_test(a_given_center_is_turned_around),
        cmocka_unit_test(expanding_makes_room_for_the_corners),
        cmocka_unit_test(affine_matrices_invert_what_is_asked_for),
        cmocka_unit_test(perspective_leads_from_end_to_start),
        cmocka_unit_test(corners_in_one_point_have_no_perspective),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
