/* test_budget.c - the memory limit holds, nobody starves, waiting can be cancelled. */
#include "testing.h"

#include <penstock/error.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/budget.h"
#include "sched/pool.h"

enum { KIB = 1024, MIB = 1024 * 1024 };

static void blocks_are_counted_reused_and_given_up(void **state)
{
    (void)state;
    int64_t before = pen__mem_live(), used, peak;
    pen__budget *b;
    assert_int_equal(pen__budget_create(&b, MIB, NULL), 0);
    pen__block x, y;
    assert_int_equal(pen__budget_get(b, 0, 600 * KIB, 0, true, &x), 0);
    assert_true(x.cap >= 600 * KIB && (uintptr_t)x.data % 64 == 0);
    uint8_t *data = x.data;
    pen__budget_put(b, &x);
    assert_null(x.data);
    assert_int_equal(pen__budget_get(b, 0, 500 * KIB, 0, true, &y), 0);
    assert_ptr_equal(y.data, data); /* kept and used again */
    pen__budget_put(b, &y);
    assert_int_equal(pen__budget_get(b, 0, 900 * KIB, 0, true, &x), 0); /* kept one makes room */
    pen__budget_usage(b, &used, &peak);
    assert_true(used <= MIB && peak <= MIB);
    pen__budget_put(b, &x);
    pen__budget_free(b);
    assert_int_equal(pen__mem_live(), before);
}

static void what_can_never_fit_is_refused_and_what_cannot_fit_now_says_so(void **state)
{
    (void)state;
    pen__budget *b;
    assert_int_equal(pen__budget_create(&b, MIB, NULL), 0);
    pen__block x, y;
    assert_int_equal(pen__budget_get(b, 0, 2 * MIB, 0, true, &x), PEN_EBUDGET);
    assert_int_equal(pen__budget_get(b, 0, 64 * KIB, MIB, true, &x), PEN_EBUDGET);
    assert_int_equal(pen__budget_get(b, 0, 64 * KIB, 800 * KIB, true, &x), 0);
    assert_int_equal(pen__budget_get(b, 0, 300 * KIB, 0, false, &y), PEN_AGAIN);
    pen__budget_put(b, &x);
    assert_int_equal(pen__budget_get(b, 0, 300 * KIB, 0, false, &y), 0);
    pen__budget_put(b, &y);
    pen__budget_free(b);
}

typedef struct load {
    pen__budget *budget;
    atomic_bool cancel;
    _Atomic int64_t in_use, n_over, n_done;
    _Atomic int64_t next_rank;
} load;

/* Take blocks of every size, hold them a moment, give them back. */
static void use_blocks(void *ctx, int index)
{
    load *l = ctx;
    pen__rng rng;
    pen__rng_init(&rng, 1, PEN__RNG_OP, index, 0, 0, 0);
    for (int i = 0; i < 500; i++) {
        size_t bytes = 1 + pen__rng_below(&rng, 900 * KIB), extra = pen__rng_below(&rng, 64 * KIB);
        pen__block x;
        if (pen__budget_get(l->budget, atomic_fetch_add(&l->next_rank, 1), bytes, extra, true, &x))
            continue;
        int64_t now =
            atomic_fetch_add(&l->in_use, (int64_t)(bytes + extra)) + (int64_t)(bytes + extra);
        if (now > MIB)
            atomic_fetch_add(&l->n_over, 1);
        memset(x.data, i, bytes);
        atomic_fetch_sub(&l->in_use, (int64_t)(bytes + extra));
        pen__budget_put(l->budget, &x);
        atomic_fetch_add(&l->n_done, 1);
    }
}

static void the_limit_holds_under_eight_threads_and_all_finish(void **state)
{
    (void)state;
    load l = {0};
    assert_int_equal(pen__budget_create(&l.budget, MIB, &l.cancel), 0);
    pen__pool *pool;
    assert_int_equal(pen__pool_start(&pool, 8, use_blocks, &l), 0);
    pen__pool_join(pool);
    int64_t used, peak;
    pen__budget_usage(l.budget, &used, &peak);
    assert_int_equal(l.n_over, 0);
    assert_int_equal(l.n_done, 8 * 500);
    assert_true(peak <= MIB);
    pen__budget_free(l.budget);
}

static void wait_for_block(void *ctx, int index)
{
    (void)index;
    load *l = ctx;
    pen__block x;
    if (pen__budget_get(l->budget, 5, 500 * KIB, 0, true, &x) == PEN_ECANCELED)
        atomic_fetch_add(&l->n_done, 1);
}

static void cancelling_ends_the_wait(void **state)
{
    (void)state;
    load l = {0};
    assert_int_equal(pen__budget_create(&l.budget, MIB, &l.cancel), 0);
    pen__block x;
    assert_int_equal(pen__budget_get(l.budget, 0, 900 * KIB, 0, true, &x), 0);
    pen__pool *pool;
    assert_int_equal(pen__pool_start(&pool, 3, wait_for_block, &l), 0);
    atomic_store(&l.cancel, true);
    pen__budget_wake(l.budget);
    pen__pool_join(pool);
    assert_int_equal(l.n_done, 3);
    pen__budget_put(l.budget, &x);
    pen__budget_free(l.budget);
}

static void a_failed_allocation_gives_the_reservation_back(void **state)
{
    (void)state;
    pen__budget *b;
    assert_int_equal(pen__budget_create(&b, MIB, NULL), 0);
    pen__block x;
    pen__mem_fail_at(1);
    assert_int_equal(pen__budget_get(b, 0, 100 * KIB, 10, true, &x), PEN_ENOMEM);
    pen__mem_fail_at(0);
    int64_t used, peak;
    pen__budget_usage(b, &used, &peak);
    assert_int_equal(used, 0);
    pen__budget_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_counted_reused_and_given_up),
        cmocka_unit_test(what_can_never_fit_is_refused_and_what_cannot_fit_now_says_so),
        cmocka_unit_test(the_limit_holds_under_eight_threads_and_all_finish),
        cmocka_unit_test(cancelling_ends_the_wait),
        cmocka_unit_test(a_failed_allocation_gives_the_reservation_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
