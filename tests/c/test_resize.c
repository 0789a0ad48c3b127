/* test_resize.c - SIMD against scalar, windows against the whole, and results that can
 * be worked out by hand.  Pillow itself is compared in tests/python. */
#include "pixels.h"

#include "ops/resize.h"
#include "ops/resize_kernels.h"

static const pen_filter filters[] = {PEN_FILTER_NEAREST, PEN_FILTER_BOX,     PEN_FILTER_BILINEAR,
                                     PEN_FILTER_HAMMING, PEN_FILTER_BICUBIC, PEN_FILTER_LANCZOS};
enum { N_FILTERS = sizeof filters / sizeof filters[0] };

/* in_w, in_h, out_w, out_h: single pixels, odd sizes, sizes around a vector,
 * extreme shapes, either order of passes, one pass only, none. */
static const int32_t sizes[][4] = {
    {1, 1, 1, 1},
    {1, 1, 7, 5},
    {5, 3, 1, 1},
    {2, 2, 3, 3},
    {13, 9, 13, 9},
    {13, 9, 13, 4},
    {13, 9, 6, 9},
    {31, 33, 32, 32},
    {33, 31, 64, 17},
    {40, 400, 38, 20},
    {400, 40, 20, 38},
    {1, 300, 1, 7},
    {300, 1, 7, 1},
    {1, 300, 9, 300},
    {257, 3, 11, 200},
    {97, 61, 44, 29},
    {300, 250, 23, 24},
    {64, 64, 65, 63},
    {3, 900, 5, 2},
    {1000, 2, 3, 5},
    {230, 61, 47, 31},
    {150, 100, 50, 27},
    {700, 5, 101, 7},
    {350, 90, 31, 12},
    /* centres between two pixels, where outputs do not start in order */
    {100, 8, 300, 8},
    {160, 9, 224, 9},
    {55, 7, 121, 7},
    {69, 5, 253, 5},
};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

static pen__resize_spec spec_of(const int32_t *size, pen_filter filter)
{
    return (pen__resize_spec){size[0], size[1], size[2], size[3], filter, {0, 0, size[2], size[3]}};
}

/* Run `spec` on the part `have` of the whole image at px. */
static block run(const pen__resize_spec *spec, const uint8_t *px, pen__rect have, int ch,
                 size_t offset)
{
    size_t row = (size_t)have.w * (size_t)ch;
    block src = block_new(row * (size_t)have.h, offset);
    for (int32_t y = 0; y < have.h; y++)
        memcpy(src.at + (size_t)y * row,
               px + ((size_t)(have.y + y) * (size_t)spec->in_w + (size_t)have.x) * (size_t)ch, row);
    block dst = block_new((size_t)spec->window.w * (size_t)spec->window.h * (size_t)ch, offset);
    block scratch = block_new(pen__resize_scratch(spec, ch), 0);
    pen__image in = {src.at, have.w, have.h, ch}, out = {.px = dst.at};
    pen__resize(spec, &in, have, &out, scratch.at);
    assert_int_equal(out.w, spec->window.w);
    assert_int_equal(out.h, spec->window.h);
    assert_int_equal(out.ch, ch);
    block_free(src);
    block_free(scratch);
    return dst;
}

static block run_whole(const pen__resize_spec *spec, const uint8_t *px, int ch, size_t offset)
{
    return run(spec, px, (pen__rect){0, 0, spec->in_w, spec->in_h}, ch, offset);
}

static void simd_gives_the_scalar_bytes(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIZES; i++)
        for (int f = 0; f < N_FILTERS; f++)
            for (int ch = 1; ch <= 3; ch += 2) {
                pen__resize_spec spec = spec_of(sizes[i], filters[f]);
                block px = noise_block((size_t)(sizes[i][0] * sizes[i][1] * ch), 0, (uint32_t)i);
                scalar_only();
                block want = run_whole(&spec, px.at, ch, 0);
                for (int level = 0; level < N_LEVELS; level++) {
                    pen__cpu_mask(levels[level]);
                    block got = run_whole(&spec, px.at, ch, (size_t)(1 + i % 15));
                    assert_memory_equal(got.at, want.at, want.n);
                    block_free(got);
                }
                block_free(want);
                block_free(px);
            }
}

/* Rows in groups of every size, after some that do not count, each with just the slack that a
 * flow is promised. */
static void rows_in_a_flow_give_the_same_bytes(void **state)
{
    (void)state;
    int n_flowing = 0;
    for (int i = 0; i < N_SIZES; i++)
        for (int f = 0; f < N_FILTERS; f++)
            for (int part = 0; part < 4; part++) {
                int ch = part & 1 ? 1 : 3;
                pen__resize_spec spec = spec_of(sizes[i], filters[f]);
                if (part >= 2)
                    spec.window = (pen__rect){spec.out_w / 3, spec.out_h / 4, (spec.out_w + 1) / 2,
                                              (spec.out_h + 2) / 3};
                if (!pen__resize_can_flow(&spec))
                    continue;
                n_flowing++;
                block px = noise_block((size_t)(sizes[i][0] * sizes[i][1] * ch), 0, (uint32_t)i);
                block want = run_whole(&spec, px.at, ch, 0), got = block_new(want.n, 5);
                block scratch = block_new(pen__resize_scratch(&spec, ch), 0);
                pen__image out = {.px = got.at};
                pen__resize_flow flow;
                pen__resize_flow_begin(&flow, &spec, (pen__rect){0, 0, spec.in_w, spec.in_h}, ch,
                                       &out, scratch.at);
                size_t row = (size_t)(spec.in_w * ch);
                for (int32_t y = 0, n; y < spec.in_h; y += n) {
                    n = 1 + (y + part) % 5;
                    n = n < spec.in_h - y ? n : spec.in_h - y;
                    block rows = noise_block(row * (size_t)n + PEN__RESIZE_SLACK, 0, 9);
                    pen__resize_flow_rows(&flow, y, rows.at, row, n);
                    memcpy(rows.at, px.at + (size_t)y * row, row * (size_t)n);
                    pen__resize_flow_rows(&flow, y, rows.at, row, n);
                    block_free(rows);
                }
                assert_int_equal(out.w, spec.window.w);
                assert_int_equal(out.h, spec.window.h);
                assert_memory_equal(got.at, want.at, want.n);
                block_free(scratch), block_free(got), block_free(want), block_free(px);
            }
    assert_true(n_flowing > 100);
}

/* Each window from exactly the input it says it needs, and from a little more. */
static void a_window_equals_its_part_of_the_whole(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIZES; i++)
        for (int f = 0; f < N_FILTERS; f++)
            for (int part = 0; part < 4; part++) {
                int ch = part & 1 ? 1 : 3;
                pen__resize_spec spec = spec_of(sizes[i], filters[f]);
                block px = noise_block((size_t)(sizes[i][0] * sizes[i][1] * ch), 0, (uint32_t)i);
                block whole = run_whole(&spec, px.at, ch, 0);
                pen__rect w = {spec.out_w * part / 5, spec.out_h * (3 - part) / 5, 0, 0};
                w.w = (spec.out_w - w.x + part) / (part + 1);
                w.h = (spec.out_h - w.y + 2) / 3;
                spec.window = w;
                pen__rect have = pen__resize_needs(&spec);
                assert_true(have.x >= 0 && have.x + have.w <= spec.in_w && have.w > 0);
                assert_true(have.y >= 0 && have.y + have.h <= spec.in_h && have.h > 0);
                if (part == 3 && have.x > 0 && have.y > 0)
                    have = (pen__rect){have.x - 1, have.y - 1, have.w + 1, have.h + 1};
                block got = run(&spec, px.at, have, ch, 3);
                for (int32_t y = 0; y < w.h; y++)
                    assert_memory_equal(got.at + (size_t)(y * w.w * ch),
                                        whole.at +
                                            ((size_t)(w.y + y) * (size_t)spec.out_w + (size_t)w.x) *
                                                (size_t)ch,
                                        (size_t)(w.w * ch));
                block_free(got);
                block_free(whole);
                block_free(px);
            }
}

static void a_flat_image_stays_flat(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIZES; i++)
        for (int f = 0; f < N_FILTERS; f++) {
            pen__resize_spec spec = spec_of(sizes[i], filters[f]);
            block px = block_new((size_t)(sizes[i][0] * sizes[i][1] * 3), 0);
            memset(px.at, i & 1 ? 255 : 100, px.n);
            block got = run_whole(&spec, px.at, 3, 0);
            for (size_t at = 0; at < got.n; at++)
                assert_int_equal(got.at[at], i & 1 ? 255 : 100);
            block_free(got);
            block_free(px);
        }
}

static void equal_sizes_copy(void **state)
{
    (void)state;
    const int32_t size[4] = {19, 7, 19, 7};
    for (int f = 0; f < N_FILTERS; f++) {
        pen__resize_spec spec = spec_of(size, filters[f]);
        assert_int_equal(pen__resize_scratch(&spec, 3), 0);
        block px = noise_block(19 * 7 * 3, 0, 1), got = run_whole(&spec, px.at, 3, 0);
        assert_memory_equal(got.at, px.at, px.n);
        block_free(got);
        block_free(px);
    }
}

static void halving_with_box_is_the_rounded_mean(void **state)
{
    (void)state;
    const uint8_t px[8] = {0, 1, 10, 20, 255, 254, 7, 7};
    const int32_t size[4] = {8, 1, 4, 1};
    pen__resize_spec spec = spec_of(size, PEN_FILTER_BOX);
    block got = run_whole(&spec, px, 1, 0);
    const uint8_t want[4] = {1, 15, 255, 7}; /* halves go up */
    assert_memory_equal(got.at, want, 4);
    block_free(got);
}

/* Doubling two pixels: centres at 1/4, 3/4, 5/4, 7/4 lie a quarter from a pixel. */
static void doubling_with_bilinear_weighs_by_quarters(void **state)
{
    (void)state;
    const uint8_t px[2] = {0, 200};
    const int32_t size[4] = {2, 1, 4, 1};
    pen__resize_spec spec = spec_of(size, PEN_FILTER_BILINEAR);
    block got = run_whole(&spec, px, 1, 0);
    const uint8_t want[4] = {0, 50, 150, 200};
    assert_memory_equal(got.at, want, 4);
    block_free(got);
}

static void nearest_takes_the_pixel_under_the_centre(void **state)
{
    (void)state;
    const uint8_t px[5] = {10, 20, 30, 40, 50};
    const int32_t down[4] = {5, 1, 2, 1}, up[4] = {5, 1, 10, 1};
    pen__resize_spec spec = spec_of(down, PEN_FILTER_NEAREST);
    block got = run_whole(&spec, px, 1, 0);
    assert_int_equal(got.at[0], 20); /* 1.25 */
    assert_int_equal(got.at[1], 40); /* 3.75 */
    block_free(got);
    spec = spec_of(up, PEN_FILTER_NEAREST);
    got = run_whole(&spec, px, 1, 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(got.at[i], px[i / 2]);
    block_free(got);
}

/* The two orders of passes round differently; the height decides past twice the
 * width's shrinking.  Each must equal its two passes done one after the other. */
static void the_order_of_passes_depends_on_the_whole_sizes(void **state)
{
    (void)state;
    /* shrink_h == 2 * shrink_w: horizontal first; one row more: vertical first */
    const int32_t horizontal[4] = {40, 60, 30, 40}, vertical[4] = {40, 61, 30, 40};
    const int32_t *cases[2] = {horizontal, vertical};
    for (int k = 0; k < 2; k++) {
        const int32_t *s = cases[k];
        block px = noise_block((size_t)(s[0] * s[1]), 0, 9);
        pen__resize_spec both = spec_of(s, PEN_FILTER_BICUBIC);
        const int32_t size_x[4] = {s[0], s[1], s[2], s[1]}, size_x2[4] = {s[0], s[3], s[2], s[3]};
        const int32_t size_y[4] = {s[2], s[1], s[2], s[3]}, size_y1[4] = {s[0], s[1], s[0], s[3]};
        pen__resize_spec first = spec_of(k ? size_y1 : size_x, PEN_FILTER_BICUBIC);
        pen__resize_spec second = spec_of(k ? size_x2 : size_y, PEN_FILTER_BICUBIC);
        block want_mid = run_whole(&first, px.at, 1, 0);
        block want = run_whole(&second, want_mid.at, 1, 0);
        block got = run_whole(&both, px.at, 1, 0);
        assert_memory_equal(got.at, want.at, want.n);
        block_free(want_mid);
        block_free(want);
        block_free(got);
        block_free(px);
    }
}

static void weights_add_up(void **state)
{
    (void)state;
    for (int f = 1; f < N_FILTERS; f++)
        for (int i = 0; i < N_SIZES; i++) {
            if (sizes[i][0] == sizes[i][2])
                continue;
            pen__axis axis = {sizes[i][0], sizes[i][2], filters[f]};
            void *memory = pen__aligned(64, pen__taps_bytes(&axis, axis.out_size));
            pen__taps taps;
            pen__taps_init(&taps, &axis, 0, axis.out_size, 0, axis.in_size, memory);
            for (int32_t o = 0; o < taps.count; o++) {
                int64_t sum = 0;
                for (int32_t t = 0; t < taps.used[o]; t++)
                    sum += taps.weight[o * taps.stride + t];
                assert_in_range(sum, (1 << 22) - taps.used[o], (1 << 22) + taps.used[o]);
                assert_true(taps.start[o] >= 0 && taps.start[o] + taps.used[o] <= axis.in_size);
            }
            pen__free(memory);
        }
}

static void expect_weights(pen__axis axis, int32_t output, int32_t start, const int32_t *want,
                           int32_t n)
{
    void *memory = pen__aligned(64, pen__taps_bytes(&axis, 1));
    pen__taps taps;
    pen__taps_init(&taps, &axis, output, 1, 0, axis.in_size, memory);
    assert_int_equal(taps.start[0], start);
    assert_int_equal(taps.used[0], n);
    assert_memory_equal(taps.weight, want, (size_t)n * sizeof *want);
    pen__free(memory);
}

/* From the filters' formulas in exact fractions, times 2^22 and rounded half away from 0. */
static void weights_are_the_rounded_fractions(void **state)
{
    (void)state;
    expect_weights((pen__axis){4, 2, PEN_FILTER_BILINEAR}, 0, 0,
                   (int32_t[]){1797559, 1797559, 599186}, 3); /* 3/7 3/7 1/7 */
    expect_weights((pen__axis){7, 3, PEN_FILTER_BICUBIC}, 0, 0,
                   (int32_t[]){1606689, 1843464, 896363, 0, -135300, -16913}, 6);
    expect_weights((pen__axis){7, 3, PEN_FILTER_BICUBIC}, 1, 0,
                   (int32_t[]){-128031, 189486, 1157403, 1756589, 1157403, 189486, -128031}, 7);
}

static void an_empty_window_does_nothing(void **state)
{
    (void)state;
    const int32_t size[4] = {9, 9, 4, 4};
    pen__resize_spec spec = spec_of(size, PEN_FILTER_BILINEAR);
    spec.window = (pen__rect){1, 1, 0, 2};
    assert_int_equal(pen__resize_scratch(&spec, 3), 0);
    uint8_t px[9 * 9] = {0};
    pen__image src = {px, 9, 9, 1}, dst = {0};
    pen__resize(&spec, &src, (pen__rect){0, 0, 9, 9}, &dst, NULL);
    assert_int_equal(dst.w, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simd_gives_the_scalar_bytes),
        cmocka_unit_test(rows_in_a_flow_give_the_same_bytes),
        cmocka_unit_test(a_window_equals_its_part_of_the_whole),
        cmocka_unit_test(a_flat_image_stays_flat),
        cmocka_unit_test(equal_sizes_copy),
        cmocka_unit_test(halving_with_box_is_the_rounded_mean),
        cmocka_unit_test(doubling_with_bilinear_weighs_by_quarters),
        cmocka_unit_test(nearest_takes_the_pixel_under_the_centre),
        cmocka_unit_test(the_order_of_passes_depends_on_the_whole_sizes),
        cmocka_unit_test(weights_add_up),
        cmocka_unit_test(weights_are_the_rounded_fractions),
        cmocka_unit_test(an_empty_window_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
