/* test_model.c - the policy that plans, in worlds of every kind. */
#include "worlds.h"

/* A loop whose steps are slow and fast by turns, moment by moment. */
typedef struct bursts {
    double slow_s, fast_s, in_step; /* what is left of the step; 0: it wants a batch */
    int n_each, n_taken;
    double stock;                   /* samples made and not taken */
    double done_s[64], done_at[64]; /* the last steps, a ring */
    int n_done;
    double time, waited_s;
} bursts;

static double length_of_step(const bursts *b, int n)
{
    return n / b->n_each % 2 ? b->fast_s : b->slow_s;
}

/* Steps that ended in the last 0.8 s, as control.c has them: NaN if there is none. */
static double recent_step(const bursts *b)
{
    double sum = 0, n = 0;
    for (int i = b->n_done - 1; i >= 0 && i > b->n_done - 64; i--) {
        if (b->done_at[i % 64] < b->time - 0.8)
            break;
        sum += b->done_s[i % 64];
        n++;
    }
    return n > 0 ? sum / n : NAN;
}

static void burst_period(bursts *b, world *w, driver *d)
{
    const double dt = 1e-3, workers = fmin(d->knobs.value[PEN_KNOB_WORKERS], w->cores);
    const double room = d->knobs.value[PEN_KNOB_READY_BATCHES] * w->batch;
    pen_policy_state s = look(w, d);
    s.wait_share = s.batches = s.made = 0;
    for (int i = 0; i < 100; i++, b->time += dt) {
        const double made = fmin(workers / w->compute_s * dt, fmax(room - b->stock, 0));
        b->stock += made;
        s.made += made;
        if (b->in_step > 0 && (b->in_step -= dt) <= dt / 2) {
            b->in_step = 0;
            b->done_s[b->n_done % 64] = length_of_step(b, b->n_taken - 1);
            b->done_at[b->n_done++ % 64] = b->time;
        }
        if (b->in_step == 0 && b->stock >= w->batch - 1e-6) {
            b->stock -= w->batch;
            b->in_step = length_of_step(b, b->n_taken++);
            s.batches++;
        } else if (b->in_step == 0) {
            s.wait_share += dt / 0.1;
            b->waited_s += dt;
        }
    }
    s.samples = s.batches * w->batch;
    s.step_s = recent_step(b);
    s.step_cv = isnan(s.step_s) ? NAN : 0.1;
    s.batch_s = w->batch * w->compute_s / workers;
    s.batch_p95_s = s.batch_s * 1.1;
    s.ready = floor(b->stock / w->batch);
    ask(d, &s);
}

static double burst_for(const char *policy, const bursts *loop, int periods, driver *d)
{
    world w = usual();
    w.cores = 8;
    w.batch = 256;
    w.compute_s = 0.012;
    w.noise = 0.05;
    bursts b = *loop;
    start(d, policy, &w);
    for (int i = 0; i < periods; i++)
        burst_period(&b, &w, d);
    return b.waited_s / b.time;
}

static void model_stays_where_the_cores_are_the_limit(void **state)
{
    (void)state;
    world w = usual();
    w.noise = 0.02;
    driver d;
    start(&d, "model", &w);
    run(&d, &w, 300);
    assert_true(d.knobs.value[PEN_KNOB_WORKERS] == 2);
    assert_true(readers(&d.knobs) == 0);
    assert_reaches(&d, &w, 0.95);
}

static void model_reads_ahead_where_reading_is_slow(void **state)
{
    (void)state;
    world w = usual();
    w.read_s = 0.03;
    driver d;
    start(&d, "model", &w);
    run(&d, &w, 20); /* from the defaults, in twenty periods */
    assert_reaches(&d, &w, 0.95);
    run(&d, &w, 500);
    assert_reaches(&d, &w, 0.95);
    assert_true(readers(&d.knobs) <= 60); /* 1000/s * 30 ms = 30 are needed */
}

static void model_does_not_flood_a_source_at_its_limit(void **state)
{
    (void)state;
    world w = usual();
    w.read_s = 0.004;
    w.io_rate = 500;
    driver d;
    start(&d, "model", &w);
    run(&d, &w, 400);
    assert_reaches(&d, &w, 0.95);
    assert_true(readers(&d.knobs) <= 8); /* 2 would do */
    w.io_rate = INFINITY;                /* it is relieved */
    run(&d, &w, 60);
    assert_reaches(&d, &w, 0.95);
}

static double readers_when_a_source_slows_down(bool is_remote)
{
    world w = usual();
    w.read_s = 0.03;
    w.is_remote = is_remote;
    driver d;
    start(&d, "model", &w);
    run(&d, &w, 60);
    assert_true(readers(&d.knobs) >= 30);
    w.io_rate = 200;
    run(&d, &w, 600);
    assert_reaches(&d, &w, 0.95);
    return readers(&d.knobs);
}

/* 6 would do for 200 samples a second, were it not for what is under way at nodes. */
static void model_keeps_some_readers_of_storage_nodes(void **state)
{
    (void)state;
    assert_true(readers_when_a_source_slows_down(false) < 16);
    const double n = readers_when_a_source_slows_down(true);
    assert_true(n >= 64 && n < 128);
}

static void model_gives_back_when_the_loop_is_slower(void **state)
{
    (void)state;
    world w = usual();
    w.cores = 8;
    w.step_s = 0.2; /* 320 samples/s: 0.64 cores */
    driver d;
    start(&d, "model", &w);
    run(&d, &w, 20);
    assert_true(d.knobs.value[PEN_KNOB_WORKERS] <= 2);
    run(&d, &w, 300);
    assert_true(d.knobs.value[PEN_KNOB_WORKERS] == 1);
    assert_reaches(&d, &w, 0.99);
    w.step_s = 0.02; /* and takes it again: 3200/s, 6.4 cores */
    run(&d, &w, 20);
    assert_reaches(&d, &w, 0.95);
    w.step_s = 0.2;
    run(&d, &w, 60);
    assert_true(d.knobs.value[PEN_KNOB_WORKERS] <= 2);
}

static void model_follows_a_source_that_changes(void **state)
{
    (void)state;
    world w = usual();
    w.noise = 0.02;
    driver d;
    start(&d, "model", &w);
    for (int round = 0; round < 4; round++) {
        static const double read_s[] = {0.03, 5e-5, 0.03, 0.08};
        w.read_s = read_s[round];
        run(&d, &w, 40);
        assert_reaches(&d, &w, 0.9);
    }
}

static void model_is_calm_when_steps_come_in_bursts(void **state)
{
    (void)state;
    static const bursts loops[] = {
        {.slow_s = 1.5, .fast_s = 0.35, .n_each = 6},  {.slow_s = 1.5, .fast_s = 0.35, .n_each = 3},
        {.slow_s = 1.5, .fast_s = 0.35, .n_each = 12}, {.slow_s = 4, .fast_s = 0.4, .n_each = 4},
        {.slow_s = 0.8, .fast_s = 0.4, .n_each = 20},
    };
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
        driver d;
        const double fixed = burst_for("fixed", &loops[i], 6000, &d);
        const double waited = burst_for("model", &loops[i], 6000, &d);
        if (d.n_changes >= 20 || waited > fixed + 0.01)
            fail_msg("loop %zu: %d changes, waiting %.4f, fixed %.4f", i, d.n_changes, waited,
                     fixed);
    }
}

/* Nothing is waited for inside a step: that proves nothing about fewer threads. */
static void model_keeps_nothing_back_because_of_one_long_step(void **state)
{
    (void)state;
    world w = usual();
    w.cores = 8;
    w.step_s = 0.2;
    driver d;
    start(&d, "model", &w);
    while (d.knobs.value[PEN_KNOB_WORKERS] == 8)
        run(&d, &w, 1);
    for (int i = 0; i < 2000; i++) {
        pen_policy_state s = look(&w, &d);
        s.batches = s.samples = s.made = s.wait_share = 0;
        s.step_s = s.step_cv = NAN;
        ask(&d, &s);
        assert_null(strstr(d.reason, "stay"));
        if (d.knobs.value[PEN_KNOB_WORKERS] == 8)
            break;
    }
    assert_true(d.knobs.value[PEN_KNOB_WORKERS] == 8); /* taken back in the end */
}

static void model_takes_no_ready_batches_of_which_nothing_is_known(void **state)
{
    (void)state;
    world w = usual();
    w.step_s = 0.2;
    driver d;
    start(&d, "model", &w);
    d.knobs.value[PEN_KNOB_READY_BATCHES] = 9;
    for (int i = 0; i < 300; i++) {
        pen_policy_state s = look(&w, &d);
        s.batch_s = s.batch_p95_s = NAN;
        ask(&d, &s);
        assert_true(d.knobs.value[PEN_KNOB_READY_BATCHES] == 9);
    }
    run(&d, &w, 300);
    assert_true(d.knobs.value[PEN_KNOB_READY_BATCHES] < 9); /* now something is */
}

static void model_does_not_try_to_outnumber_a_hypervisor(void **state)
{
    (void)state;
    world w = usual();
    driver d;
    start(&d, "model", &w);
    for (int i = 0; i < 300; i++) {
        pen_policy_state s = look(&w, &d);
        s.steal = i / 50 % 2 ? 0.3 : 0;
        ask(&d, &s);
        assert_true(d.knobs.value[PEN_KNOB_WORKERS] <= 2);
    }
}

static void model_does_not_take_noise_for_a_new_world(void **state)
{
    (void)state;
    world w = usual(); /* the cores are the limit; rivals make it try fewer and more, in vain */
    driver d;
    start(&d, "model", &w);
    for (int i = 0; i < 6000; i++) {
        pen_policy_state s = look(&w, &d);
        s.other_cores = 1;
        s.decode_s *= 1 + 0.4 * draw(&w);
        s.step_s *= 1 + 0.4 * draw(&w);
        ask(&d, &s);
    }
    if (d.n_changes > 80) /* holds of 2, 4 .. 64 s: some 15 trials of each */
        fail_msg("%d changes", d.n_changes);
}

static void model_restores_io_when_readers_go(void **state)
{
    (void)state;
    world w = usual();
    w.read_s = 0.004; /* few readers are enough */
    driver d;
    start(&d, "model", &w);
    d.knobs.value[PEN_KNOB_IO] = 64;
    run(&d, &w, 200);
    assert_true(readers(&d.knobs) > 0 && d.knobs.value[PEN_KNOB_IO] < 64);
    w.read_s = 5e-5;
    w.step_s = 0.2;
    run(&d, &w, 600);
    assert_true(readers(&d.knobs) == 0);
    assert_true(d.knobs.value[PEN_KNOB_IO] == 64);
}

static void model_outnumbers_rivals_only_while_that_pays(void **state)
{
    (void)state;
    world w = usual();
    w.rivals = 2;
    driver d;
    start(&d, "model", &w);
    run(&d, &w, 60);
    assert_true(d.knobs.value[PEN_KNOB_WORKERS] > 2);
    assert_reaches(&d, &w, 0.95);
}

static void model_does_not_outnumber_its_own_ranks(void **state)
{
    (void)state;
    world w = usual();
    w.rivals = 2;
    w.ranks = 2;
    driver d;
    start(&d, "model", &w);
    for (int i = 0; i < 60; i++) {
        run(&d, &w, 1);
        assert_true(d.knobs.value[PEN_KNOB_WORKERS] <= 2);
    }
}

static void model_leaves_pinned_knobs_alone(void **state)
{
    (void)state;
    world w = usual();
    w.read_s = 0.03;
    driver d;
    start(&d, "model", &w);
    for (int i = 0; i < PEN_KNOB_COUNT; i++)
        d.table[i].is_pinned = true;
    const pen_knobs before = d.knobs;
    for (int i = 0; i < 100; i++) {
        run(&d, &w, 1);
        assert_int_equal(strlen(d.reason), 0); /* nothing is tried that cannot be */
    }
    assert_memory_equal(&before, &d.knobs, sizeof before);
}

static void model_takes_the_first_wait_for_what_it_is(void **state)
{
    (void)state;
    world w = usual();
    w.step_s = 0.2;
    w.rivals = 2; /* an excuse to try more workers than cores */
    driver d;
    start(&d, "model", &w);
    for (int i = 0; i < 12; i++) {
        pen_policy_state s = look(&w, &d);
        s.wait_share = 1; /* nothing is delivered yet */
        s.batches = s.samples = 0;
        s.step_s = s.step_cv = NAN;
        pen_knobs wanted = d.knobs;
        d.policy->decide(d.memory, &s, d.table, &wanted, d.reason);
        assert_memory_equal(&wanted, &d.knobs, sizeof wanted);
    }
    run(&d, &w, 100);
    assert_true(d.knobs.value[PEN_KNOB_WORKERS] <= 2);
}

static void a_validation_between_epochs_changes_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"rules", "hillclimb", "model"};
    for (int i = 0; i < 3; i++) {
        world w = usual();
        w.step_s = 0.128; /* both cores are just enough */
        driver d;
        start(&d, names[i], &w);
        run(&d, &w, 300);
        char memory[sizeof d.memory];
        memcpy(memory, d.memory, sizeof memory);
        for (int n = 0; n < 100; n++) {
            pen_policy_state s = look(&w, &d);
            s.away = 1;
            s.wait_share = s.made = s.samples = s.batches = 0;
            pen_knobs wanted = d.knobs;
            d.policy->decide(d.memory, &s, d.table, &wanted, d.reason);
            assert_memory_equal(&wanted, &d.knobs, sizeof wanted);
        }
        assert_memory_equal(memory, d.memory, sizeof memory);
    }
}

static void model_settles(void **state)
{
    (void)state;
    world w = usual();
    w.noise = 0.01;
    w.read_s = 0.03;
    driver d;
    start(&d, "model", &w);
    run(&d, &w, 200);
    d.n_changes = 0;
    run(&d, &w, 1000);
    assert_true(d.n_changes < 100); /* holds grow: some trials, ever fewer */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_stays_where_the_cores_are_the_limit),
        cmocka_unit_test(model_reads_ahead_where_reading_is_slow),
        cmocka_unit_test(model_does_not_flood_a_source_at_its_limit),
        cmocka_unit_test(model_keeps_some_readers_of_storage_nodes),
        cmocka_unit_test(model_gives_back_when_the_loop_is_slower),
        cmocka_unit_test(model_follows_a_source_that_changes),
        cmocka_unit_test(model_is_calm_when_steps_come_in_bursts),
        cmocka_unit_test(model_keeps_nothing_back_because_of_one_long_step),
        cmocka_unit_test(model_takes_no_ready_batches_of_which_nothing_is_known),
        cmocka_unit_test(model_does_not_take_noise_for_a_new_world),
        cmocka_unit_test(model_restores_io_when_readers_go),
        cmocka_unit_test(model_outnumbers_rivals_only_while_that_pays),
        cmocka_unit_test(model_does_not_outnumber_its_own_ranks),
        cmocka_unit_test(model_does_not_try_to_outnumber_a_hypervisor),
        cmocka_unit_test(model_leaves_pinned_knobs_alone),
        cmocka_unit_test(model_takes_the_first_wait_for_what_it_is),
        cmocka_unit_test(a_validation_between_epochs_changes_nothing),
        cmocka_unit_test(model_settles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
