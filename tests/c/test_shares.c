/* test_shares.c - permits by weighted deficit, and the gate for readers. */
#include "testing.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "sched/gate.h"
#include "sched/pool.h"
#include "sched/shares.h"

static const double off[4] = {0}, even[4] = {0.5, 0.5, 0, 0};

static void without_weights_nobody_needs_a_permit(void **state)
{
    (void)state;
    pen__shares s;
    pen__shares_init(&s, 1);
    for (int i = 0; i < 10; i++)
        assert_false(pen__shares_enter(&s, i % 4));
    pen__shares_set(&s, even);
    assert_true(pen__shares_enter(&s, 0));
    pen__shares_set(&s, off);
    assert_false(pen__shares_enter(&s, 1));
    pen__shares_leave(&s, 0, 5); /* a permit from before is still given back */
    pen__shares_set(&s, even);
    assert_true(pen__shares_enter(&s, 1));
    pen__shares_leave(&s, 1, 5);
    pen__shares_fini(&s);
}

typedef struct contest {
    pen__shares shares;
    _Atomic int64_t turns[4];
    _Atomic int n_inside, most;
    _Atomic int64_t left;
} contest;

/* Two threads a stage ask for permits; time is what they say it is. */
static void compete(void *ctx, int index)
{
    contest *c = ctx;
    const int stage = index / 3;
    while (atomic_fetch_sub(&c->left, 1) > 0) {
        assert_true(pen__shares_enter(&c->shares, stage));
        int n = atomic_fetch_add(&c->n_inside, 1) + 1, most = c->most;
        while (n > most && !atomic_compare_exchange_weak(&c->most, &most, n)) {
        }
        atomic_fetch_add(&c->turns[stage], 1);
        for (volatile int spin = 0; spin < 300; spin++) {
        }
        atomic_fetch_sub(&c->n_inside, 1);
        pen__shares_leave(&c->shares, stage, 1000);
    }
}

static void permits_are_as_many_as_cores(void **state)
{
    (void)state;
    for (int permits = 1; permits <= 3; permits++) {
        contest c = {.left = 20000};
        pen__shares_init(&c.shares, permits);
        pen__shares_set(&c.shares, even);
        pen__pool *pool;
        assert_int_equal(pen__pool_start(&pool, 6, compete, &c), 0);
        pen__pool_join(pool);
        assert_true(c.most <= permits);
        assert_int_equal(c.turns[0] + c.turns[1], 20000);
        assert_int_equal(c.shares.n_held, 0);
        pen__shares_fini(&c.shares);
    }
}

static void a_stage_alone_has_all_the_time(void **state)
{
    (void)state;
    contest c = {.left = 5000};
    const double little[4] = {0.01, 0.99, 0, 0};
    pen__shares_init(&c.shares, 1);
    pen__shares_set(&c.shares, little);
    pen__pool *pool;
    assert_int_equal(pen__pool_start(&pool, 3, compete, &c), 0); /* all of stage 0 */
    pen__pool_join(pool);
    assert_int_equal(c.turns[0], 5000);
    pen__shares_fini(&c.shares);
}

/* Who waits when a permit is given back: deterministic, since both are known to wait. */
typedef struct queue {
    pen__shares shares;
    _Atomic int order[2], n;
} queue;

static void wait_in_queue(void *ctx, int index)
{
    queue *q = ctx;
    pen__shares_enter(&q->shares, index);
    q->order[atomic_fetch_add(&q->n, 1)] = index;
    pen__shares_leave(&q->shares, index, 1000);
}

static int n_waiting(pen__shares *s)
{
    pthread_mutex_lock(&s->lock);
    int n = s->n_waiting[0] + s->n_waiting[1];
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void the_stage_that_had_least_for_its_weight_is_next(void **state)
{
    (void)state;
    static const double weights[2][4] = {{0.9, 0.1, 0, 0}, {0.1, 0.9, 0, 0}};
    for (int favoured = 0; favoured < 2; favoured++) {
        queue q = {0};
        pen__shares_init(&q.shares, 1);
        pen__shares_set(&q.shares, weights[favoured]);
        for (int stage = 0; stage < 2; stage++) { /* each had the same time */
            assert_true(pen__shares_enter(&q.shares, stage));
            pen__shares_leave(&q.shares, stage, 1000000);
        }
        assert_true(pen__shares_enter(&q.shares, 2));
        pen__pool *pool;
        assert_int_equal(pen__pool_start(&pool, 2, wait_in_queue, &q), 0);
        while (n_waiting(&q.shares) < 2) {
        }
        pen__shares_leave(&q.shares, 2, 1);
        pen__pool_join(pool);
        assert_int_equal(q.order[0], favoured);
        pen__shares_fini(&q.shares);
    }
}

/* A race with one permit, in which time is what the holder says it was.  Whoever holds it waits
 * until all others ask, so who is next follows from weights and times alone. */
typedef struct race {
    pen__shares shares;
    _Atomic int n_alive;
    int left;          /* turns; the holder's, as is the rest */
    double cost_ns[4]; /* of a turn of each stage */
    double ns[4];      /* that each has had */
} race;

static int n_waiting_all(pen__shares *s)
{
    int n = 0;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < PEN__SHARE_STAGES; i++)
        n += s->n_waiting[i];
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void take_turns(void *ctx, int index)
{
    race *r = ctx;
    const int stage = index / 2; /* two threads a stage */
    for (bool goes_on = true; goes_on;) {
        assert_true(pen__shares_enter(&r->shares, stage));
        while (n_waiting_all(&r->shares) < atomic_load(&r->n_alive) - 1)
            sched_yield();
        goes_on = r->left > 0;
        r->left -= goes_on;
        r->ns[stage] += goes_on ? r->cost_ns[stage] : 0;
        if (!goes_on)
            atomic_fetch_sub(&r->n_alive, 1);
        pen__shares_leave(&r->shares, stage, goes_on ? (int64_t)r->cost_ns[stage] : 0);
    }
}

/* What each of the first stages had of the time, after turns that take as long as they take. */
static void run_race(const double weight[4], int n_stages, int n_turns, double share[4])
{
    race r = {.n_alive = 2 * n_stages, .left = n_turns, .cost_ns = {1e6, 7e6, 3e6, 2e6}};
    pen__shares_init(&r.shares, 1);
    pen__shares_set(&r.shares, weight);
    pen__pool *pool;
    assert_int_equal(pen__pool_start(&pool, 2 * n_stages, take_turns, &r), 0);
    pen__pool_join(pool);
    const double all = r.ns[0] + r.ns[1] + r.ns[2] + r.ns[3];
    for (int i = 0; i < 4; i++)
        share[i] = r.ns[i] / all;
    pen__shares_fini(&r.shares);
}

/* Seconds of it, so that what was used has been halved many times on the way. */
static void in_the_long_run_time_is_shared_as_weights_are(void **state)
{
    (void)state;
    static const double weights[][4] = {
        {0.25, 0.25, 0.25, 0.25}, {0.1, 0.2, 0.3, 0.4}, {0.85, 0.05, 0.05, 0.05}};
    for (size_t w = 0; w < sizeof weights / sizeof weights[0]; w++) {
        double share[4];
        run_race(weights[w], 4, 3000, share);
        for (int i = 0; i < 4; i++)
            if (share[i] < weights[w][i] - 0.01 || share[i] > weights[w][i] + 0.01)
                fail_msg("stage %d had %.3f instead of %.3f", i, share[i], weights[w][i]);
    }
}

/* A share of nothing is not nothing: samples pass through all stages. */
static void a_stage_without_a_share_gets_on(void **state)
{
    (void)state;
    static const double all_to_one[4] = {1, 0, 0, 0};
    double share[4];
    run_race(all_to_one, 2, 10000, share);
    assert_true(share[1] > 0 && share[1] < 0.01);
}

/* Both directions, while permits are held: none is lost and none is left over. */
static void permits_may_change_while_they_are_held(void **state)
{
    (void)state;
    contest c = {.left = 50000};
    pen__shares_init(&c.shares, 3);
    pen__shares_set(&c.shares, even);
    pen__pool *pool;
    assert_int_equal(pen__pool_start(&pool, 6, compete, &c), 0);
    for (int i = 0; atomic_load(&c.left) > 0; i++)
        pen__shares_limit(&c.shares, i % 4); /* 0 is 1 */
    pen__pool_join(pool);
    assert_true(c.most <= 3);
    assert_int_equal(c.turns[0] + c.turns[1], 50000);
    assert_int_equal(c.shares.n_held, 0);
    pen__shares_fini(&c.shares);
}

typedef struct room {
    pen__gate gate;
    _Atomic int n_inside, most, left, limit_now;
} room;

static void go_through(void *ctx, int index)
{
    room *r = ctx;
    while (atomic_fetch_sub(&r->left, 1) > 0) {
        int ticket = pen__gate_enter(&r->gate);
        int n = atomic_fetch_add(&r->n_inside, 1) + 1, most = r->most;
        while (n > most && !atomic_compare_exchange_weak(&r->most, &most, n)) {
        }
        atomic_fetch_sub(&r->n_inside, 1);
        pen__gate_leave(&r->gate, ticket);
    }
    (void)index;
}

static void a_gate_lets_so_many_in(void **state)
{
    (void)state;
    for (int limit = 1; limit <= 4; limit++) {
        room r = {.left = 20000};
        pen__gate_init(&r.gate);
        pen__gate_limit(&r.gate, limit);
        pen__pool *pool;
        assert_int_equal(pen__pool_start(&pool, 6, go_through, &r), 0);
        pen__pool_join(pool);
        assert_true(r.most <= limit);
        assert_int_equal(r.gate.n_inside, 0);
        pen__gate_fini(&r.gate);
    }
}

static void a_gate_may_change_while_people_pass(void **state)
{
    (void)state;
    room r = {.left = 50000};
    pen__gate_init(&r.gate);
    pen__pool *pool;
    assert_int_equal(pen__pool_start(&pool, 4, go_through, &r), 0);
    for (int i = 0; atomic_load(&r.left) > 0; i++)
        pen__gate_limit(&r.gate, i % 4);
    pen__gate_limit(&r.gate, 1);
    pen__pool_join(pool);
    assert_int_equal(r.gate.n_inside, 0);
    pen__gate_fini(&r.gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_weights_nobody_needs_a_permit),
        cmocka_unit_test(permits_are_as_many_as_cores),
        cmocka_unit_test(a_stage_alone_has_all_the_time),
        cmocka_unit_test(the_stage_that_had_least_for_its_weight_is_next),
        cmocka_unit_test(in_the_long_run_time_is_shared_as_weights_are),
        cmocka_unit_test(a_stage_without_a_share_gets_on),
        cmocka_unit_test(permits_may_change_while_they_are_held),
        cmocka_unit_test(a_gate_lets_so_many_in),
        cmocka_unit_test(a_gate_may_change_while_people_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
