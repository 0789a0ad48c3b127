/* test_model_changes.c - the model while sources, cores and other programs change. */
#include "worlds.h"

static world of_small_batches(double compute_s, double step_s, double noise, uint64_t seed)
{
    world w = usual();
    w.compute_s = compute_s;
    w.step_s = step_s;
    w.batch = 32;
    w.noise = noise;
    w.random = seed;
    return w;
}

/* Bandwidth, not latency: few readers are enough at any speed, and a queue helps nobody. */
static void model_asks_for_few_readers_on_a_wire_that_changes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        world w = of_small_batches(1.5e-3, 0.03, 0.2, seed);
        driver d;
        start(&d, "model", &w);
        double mean_readers = 0, mean_share = 0;
        for (int turn = 0; turn < 8; turn++) {
            w.wire_s = turn % 2 == 0 ? 1 / 540.0 : 1 / 135.0;
            const double best = oracle(&w);
            for (int period = 0; period < 100; period++) {
                run(&d, &w, 1);
                mean_readers += readers(&d.knobs) / 800;
                assert_true(readers(&d.knobs) <= 48);
                assert_true(d.knobs.value[PEN_KNOB_READY_BATCHES] <= 4);
                if (period >= 20)
                    mean_share += delivered(&w, &d.knobs) / best / 640;
            }
        }
        assert_true(mean_readers < 10);
        assert_true(mean_share > 0.98);
    }
}

/* A wire that two workers leave idle for 4 % of the time while they compute.  No trial tells that
 * from noise; a few readers are known to mend it. */
static void model_keeps_a_wire_busy(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        world w = of_small_batches(1.2e-3, 0.02, 0.1, seed);
        w.wire_s = 3.6e-3;
        driver d;
        start(&d, "model", &w);
        assert_true(delivered(&w, &d.knobs) < 0.97 * oracle(&w));
        double mean_share = 0, mean_readers = 0;
        run(&d, &w, 20);
        for (int period = 0; period < 400; period++) {
            run(&d, &w, 1);
            mean_share += delivered(&w, &d.knobs) / oracle(&w) / 400;
            mean_readers += readers(&d.knobs) / 400;
        }
        assert_true(mean_share > 0.985);
        assert_true(mean_readers < 16);
    }
}

/* The same of a storage node, for which a request for every sample or two is dear. */
static void model_keeps_more_readers_of_storage_nodes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        world w = of_small_batches(1.2e-3, 0.02, 0.1, seed);
        w.wire_s = 3.6e-3;
        w.is_remote = true;
        driver d;
        start(&d, "model", &w);
        run(&d, &w, 20);
        int n_few = 0;
        for (int period = 0; period < 400; period++) {
            run(&d, &w, 1);
            n_few += readers(&d.knobs) < 16;
        }
        assert_int_equal(n_few, 0);
        assert_reaches(&d, &w, 0.98);
    }
}

/* What a second brings is under way at nodes, so that neither they nor the network
 * wait for each other; 16 at least and 64 at most. */
static void model_has_more_under_way_at_storage_nodes_the_more_come(void **state)
{
    (void)state;
    const double wire_s[] = {0.07, 0.025, 0.005}, least[] = {16, 36, 64}, most[] = {16, 48, 64};
    for (size_t i = 0; i < sizeof wire_s / sizeof *wire_s; i++) {
        world w = of_small_batches(1.2e-3, 0.01, 0.1, 1 + i);
        w.wire_s = wire_s[i];
        w.is_remote = true;
        driver d;
        start(&d, "model", &w);
        run(&d, &w, 200);
        assert_true(readers(&d.knobs) >= least[i] && readers(&d.knobs) <= most[i]);
        assert_true(d.knobs.value[PEN_KNOB_READ_AHEAD] == 2 * readers(&d.knobs));
    }
}

/* Times are of the last periods: what batches took before there were readers goes on for a while.
 */
static void model_opens_no_room_for_times_that_are_over(void **state)
{
    (void)state;
    world w = usual();
    w.read_s = 0.03;
    w.step_s = 0.1;
    driver d;
    start(&d, "model", &w);
    for (int i = 0, n_since = 0; i < 60; i++) {
        pen_policy_state s = look(&w, &d);
        n_since += readers(&d.knobs) > 0;
        if (n_since < 12) {
            s.wait_share = fmax(s.wait_share, 0.05);
            s.batch_p95_s = 0.5;
        }
        ask(&d, &s);
        assert_true(d.knobs.value[PEN_KNOB_READY_BATCHES] == 3);
    }
    assert_true(readers(&d.knobs) > 0);
}

/* While it waits most of the time, how much it does depends on when a batch happens to come. */
static void giving_back_is_judged_by_the_rate_where_the_loop_waits_much(void **state)
{
    (void)state;
    pen_knobs knobs = {.value = {2, 3, 16, 8}};
    const pen__measure old = {
        .periods = 10, .seconds = 1, .made = 100, .batches = 3, .waited_s = 0.87};
    pen_policy_state s = {.period_s = 0.1, .made = 10, .batches = 1, .wait_share = 0.92};
    pen__trial trial;
    pen__trial_begin(&trial, &knobs, &old, PEN__GIVES_BACK, 0);
    pen__trial_end end = PEN__TRIAL_GOES_ON;
    for (int i = 0; i < 30 && end == PEN__TRIAL_GOES_ON; i++)
        end = pen__trial_step(&trial, &s, &knobs);
    assert_int_equal(end, PEN__TRIAL_KEPT);
    s.made = 8;
    pen__trial_begin(&trial, &knobs, &old, PEN__GIVES_BACK, 0);
    for (end = PEN__TRIAL_GOES_ON; end == PEN__TRIAL_GOES_ON;)
        end = pen__trial_step(&trial, &s, &knobs);
    assert_int_equal(end, PEN__TRIAL_REVERTED);
}

/* Workers fill whatever room there is; the loop waits as before. */
static void model_keeps_no_room_that_is_only_filled(void **state)
{
    (void)state;
    world w = usual();
    w.step_s = 0.1;
    driver d;
    start(&d, "model", &w);
    int n_tried = 0;
    for (int i = 0; i < 60; i++) {
        pen_policy_state s = look(&w, &d);
        const bool has_room = d.knobs.value[PEN_KNOB_READY_BATCHES] > 3;
        s.wait_share = 0.05;
        s.batch_p95_s = 0.4;
        s.made *= has_room ? 1.4 : 1;
        n_tried += has_room;
        ask(&d, &s);
    }
    assert_true(n_tried > 0);
    assert_true(n_tried <= 20);
}

/* Where the system shares cores by program, more workers gain no turns and only wait for them. */
static void model_remembers_that_outnumbering_did_not_pay(void **state)
{
    (void)state;
    world w = usual();
    driver d;
    start(&d, "model", &w);
    int n_tried = 0;
    for (int i = 0; i < 300; i++) {
        pen_policy_state s = look(&w, &d);
        s.other_cores = 1;
        s.decode_s *= d.knobs.value[PEN_KNOB_WORKERS] / 2;
        const double before = d.knobs.value[PEN_KNOB_WORKERS];
        ask(&d, &s);
        n_tried += before == 2 && d.knobs.value[PEN_KNOB_WORKERS] > 2;
    }
    assert_in_range(n_tried, 1, 5); /* after 20, 40, 80 and 160 periods */
}

/* There a worker on a core that another program has does nothing but wait for its turn. */
static void model_leaves_cores_to_programs_that_have_them_anyway(void **state)
{
    (void)state;
    double mean_workers = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        world w = usual();
        w.by_program = true;
        w.read_s = 0;
        w.noise = 0.1;
        w.random = seed;
        driver d;
        start(&d, "model", &w);
        for (int turn = 0; turn < 3; turn++) {
            w.rivals = 0;
            run(&d, &w, 20);
            assert_true(d.knobs.value[PEN_KNOB_WORKERS] == 2);
            run(&d, &w, 100);
            assert_true(d.knobs.value[PEN_KNOB_WORKERS] == 2);
            w.rivals = 1;
            for (int period = 0; period < 150; period++) {
                run(&d, &w, 1);
                if (period >= 20)
                    mean_workers += d.knobs.value[PEN_KNOB_WORKERS] / (20 * 3 * 130);
            }
        }
    }
    assert_true(mean_workers < 1.2);
}

/* A batch is tens of megabytes: a late one now and then is no reason to keep two more of them. */
static void model_spends_memory_only_on_waiting_that_lasts(void **state)
{
    (void)state;
    for (int is_lasting = 0; is_lasting < 2; is_lasting++) {
        world w = usual();
        w.step_s = 0.1;
        driver d;
        start(&d, "model", &w);
        for (int i = 0; i < 400; i++) {
            pen_policy_state s = look(&w, &d);
            const bool has_room = d.knobs.value[PEN_KNOB_READY_BATCHES] > 3;
            s.wait_share = !has_room && (is_lasting || i % 80 == 40) ? 0.3 : 0;
            s.batch_p95_s = 0.4;
            ask(&d, &s);
        }
        assert_int_equal(d.knobs.value[PEN_KNOB_READY_BATCHES] > 3, is_lasting);
    }
}

/* What is measured varies by a tenth from period to period; nothing has to be waited for. */
static world noisy(uint64_t seed)
{
    world w = usual();
    w.read_s = 0;
    w.noise = 0.1;
    w.random = seed;
    return w;
}

/* One rival on two cores: 3 workers get 1.5 of them, 4 get 1.6, which is too little more to be
 * seen in noise. */
static void model_answers_a_rival_within_20_periods_and_forgets_it(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        world w = noisy(seed);
        driver d;
        start(&d, "model", &w);
        for (int turn = 0; turn < 2; turn++) {
            w.rivals = 0;
            run(&d, &w, 150);
            assert_true(d.knobs.value[PEN_KNOB_WORKERS] == 2);
            w.rivals = 1;
            run(&d, &w, 20);
            assert_reaches(&d, &w, 0.95);
        }
    }
}

/* Where the system shares cores by program, one worker has the turns of two; what is measured of it
 * varies by a tenth from period to period. */
static void model_leaves_cores_to_a_rival_whatever_the_noise(void **state)
{
    (void)state;
    int n_left = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        world w = noisy(seed);
        w.by_program = true;
        driver d;
        start(&d, "model", &w);
        run(&d, &w, 60);
        w.rivals = 1;
        run(&d, &w, 20);
        n_left += d.knobs.value[PEN_KNOB_WORKERS] == 1;
        assert_reaches(&d, &w, 0.95);
    }
    assert_in_range(n_left, 36, 40);
}

static void model_does_not_answer_rivals_that_are_there_for_a_moment(void **state)
{
    (void)state;
    world w = usual();
    driver d;
    start(&d, "model", &w);
    run(&d, &w, 30);
    for (int i = 0; i < 1200; i++) {
        w.rivals = i % 12 < 2;
        run(&d, &w, 1);
        assert_true(d.knobs.value[PEN_KNOB_WORKERS] == 2);
    }
}

/* A program that wakes up whenever something is tried makes every trial worthless. */
static void model_tires_of_trials_that_are_called_off(void **state)
{
    (void)state;
    world w = usual();
    w.read_s = 0.01;
    driver d;
    start(&d, "model", &w);
    int n_tried = 0, n_off = 0, wakes = 0;
    for (int i = 0; i < 1200; i++) {
        const pen_knobs before = d.knobs;
        w.rivals = wakes > 0 && wakes-- <= 3;
        run(&d, &w, 1);
        if (readers(&d.knobs) > readers(&before)) {
            n_tried++;
            wakes = 4;
        }
        n_off += strstr(d.reason, "called off") != NULL;
    }
    assert_in_range(n_off, 2, 8); /* after 20, 40, 80, ... periods */
    assert_in_range(n_tried, n_off, n_off + 1);
}

static void model_gives_workers_back_with_the_cores(void **state)
{
    (void)state;
    world w = usual();
    driver d;
    start(&d, "model", &w);
    run(&d, &w, 50);
    w.cores = 1; /* a quota */
    run(&d, &w, 20);
    assert_true(d.knobs.value[PEN_KNOB_WORKERS] == 1);
    w.cores = 2;
    run(&d, &w, 20);
    assert_true(d.knobs.value[PEN_KNOB_WORKERS] == 2);
}

/* A quota lets threads run on for a period, and what they make varies by a tenth. */
static void model_gives_workers_back_to_a_quota_whatever_the_noise(void **state)
{
    (void)state;
    int n_given = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        world w = noisy(seed);
        driver d;
        start(&d, "model", &w);
        run(&d, &w, 60);
        pen_policy_state first = look(&w, &d);
        first.cores = 1;
        ask(&d, &first);
        w.cores = 1;
        run(&d, &w, 19);
        n_given += d.knobs.value[PEN_KNOB_WORKERS] == 1;
    }
    assert_in_range(n_given, 36, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_asks_for_few_readers_on_a_wire_that_changes),
        cmocka_unit_test(model_keeps_a_wire_busy),
        cmocka_unit_test(model_keeps_more_readers_of_storage_nodes),
        cmocka_unit_test(model_has_more_under_way_at_storage_nodes_the_more_come),
        cmocka_unit_test(model_opens_no_room_for_times_that_are_over),
        cmocka_unit_test(giving_back_is_judged_by_the_rate_where_the_loop_waits_much),
        cmocka_unit_test(model_keeps_no_room_that_is_only_filled),
        cmocka_unit_test(model_remembers_that_outnumbering_did_not_pay),
        cmocka_unit_test(model_leaves_cores_to_programs_that_have_them_anyway),
        cmocka_unit_test(model_spends_memory_only_on_waiting_that_lasts),
        cmocka_unit_test(model_answers_a_rival_within_20_periods_and_forgets_it),
        cmocka_unit_test(model_leaves_cores_to_a_rival_whatever_the_noise),
        cmocka_unit_test(model_does_not_answer_rivals_that_are_there_for_a_moment),
        cmocka_unit_test(model_tires_of_trials_that_are_called_off),
        cmocka_unit_test(model_gives_workers_back_with_the_cores),
        cmocka_unit_test(model_gives_workers_back_to_a_quota_whatever_the_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
