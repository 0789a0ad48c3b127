/* test_profile_stats.c - what figures say together, against what is counted by hand. */
#include "testing.h"

#include <math.h>

#include "profile_stats.h"

static const pen_profile_point points[] = {
    {PEN_PROFILE_FILE, 0, 0},  {PEN_PROFILE_JPEG_CUT, 0, 0}, {PEN_PROFILE_PIXELS, 2, 1},
    {PEN_PROFILE_CODED, 2, 1}, {PEN_PROFILE_TENSOR, 3, 2},   {PEN_PROFILE_PIXELS, 1, 0},
};
enum { N_POINTS = sizeof points / sizeof points[0], DECODED = 5 };

static void near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)));
}

/* Bytes of file, cut, pixels, coded pixels; a thousandth of a second for each step on the way. */
static pen_profile_sample sample(double file, double cut, double pixels, double coded, double sent)
{
    return (pen_profile_sample){.points = {{file, 0},
                                           {cut, isnan(cut) ? NAN : 0.001},
                                           {pixels, 0.002},
                                           {coded, 0.003},
                                           {4 * pixels, 0.004},
                                           {NAN, NAN}},
                                .sent = {sent, 0.005},
                                .node_cpu_s = NAN};
}

static profile_stats stats;
static profile_data data;

static void weigh(const pen_profile_sample *samples, size_t n)
{
    profile_data_fini(&data);
    assert_true(profile_data_init(&data, points, N_POINTS, n > 0 ? n : 1));
    for (size_t i = 0; i < n; i++)
        profile_data_add(&data, (int64_t)(100 + i), &samples[i]);
    assert_true(profile_stats_make(&stats, &data));
}

static int drop(void **state)
{
    (void)state;
    profile_data_fini(&data);
    return 0;
}

static void quantiles_lie_between_their_neighbours(void **state)
{
    (void)state;
    const double values[] = {1, 2, 4, 8, 16};
    near(profile_quantile(values, 5, 0), 1);
    near(profile_quantile(values, 5, 0.5), 4);
    near(profile_quantile(values, 5, 1), 16);
    near(profile_quantile(values, 5, 0.1), 1.4);
    near(profile_quantile(values, 5, 0.9), 12.8);
    near(profile_quantile(values, 1, 0.9), 1);
    assert_true(isnan(profile_quantile(values, 0, 0.5)));
}

static void rows_hold_what_samples_can_be(void **state)
{
    (void)state;
    const pen_profile_sample samples[] = {
        sample(1000, 400, 600, 300, 300), sample(3000, 900, 600, 500, 500),
        sample(200, NAN, 600, 400, 200), /* a PNG file, say: nothing is smaller */
    };
    weigh(samples, 3);
    assert_int_equal(stats.rows[0].n, 3);
    assert_int_equal(stats.rows[1].n, 2);
    near(stats.rows[0].p50, 1000);
    near(stats.rows[1].p50, 650);
    near(stats.rows[1].p10, 450);
    near(stats.rows[1].share, 1300.0 / 4000); /* of those two files alone */
    near(stats.rows[2].share, 1800.0 / 4200);
    near(stats.rows[1].cpu_s, 0.001);
    near(stats.rows[3].cpu_s, 0.003);
    assert_int_equal(stats.rows[0].n_smallest, 1);
    assert_int_equal(stats.rows[1].n_smallest, 0);
    assert_int_equal(stats.rows[3].n_smallest, 2);
    assert_int_equal(stats.n_shrinking, 2);
    assert_int_equal(data.ids[2], 102);
}

static void totals_follow_their_rules(void **state)
{
    (void)state;
    const pen_profile_sample samples[] = {
        sample(1000, 400, 600, 300, 300), sample(500, 200, 600, 300, 200),
        sample(600, 700, 600, 650, 600), /* equal is not smaller: the file stays */
    };
    weigh(samples, 3);
    near(stats.files.bytes, 2100);
    near(stats.files.cpu_s, 0);
    near(stats.sophon.bytes, 600 + 500 + 600);
    near(stats.sophon.cpu_s, 0.002);
    near(stats.sent.bytes, 1100);
    near(stats.sent.cpu_s, 0.015);
    assert_int_equal(stats.n_shrinking, 2);
}

/* A small crop is fewer bytes before it is resized. */
static void sophon_sends_no_half_operation(void **state)
{
    (void)state;
    pen_profile_sample small = sample(1000, 400, 600, 300, 300);
    small.points[DECODED] = (pen_profile_figure){200, 0.001};
    weigh(&small, 1);
    near(stats.sophon.bytes, 600);
    near(stats.sophon.cpu_s, 0.002);
    assert_int_equal(stats.rows[DECODED].n_smallest, 1);
}

static void savings_fall_into_doublings(void **state)
{
    (void)state;
    const double second = 0.005; /* of a sample, as above */
    const pen_profile_sample samples[] = {
        sample(1e6, NAN, 1e7, 1e7, 1e6),                          /* nothing */
        sample(1e6, NAN, 1e7, 1e7, 2e6),                          /* less than nothing */
        sample(1e6, NAN, 1e7, 1e7, 1e6 - PROFILE_LEAST * second), /* the first bin's edge */
        sample(1e6, NAN, 1e7, 1e7, 1e6 - 1.99 * PROFILE_LEAST * second),
        sample(1e6, NAN, 1e7, 1e7, 1e6 - 2.01 * PROFILE_LEAST * second),
        sample(1e6, NAN, 1e7, 1e7, 1e6 - 1), /* below all bins: in the first */
    };
    weigh(samples, 6);
    assert_int_equal(stats.n_unsaved, 2);
    assert_int_equal(stats.bins[0].n, 3);
    assert_int_equal(stats.bins[1].n, 1);
    near(stats.bins[0].saved_bytes, 2.99 * PROFILE_LEAST * second + 1);
    for (int i = 0; i < PROFILE_BINS; i++)
        near(stats.bins[i].to, 2 * stats.bins[i].from);
    pen_profile_sample quick = samples[2];
    quick.sent = (pen_profile_figure){1, 0}; /* no time at all: in the last */
    weigh(&quick, 1);
    assert_int_equal(stats.bins[PROFILE_BINS - 1].n, 1);
}

static void a_nodes_time_is_compared_where_it_was_told(void **state)
{
    (void)state;
    pen_profile_sample samples[] = {sample(9, 9, 9, 9, 9), sample(9, 9, 9, 9, 9)};
    samples[1].node_cpu_s = 0.01;
    weigh(samples, 2);
    assert_int_equal(stats.n_told, 1);
    near(stats.node_s / stats.told_local_s, 2);
}

static void without_samples_there_is_nothing_to_say(void **state)
{
    (void)state;
    weigh(NULL, 0);
    assert_int_equal(stats.rows[0].n, 0);
    assert_true(isnan(stats.rows[0].p50) && isnan(stats.rows[0].share));
    assert_int_equal(stats.n_shrinking + stats.n_unsaved, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_lie_between_their_neighbours),
        cmocka_unit_test_teardown(rows_hold_what_samples_can_be, drop),
        cmocka_unit_test_teardown(totals_follow_their_rules, drop),
        cmocka_unit_test_teardown(sophon_sends_no_half_operation, drop),
        cmocka_unit_test_teardown(savings_fall_into_doublings, drop),
        cmocka_unit_test_teardown(a_nodes_time_is_compared_where_it_was_told, drop),
        cmocka_unit_test_teardown(without_samples_there_is_nothing_to_say, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
