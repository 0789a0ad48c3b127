/* test_observe.c - from counters of two moments to the state that policies see. */
#include "testing.h"

#include <math.h>

#include "engine/observe.h"

enum { FILE_BYTES = 1000, CORES = 2, BATCH = 4 };

/* `n` samples came and were computed, a millisecond each for every stage. */
static pen__facts after(int n, int64_t seconds)
{
    pen__facts facts = {.time_ns = seconds * 1000000000, .made = n, .workers = 1};
    pen__meter meter = {0};
    for (int i = 0; i < n; i++)
        pen__meter_add(&meter, 1000000);
    for (int i = PEN_STAGE_READ; i <= PEN_STAGE_TENSOR; i++)
        pen__times_add(&facts.stages[i], &meter);
    facts.bytes_in = facts.stored_in = (int64_t)n * FILE_BYTES;
    facts.ahead_samples = 10;
    facts.ahead_bytes = 10 * FILE_BYTES;
    return facts;
}

static pen_policy_state state_of(const pen__facts *base, const pen__facts *now)
{
    pen_policy_state s;
    pen__observe_state(base, base, now, NULL, NULL, CORES, BATCH, &s);
    return s;
}

/* Of files that are read in parts, or sent in a smaller form, fewer bytes come than are stored. */
static void what_comes_is_compared_as_it_is_stored(void **state)
{
    (void)state;
    pen__facts base = after(10, 1), now = after(50, 2);
    now.bytes_in = base.bytes_in + (now.bytes_in - base.bytes_in) / 5;
    assert_float_equal(state_of(&base, &now).ahead_ratio, 1, 1e-9);
}

/* Where sizes drift, what came long ago must not count: stage times are of late, too. */
static void what_comes_is_compared_with_what_came_of_late(void **state)
{
    (void)state;
    pen__facts base = after(100, 1), now = after(140, 2);
    now.stored_in = base.stored_in + INT64_C(40) * 4 * FILE_BYTES;
    now.ahead_bytes = INT64_C(10) * 4 * FILE_BYTES;
    assert_float_equal(state_of(&base, &now).ahead_ratio, 1, 1e-9);
    assert_true(isnan(state_of(&now, &now).ahead_ratio)); /* nothing came */
    now.ahead_samples = now.ahead_bytes = -1;
    assert_true(isnan(state_of(&base, &now).ahead_ratio));
}

static void mixing_batches_is_work_on_their_samples(void **state)
{
    (void)state;
    pen__facts base = after(0, 1), now = after(100, 2);
    const pen_policy_state plain = state_of(&base, &now);
    now.mix_ns = 100 * INT64_C(2000000);
    const pen_policy_state mixed = state_of(&base, &now);
    assert_float_equal(mixed.augment_s - plain.augment_s, 0.002, 1e-9);
    assert_float_equal(mixed.busy_cores - plain.busy_cores, 0.2, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_is_compared_as_it_is_stored),
        cmocka_unit_test(what_comes_is_compared_with_what_came_of_late),
        cmocka_unit_test(mixing_batches_is_work_on_their_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
