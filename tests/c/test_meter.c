/* test_meter.c - histograms: buckets, quantiles, differences. */
#include "testing.h"

#include <math.h>

#include "telemetry/meter.h"

static void every_time_has_a_bucket_and_its_middle_is_near(void **state)
{
    (void)state;
    int last = 0;
    for (int64_t ns = 0; ns < INT64_C(1) << 41; ns += ns / 16 + 1) {
        int bucket = pen__meter_bucket(ns);
        assert_in_range(bucket, 0, PEN__METER_BUCKETS - 1);
        assert_true(bucket >= last);
        last = bucket;
        if (bucket < PEN__METER_BUCKETS - 1 && ns > 4)
            assert_true(pen__meter_middle(bucket) <= 1.125 * (double)ns &&
                        pen__meter_middle(bucket) > 0.9 * (double)ns);
    }
    assert_true(pen__meter_middle(pen__meter_bucket(1 << 20)) == 1.125 * (1 << 20)); /* the worst */
    assert_int_equal(pen__meter_bucket(-5), 0);
    assert_int_equal(pen__meter_bucket(INT64_MAX), PEN__METER_BUCKETS - 1);
}

static void quantiles_and_variation_are_those_of_the_times(void **state)
{
    (void)state;
    pen__meter meter = {0};
    pen__times times = {0};
    assert_true(pen__times_quantile(&times, 0.5) == 0);
    assert_true(pen__times_variation(&times) == 0);
    for (int i = 1; i <= 1000; i++)
        pen__meter_add(&meter, i * 1000);
    pen__times_add(&times, &meter);
    assert_int_equal(pen__times_count(&times), 1000);
    assert_int_equal(times.sum_ns, 1000 * 1001 / 2 * 1000);
    static const double shares[] = {0.01, 0.5, 0.95, 0.99, 1};
    for (int i = 0; i < 5; i++) {
        double want = shares[i] * 1e-3;
        const double told = pen__times_quantile(&times, shares[i]);
        assert_true(told <= 1.125 * want + 1e-12 && told >= 0.9 * want - 1e-12);
    }
    assert_true(fabs(pen__times_variation(&times) - 1 / sqrt(3)) < 0.01); /* uniform */
}

static void a_difference_is_what_came_between(void **state)
{
    (void)state;
    pen__meter meter = {0}, other = {0};
    pen__times before = {0}, now = {0};
    for (int i = 0; i < 100; i++)
        pen__meter_add(&meter, 1000000);
    pen__times_add(&before, &meter);
    pen__times_add(&before, &other);
    for (int i = 0; i < 50; i++)
        pen__meter_add(&other, 8000000);
    pen__times_add(&now, &meter);
    pen__times_add(&now, &other);
    pen__times_subtract(&now, &before);
    assert_int_equal(pen__times_count(&now), 50);
    assert_int_equal(now.sum_ns, 50 * 8000000);
    assert_true(fabs(pen__times_quantile(&now, 0.5) - 8e-3) < 1.1e-3);
    assert_true(pen__times_variation(&now) < 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_time_has_a_bucket_and_its_middle_is_near),
        cmocka_unit_test(quantiles_and_variation_are_those_of_the_times),
        cmocka_unit_test(a_difference_is_what_came_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
