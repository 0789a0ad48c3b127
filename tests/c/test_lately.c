/* test_lately.c - marks of the last seconds, and what is left without what was before them. */
#include "testing.h"

#include "engine/lately.h"

static const int64_t SECOND = 1000000000;

static pen__mark mark_at(int64_t second)
{
    pen__mark mark = {.time_ns = second * SECOND, .batches = 10 * second};
    mark.stages[PEN_STAGE_DECODE].count = 100 * second;
    mark.stages[PEN_STAGE_DECODE].sum_ns = second * SECOND / 2;
    return mark;
}

static void a_mark_is_due_once_a_second(void **state)
{
    (void)state;
    pen__lately lately = {0};
    pen__lately_init(&lately);
    pen__mark mark;
    assert_false(pen__lately_find(&lately, 5 * SECOND, &mark));
    assert_true(pen__lately_is_due(&lately, 1));
    mark = mark_at(1);
    pen__lately_add(&lately, &mark);
    assert_false(pen__lately_is_due(&lately, 2 * SECOND - 1));
    assert_true(pen__lately_is_due(&lately, 2 * SECOND));
    pen__lately_fini(&lately);
}

static void the_oldest_of_the_last_ten_seconds_is_found(void **state)
{
    (void)state;
    pen__lately lately = {0};
    pen__mark mark, found;
    pen__lately_init(&lately);
    for (int64_t second = 1; second <= 100; second++) {
        mark = mark_at(second);
        pen__lately_add(&lately, &mark);
        assert_true(pen__lately_find(&lately, second * SECOND, &found));
        assert_int_equal(found.time_ns, (second > 10 ? second - 10 : 1) * SECOND);
    }
    assert_true(pen__lately_find(&lately, 105 * SECOND, &found));
    assert_int_equal(found.time_ns, 95 * SECOND);
    assert_true(pen__lately_find(&lately, 1000 * SECOND, &found)); /* a loop that stands still */
    assert_int_equal(found.time_ns, 100 * SECOND);
    pen__lately_fini(&lately);
}

static void the_second_in_which_reading_took_least_is_kept(void **state)
{
    (void)state;
    static const int64_t ms[] = {8, 3, 50, 1}, counts[] = {100, 100, 100, 2};
    pen__lately lately = {0};
    pen__lately_init(&lately);
    assert_true(pen__lately_least_read(&lately) == 0);
    pen__mark mark = {0};
    for (int i = 0; i < 4; i++) {
        mark.time_ns += SECOND;
        mark.stages[PEN_STAGE_READ].count += counts[i];
        mark.stages[PEN_STAGE_READ].sum_ns += counts[i] * ms[i] * 1000000;
        pen__lately_add(&lately, &mark);
    }
    /* two reads in a second say little */
    assert_float_equal(pen__lately_least_read(&lately), 0.003, 1e-9);
    pen__lately_fini(&lately);
}

static void what_was_before_is_taken_away(void **state)
{
    (void)state;
    const pen__mark mark = mark_at(4);
    pen_pipeline_stats stats = {.batches = 100, .samples = 6400, .idle_ns = 7};
    stats.stages[PEN_STAGE_DECODE] =
        (pen_stage_stats){.count = 1000, .total_s = 8, .mean_s = 0.008};
    pen__lately_subtract(&stats, &mark);
    assert_int_equal(stats.batches, 60);
    assert_int_equal(stats.stages[PEN_STAGE_DECODE].count, 600);
    assert_true(stats.stages[PEN_STAGE_DECODE].total_s == 6);
    assert_true(stats.stages[PEN_STAGE_DECODE].mean_s == 0.01);
    assert_true(stats.stages[PEN_STAGE_READ].mean_s == 0); /* none at all */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mark_is_due_once_a_second),
        cmocka_unit_test(the_oldest_of_the_last_ten_seconds_is_found),
        cmocka_unit_test(the_second_in_which_reading_took_least_is_kept),
        cmocka_unit_test(what_was_before_is_taken_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
