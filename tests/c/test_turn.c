/* test_turn.c - knobs: whatever they are turned to, and whenever, the bytes stay. */
#include "testing.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "loading.h"
#include "turning.h"

enum { TURNS = 3000 };

static uint64_t inline_hash(int64_t epoch)
{
    pen_loader_opts o = options(0);
    pen_loader *loader = open_loader(&o);
    uint64_t hash = 0;
    assert_int_equal(pen_loader_seek(loader, epoch, 0, NULL), 0);
    assert_int_equal(take(loader, 1000, &hash), BATCHES);
    pen_loader_free(loader);
    return hash;
}

static int set(pen_loader *loader, pen_knob knob, double value, pen_error *err)
{
    pen_knobs knobs;
    pen_knobs_init(&knobs);
    knobs.value[knob] = value;
    return pen_loader_set_knobs(loader, &knobs, err);
}

static double get(pen_loader *loader, pen_knob knob)
{
    pen_knobs knobs;
    assert_int_equal(pen_loader_get_knobs(loader, &knobs), 0);
    return knobs.value[knob];
}

typedef struct turner {
    pen_loader *loader;
    atomic_bool is_over;
    _Atomic int n_turns, n_faults;
    uint64_t random;
    double most[PEN_KNOB_COUNT]; /* that each was turned to */
} turner;

static void *turn_at_random(void *arg)
{
    turner *t = arg;
    while (!atomic_load(&t->is_over)) {
        pen_knobs knobs;
        draw_knobs(&t->random, t->loader, &knobs);
        if (pen_loader_set_knobs(t->loader, &knobs, NULL) != 0)
            atomic_fetch_add(&t->n_faults, 1);
        for (int i = 0; i < PEN_KNOB_COUNT; i++)
            t->most[i] = fmax(t->most[i], knobs.value[i]); /* NaN loses */
        atomic_fetch_add(&t->n_turns, 1);
        if (chance(&t->random) < 0.2)
            usleep(1 + (useconds_t)(chance(&t->random) * 300));
    }
    return NULL;
}

/* Every knob has been where it may be at most. */
static void assert_ends_were_met(const turner *t)
{
    for (int i = 0; i < PEN_KNOB_COUNT; i++) {
        pen_knob_info info;
        assert_int_equal(pen_loader_knob(t->loader, i, &info), 0);
        if (t->most[i] != info.max)
            fail_msg("%s went to %g of %g", info.name, t->most[i], info.max);
    }
}

/* Epochs 0 to 3 again and again, with knobs turning, until they were turned often. */
static void run_while_turning(int64_t budget, bool seeks)
{
    uint64_t want[4];
    for (int e = 0; e < 4; e++)
        want[e] = inline_hash(e);
    pen_loader_opts o = options(2);
    o.memory_budget = budget;
    turner t = {.loader = open_loader(&o), .random = 7};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, turn_at_random, &t), 0);
    int64_t n_epochs = 0;
    for (; t.n_turns < TURNS || n_epochs < 20; n_epochs++) {
        const int e = (int)(n_epochs % 4);
        uint64_t hash = 0;
        if (seeks && n_epochs % 3 == 2) { /* drop what is under way, read-ahead included */
            uint64_t part = 0;
            take(t.loader, 1 + (int)(n_epochs % 4), &part);
            assert_int_equal(pen_loader_seek(t.loader, e, 0, NULL), 0);
        }
        if (e == 0)
            assert_int_equal(pen_loader_seek(t.loader, 0, 0, NULL), 0);
        assert_int_equal(take(t.loader, 1000, &hash), BATCHES);
        assert_true(hash == want[e]);
        pen_loader_stats stats;
        pen_loader_get_stats(t.loader, &stats);
        assert_true(stats.budget_used <= stats.budget_bytes);
        assert_true(stats.budget_peak <= stats.budget_bytes);
    }
    atomic_store(&t.is_over, true);
    pthread_join(thread, NULL);
    assert_int_equal(t.n_faults, 0);
    assert_ends_were_met(&t);
    pen_loader_free(t.loader);
}

static void turning_all_knobs_at_random_changes_no_byte(void **state)
{
    (void)state;
    int64_t live = pen__mem_live();
    run_while_turning(0, false);
    assert_int_equal(pen__mem_live(), live);
}

static void seeking_meanwhile_changes_no_byte(void **state)
{
    (void)state;
    int64_t live = pen__mem_live();
    run_while_turning(0, true);
    assert_int_equal(pen__mem_live(), live);
}

static void a_budget_that_throttles_is_kept_meanwhile(void **state)
{
    (void)state;
    run_while_turning(720 * 1024, true);
}

static void a_fed_order_is_read_ahead_too(void **state)
{
    (void)state;
    uint64_t hash[2] = {0};
    for (int run = 0; run < 2; run++) {
        pen_loader_opts o = options(run ? 3 : 0);
        o.order = PEN_ORDER_FED;
        pen_loader *loader = open_loader(&o);
        if (run)
            assert_int_equal(set(loader, PEN_KNOB_READ_AHEAD, 9, NULL), 0);
        for (int b = 0; b < 30; b++) {
            const int64_t ids[3] = {b % PICTURES, (b * 7) % PICTURES, b % 3};
            assert_int_equal(pen_loader_feed(loader, ids, 3, NULL), 0);
        }
        assert_int_equal(take(loader, 30, &hash[run]), 30);
        pen_loader_free(loader);
    }
    assert_true(hash[0] == hash[1]);
}

static void bad_samples_are_the_same_with_readers(void **state)
{
    (void)state;
    const uint64_t want = inline_hash(0);
    pen_loader_opts o = options(2);
    pen_loader *loader = open_loader(&o);
    assert_int_equal(set(loader, PEN_KNOB_READ_AHEAD, 8, NULL), 0);
    lose_and_find_a_file(loader, want);
}

static void what_readers_bring_is_counted(void **state)
{
    (void)state;
    pen_loader_opts o = options(1);
    pen_loader *loader = open_loader(&o);
    assert_int_equal(set(loader, PEN_KNOB_READ_AHEAD, 8, NULL), 0);
    uint64_t hash = 0;
    for (int e = 0; e < 40; e++)
        assert_int_equal(take(loader, 1000, &hash), BATCHES);
    pen_pipeline_stats s = PEN_PIPELINE_STATS_INIT;
    assert_int_equal(pen_loader_get_pipeline_stats(loader, &s), 0);
    assert_int_equal(s.workers, 1);
    assert_int_equal(s.readers, 8);
    assert_true(s.stages[PEN_STAGE_READ].count >= 40 * PICTURES);
    assert_true(s.stages[PEN_STAGE_DECODE].count >= 40 * PICTURES);
    pen_loader_free(loader);
}

static void values_out_of_range_are_refused_and_nothing_is_set(void **state)
{
    (void)state;
    pen_loader_opts o = options(2);
    pen_loader *loader = open_loader(&o);
    pen_error err;
    assert_int_equal(set(loader, PEN_KNOB_WORKERS, 0, &err), PEN_EINVAL);
    assert_non_null(strstr(err.text, "workers"));
    assert_int_equal(set(loader, PEN_KNOB_WORKERS, 100000, &err), PEN_EINVAL);
    assert_int_equal(set(loader, PEN_KNOB_WORKERS, 1.5, &err), PEN_EINVAL);
    assert_int_equal(set(loader, PEN_KNOB_READY_BATCHES, 0, &err), PEN_EINVAL);
    assert_int_equal(set(loader, PEN_KNOB_IO, 0, &err), PEN_EINVAL);
    assert_int_equal(set(loader, PEN_KNOB_READ_AHEAD, -1, &err), PEN_EINVAL);
    assert_int_equal(set(loader, PEN_KNOB_IO, INFINITY, &err), PEN_EINVAL);
    assert_int_equal(set(loader, PEN_KNOB_SHARE_DECODE, 0.5, &err), PEN_EINVAL);
    assert_non_null(strstr(err.text, "shares"));
    pen_knobs knobs;
    pen_knobs_init(&knobs);
    knobs.value[PEN_KNOB_WORKERS] = 1;
    knobs.value[PEN_KNOB_IO] = -3;
    assert_int_equal(pen_loader_set_knobs(loader, &knobs, &err), PEN_EINVAL);
    assert_true(get(loader, PEN_KNOB_WORKERS) == 2);
    knobs.struct_size = 3;
    assert_int_equal(pen_loader_set_knobs(loader, &knobs, &err), PEN_EINVAL);
    pen_loader_free(loader);
}

static void the_table_names_every_knob_and_its_range(void **state)
{
    (void)state;
    pen_loader_opts o = options(2);
    pen_loader *loader = open_loader(&o);
    pen_knob_info info;
    for (int i = 0; i < PEN_KNOB_COUNT; i++) {
        assert_int_equal(pen_loader_knob(loader, i, &info), 0);
        assert_int_equal(pen_knob_find(info.name), i);
        assert_true(info.min <= info.max);
        assert_true(get(loader, (pen_knob)i) >= info.min && get(loader, (pen_knob)i) <= info.max);
        assert_int_equal(info.is_pinned, i == PEN_KNOB_WORKERS); /* named among the options */
        assert_int_equal(info.is_share, strncmp(info.name, "share_", 6) == 0);
        assert_int_equal(info.is_integer, !info.is_share && i != PEN_KNOB_OFFLOAD);
    }
    assert_int_equal(pen_knob_find("nothing"), -1);
    assert_int_equal(pen_loader_knob(loader, PEN_KNOB_COUNT, &info), PEN_EINVAL);
    assert_int_equal(set(loader, PEN_KNOB_IO, 3, NULL), 0);
    pen_loader_knob(loader, PEN_KNOB_IO, &info);
    assert_true(info.is_pinned);
    pen_loader_release_knobs(loader, UINT64_C(1) << PEN_KNOB_IO);
    pen_loader_knob(loader, PEN_KNOB_IO, &info);
    assert_false(info.is_pinned);
    pen_loader_free(loader);
}

static void an_inline_loader_stays_inline(void **state)
{
    (void)state;
    pen_loader_opts o = options(0);
    pen_loader *loader = open_loader(&o);
    assert_int_equal(set(loader, PEN_KNOB_WORKERS, 1, NULL), PEN_EINVAL);
    assert_int_equal(set(loader, PEN_KNOB_READ_AHEAD, 1, NULL), PEN_EINVAL);
    assert_int_equal(set(loader, PEN_KNOB_READY_BATCHES, 1, NULL), 0);
    uint64_t hash = 0;
    assert_int_equal(take(loader, 1000, &hash), BATCHES);
    assert_true(hash == inline_hash(0));
    pen_loader_free(loader);
}

static void memory_that_ends_anywhere_leaves_a_loader_that_works(void **state)
{
    (void)state;
    int64_t live = pen__mem_live();
    for (int n = 1; n < 12; n++) {
        pen_loader_opts o = options(1);
        pen_loader *loader = open_loader(&o);
        uint64_t hash = 0;
        take(loader, 2, &hash);
        pen_knobs knobs;
        pen_knobs_init(&knobs);
        pen_knob_info info;
        pen_loader_knob(loader, PEN_KNOB_WORKERS, &info);
        knobs.value[PEN_KNOB_WORKERS] = info.max;
        knobs.value[PEN_KNOB_READ_AHEAD] = 5;
        pen__mem_fail_at(n);
        int rc = pen_loader_set_knobs(loader, &knobs, NULL);
        pen__mem_fail_at(0);
        assert_true(rc == 0 || rc == PEN_ENOMEM);
        assert_int_equal(pen_loader_seek(loader, 0, 0, NULL), 0);
        hash = 0;
        assert_int_equal(take(loader, 1000, &hash), BATCHES);
        assert_true(hash == inline_hash(0));
        pen_loader_free(loader);
    }
    assert_int_equal(pen__mem_live(), live);
}

static void a_child_is_told_that_knobs_are_its_parents(void **state)
{
    (void)state;
    pen_loader_opts o = options(1);
    pen_loader *loader = open_loader(&o);
    pid_t child = fork();
    if (child == 0) {
        pen_knobs knobs;
        pen_pipeline_stats s = PEN_PIPELINE_STATS_INIT;
        bool is_refused = pen_loader_get_knobs(loader, &knobs) == PEN_EFORK &&
                          set(loader, PEN_KNOB_IO, 3, NULL) == PEN_EFORK &&
                          pen_loader_get_pipeline_stats(loader, &s) == PEN_EFORK &&
                          pen_loader_release_knobs(loader, 1) == PEN_EFORK;
        _exit(is_refused ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
    pen_loader_free(loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turning_all_knobs_at_random_changes_no_byte),
        cmocka_unit_test(seeking_meanwhile_changes_no_byte),
        cmocka_unit_test(a_budget_that_throttles_is_kept_meanwhile),
        cmocka_unit_test(a_fed_order_is_read_ahead_too),
        cmocka_unit_test(bad_samples_are_the_same_with_readers),
        cmocka_unit_test(what_readers_bring_is_counted),
        cmocka_unit_test(values_out_of_range_are_refused_and_nothing_is_set),
        cmocka_unit_test(the_table_names_every_knob_and_its_range),
        cmocka_unit_test(an_inline_loader_stays_inline),
        cmocka_unit_test(memory_that_ends_anywhere_leaves_a_loader_that_works),
        cmocka_unit_test(a_child_is_told_that_knobs_are_its_parents),
    };
    return cmocka_run_group_tests(tests, make_world, unmake_world);
}
