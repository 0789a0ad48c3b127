/* test_window.c - the reorder window, inline and with threads. */
#include "testing.h"

#include <penstock/error.h>

#include <stdatomic.h>

#include "base/mem.h"
#include "sched/pool.h"
#include "sched/window.h"

enum { SLOTS = 5, CAPACITY = 3, JOBS = 400 };

typedef struct fixture {
    pen__window *window;
    _Atomic int filled[JOBS + CAPACITY];
    int64_t n_opened, n_dropped;
    int fail_at;               /* seq whose opening fails, -1: none */
    _Atomic int64_t n_offered; /* jobs there are to open */
} fixture;

static int open_job(void *ctx, int64_t seq, void **payload)
{
    fixture *f = ctx;
    if (seq == f->fail_at)
        return PEN_ENOMEM;
    if (seq >= atomic_load(&f->n_offered))
        return 0;
    f->n_opened++;
    *payload = &f->filled[seq % (JOBS + CAPACITY)];
    return SLOTS;
}

static void drop_job(void *ctx, void *payload)
{
    (void)payload;
    ((fixture *)ctx)->n_dropped++;
}

static void work(void *ctx, int index)
{
    (void)index;
    fixture *f = ctx;
    pen__claim claim;
    while (pen__window_claim(f->window, true, &claim) == 0) {
        atomic_fetch_add((_Atomic int *)claim.payload, 1);
        pen__window_done(f->window, &claim);
    }
}

static void setup(fixture *f)
{
    memset(f, 0, sizeof *f);
    f->fail_at = -1;
    f->n_offered = INT64_MAX;
    assert_int_equal(pen__window_create(&f->window, CAPACITY, open_job, f), 0);
}

static void jobs_come_out_complete_and_in_order(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    pen__pool *pool;
    assert_int_equal(pen__pool_start(&pool, 4, work, &f), 0);
    for (int seq = 0; seq < JOBS; seq++) {
        void *payload;
        assert_int_equal(pen__window_take(f.window, -1, &payload), 0);
        assert_ptr_equal(payload, &f.filled[seq]);
        assert_int_equal(f.filled[seq], SLOTS);
    }
    pen__window_close(f.window);
    pen__pool_join(pool);
    assert_in_range(f.n_opened, JOBS, JOBS + CAPACITY);
    pen__window_free(f.window);
}

/* One slot of job 0 is held back: the others go on until the window is full. */
static void a_slow_slot_does_not_stall_the_others(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    pen__claim slow, claim;
    assert_int_equal(pen__window_claim(f.window, false, &slow), 0);
    int n = 0;
    while (pen__window_claim(f.window, false, &claim) == 0) {
        pen__window_done(f.window, &claim);
        n++;
    }
    assert_int_equal(n, CAPACITY * SLOTS - 1);
    void *payload;
    assert_int_equal(pen__window_take(f.window, 0, &payload), PEN_AGAIN);
    assert_int_equal(pen__window_ready_count(f.window), CAPACITY - 1);
    pen__window_done(f.window, &slow);
    assert_int_equal(pen__window_take(f.window, 0, &payload), 0);
    assert_int_equal(pen__window_claim(f.window, false, &claim), 0); /* room again */
    pen__window_done(f.window, &claim);
    pen__window_free(f.window);
}

static void pausing_drops_everything_and_starts_again_at_zero(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    pen__claim claim;
    for (int i = 0; i < SLOTS + 2; i++) {
        assert_int_equal(pen__window_claim(f.window, false, &claim), 0);
        pen__window_done(f.window, &claim);
    }
    pen__window_pause(f.window, drop_job);
    assert_int_equal(f.n_dropped, 2);
    assert_int_equal(pen__window_claim(f.window, false, &claim), PEN_AGAIN);
    pen__window_resume(f.window);
    assert_int_equal(pen__window_claim(f.window, false, &claim), 0);
    assert_int_equal(claim.seq, 0);
    pen__window_done(f.window, &claim);
    pen__window_free(f.window);
}

static void pausing_under_load_waits_for_busy_slots(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    pen__pool *pool;
    assert_int_equal(pen__pool_start(&pool, 4, work, &f), 0);
    for (int round = 0; round < 50; round++) {
        void *payload;
        assert_int_equal(pen__window_take(f.window, -1, &payload), 0);
        pen__window_pause(f.window, drop_job);
        for (int i = 0; i < JOBS + CAPACITY; i++)
            atomic_store(&f.filled[i], 0); /* nobody is busy: this cannot race */
        pen__window_resume(f.window);
    }
    pen__window_close(f.window);
    pen__pool_join(pool);
    pen__window_free(f.window);
}

static void a_failed_opening_is_reported_after_the_jobs_before_it(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    f.fail_at = 1;
    pen__claim claim;
    while (pen__window_claim(f.window, false, &claim) == 0)
        pen__window_done(f.window, &claim);
    void *payload;
    assert_int_equal(pen__window_take(f.window, -1, &payload), 0);
    assert_int_equal(pen__window_take(f.window, -1, &payload), PEN_ENOMEM);
    f.fail_at = -1;
    pen__window_pause(f.window, drop_job);
    pen__window_resume(f.window);
    assert_int_equal(pen__window_claim(f.window, false, &claim), 0);
    pen__window_done(f.window, &claim);
    pen__window_free(f.window);
}

static void workers_wait_until_they_are_told_of_a_job(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    f.n_offered = 0;
    pen__claim claim;
    assert_int_equal(pen__window_claim(f.window, false, &claim), PEN_AGAIN);
    pen__pool *pool;
    assert_int_equal(pen__pool_start(&pool, 3, work, &f), 0);
    for (int64_t job = 0; job < 50; job++) {
        void *payload = NULL;
        assert_int_equal(pen__window_take(f.window, 0, &payload), PEN_AGAIN);
        atomic_fetch_add(&f.n_offered, 1);
        pen__window_poke(f.window);
        assert_int_equal(pen__window_take(f.window, -1, &payload), 0);
        assert_ptr_equal(payload, &f.filled[job]);
        assert_int_equal(f.filled[job], SLOTS);
    }
    pen__window_close(f.window);
    pen__pool_join(pool);
    pen__window_free(f.window);
}

static void closing_sends_everybody_home(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    pen__pool *pool;
    assert_int_equal(pen__pool_start(&pool, 3, work, &f), 0);
    pen__window_close(f.window);
    pen__pool_join(pool);
    void *payload;
    pen__claim claim;
    assert_int_equal(pen__window_claim(f.window, true, &claim), PEN_END);
    while (pen__window_take(f.window, -1, &payload) == 0) {
    }
    pen__window_free(f.window);
}

static void failed_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    int64_t before = pen__mem_live();
    pen__window *window;
    pen__pool *pool;
    pen__mem_fail_at(1);
    assert_int_equal(pen__window_create(&window, 3, open_job, NULL), PEN_ENOMEM);
    pen__mem_fail_at(1);
    assert_int_equal(pen__pool_start(&pool, 3, work, NULL), PEN_ENOMEM);
    pen__mem_fail_at(0);
    assert_int_equal(pen__mem_live(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_come_out_complete_and_in_order),
        cmocka_unit_test(a_slow_slot_does_not_stall_the_others),
        cmocka_unit_test(pausing_drops_everything_and_starts_again_at_zero),
        cmocka_unit_test(pausing_under_load_waits_for_busy_slots),
        cmocka_unit_test(a_failed_opening_is_reported_after_the_jobs_before_it),
        cmocka_unit_test(workers_wait_until_they_are_told_of_a_job),
        cmocka_unit_test(closing_sends_everybody_home),
        cmocka_unit_test(failed_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
