/* test_loader_shares.c - shares of stages in a loader: whose turn it is, and nothing else. */
#include "testing.h"

#include <sched.h>
#include <unistd.h>

#include "engine/loader_impl.h"
#include "loading.h"

enum { EPOCHS = 3 };

static const pen_knob share_knobs[4] = {PEN_KNOB_SHARE_DECODE, PEN_KNOB_SHARE_AUGMENT,
                                        PEN_KNOB_SHARE_TOKENIZE, PEN_KNOB_SHARE_TRANSFER};

static void set_shares(pen_loader *loader, const double share[4])
{
    pen_knobs knobs;
    pen_error err;
    pen_knobs_init(&knobs);
    for (int i = 0; i < 4; i++)
        knobs.value[share_knobs[i]] = share[i];
    if (pen_loader_set_knobs(loader, &knobs, &err) != 0)
        fail_msg("%s", err.text);
}

/* As many workers as there may be: more than there are cores, so that they compete. */
static void set_many_workers(pen_loader *loader)
{
    pen_knob_info info;
    pen_knobs knobs;
    pen_knobs_init(&knobs);
    assert_int_equal(pen_loader_knob(loader, PEN_KNOB_WORKERS, &info), 0);
    knobs.value[PEN_KNOB_WORKERS] = info.max;
    assert_int_equal(pen_loader_set_knobs(loader, &knobs, NULL), 0);
}

static uint64_t hash_of_epochs(pen_loader *loader)
{
    uint64_t hash = 0;
    for (int i = 0; i < EPOCHS; i++)
        assert_int_equal(take(loader, 1000, &hash), BATCHES);
    return hash;
}

static uint64_t inline_hash(void)
{
    pen_loader_opts o = options(0);
    pen_loader *loader = open_loader(&o);
    const uint64_t hash = hash_of_epochs(loader);
    pen_loader_free(loader);
    return hash;
}

static void extreme_shares_change_no_byte_and_starve_no_stage(void **state)
{
    (void)state;
    static const double splits[][4] = {{1, 0, 0, 0},
                                       {0, 1, 0, 0},
                                       {0, 0, 1, 0},
                                       {0, 0, 0, 1},
                                       {0.997, 0.001, 0.001, 0.001},
                                       {0.001, 0.001, 0.001, 0.997},
                                       {0.25, 0.25, 0.25, 0.25}};
    const uint64_t want = inline_hash();
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        pen_loader_opts o = options(2);
        pen_loader *loader = open_loader(&o);
        set_many_workers(loader);
        set_shares(loader, splits[i]);
        assert_true(hash_of_epochs(loader) == want);
        pen_pipeline_stats s = PEN_PIPELINE_STATS_INIT;
        assert_int_equal(pen_loader_get_pipeline_stats(loader, &s), 0);
        for (int stage = PEN_STAGE_READ; stage <= PEN_STAGE_TENSOR; stage++)
            assert_true(s.stages[stage].count >= EPOCHS * PICTURES);
        pen_loader_free(loader);
    }
}

static int n_permits(pen_loader *loader)
{
    pthread_mutex_lock(&loader->shares.lock);
    const int n = loader->shares.n_permits;
    pthread_mutex_unlock(&loader->shares.lock);
    return n;
}

/* The calling thread may run on one core only, from now on; what it was allowed before. */
static cpu_set_t keep_one_core(void)
{
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    return before;
}

static void permits_are_for_the_cores_there_are_when_shares_are_set(void **state)
{
    (void)state;
    static const double even[4] = {0.25, 0.25, 0.25, 0.25};
    pen_loader_opts o = options(2);
    pen_loader *loader = open_loader(&o);
    const int at_first = n_permits(loader);
    const cpu_set_t before = keep_one_core();
    set_shares(loader, even);
    assert_int_equal(n_permits(loader), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    set_shares(loader, even);
    assert_int_equal(n_permits(loader), at_first);
    pen_loader_free(loader);
}

/* A policy that takes cores away from its own thread, which is the one that looks how many
 * there are. */
static void lose_cores(void *memory, const pen_policy_state *seen, const pen_knob_info *table,
                       pen_knobs *knobs, char *reason)
{
    (void)memory, (void)seen, (void)table, (void)knobs, (void)reason;
    keep_one_core();
}

static void permits_follow_the_cores_while_a_policy_runs(void **state)
{
    (void)state;
    static const double even[4] = {0.25, 0.25, 0.25, 0.25};
    static const pen_knob_policy loser = {.name = "loser", .decide = lose_cores};
    pen_loader_opts o = options(2);
    o.policy = &loser;
    o.period_ms = 1;
    pen_loader *loader = open_loader(&o);
    set_shares(loader, even);
    uint64_t hash = 0;
    assert_int_equal(take(loader, 1, &hash), 1); /* from now on it runs */
    while (n_permits(loader) != 1)
        usleep(1000);
    pen_loader_free(loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extreme_shares_change_no_byte_and_starve_no_stage),
        cmocka_unit_test(permits_are_for_the_cores_there_are_when_shares_are_set),
        cmocka_unit_test(permits_follow_the_cores_while_a_policy_runs),
    };
    return cmocka_run_group_tests(tests, make_world, unmake_world);
}
