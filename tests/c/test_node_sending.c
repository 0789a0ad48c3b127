/* test_node_sending.c - what it takes a storage node to send a byte. */
#include "testing.h"

#include "remote/node_sending.h"

#define STEP ((int64_t)PEN__SENDING_STEP)

static void nothing_is_known_before_enough_was_sent(void **state)
{
    (void)state;
    pen__sending s = {0};
    assert_int_equal(pen__sending_ns(&s, 1000000), 0);
    assert_false(pen__sending_is_due(&s, STEP - 1));
    assert_true(pen__sending_is_due(&s, STEP));
    pen__sending_look(&s, &(pen__sending_sums){STEP, STEP * 2, 0});
    assert_int_equal(pen__sending_ns(&s, 1000000), 2000000);
    assert_false(pen__sending_is_due(&s, 2 * STEP - 1));
}

static void work_is_no_sending(void **state)
{
    (void)state;
    pen__sending s = {0};
    pen__sending_look(&s, &(pen__sending_sums){STEP, STEP * 5, STEP * 4});
    assert_int_equal(pen__sending_ns(&s, 1000), 1000);
    /* From there on: as much work again, and half as much time for the same bytes. */
    for (int i = 2; i < 60; i++)
        pen__sending_look(&s,
                          &(pen__sending_sums){STEP * i, STEP * 5 + STEP / 2 * (i - 1), STEP * 4});
    assert_in_range(pen__sending_ns(&s, 1000), 500, 505);
}

static void one_look_does_not_change_everything(void **state)
{
    (void)state;
    pen__sending s = {0};
    pen__sending_look(&s, &(pen__sending_sums){STEP, STEP, 0});
    pen__sending_look(&s, &(pen__sending_sums){STEP * 2, STEP * 6, 0}); /* five times as much */
    assert_int_equal(pen__sending_ns(&s, 1000), 2000);
}

/* Work is counted when it is done, and so may be of the time before. */
static void odd_figures_stay_within_bounds(void **state)
{
    (void)state;
    pen__sending s = {0};
    pen__sending_look(&s, &(pen__sending_sums){STEP, STEP, STEP * 3});
    assert_int_equal(pen__sending_ns(&s, 1000), 0);
    pen__sending_look(&s, &(pen__sending_sums){STEP * 2, INT64_C(1) << 60, STEP * 3});
    assert_int_equal(pen__sending_ns(&s, 1000), 20000);
    assert_true(pen__sending_ns(&s, INT64_C(1) << 40) > 0);
    pen__sending_look(&s, &(pen__sending_sums){STEP * 3, 0, 0}); /* clocks do not go back */
    assert_in_range(pen__sending_ns(&s, 1000), 15000, 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_before_enough_was_sent),
        cmocka_unit_test(work_is_no_sending),
        cmocka_unit_test(one_look_does_not_change_everything),
        cmocka_unit_test(odd_figures_stay_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
