/* test_window.c - the reorder window, inline and with threads. */
#include "testing.h"

#include <penstock/error.h>

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

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

static void fewer_jobs_are_open_once_enough_were_taken(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    pen__claim claim;
    void *payload;
    while (pen__window_claim(f.window, false, &claim) == 0)
        pen__window_done(f.window, &claim);
    assert_int_equal(f.n_opened, CAPACITY);
    pen__window_limit(f.window, 1);
    for (int i = 1; i < CAPACITY; i++) {
        assert_int_equal(pen__window_take(f.window, 0, &payload), 0);
        assert_int_equal(pen__window_claim(f.window, false, &claim), PEN_AGAIN);
    }
    assert_int_equal(pen__window_take(f.window, 0, &payload), 0);
    int n = 0;
    while (pen__window_claim(f.window, false, &claim) == 0) {
        pen__window_done(f.window, &claim);
        n++;
    }
    assert_int_equal(n, SLOTS);
    pen__window_limit(f.window, 100); /* not above its capacity */
    while (pen__window_claim(f.window, false, &claim) == 0) {
        pen__window_done(f.window, &claim);
        n++;
    }
    assert_int_equal(n, CAPACITY * SLOTS);
    pen__window_free(f.window);
}

static int64_t n_let_go;

static void let_go(void *ctx, void *cargo, size_t bytes)
{
    (void)ctx, (void)cargo;
    n_let_go += (int64_t)bytes;
}

/* Slots that readers claimed, with a cargo of their own number, shelved in a strange order. */
static void shelve_some(fixture *f, char *cargo, int n)
{
    static const int order[] = {2, 0, 3, 1};
    pen__claim claims[4];
    for (int i = 0; i < n; i++)
        assert_int_equal(pen__window_claim_as(f->window, PEN__READER, 0, &claims[i]), 0);
    for (int i = 0; i < n; i++) {
        pen__claim *claim = &claims[order[i]];
        claim->cargo = &cargo[order[i]];
        claim->cargo_bytes = (size_t)order[i] + 1;
        pen__window_shelve(f->window, claim);
    }
}

static void shelved_slots_go_to_workers_first_and_in_order(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    char cargo[4];
    pen__claim claim;
    assert_int_equal(pen__window_read_ahead(f.window, 4, let_go), 0);
    shelve_some(&f, cargo, 4);
    pen__window_facts facts = pen__window_look(f.window);
    assert_int_equal(facts.n_shelved, 4);
    assert_int_equal(facts.n_busy, 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(pen__window_claim(f.window, false, &claim), 0);
        assert_int_equal(claim.slot, i);
        assert_ptr_equal(claim.cargo, i < 4 ? &cargo[i] : NULL);
        assert_int_equal(pen__window_look(f.window).n_busy, 1);
        pen__window_done(f.window, &claim);
    }
    void *payload;
    assert_int_equal(pen__window_take(f.window, 0, &payload), 0);
    pen__window_free(f.window);
}

static void a_cargo_is_taken_from_the_slot_whose_turn_is_last(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    char cargo[4];
    void *taken;
    pen__claim claim;
    assert_int_equal(pen__window_read_ahead(f.window, 4, let_go), 0);
    shelve_some(&f, cargo, 4);
    for (int i = 3; i >= 1; i--) {
        assert_int_equal(pen__window_strip(f.window, &taken), i + 1);
        assert_ptr_equal(taken, &cargo[i]);
    }
    for (int i = 0; i < 4; i++) { /* the slots are still there */
        assert_int_equal(pen__window_claim(f.window, false, &claim), 0);
        assert_int_equal(claim.slot, i);
        assert_ptr_equal(claim.cargo, i == 0 ? &cargo[0] : NULL);
        pen__window_done(f.window, &claim);
    }
    assert_int_equal(pen__window_strip(f.window, &taken), 0);
    pen__window_free(f.window);
}

static void pausing_empties_the_shelf(void **state)
{
    (void)state;
    fixture f;
    setup(&f);
    char cargo[4];
    pen__claim claim;
    n_let_go = 0;
    assert_int_equal(pen__window_read_ahead(f.window, 4, let_go), 0);
    shelve_some(&f, cargo, 4);
    pen__window_pause(f.window, drop_job);
    assert_int_equal(n_let_go, 1 + 2 + 3 + 4);
    assert_int_equal(f.n_dropped, 1);
    assert_int_equal(pen__window_claim(f.window, false, &claim), PEN_AGAIN);
    pen__window_resume(f.window);
    assert_int_equal(pen__window_claim(f.window, false, &claim), 0);
    assert_true(claim.seq == 0 && claim.slot == 0 && !claim.cargo);
    pen__window_done(f.window, &claim);
    pen__window_free(f.window);
}

typedef struct crowd {
    fixture f;
    _Atomic int64_t n_by[8];
} crowd;

static void work_in_a_crowd(void *ctx, int index)
{
    crowd *c = ctx;
    pen__claim claim;
    while (pen__window_claim_as(c->f.window, PEN__WORKER, index, &claim) == 0) {
        atomic_fetch_add((_Atomic int *)claim.payload, 1);
        atomic_fetch_add(&c->n_by[index], 1);
        pen__window_done(c->f.window, &claim);
    }
}

static void those_outside_the_crew_are_parked(void **state)
{
    (void)state;
    crowd c;
    memset(&c, 0, sizeof c);
    setup(&c.f);
    pen__window_crew(c.f.window, PEN__WORKER, 2);
    pen__pool *pool;
    assert_int_equal(pen__pool_start(&pool, 4, work_in_a_crowd, &c), 0);
    void *payload;
    for (int seq = 0; seq < JOBS / 2; seq++)
        assert_int_equal(pen__window_take(c.f.window, -1, &payload), 0);
    assert_int_equal(c.n_by[2] + c.n_by[3], 0);
    for (int seq = 0; seq < JOBS / 2; seq++) { /* and no change stops the others */
        pen__window_crew(c.f.window, PEN__WORKER, 1 + seq % 4);
        assert_int_equal(pen__window_take(c.f.window, -1, &payload), 0);
    }
    pen__window_close(c.f.window);
    pen__pool_join(pool);
    pen__window_free(c.f.window);
}

typedef struct latecomer {
    fixture f;
    _Atomic int64_t idle_ns; /* -1: nothing was claimed yet */
} latecomer;

static void come_late(void *ctx, int index)
{
    latecomer *late = ctx;
    pen__claim claim;
    if (pen__window_claim_as(late->f.window, PEN__WORKER, 1 + index, &claim) != 0)
        return;
    atomic_store(&late->idle_ns, claim.idle_ns);
    pen__window_done(late->f.window, &claim);
}

/* Else a worker that was parked for an hour would seem to have waited for room so long. */
static void being_parked_is_not_waiting_for_room(void **state)
{
    (void)state;
    latecomer late;
    memset(&late, 0, sizeof late);
    late.idle_ns = -1;
    setup(&late.f);
    pen__window_crew(late.f.window, PEN__WORKER, 1);
    pen__pool *pool;
    assert_int_equal(pen__pool_start(&pool, 1, come_late, &late), 0);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* it is parked by now, or never is */
    assert_int_equal(atomic_load(&late.idle_ns), -1);
    pen__window_crew(late.f.window, PEN__WORKER, 2);
    while (atomic_load(&late.idle_ns) < 0)
        sched_yield();
    assert_int_equal(atomic_load(&late.idle_ns), 0);
    pen__window_close(late.f.window);
    pen__pool_join(pool);
    pen__window_free(late.f.window);
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
        cmocka_unit_test(fewer_jobs_are_open_once_enough_were_taken),
        cmocka_unit_test(shelved_slots_go_to_workers_first_and_in_order),
        cmocka_unit_test(a_cargo_is_taken_from_the_slot_whose_turn_is_last),
        cmocka_unit_test(pausing_empties_the_shelf),
        cmocka_unit_test(those_outside_the_crew_are_parked),
        cmocka_unit_test(being_parked_is_not_waiting_for_room),
        cmocka_unit_test(failed_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
