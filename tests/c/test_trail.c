/* test_trail.c - shares of the last seconds. */
#include "testing.h"

#include "engine/trail.h"

static const int64_t S = 1000000000;

static void a_span_is_cut_at_seconds(void **state)
{
    (void)state;
    pen__trail trail = {0};
    double share[PEN__TRAIL_SECONDS];
    assert_int_equal(pen__trail_read(&trail, 100 * S, 0, share), 0);
    pen__trail_add(&trail, 100 * S + S / 2, 102 * S + S / 4);
    pen__trail_add(&trail, 102 * S + S / 2, 102 * S + 3 * S / 4);
    assert_int_equal(pen__trail_read(&trail, 100 * S + S / 2, 0, share), 0);
    assert_int_equal(pen__trail_read(&trail, 104 * S, 0, share), 3); /* 101, 102, 103 */
    assert_true(share[0] == 1 && share[1] == 0.5 && share[2] == 0);
}

static void what_goes_on_counts(void **state)
{
    (void)state;
    pen__trail trail = {0};
    double share[PEN__TRAIL_SECONDS];
    assert_int_equal(pen__trail_read(&trail, 12 * S, 10 * S, share), 1);
    assert_true(share[0] == 1);
    pen__trail_add(&trail, 10 * S, 11 * S + S / 4);
    assert_int_equal(pen__trail_read(&trail, 13 * S, 11 * S + 3 * S / 4, share), 2);
    assert_true(share[0] == 0.5 && share[1] == 1);
}

static void old_seconds_are_forgotten(void **state)
{
    (void)state;
    pen__trail trail = {0};
    double share[PEN__TRAIL_SECONDS];
    for (int64_t s = 1; s < 1000; s++)
        pen__trail_add(&trail, s * S, s * S + s % 7 * S / 8);
    assert_int_equal(pen__trail_read(&trail, 1000 * S, 0, share), PEN__TRAIL_SECONDS);
    for (int i = 0; i < PEN__TRAIL_SECONDS; i++)
        assert_true(share[i] == (double)((940 + i) % 7) / 8);
    assert_int_equal(pen__trail_read(&trail, 5000 * S, 0, share), PEN__TRAIL_SECONDS);
    for (int i = 0; i < PEN__TRAIL_SECONDS; i++)
        assert_true(share[i] == 0);
    pen__trail_add(&trail, 2000 * S, 5000 * S); /* longer than the trail */
    assert_int_equal(pen__trail_read(&trail, 5000 * S, 0, share), PEN__TRAIL_SECONDS);
    for (int i = 0; i < PEN__TRAIL_SECONDS; i++)
        assert_true(share[i] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_span_is_cut_at_seconds),
        cmocka_unit_test(what_goes_on_counts),
        cmocka_unit_test(old_seconds_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
