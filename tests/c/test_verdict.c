/* test_verdict.c - what the line says of loaders that are arithmetic. */
#include "testing.h"

#include "engine/observe.h"

/* A run of 10 s: 100 batches of 64; times of all threads together. */
static pen_pipeline_stats run(double wait_s, double read_s, double decode_s, double augment_s)
{
    pen_pipeline_stats s = {
        .batches = 100,
        .samples = 6400,
        .workers = 2,
        .budget_bytes = 1000000000,
        .budget_used = 500000000,
    };
    s.stages[PEN_STAGE_WAIT].total_s = wait_s;
    s.stages[PEN_STAGE_STEP].total_s = 10 - wait_s;
    s.stages[PEN_STAGE_READ].total_s = read_s;
    s.stages[PEN_STAGE_READ].mean_s = read_s / 6400;
    s.stages[PEN_STAGE_DECODE].total_s = decode_s;
    s.stages[PEN_STAGE_AUGMENT].total_s = augment_s;
    return s;
}

static const pen__surroundings two_cores = {.cores = 2, .max_workers = 4};

static const char *verdict(const pen_pipeline_stats *s, double cores)
{
    static char line[PEN_VERDICT_MAX];
    const pen__surroundings around = {.cores = cores, .max_workers = 2 * cores, .ready_limit = 8};
    assert_true(pen__verdict(s, NULL, &around, line, sizeof line) > 0);
    return line;
}

static void assert_says(const pen_pipeline_stats *s, double cores, const char *want)
{
    const char *line = verdict(s, cores);
    if (!strstr(line, want))
        fail_msg("'%s' does not say '%s'", line, want);
}

static void a_loop_that_does_not_wait_is_the_slower_side(void **state)
{
    (void)state;
    pen_pipeline_stats s = run(0.1, 0.1, 5, 1);
    assert_says(&s, 2, "training waits 1.0 % of the time: it is the slower side");
    assert_says(&s, 2, "0.6 of 2 cores");
}

static void busy_cores_are_named_with_the_stage_that_keeps_them_busy(void **state)
{
    (void)state;
    pen_pipeline_stats s = run(3.8, 0.1, 18, 1.5);
    assert_says(&s, 2, "training waits 38 % of the time: decode-bound, 1.9 of 2 cores busy");
    assert_says(&s, 2, "at most 1.6x"); /* the loop itself takes 6.2 s of 10 */
    s = run(3.8, 0.1, 1.5, 18);
    assert_says(&s, 2, "augment-bound");
    s = run(3.8, 0.1, 18, 1.5);
    assert_says(&s, 8, "next step: workers=8");
}

static void slow_reading_asks_for_readers(void **state)
{
    (void)state;
    pen_pipeline_stats s = run(9, 19, 0.5, 0.1);
    assert_says(&s, 2, "reading, 3.0 ms a sample, 2 at once; next step: read_ahead=");
    s.readers = 120;
    assert_says(&s, 2, "a faster source");
    s = run(9, 300, 17, 2); /* readers hide it: the cores are the limit */
    s.readers = 30;
    assert_says(&s, 2, "decode-bound");
}

/* Readers that queue tell a source at its limit from one that answers late. */
static void a_source_at_its_limit_is_not_asked_for_more(void **state)
{
    (void)state;
    char line[PEN_VERDICT_MAX];
    pen_pipeline_stats s = run(9, 150, 0.5, 0.1);
    s.readers = 15;
    pen__surroundings around = two_cores;
    around.least_read_s = 0.006;
    assert_true(pen__verdict(&s, NULL, &around, line, sizeof line) > 0);
    assert_non_null(strstr(line, "reading, 23.4 ms a sample, 15 at once, where it takes 6.0 at "
                                 "best: the source is at its limit; next step: a faster source"));
    around.least_read_s = 0.02; /* it takes as long alone: more at once help */
    assert_true(pen__verdict(&s, NULL, &around, line, sizeof line) > 0);
    assert_non_null(strstr(line, "next step: read_ahead="));
    around.least_read_s = 0.0001; /* of a page cache: so much longer is no queue of fifteen */
    assert_true(pen__verdict(&s, NULL, &around, line, sizeof line) > 0);
    assert_non_null(strstr(line, "next step: read_ahead="));
}

static void reading_gains_no_more_than_cores_can_compute(void **state)
{
    (void)state;
    pen_pipeline_stats s = run(9, 15, 10, 0.1);
    assert_says(&s, 2, "at most 2.0x");
    s = run(9, 15, 1, 0.1);
    assert_says(&s, 2, "at most 10.0x"); /* as fast as the loop */
}

static void a_small_budget_and_a_varying_step_are_told(void **state)
{
    (void)state;
    pen_pipeline_stats s = run(5, 0.1, 6, 1);
    s.memory_wait_ns = s.idle_ns = 8000000000;
    assert_says(&s, 2, "wait for memory 40 % of the time, 500 of 1000 MB in use");
    s = run(2, 0.1, 6, 1);
    s.idle_ns = 12000000000;
    assert_says(&s, 2, "next step: ready_batches=12");
    char line[PEN_VERDICT_MAX];
    pen__surroundings around = {.cores = 2, .max_workers = 4, .ready_limit = 8, .ready_max = 10};
    assert_true(pen__verdict(&s, NULL, &around, line, sizeof line) > 0);
    assert_non_null(strstr(line, "next step: ready_batches=10"));
    around.ready_limit = around.ready_max = 1; /* nothing that a knob could do */
    assert_true(pen__verdict(&s, NULL, &around, line, sizeof line) > 0);
    assert_non_null(strstr(line, "idle 60 % of the time, for 1000 MB have room for 1 batch; next "
                                 "step: a larger memory_budget"));
}

static void too_few_batches_say_nothing(void **state)
{
    (void)state;
    pen_pipeline_stats s = run(5, 1, 1, 1);
    s.batches = 2;
    assert_says(&s, 2, "too early to tell: 2 batches");
    char line[8];
    assert_int_equal(pen__verdict(&s, NULL, &two_cores, line, sizeof line), PEN_ENOSPC);
    s = (pen_pipeline_stats){.batches = 5}; /* nothing took any time */
    verdict(&s, 2);
}

static void the_recent_past_is_judged_and_the_whole_run_told(void **state)
{
    (void)state;
    char line[PEN_VERDICT_MAX];
    pen_pipeline_stats whole = run(1, 0.1, 12, 1), recent = run(6, 0.1, 1, 18);
    assert_true(pen__verdict(&whole, &recent, &two_cores, line, sizeof line) > 0);
    const char *want = "training waits 60 % of the time (10 % since the beginning): augment-bound";
    assert_memory_equal(line, want, strlen(want));
    recent.batches = 2; /* too few of them */
    assert_true(pen__verdict(&whole, &recent, &two_cores, line, sizeof line) > 0);
    assert_non_null(strstr(line, "waits 10 % of the time: decode-bound"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_that_does_not_wait_is_the_slower_side),
        cmocka_unit_test(busy_cores_are_named_with_the_stage_that_keeps_them_busy),
        cmocka_unit_test(slow_reading_asks_for_readers),
        cmocka_unit_test(a_source_at_its_limit_is_not_asked_for_more),
        cmocka_unit_test(reading_gains_no_more_than_cores_can_compute),
        cmocka_unit_test(a_small_budget_and_a_varying_step_are_told),
        cmocka_unit_test(too_few_batches_say_nothing),
        cmocka_unit_test(the_recent_past_is_judged_and_the_whole_run_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
