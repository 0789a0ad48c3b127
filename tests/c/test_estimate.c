/* test_estimate.c - what samples will weigh, and which steps are worth most. */
#include "testing.h"

#include <math.h>

#include "engine/estimate.h"

static pen_image_info photo(void)
{
    return (pen_image_info){.format = PEN_FORMAT_JPEG,
                            .width = 1600,
                            .height = 1200,
                            .channels = 3,
                            .bits = 8,
                            .orientation = 1,
                            .sampling_h = 2,
                            .sampling_v = 2};
}

/* A plan that crops `window` and makes 224 x 224 of it. */
static pen__plan plan_of(pen__rect window)
{
    pen__plan plan;
    memset(&plan, 0, sizeof plan);
    plan.window = window;
    plan.window_ch = 3;
    plan.n_cuts = 2;
    plan.cuts[0] = (pen__plan_cut){.n_ops = 1, .w = 1600, .h = 1200, .ch = 3};
    plan.cuts[1] = (pen__plan_cut){.n_ops = 2, .n_steps = 1, .w = 224, .h = 224, .ch = 3};
    return plan;
}

static pen__estimate estimate_of(pen_image_info info, pen__rect window, size_t len)
{
    const pen__plan plan = plan_of(window);
    const pen__corrections none = {{0}, {0}, 0};
    pen__estimate e;
    pen__estimate_sample(&e, &plan, &info, len, 9, 0, &none);
    return e;
}

static const pen__rect all_of_it = {0, 0, 1600, 1200}, a_corner = {0, 0, 400, 300};

static void a_cut_weighs_the_blocks_it_keeps(void **state)
{
    (void)state;
    /* 4:2:0 has MCUs of 16; with the margin, 401 x 301 pixels need 26 x 19 of 100 x 75 */
    pen__estimate e = estimate_of(photo(), a_corner, 500650);
    assert_true(fabs(e.of[PEN__FORM_JPEG_CUT].bytes - (650 + 500000 * 26 * 19 / 7500.0)) < 1);
    pen_image_info fine = photo();
    fine.sampling_h = fine.sampling_v = 1; /* no margin, MCUs of 8: 50 x 38 of 200 x 150 */
    e = estimate_of(fine, a_corner, 500650);
    assert_true(fabs(e.of[PEN__FORM_JPEG_CUT].bytes - (650 + 500000 * 50 * 38 / 30000.0)) < 1);
}

static void what_is_lower_in_the_file_takes_longer_to_reach(void **state)
{
    (void)state;
    const pen__rect low = {0, 900, 400, 300};
    pen__estimate above = estimate_of(photo(), a_corner, 500000);
    pen__estimate below = estimate_of(photo(), low, 500000);
    assert_true(below.of[PEN__FORM_JPEG_CUT].cpu_s > 3 * above.of[PEN__FORM_JPEG_CUT].cpu_s);
    assert_true(below.of[PEN__FORM_PIXELS].cpu_s > above.of[PEN__FORM_PIXELS].cpu_s);
}

static void pixels_weigh_what_they_are_and_coded_ones_less(void **state)
{
    (void)state;
    pen__estimate e = estimate_of(photo(), all_of_it, 500000);
    assert_true(e.of[PEN__FORM_RAW].bytes == 500000);
    assert_true(e.of[PEN__FORM_RAW].cpu_s > 0); /* reading, and little more */
    assert_true(e.of[PEN__FORM_RAW].cpu_s < e.of[PEN__FORM_JPEG_CUT].cpu_s);
    assert_true(e.of[PEN__FORM_PIXELS].bytes == 150528);
    assert_true(e.of[PEN__FORM_PIXELS_CODED].bytes < 0.5 * 150528);
    assert_true(e.of[PEN__FORM_PIXELS_CODED].cpu_s > e.of[PEN__FORM_PIXELS].cpu_s);
    assert_true(isinf(e.of[PEN__FORM_ZSTD].bytes) && isinf(e.of[PEN__FORM_LZ4].bytes));
}

static void pixels_are_those_at_the_place_the_node_would_take(void **state)
{
    (void)state;
    const pen__plan plan = plan_of(all_of_it);
    const pen__corrections none = {{0}, {0}, 0};
    const pen_image_info info = photo();
    pen__estimate e;
    pen__estimate_sample(&e, &plan, &info, 500000, 1, 0, &none);
    assert_true(e.of[PEN__FORM_PIXELS].bytes == 1600 * 1200 * 3);
    pen__estimate_sample(&e, &plan, &info, 500000, 0, 0, &none);
    assert_true(isinf(e.of[PEN__FORM_PIXELS].bytes) && isinf(e.of[PEN__FORM_PIXELS_CODED].bytes));
    pen__plan grows = plan;
    grows.cuts[2] = (pen__plan_cut){.n_ops = 3, .w = 448, .h = 448, .ch = 3};
    grows.n_cuts = 3;
    pen__estimate_sample(&e, &grows, &info, 500000, 9, 0, &none);
    assert_true(e.of[PEN__FORM_PIXELS].bytes == 150528);
    pen__estimate_sample(&e, &grows, &info, 500000, 9, 3, &none);
    assert_true(e.of[PEN__FORM_PIXELS].bytes == 448 * 448 * 3);
    grows.cuts[2].ch = 1; /* grey */
    pen__estimate_sample(&e, &grows, &info, 500000, 9, 1, &none);
    assert_true(e.of[PEN__FORM_PIXELS].bytes == 448 * 448);
    pen__estimate_sample(&e, &grows, &info, 500000, 9, 3, &none);
    assert_true(e.of[PEN__FORM_PIXELS].bytes == 448 * 448 * 3);
}

static void files_that_cannot_be_cut_are_not_expected_to_be(void **state)
{
    (void)state;
    pen_image_info infos[] = {photo(), photo(), photo(), photo()};
    infos[0].is_progressive = true;
    infos[1].format = PEN_FORMAT_PNG;
    infos[2].bits = 12;
    infos[3].channels = 4;
    for (int i = 0; i < 4; i++) {
        pen__estimate e = estimate_of(infos[i], a_corner, 500000);
        assert_true(isinf(e.of[PEN__FORM_JPEG_CUT].bytes));
        assert_true(!isinf(e.of[PEN__FORM_PIXELS_CODED].bytes));
        assert_true(!isinf(e.of[PEN__FORM_PIXELS_CODED].cpu_s));
    }
}

/* The cut of a whole image is the image: so pixels take as long from it as from the file.  But its
 * head is parsed once, and one frame is sent. */
static void trying_both_is_one_sample(void **state)
{
    (void)state;
    const pen__estimate e = estimate_of(photo(), all_of_it, 500000);
    const double apart_s = e.of[PEN__FORM_JPEG_CUT].cpu_s + e.of[PEN__FORM_PIXELS_CODED].cpu_s;
    assert_true(apart_s - e.both.cpu_s > 80e-6 && apart_s - e.both.cpu_s < 100e-6);
}

/* ---- corrections ---- */

static void what_comes_is_what_is_expected_before_long(void **state)
{
    (void)state;
    const pen__plan plan = plan_of(a_corner);
    const pen_image_info info = photo();
    pen__corrections c = {0};
    pen__usual_costs usual = {0};
    pen__estimate e;
    for (int i = 0; i < 500; i++) {
        pen__estimate_sample(&e, &plan, &info, 500000, 9, 0, &c);
        pen__estimate_learn_bytes(&c, &e, PEN__FORM_JPEG_CUT, 60000);
        pen__estimate_learn_bytes(&c, &e, PEN__FORM_PIXELS_CODED, 20000);
        pen__estimate_learn_cpu(&c, &usual, &e, PEN__FORMS_ALL, 0.01);
    }
    assert_true(fabs(e.of[PEN__FORM_JPEG_CUT].bytes - 60000) < 600);
    assert_true(fabs(e.of[PEN__FORM_PIXELS_CODED].bytes - 20000) < 200);
    assert_true(fabs(pen__estimate_cost(&e, PEN__FORMS_ALL) - 0.01) < 1e-4);
    assert_true(e.of[PEN__FORM_PIXELS].bytes == 150528); /* no opinion changes that */
}

/* Files take 0.1 ms each and hardly more for more bytes, which the constants do not say: one by one
 * they are wrong, together they are right. */
static void what_is_expected_of_all_is_what_all_take(void **state)
{
    (void)state;
    const pen__plan plan = plan_of(a_corner);
    const pen_image_info info = photo();
    pen__corrections c = {0};
    pen__usual_costs usual = {0};
    pen__estimate e;
    double expected = 0, took = 0;
    for (int i = 0; i < 4000; i++) {
        const size_t len = i % 4 ? 20000 : 900000;
        const double cpu_s = 1e-4 + 1e-10 * (double)len;
        pen__estimate_sample(&e, &plan, &info, len, 9, 0, &c);
        pen__estimate_learn_cpu(&c, &usual, &e, 1U << PEN__FORM_RAW, cpu_s);
        if (i >= 2000) {
            expected += pen__estimate_cost(&e, 1U << PEN__FORM_RAW);
            took += cpu_s;
        }
    }
    assert_true(fabs(expected / took - 1) < 0.05);
}

/* A node three times as fast as the constants have it was only asked for both. */
static void of_what_never_came_the_rest_tells(void **state)
{
    (void)state;
    const pen__plan plan = plan_of(a_corner);
    const pen_image_info info = photo();
    const uint32_t files = 1U << PEN__FORM_RAW, cuts = files | 1U << PEN__FORM_JPEG_CUT;
    const pen__estimate usually = estimate_of(info, a_corner, 500000);
    pen__corrections c = {0};
    pen__usual_costs usual = {0};
    pen__estimate e;
    for (int i = 0; i < 500; i++) {
        pen__estimate_sample(&e, &plan, &info, 500000, 9, 0, &c);
        pen__estimate_learn_cpu(&c, &usual, &e, PEN__FORMS_ALL, usually.both.cpu_s / 3);
    }
    const double cut_s = usually.of[PEN__FORM_JPEG_CUT].cpu_s;
    assert_true(fabs(pen__estimate_cost(&e, cuts) * 3 / cut_s - 1) < 0.01);
    assert_true(fabs(pen__estimate_file_s(500000, &c) * 3 / usually.of[PEN__FORM_RAW].cpu_s - 1) <
                0.01);
    for (int i = 0; i < 500; i++) { /* then they come, and speak for themselves */
        pen__estimate_sample(&e, &plan, &info, 500000, 9, 0, &c);
        pen__estimate_learn_cpu(&c, &usual, &e, cuts, cut_s * 2);
        pen__estimate_learn_cpu(&c, &usual, &e, files, 0.001);
    }
    assert_true(fabs(pen__estimate_cost(&e, cuts) / cut_s - 2) < 0.02);
    assert_true(fabs(pen__estimate_file_s(500000, &c) - 0.001) < 1e-5);
    assert_true(fabs(pen__estimate_cost(&e, PEN__FORMS_ALL) * 3 / usually.both.cpu_s - 1) < 0.01);
}

/* Nor do files, which a slow network makes dear, tell of work. */
static void files_tell_of_nothing_else(void **state)
{
    (void)state;
    const pen__plan plan = plan_of(a_corner);
    const pen_image_info info = photo();
    const pen__estimate usually = estimate_of(info, a_corner, 500000);
    pen__corrections c = {.cpu = {[PEN__FORM_RAW] = 4}};
    pen__estimate e;
    pen__estimate_sample(&e, &plan, &info, 500000, 9, 0, &c);
    assert_true(e.of[PEN__FORM_RAW].cpu_s == 4 * usually.of[PEN__FORM_RAW].cpu_s);
    assert_true(e.of[PEN__FORM_JPEG_CUT].cpu_s == usually.of[PEN__FORM_JPEG_CUT].cpu_s);
}

/* Another node than last time is known after a batch or so. */
static void the_first_samples_say_more(void **state)
{
    (void)state;
    const pen__plan plan = plan_of(a_corner);
    const pen_image_info info = photo();
    pen__corrections c = {.both_cpu = 4};
    pen__usual_costs usual = {0};
    pen__estimate e;
    for (int i = 0; i < 32; i++) {
        pen__estimate_sample(&e, &plan, &info, 500000, 9, 0, &c);
        pen__estimate_learn_cpu(&c, &usual, &e, PEN__FORMS_ALL, e.both.cpu_s / c.both_cpu);
    }
    assert_true(c.both_cpu < 1.7);
}

static void nonsense_does_not_spoil_the_figures(void **state)
{
    (void)state;
    const pen__plan plan = plan_of(a_corner);
    const pen_image_info info = photo();
    const double wild[] = {0, 1e300, INFINITY, NAN, -1};
    for (int i = 0; i < 5; i++) {
        pen__corrections c = {0};
        pen__usual_costs usual = {0};
        pen__estimate e, first = estimate_of(info, a_corner, 500000);
        for (int n = 0; n < 1000; n++) {
            pen__estimate_sample(&e, &plan, &info, 500000, 9, 0, &c);
            pen__estimate_learn_bytes(&c, &e, PEN__FORM_JPEG_CUT, wild[i]);
            pen__estimate_learn_cpu(&c, &usual, &e, PEN__FORMS_ALL, wild[i]);
        }
        const double ratio = e.of[PEN__FORM_JPEG_CUT].bytes / first.of[PEN__FORM_JPEG_CUT].bytes;
        assert_true(ratio >= 0.099 && ratio <= 10.1);
    }
}

/* ---- offers ---- */

static pen__estimate three(double cut, double cut_s, double pixels, double pixels_s, double coded,
                           double coded_s)
{
    pen__estimate e;
    for (int i = 0; i < PEN__FORM_COUNT; i++)
        e.of[i] = (pen__weight){INFINITY, INFINITY};
    e.of[PEN__FORM_RAW] = (pen__weight){100000, 0};
    e.of[PEN__FORM_JPEG_CUT] = (pen__weight){cut, cut_s};
    e.of[PEN__FORM_PIXELS] = (pen__weight){pixels, pixels_s};
    e.of[PEN__FORM_PIXELS_CODED] = (pen__weight){coded, coded_s};
    e.both = (pen__weight){0.98 * fmin(cut, coded), cut_s + coded_s};
    return e;
}

static void a_small_step_is_offered_before_a_large_one(void **state)
{
    (void)state;
    pen__offer o[PEN__MAX_OFFERS];
    pen__estimate e = three(45000, 0.0005, 150528, 0.0006, 30000, 0.002);
    assert_int_equal(pen__estimate_offers(&e, PEN__FORMS_ALL, o), 3);
    assert_int_equal(o[0].forms, 1 << PEN__FORM_RAW | 1 << PEN__FORM_JPEG_CUT);
    assert_true(o[0].saved_bytes == 55000 && o[0].cpu_s == 0.0005);
    assert_int_equal(o[1].forms,
                     1 << PEN__FORM_RAW | 1 << PEN__FORM_PIXELS | 1 << PEN__FORM_PIXELS_CODED);
    assert_true(o[1].saved_bytes == 15000 && fabs(o[1].cpu_s - 0.0015) < 1e-12);
    assert_int_equal(o[2].forms, PEN__FORMS_ALL); /* whatever is smaller in the end */
    assert_true(o[2].saved_bytes == 600 && fabs(o[2].cpu_s - 0.0005) < 1e-12);
}

static void a_step_that_pays_less_than_the_next_is_no_offer(void **state)
{
    (void)state;
    pen__offer o[PEN__MAX_OFFERS];
    pen__estimate e = three(90000, 0.001, 80000, 0.0011, 10000, 0.002);
    assert_int_equal(pen__estimate_offers(&e, PEN__FORMS_ALL, o), 2);
    assert_int_equal(o[0].forms,
                     1 << PEN__FORM_RAW | 1 << PEN__FORM_PIXELS | 1 << PEN__FORM_PIXELS_CODED);
    assert_true(o[0].saved_bytes == 90000 && o[0].cpu_s == 0.002);
    assert_int_equal(o[1].forms, PEN__FORMS_ALL);
}

static void only_forms_that_are_wanted_and_smaller_are_offered(void **state)
{
    (void)state;
    pen__offer o[PEN__MAX_OFFERS];
    const uint32_t plain = 1U << PEN__FORM_RAW | 1U << PEN__FORM_PIXELS;
    pen__estimate e = three(45000, 0.0005, 150528, 0.0006, 30000, 0.002);
    assert_int_equal(pen__estimate_offers(&e, plain, o), 0);
    e.of[PEN__FORM_PIXELS].bytes = 60000;
    assert_int_equal(pen__estimate_offers(&e, plain, o), 1);
    assert_int_equal(o[0].forms, plain);
    assert_int_equal(pen__estimate_offers(&e, 1U << PEN__FORM_RAW, o), 0);
}

static void files_that_are_no_jpeg_may_come_with_their_bytes_coded(void **state)
{
    (void)state;
    pen__offer o[PEN__MAX_OFFERS];
    pen__estimate e = three(INFINITY, INFINITY, 80000, 0.001, 10000, 0.002);
    e.both.bytes = INFINITY;
    assert_int_equal(pen__estimate_offers(&e, PEN__FORMS_ALL, o), 1);
    assert_int_equal(o[0].forms & PEN__FORMS_CODED_BYTES, PEN__FORMS_CODED_BYTES);
    const uint32_t plain = 1U << PEN__FORM_RAW | 1U << PEN__FORM_PIXELS;
    assert_int_equal(pen__estimate_offers(&e, plain, o), 1); /* they may not where that is closed */
    assert_int_equal(o[0].forms, plain);
}

static void offers_are_worth_less_and_less_whatever_the_figures(void **state)
{
    (void)state;
    uint64_t dice = 1;
    for (int n = 0; n < 10000; n++) {
        double v[6];
        for (int i = 0; i < 6; i++) {
            dice = dice * 6364136223846793005u + 1442695040888963407u;
            v[i] = (double)(dice >> 40) / 16777216;
        }
        pen__estimate e =
            three(v[0] * 2e5, v[1] * 0.01, v[2] * 2e5, v[3] * 0.01, v[4] * 2e5, v[5] * 0.01);
        pen__offer o[PEN__MAX_OFFERS];
        const int n_offers = pen__estimate_offers(&e, PEN__FORMS_ALL, o);
        double left = 100000;
        for (int i = 0; i < n_offers; i++) {
            assert_true(o[i].saved_bytes > 0 && o[i].cpu_s >= 0);
            if (i > 0)
                assert_true(pen__offer_worth(&o[i]) <= pen__offer_worth(&o[i - 1]) * 1.000001);
            left -= o[i].saved_bytes;
        }
        assert_true(left > -1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_weighs_the_blocks_it_keeps),
        cmocka_unit_test(what_is_lower_in_the_file_takes_longer_to_reach),
        cmocka_unit_test(pixels_weigh_what_they_are_and_coded_ones_less),
        cmocka_unit_test(pixels_are_those_at_the_place_the_node_would_take),
        cmocka_unit_test(files_that_cannot_be_cut_are_not_expected_to_be),
        cmocka_unit_test(trying_both_is_one_sample),
        cmocka_unit_test(what_comes_is_what_is_expected_before_long),
        cmocka_unit_test(what_is_expected_of_all_is_what_all_take),
        cmocka_unit_test(of_what_never_came_the_rest_tells),
        cmocka_unit_test(files_tell_of_nothing_else),
        cmocka_unit_test(the_first_samples_say_more),
        cmocka_unit_test(nonsense_does_not_spoil_the_figures),
        cmocka_unit_test(a_small_step_is_offered_before_a_large_one),
        cmocka_unit_test(a_step_that_pays_less_than_the_next_is_no_offer),
        cmocka_unit_test(only_forms_that_are_wanted_and_smaller_are_offered),
        cmocka_unit_test(files_that_are_no_jpeg_may_come_with_their_bytes_coded),
        cmocka_unit_test(offers_are_worth_less_and_less_whatever_the_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
