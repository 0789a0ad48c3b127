/* test_geometry.c - flips, crops and turns against their definition, pixel by pixel. */
#include "pixels.h"

#include "ops/geometry.h"

static const int32_t sizes[][2] = {{1, 1},  {2, 3},  {5, 1},  {1, 9},   {10, 2},  {11, 3},
                                   {16, 4}, {17, 5}, {31, 7}, {32, 33}, {43, 40}, {100, 3}};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

static const uint8_t *pixel(const pen__image *im, int32_t x, int32_t y)
{
    return im->px + ((size_t)y * (size_t)im->w + (size_t)x) * (size_t)im->ch;
}

static void flips_mirror_every_pixel_and_undo_themselves(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIZES * 4; i++) {
        int32_t w = sizes[i / 4][0], h = sizes[i / 4][1], ch = i & 1 ? 1 : 3;
        size_t n = (size_t)(w * h * ch);
        if (i & 2)
            scalar_only();
        block before = noise_block(n, 0, (uint32_t)i), work = noise_block(n, 5, (uint32_t)i);
        pen__image was = {before.at, w, h, ch}, im = {work.at, w, h, ch};
        pen__hflip(&im);
        for (int32_t y = 0; y < h; y++)
            for (int32_t x = 0; x < w; x++)
                assert_memory_equal(pixel(&im, x, y), pixel(&was, w - 1 - x, y), (size_t)ch);
        pen__hflip(&im);
        assert_memory_equal(work.at, before.at, n);
        pen__vflip(&im);
        for (int32_t y = 0; y < h; y++)
            assert_memory_equal(pixel(&im, 0, y), pixel(&was, 0, h - 1 - y), (size_t)(w * ch));
        block_free(before);
        block_free(work);
        all_features();
    }
}

/* Row 1 2 3 4 with three pixels more on each side, as numpy.pad gives them. */
static void overhang_is_filled_as_each_mode_says(void **state)
{
    (void)state;
    static const uint8_t want[4][10] = {
        {9, 9, 9, 1, 2, 3, 4, 9, 9, 9},
        {1, 1, 1, 1, 2, 3, 4, 4, 4, 4},
        {4, 3, 2, 1, 2, 3, 4, 3, 2, 1},
        {3, 2, 1, 1, 2, 3, 4, 4, 3, 2},
    };
    uint8_t row[4] = {1, 2, 3, 4}, fill[3] = {9, 9, 9}, out[10];
    for (int turned = 0; turned < 2; turned++) /* the same for columns */
        for (int mode = 0; mode < 4; mode++) {
            pen__image src = {row, turned ? 1 : 4, turned ? 4 : 1, 1}, dst = {.px = out};
            pen__rect box = turned ? (pen__rect){0, -3, 1, 10} : (pen__rect){-3, 0, 10, 1};
            pen__crop(&src, box, (pen_padding)mode, fill, &dst);
            assert_memory_equal(out, want[mode], 10);
            assert_int_equal(dst.w, box.w);
            assert_int_equal(dst.h, box.h);
        }
}

static void any_overhang_stays_inside_the_source(void **state)
{
    (void)state;
    const uint8_t fill[3] = {1, 2, 3};
    for (int i = 0; i < N_SIZES; i++)
        for (int mode = 0; mode < 4; mode++)
            for (int at = 0; at < 6; at++) {
                static const pen__rect boxes[6] = {{-50, -50, 130, 120}, {-40, 2, 7, 5},
                                                   {200, 1, 5, 5},       {0, -90, 3, 4},
                                                   {-1, 300, 6, 2},      {-130, -130, 3, 3}};
                block px = noise_block((size_t)(sizes[i][0] * sizes[i][1] * 3), 1, 3);
                block out = block_new((size_t)(boxes[at].w * boxes[at].h * 3), 1);
                pen__image src = {px.at, sizes[i][0], sizes[i][1], 3}, dst = {.px = out.at};
                pen__crop(&src, boxes[at], (pen_padding)mode, fill, &dst);
                block_free(px);
                block_free(out);
            }
}

static void a_crop_inside_copies(void **state)
{
    (void)state;
    const uint8_t fill[3] = {0};
    block px = noise_block(20 * 15 * 3, 0, 4), out = block_new(7 * 6 * 3, 1);
    pen__image src = {px.at, 20, 15, 3}, dst = {.px = out.at};
    pen__crop(&src, (pen__rect){13, 9, 7, 6}, PEN_PADDING_CONSTANT, fill, &dst);
    for (int32_t y = 0; y < 6; y++)
        assert_memory_equal(pixel(&dst, 0, y), pixel(&src, 13, 9 + y), 7 * 3);
    block_free(px);
    block_free(out);
}

/* Letters of a 3x2 image, turned by hand. */
static void the_eight_orientations_turn_as_exif_says(void **state)
{
    (void)state;
    uint8_t px[6] = {'a', 'b', 'c', 'd', 'e', 'f'}, out[6];
    static const char *want[9] = {"",       "abcdef", "cbafed", "fedcba", "defabc",
                                  "adbecf", "daebfc", "fcebda", "cfbead"};
    pen__image src = {px, 3, 2, 1}, dst = {.px = out};
    for (int orientation = 1; orientation <= 8; orientation++) {
        pen__orient(&src, orientation, &dst);
        assert_memory_equal(out, want[orientation], 6);
        assert_int_equal(dst.w, orientation >= 5 ? 2 : 3);
        assert_int_equal(dst.h, orientation >= 5 ? 3 : 2);
    }
}

static void turning_a_part_equals_the_part_of_the_turned(void **state)
{
    (void)state;
    enum { W = 70, H = 45 };
    block px = noise_block(W * H * 3, 0, 5), whole = block_new(W * H * 3, 0);
    pen__image src = {px.at, W, H, 3}, turned = {.px = whole.at};
    for (int orientation = 1; orientation <= 8; orientation++) {
        pen__orient(&src, orientation, &turned);
        pen__rect part = {3, 11, 30, 17};
        pen__rect stored = pen__orient_rect(part, orientation, W, H);
        const uint8_t fill[3] = {0};
        block cut_px = block_new(30 * 17 * 3, 0), got_px = block_new(30 * 17 * 3, 0);
        pen__image cut = {.px = cut_px.at}, got = {.px = got_px.at};
        pen__crop(&src, stored, PEN_PADDING_CONSTANT, fill, &cut);
        pen__orient(&cut, orientation, &got);
        assert_int_equal(got.w, part.w);
        for (int32_t y = 0; y < part.h; y++)
            assert_memory_equal(pixel(&got, 0, y), pixel(&turned, part.x, part.y + y),
                                (size_t)(part.w * 3));
        block_free(cut_px);
        block_free(got_px);
    }
    block_free(px);
    block_free(whole);
}

static void spreading_repeats_each_grey_three_times(void **state)
{
    (void)state;
    block px = noise_block(37, 0, 6), out = block_new(37 * 3, 1);
    pen__image src = {px.at, 37, 1, 1}, dst = {.px = out.at};
    pen__spread(&src, &dst);
    assert_int_equal(dst.ch, 3);
    for (int i = 0; i < 37 * 3; i++)
        assert_int_equal(out.at[i], px.at[i / 3]);
    block_free(px);
    block_free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flips_mirror_every_pixel_and_undo_themselves),
        cmocka_unit_test(overhang_is_filled_as_each_mode_says),
        cmocka_unit_test(any_overhang_stays_inside_the_source),
        cmocka_unit_test(a_crop_inside_copies),
        cmocka_unit_test(the_eight_orientations_turn_as_exif_says),
        cmocka_unit_test(turning_a_part_equals_the_part_of_the_turned),
        cmocka_unit_test(spreading_repeats_each_grey_three_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
