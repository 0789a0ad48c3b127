/* test_policy.c - what all policies share, and the simple ones. */
#include "worlds.h"

static void the_list_has_four_policies(void **state)
{
    (void)state;
    static const char *const names[] = {"fixed", "rules", "hillclimb", "model"};
    for (int i = 0; i < 4; i++)
        assert_string_equal(pen_policy_at(i)->name, names[i]);
    assert_null(pen_policy_at(4));
    assert_null(pen_policy_at(-1));
    assert_null(pen_policy_find("learned"));
    assert_null(pen_policy_find("fixed")->decide);
}

static void hillclimb_climbs_without_knowing_why(void **state)
{
    (void)state;
    world w = usual();
    w.cores = 8;
    driver d;
    start(&d, "hillclimb", &w);
    d.knobs.value[PEN_KNOB_WORKERS] = 1;
    run(&d, &w, 1500);
    assert_reaches(&d, &w, 0.9);
}

/* More offload helps up to six tenths, and costs nothing above. */
static void climb_offload(double from, double *low, double *high)
{
    world w = usual();
    driver d;
    start(&d, "hillclimb", &w);
    d.table[PEN_KNOB_OFFLOAD].max = 1;
    for (int i = 0; i < PEN_KNOB_COUNT; i++)
        d.table[i].is_pinned = d.table[i].is_integer;
    d.knobs.value[PEN_KNOB_OFFLOAD] = from;
    *low = 1, *high = 0;
    for (int n = 0; n < 600; n++) {
        pen_policy_state s = look(&w, &d);
        s.made = 100 * (1 + fmin(d.knobs.value[PEN_KNOB_OFFLOAD], 0.6));
        s.wait_share = 0.5;
        ask(&d, &s);
        const double at = d.knobs.value[PEN_KNOB_OFFLOAD];
        assert_true(fabs(at * 10 - round(at * 10)) < 1e-9);
        for (int i = 0; i < PEN_KNOB_COUNT; i++)
            assert_true(!d.table[i].is_share || d.knobs.value[i] == 0);
        if (n >= 400) {
            *low = fmin(*low, at);
            *high = fmax(*high, at);
        }
    }
}

static void hillclimb_climbs_fractions_and_leaves_shares(void **state)
{
    (void)state;
    double low, high;
    climb_offload(0, &low, &high);
    assert_true(low > 0.49 && high < 0.71); /* a step around the best */
    climb_offload(1, &low, &high);
    assert_true(low > 0.49 && high < 0.71);
}

static void rules_move_by_thresholds(void **state)
{
    (void)state;
    world w = usual();
    driver d;
    w.cores = 8;
    start(&d, "rules", &w);
    d.knobs.value[PEN_KNOB_WORKERS] = 1;
    run(&d, &w, 100);
    assert_reaches(&d, &w, 0.95);
    w.step_s = 1;
    run(&d, &w, 100);
    assert_true(d.knobs.value[PEN_KNOB_WORKERS] < 4);
    w = usual();
    w.read_s = 0.03;
    start(&d, "rules", &w);
    run(&d, &w, 100);
    assert_reaches(&d, &w, 0.95);
}

static void the_same_states_give_the_same_decisions(void **state)
{
    (void)state;
    static const char *const names[] = {"rules", "hillclimb", "model"};
    for (int i = 0; i < 3; i++) {
        driver d[2];
        for (int run_no = 0; run_no < 2; run_no++) {
            world w = usual();
            w.noise = 0.1;
            w.read_s = 0.01;
            start(&d[run_no], names[i], &w);
            run(&d[run_no], &w, 200);
        }
        assert_memory_equal(&d[0].knobs, &d[1].knobs, sizeof d[0].knobs);
        assert_memory_equal(d[0].memory, d[1].memory, sizeof d[0].memory);
    }
}

static void states_of_which_nothing_is_known_change_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"rules", "hillclimb", "model"};
    for (int i = 0; i < 3; i++) {
        world w = usual();
        driver d;
        start(&d, names[i], &w);
        for (int n = 0; n < 200; n++) {
            pen_policy_state s;
            memset(&s, 0xff, sizeof s);
            s.period_s = 0.1;
            s.made = s.samples = s.batches = 0;
            pen_knobs wanted = d.knobs;
            d.policy->decide(d.memory, &s, d.table, &wanted, d.reason);
            for (int k = 0; k < PEN_KNOB_COUNT; k++)
                assert_true(isfinite(wanted.value[k]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_has_four_policies),
        cmocka_unit_test(hillclimb_climbs_without_knowing_why),
        cmocka_unit_test(hillclimb_climbs_fractions_and_leaves_shares),
        cmocka_unit_test(rules_move_by_thresholds),
        cmocka_unit_test(the_same_states_give_the_same_decisions),
        cmocka_unit_test(states_of_which_nothing_is_known_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
