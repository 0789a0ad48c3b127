/* test_model_reading.c - who reads: workers, more workers than cores, or readers. */
#include "policy/sizes.h"
#include "worlds.h"

static double workers(const driver *d)
{
    return d->knobs.value[PEN_KNOB_WORKERS];
}

/* The closed form where cores are the limit. */
static void plans_follow_what_reading_takes(void **state)
{
    (void)state;
    static const struct {
        double cores, read, by_workers, workers, io; /* `read` of what computing takes */
    } plans[] = {
        {2, 0.19, 0.5, 2, 0},  {2, 0.21, 0.5, 4, 0},   {2, 0.21, 0, 2, 2},    {2, 0.6, 0.5, 2, 3},
        {2, 0.6, 2, 4, 0},     {2, 1.1, 0.5, 2, 4},    {64, 0.3, 0.5, 89, 0}, {64, 0.9, 2, 128, 0},
        {0.5, 0.3, 0.5, 1, 0}, {1.03, 0.4, 0.5, 2, 0}, {1.5, 0.4, 0.5, 3, 0}, {2, 10, 2, 2, 26},
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        world w = usual();
        w.cores = plans[i].cores;
        w.read_s = plans[i].read * w.compute_s;
        w.step_s = 1e-5;
        driver d;
        start(&d, "model", &w);
        pen_policy_state s = look(&w, &d);
        const pen__source_now source = {.best_read_s = w.read_s, .by_workers = plans[i].by_workers};
        pen__sizes p = pen__size(&s, &source, 1);
        if (p.workers != plans[i].workers || p.io != plans[i].io)
            fail_msg("plan %zu: %g workers and %g readers", i, p.workers, p.io);
        s.ahead_ratio = 2; /* scales both */
        p = pen__size(&s, &source, 1);
        assert_true(p.workers == plans[i].workers && p.io == plans[i].io);
        s.read_s = NAN;
        p = pen__size(&s, &source, 1);
        assert_true(p.workers == ceil(plans[i].cores - 0.05) && p.io == 0);
    }
}

/* Of a sample's time in a worker a quarter is waiting: more of them, and nobody to hand it over. */
static void model_lets_workers_read_what_is_read_soon(void **state)
{
    (void)state;
    world w = usual();
    w.read_s = 0.3 * w.compute_s;
    w.noise = 0.02;
    driver d;
    start(&d, "model", &w);
    run(&d, &w, 300);
    assert_true(readers(&d.knobs) == 0 && workers(&d) == 4);
    assert_reaches(&d, &w, 0.95);
    w.read_s = 0.02 * w.compute_s; /* it is in memory by now: as many as cores will do */
    run(&d, &w, 300);
    assert_true(readers(&d.knobs) == 0 && workers(&d) == 2);
    assert_reaches(&d, &w, 0.95);
    w.read_s = 5 * w.compute_s;
    run(&d, &w, 300);
    assert_true(readers(&d.knobs) >= 10 && workers(&d) == 2);
    assert_reaches(&d, &w, 0.95);
}

/* Files that are new to a page cache take long at first. */
static void model_lets_readers_go_that_have_nothing_to_do(void **state)
{
    (void)state;
    world w = usual();
    w.read_s = 0.006;
    w.noise = 0.01;
    driver d;
    start(&d, "model", &w);
    run(&d, &w, 10);
    const double at_first = readers(&d.knobs);
    assert_true(at_first >= 6); /* of 1000/s * 6 ms */
    w.read_s = 0.0006;
    run(&d, &w, 100);
    assert_true(readers(&d.knobs) >= 1 && readers(&d.knobs) <= 2);
    assert_reaches(&d, &w, 0.95);
    w.read_s = 0.00005;
    run(&d, &w, 300);
    assert_true(readers(&d.knobs) == 0);
    assert_reaches(&d, &w, 0.95);
    w.read_s = 0.006; /* and takes them again */
    run(&d, &w, 100);
    assert_true(readers(&d.knobs) >= at_first - 1);
    assert_reaches(&d, &w, 0.95);
}

static void model_keeps_readers_that_are_missed_by_turns(void **state)
{
    (void)state;
    world w = usual();
    driver d;
    start(&d, "model", &w);
    double share = 0;
    for (int turn = 0; turn < 40; turn++) {
        w.read_s = turn % 2 == 0 ? 0.006 : 0.0006;
        for (int period = 0; period < 40; period++) {
            run(&d, &w, 1);
            if (turn >= 10)
                share += delivered(&w, &d.knobs) / oracle(&w) / (30 * 40);
        }
    }
    assert_true(share > 0.98);
}

/* As many as read at once without them would be no gain. */
static void model_tries_more_readers_than_there_are_workers(void **state)
{
    (void)state;
    world w = usual();
    w.cores = 64;
    w.read_s = 8 * w.compute_s;
    w.step_s = 1e-4;
    driver d;
    start(&d, "model", &w);
    run(&d, &w, 40);
    assert_true(readers(&d.knobs) > 100);
    assert_reaches(&d, &w, 0.95);
}

/* Where workers may not be more than cores, readers are all there is. */
static void has_readers_and_no_more_workers(world *w, driver *d, double share)
{
    for (int i = 0; i < 200; i++) {
        run(d, w, 1);
        assert_true(workers(d) <= 2);
    }
    assert_true(readers(&d->knobs) >= 1);
    assert_reaches(d, w, share);
}

static void model_has_readers_where_workers_cannot_be_more(void **state)
{
    (void)state;
    for (int is_pinned = 0; is_pinned <= 1; is_pinned++) {
        world w = usual();
        w.read_s = 0.4 * w.compute_s;
        driver d;
        start(&d, "model", &w);
        d.table[PEN_KNOB_WORKERS].is_pinned = is_pinned;
        d.table[PEN_KNOB_WORKERS].max = is_pinned ? 4 : 2;
        has_readers_and_no_more_workers(&w, &d, 0.95);
    }
}

static void model_outnumbers_nobody_to_read(void **state)
{
    (void)state;
    world of_ranks = usual(), of_others = usual();
    of_ranks.ranks = 2;
    of_others.rivals = 1;
    of_others.by_program = true;
    world *const worlds[] = {&of_ranks, &of_others};
    for (int i = 0; i < 2; i++) {
        worlds[i]->read_s = 0.4 * worlds[i]->compute_s;
        driver d;
        start(&d, "model", worlds[i]);
        has_readers_and_no_more_workers(worlds[i], &d, 0.9);
    }
}

/* A quarter of a core, of which receiving takes a part that is no stage of a worker. */
static world with_a_quota(double read_s)
{
    world w = usual();
    w.cores = 0.25;
    w.compute_s = 2.7e-4;
    w.get_s = 1.7e-4;
    w.hand_s = 6e-5;
    w.read_s = read_s;
    w.step_s = 1e-4;
    w.noise = 0.02;
    return w;
}

static double readers_with_a_quota(world *w, int n_periods, double *n_with)
{
    driver d;
    start(&d, "model", w);
    d.table[PEN_KNOB_WORKERS].max = 2;
    d.knobs.value[PEN_KNOB_WORKERS] = 1;
    *n_with = 0;
    for (int period = 0; period < n_periods; period++) {
        run(&d, w, 1);
        *n_with += readers(&d.knobs) > 0;
    }
    return readers(&d.knobs);
}

/* A worker that reads for itself nearly uses it up: what readers take of it would be lost. */
static void model_tries_no_readers_where_the_quota_is_the_limit(void **state)
{
    (void)state;
    for (int is_remote = 0; is_remote <= 1; is_remote++) {
        world w = with_a_quota(1.5e-3);
        w.is_remote = is_remote;
        double n_with;
        assert_true(readers_with_a_quota(&w, 300, &n_with) == 0 && n_with == 0);
        w.read_s = 4e-3; /* of a far source: half of the quota would be idle */
        assert_true(readers_with_a_quota(&w, 300, &n_with) >= 2 && n_with > 250);
    }
}

/* That readers bring nothing where the quota is used up with them does not mean that the source is
 * at its limit, and none of them stays. */
static void model_does_not_take_a_quota_for_the_source(void **state)
{
    (void)state;
    for (int is_remote = 0; is_remote <= 1; is_remote++) {
        world w = with_a_quota(1.8e-3);
        w.hand_s = 1e-4;
        w.is_remote = is_remote;
        double n_with;
        assert_true(readers_with_a_quota(&w, 300, &n_with) == 0);
        assert_true(n_with > 0 && n_with < 60);
    }
}

/* Workers that read over one wire make each other wait: what reading takes depends on how many
 * there are, and no two settings may call for each other. */
static void model_is_calm_on_a_wire_that_workers_share(void **state)
{
    (void)state;
    static const struct {
        double cores, wire_s;
    } wires[] = {{8, 4.3e-4}, {8, 3e-4}, {4, 8e-4}, {4, 5e-4}, {2, 9e-4}, {2, 6e-4}, {64, 4e-5}};
    for (size_t i = 0; i < sizeof wires / sizeof *wires; i++) {
        for (double noise = 0; noise < 0.04; noise += 0.02) {
            world w = usual();
            w.cores = wires[i].cores;
            w.wire_s = wires[i].wire_s;
            w.read_s = 0;
            w.step_s = 0.02 / w.cores;
            w.noise = noise;
            driver d;
            start(&d, "model", &w);
            run(&d, &w, 300);
            d.n_changes = 0;
            const double best = oracle(&w);
            double share = 0;
            for (int period = 0; period < 1000; period++) {
                run(&d, &w, 1);
                share += delivered(&w, &d.knobs) / best / 1000;
            }
            if (d.n_changes > 60 || share < 0.96)
                fail_msg(
                    "wire %zu, noise %g: %d changes, %.3f of the best with %g workers, %g readers",
                    i, noise, d.n_changes, share, workers(&d), readers(&d.knobs));
        }
    }
}

static double between(world *w, double least, double most)
{
    return least * pow(most / least, (draw(w) + 1) / 2);
}

/* Any machine, sample, source and loop.  Reading on the side costs up to a fifth. */
static void model_is_good_and_calm_in_worlds_at_random(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        world w = usual();
        w.random = seed * 7919;
        draw(&w);
        w.cores = round(between(&w, 1, 16));
        w.compute_s = between(&w, 5e-4, 1e-2);
        w.read_s = w.compute_s * between(&w, 0.01, 10);
        w.wire_s = seed % 3 == 0 ? w.compute_s / w.cores * between(&w, 0.05, 1) : 0;
        w.step_s = w.batch * w.compute_s / w.cores * between(&w, 0.3, 4);
        w.noise = seed % 2 == 0 ? 0.03 : 0;
        driver d;
        start(&d, "model", &w);
        run(&d, &w, 300);
        d.n_changes = 0;
        const double best = oracle(&w);
        double share = 0;
        for (int period = 0; period < 300; period++) {
            run(&d, &w, 1);
            share += delivered(&w, &d.knobs) / best / 300;
        }
        const bool is_long = w.read_s + w.wire_s > 0.25 * w.compute_s;
        if (share < (is_long ? 0.95 : 0.8) || d.n_changes > 40)
            fail_msg("world %d: %.2f of the best, %d changes, %g workers, %g readers", (int)seed,
                     share, d.n_changes, workers(&d), readers(&d.knobs));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_follow_what_reading_takes),
        cmocka_unit_test(model_lets_workers_read_what_is_read_soon),
        cmocka_unit_test(model_lets_readers_go_that_have_nothing_to_do),
        cmocka_unit_test(model_keeps_readers_that_are_missed_by_turns),
        cmocka_unit_test(model_tries_more_readers_than_there_are_workers),
        cmocka_unit_test(model_has_readers_where_workers_cannot_be_more),
        cmocka_unit_test(model_outnumbers_nobody_to_read),
        cmocka_unit_test(model_tries_no_readers_where_the_quota_is_the_limit),
        cmocka_unit_test(model_does_not_take_a_quota_for_the_source),
        cmocka_unit_test(model_is_calm_on_a_wire_that_workers_share),
        cmocka_unit_test(model_is_good_and_calm_in_worlds_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
