/* test_node_share.c - whose sample is next on a storage node, and how much each job may use.
 *
 * Nodes are played: whoever is chosen works for as long as it says, and that is counted. */
#include "testing.h"

#include <math.h>

#include <penstock/error.h>

#include "base/mem.h"
#include "remote/node_share.h"

#define MS     ((int64_t)1000000)
#define SECOND (1000 * MS)

enum { MAX_REQUESTS = 32, N_CPUS = 2 };

static pen__share share;
static int64_t now_ns;
static const pen__share_limits limits = {N_CPUS, 0};

static int set_up(void **state)
{
    (void)state;
    now_ns = 5 * SECOND;
    return pen__share_init(&share, MAX_REQUESTS);
}

static int tear_down(void **state)
{
    (void)state;
    pen__share_fini(&share);
    return 0;
}

/* A job that always has samples waiting. */
typedef struct actor {
    pen__share_client *client;
    pen__job *job;
    int64_t cpu_ns, saved_bytes; /* of a sample */
    int64_t got_ns;
    int n_samples;
} actor;

/* `worth`: megabytes a second. */
static actor enter(pen__share_client *client, uint64_t key, int64_t cpu_ns, double worth)
{
    actor a = {.client = client, .cpu_ns = cpu_ns};
    a.saved_bytes = (int64_t)(worth * 1e6 * (double)cpu_ns / 1e9);
    a.job = pen__share_enter(&share, client, key, now_ns);
    return a;
}

/* The next turn of a thread, among all of them. */
static actor *serve(actor *actors, int n)
{
    actor *best = NULL;
    pen__contest contest = pen__share_contest(&share);
    for (int i = 0; i < n; i++)
        pen__contest_enter(&contest, actors[i].job);
    for (int i = 0; i < n; i++)
        if (pen__contest_prefers(&contest, actors[i].job, best ? best->job : NULL))
            best = &actors[i];
    assert_non_null(best);
    pen__share_take(&share, best->job, contest.turn);
    now_ns += best->cpu_ns / N_CPUS;
    pen__share_used(&share, best->job, contest.turn, best->cpu_ns, best->saved_bytes, now_ns);
    best->got_ns += best->cpu_ns;
    best->n_samples++;
    return best;
}

static void serve_for(actor *actors, int n, int64_t cpu_ns)
{
    for (int i = 0; i < n; i++)
        actors[i].got_ns = actors[i].n_samples = 0;
    for (int64_t left = cpu_ns; left > 0;)
        left -= serve(actors, n)->cpu_ns;
}

static double part_of(const actor *a, int64_t all_ns)
{
    return (double)a->got_ns / (double)all_ns;
}

static void assert_about(double is, double wanted)
{
    if (!(fabs(is - wanted) < 0.02))
        fail_msg("%g instead of %g", is, wanted);
}

/* ---- who is next ---- */

static void each_client_has_its_minimum_and_the_best_job_the_rest(void **state)
{
    (void)state;
    pen__share_client clients[3] = {{0}};
    actor actors[3] = {enter(&clients[0], 1, 7 * MS, 1), enter(&clients[1], 2, MS, 100),
                       enter(&clients[2], 3, 3 * MS, 10)};
    serve_for(actors, 3, 30 * SECOND);
    assert_about(part_of(&actors[0], 30 * SECOND), 1.0 / 6);
    assert_about(part_of(&actors[1], 30 * SECOND), 1.0 / 6 + 0.5);
    assert_about(part_of(&actors[2], 30 * SECOND), 1.0 / 6);
}

/* Samples that take long: threads that come before the first is done do not all go to one address.
 */
static void threads_spread_before_anything_is_done(void **state)
{
    (void)state;
    pen__share_client clients[3] = {{0}};
    actor actors[3] = {enter(&clients[0], 1, MS, 1), enter(&clients[1], 2, MS, 1),
                       enter(&clients[2], 3, MS, 1)};
    for (int i = 0; i < 6; i++) {
        const pen__contest contest = {PEN__TURN_FAIR, -INFINITY};
        actor *best = NULL;
        for (int k = 0; k < 3; k++)
            if (pen__contest_prefers(&contest, actors[k].job, best ? best->job : NULL))
                best = &actors[k];
        pen__share_take(&share, best->job, contest.turn);
        best->n_samples++;
    }
    for (int k = 0; k < 3; k++)
        assert_int_equal(actors[k].n_samples, 2);
}

static void the_next_best_has_what_the_best_does_not_want(void **state)
{
    (void)state;
    pen__share_client clients[3] = {{0}};
    actor actors[3] = {enter(&clients[0], 1, MS, 100), enter(&clients[1], 2, MS, 10),
                       enter(&clients[2], 3, MS, 1)};
    serve_for(actors, 3, SECOND); /* all are known */
    serve_for(actors + 1, 2, 30 * SECOND);
    assert_about(part_of(&actors[1], 30 * SECOND), 0.75);
    assert_about(part_of(&actors[2], 30 * SECOND), 0.25);
}

static void jobs_that_save_about_the_same_get_the_same(void **state)
{
    (void)state;
    pen__share_client clients[2] = {{0}};
    actor actors[2] = {enter(&clients[0], 1, 2 * MS, 10), enter(&clients[1], 2, 5 * MS, 9)};
    serve_for(actors, 2, 20 * SECOND);
    assert_about(part_of(&actors[0], 20 * SECOND), 0.5);
}

static void work_that_makes_samples_larger_has_its_minimum_too(void **state)
{
    (void)state;
    pen__share_client clients[2] = {{0}};
    actor actors[2] = {enter(&clients[0], 1, MS, -50), enter(&clients[1], 2, MS, 0)};
    serve_for(actors, 2, 10 * SECOND);
    assert_about(part_of(&actors[0], 10 * SECOND), 0.25);
}

static void jobs_of_one_client_share_what_it_gets(void **state)
{
    (void)state;
    pen__share_client clients[2] = {{0}};
    actor actors[9];
    for (int i = 0; i < 8; i++)
        actors[i] = enter(&clients[0], 10 + (uint64_t)i, MS, 10);
    actors[8] = enter(&clients[1], 1, MS, 10);
    serve_for(actors, 9, 20 * SECOND);
    assert_about(part_of(&actors[8], 20 * SECOND), 0.5);
    for (int i = 0; i < 8; i++)
        assert_about(part_of(&actors[i], 20 * SECOND), 0.5 / 8);
}

/* A job for each sample: each is new, and so would be served before those that had much. */
static void inventing_jobs_gains_nothing(void **state)
{
    (void)state;
    pen__share_client clients[2] = {{0}};
    int64_t invented_ns = 0, all_ns = 0;
    actor actors[2] = {{0}, enter(&clients[1], 1, MS, 10)};
    for (uint64_t key = 100; all_ns < 20 * SECOND; key++) {
        actors[0] = enter(&clients[0], key, MS, 10);
        const actor *served = serve(actors, 2);
        invented_ns += served == &actors[0] ? MS : 0;
        all_ns += MS;
        pen__share_leave(actors[0].job, now_ns);
    }
    assert_true(invented_ns > all_ns / 5); /* its minimum is a quarter */
    assert_true(invented_ns <= all_ns / 2);
    assert_true(share.n <= PEN__SHARE_PER_CLIENT + 1);
}

/* Half of the time is not made up for at one go. */
static void samples_that_take_seconds_do_not_starve_others(void **state)
{
    (void)state;
    pen__share_client clients[3] = {{0}};
    actor actors[3] = {enter(&clients[0], 1, 5 * SECOND, 1), enter(&clients[1], 2, MS, 100),
                       enter(&clients[2], 3, MS, 10)};
    serve_for(actors + 1, 2, SECOND);
    while (serve(actors, 3) != &actors[0]) /* a fair turn */
        ;
    serve_for(actors + 1, 2, SECOND);
    assert_true(part_of(&actors[2], SECOND) > 0.2);
    serve_for(actors, 3, 100 * SECOND);
    for (int i = 0; i < 3; i++)
        assert_true(part_of(&actors[i], 100 * SECOND) > 1.0 / 6 - 0.05);
}

static void whoever_waits_is_served(void **state)
{
    (void)state;
    pen__share_client clients[2] = {{0}};
    actor actors[2] = {enter(&clients[0], 1, MS, 100), enter(&clients[1], 2, MS, 1)};
    serve_for(actors, 2, SECOND);
    for (int i = 0; i < 100; i++) /* in turns of either kind */
        assert_ptr_equal(serve(&actors[1], 1), &actors[1]);
}

static void who_was_away_has_saved_nothing_up(void **state)
{
    (void)state;
    pen__share_client clients[3] = {{0}};
    actor actors[3] = {enter(&clients[0], 1, MS, 10), enter(&clients[1], 2, MS, 10),
                       enter(&clients[2], 3, MS, 10)};
    serve_for(actors, 2, SECOND);
    serve_for(actors, 1, 20 * SECOND);
    serve_for(actors, 3, 6 * SECOND); /* one was away, one is new */
    for (int i = 0; i < 3; i++)
        assert_about(part_of(&actors[i], 6 * SECOND), 1.0 / 3);
}

static void what_a_job_saves_is_learned_anew(void **state)
{
    (void)state;
    pen__share_client clients[2] = {{0}};
    actor actors[2] = {enter(&clients[0], 1, MS, 100), enter(&clients[1], 2, MS, 10)};
    serve_for(actors, 2, 10 * SECOND);
    assert_true(pen__job_worth(actors[0].job) > pen__job_worth(actors[1].job));
    actors[0].saved_bytes = 0;
    serve_for(actors, 2, 20 * SECOND); /* ten seconds on two processors */
    serve_for(actors, 2, 10 * SECOND);
    assert_about(part_of(&actors[1], 10 * SECOND), 0.75);
}

/* ---- the table ---- */

static void the_table_has_bounds(void **state)
{
    (void)state;
    pen__share_client many = {0}, other = {0}, last = {0};
    pen__job *jobs[1000];
    for (uint64_t i = 0; i < 1000; i++)
        jobs[i] = pen__share_enter(&share, &many, i, now_ns);
    assert_int_equal(share.n, PEN__SHARE_PER_CLIENT);
    pen__job *job = pen__share_enter(&share, &other, 1, now_ns);
    assert_ptr_equal(job->client, &other);
    assert_int_equal(share.n, PEN__SHARE_PER_CLIENT + 1);
    for (uint64_t i = 2; share.n < share.cap; i++)
        pen__share_enter(&share, &other, i, now_ns);
    assert_non_null(pen__share_enter(&share, &last, 1, now_ns)); /* more than was said */
    for (int i = 0; i < 1000; i++)
        pen__share_leave(jobs[i], now_ns);
    pen__share_client fresh = {0};
    assert_ptr_equal(pen__share_enter(&share, &fresh, 1, now_ns)->client, &fresh);
}

static void a_job_that_comes_back_is_known(void **state)
{
    (void)state;
    pen__share_client clients[2] = {{0}};
    actor a = enter(&clients[0], 7, MS, 10);
    serve_for(&a, 1, SECOND);
    pen__share_leave(a.job, now_ns);
    assert_int_equal(a.job->n_open, 0);
    assert_ptr_equal(pen__share_enter(&share, &clients[0], 7, now_ns), a.job);
    assert_true(a.job->cpu_s > 0);
    pen__job *other = pen__share_enter(&share, &clients[1], 7, now_ns);
    assert_ptr_not_equal(other, a.job);
    assert_true(other->cpu_s == 0);
}

static void no_memory_is_said(void **state)
{
    (void)state;
    pen__share lost = {0};
    pen__mem_fail_at(1);
    assert_int_equal(pen__share_init(&lost, 4), PEN_ENOMEM);
    pen__mem_fail_at(0);
    pen__share_fini(&lost);
}

/* ---- what each may use ---- */

static double cores(const actor *a)
{
    return pen__share_cores(&share, a->job, &limits, now_ns);
}

static void a_job_alone_may_use_everything(void **state)
{
    (void)state;
    pen__share_client client = {0};
    actor a = enter(&client, 1, MS, 10);
    assert_about(cores(&a), 2);
    serve_for(&a, 1, 20 * SECOND);
    assert_about(cores(&a), 2);
}

static void what_jobs_may_use_is_what_they_get(void **state)
{
    (void)state;
    pen__share_client clients[3] = {{0}};
    actor actors[3] = {enter(&clients[0], 1, MS, 100), enter(&clients[1], 2, MS, 10),
                       enter(&clients[2], 3, MS, 1)};
    serve_for(actors, 3, 40 * SECOND);
    for (int i = 0; i < 3; i++)
        if (fabs(cores(&actors[i]) - N_CPUS * part_of(&actors[i], 40 * SECOND)) > 0.1)
            fail_msg("job %d: %g", i, cores(&actors[i]));
}

static void equals_may_use_equal_parts(void **state)
{
    (void)state;
    pen__share_client clients[2] = {{0}};
    actor actors[3] = {enter(&clients[0], 1, MS, 10), enter(&clients[0], 2, MS, 10.5),
                       enter(&clients[1], 3, MS, 11)};
    serve_for(actors, 3, 40 * SECOND);
    assert_true(fabs(cores(&actors[0]) - 0.5) < 0.1); /* of a client with two jobs */
    assert_true(fabs(cores(&actors[1]) - 0.5) < 0.1);
    assert_true(fabs(cores(&actors[2]) - 1) < 0.1);
}

static void what_is_not_used_is_left_to_others(void **state)
{
    (void)state;
    pen__share_client clients[2] = {{0}};
    actor actors[2] = {enter(&clients[0], 1, MS, 100), enter(&clients[1], 2, MS, 1)};
    serve_for(actors, 2, 20 * SECOND);
    assert_true(cores(&actors[1]) < 0.6);
    now_ns += 10 * SECOND; /* the best has its requests open and wants nothing */
    assert_about(cores(&actors[1]), 2);
    assert_about(cores(&actors[0]), 2);
}

static void a_limit_of_clients_holds(void **state)
{
    (void)state;
    pen__share_client client = {0};
    const pen__share_limits half = {N_CPUS, 0.5};
    actor a = enter(&client, 1, MS, 10);
    assert_about(pen__share_cores(&share, a.job, &half, now_ns), 0.5);
    enter(&client, 2, MS, 10);
    assert_about(pen__share_cores(&share, a.job, &half, now_ns), 0.25);
}

static void jobs_that_left_are_there_for_a_while(void **state)
{
    (void)state;
    pen__share_client clients[2] = {{0}};
    assert_int_equal(pen__share_sum_up(&share, &limits, now_ns).jobs, 0);
    actor a = enter(&clients[0], 1, MS, 10), b = enter(&clients[1], 2, MS, 10);
    enter(&clients[1], 3, MS, 10);
    pen__share_leave(a.job, now_ns);
    pen__share_sums sums = pen__share_sum_up(&share, &limits, now_ns + SECOND);
    assert_int_equal(sums.jobs, 3);
    assert_int_equal(sums.clients, 2);
    assert_about(sums.fair_cores, N_CPUS / 2.0 / 2 / 2);
    pen__share_leave(b.job, now_ns);
    sums = pen__share_sum_up(&share, &limits, now_ns + 3 * SECOND);
    assert_int_equal(sums.jobs, 1);
    assert_int_equal(sums.clients, 1);
    assert_about(sums.fair_cores, N_CPUS / 2.0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(each_client_has_its_minimum_and_the_best_job_the_rest),
        CASE(threads_spread_before_anything_is_done),
        CASE(the_next_best_has_what_the_best_does_not_want),
        CASE(jobs_that_save_about_the_same_get_the_same),
        CASE(work_that_makes_samples_larger_has_its_minimum_too),
        CASE(jobs_of_one_client_share_what_it_gets),
        CASE(inventing_jobs_gains_nothing),
        CASE(samples_that_take_seconds_do_not_starve_others),
        CASE(whoever_waits_is_served),
        CASE(who_was_away_has_saved_nothing_up),
        CASE(what_a_job_saves_is_learned_anew),
        CASE(the_table_has_bounds),
        CASE(a_job_that_comes_back_is_known),
        CASE(no_memory_is_said),
        CASE(a_job_alone_may_use_everything),
        CASE(what_jobs_may_use_is_what_they_get),
        CASE(equals_may_use_equal_parts),
        CASE(what_is_not_used_is_left_to_others),
        CASE(a_limit_of_clients_holds),
        CASE(jobs_that_left_are_there_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
