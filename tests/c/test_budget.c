/* test_budget.c - the memory limit holds, nobody starves, waiting can be cancelled. */
#include "testing.h"

#include <penstock/error.h>

#include <string.h>
#include <sys/mman.h>

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
    assert_int_equal(pen__budget_get(b, NULL, 0, 600 * KIB, 0, true, &x), 0);
    assert_true(x.cap >= 600 * KIB && (uintptr_t)x.data % 64 == 0);
    uint8_t *data = x.data;
    pen__budget_put(b, NULL, &x);
    assert_null(x.data);
    assert_int_equal(pen__budget_get(b, NULL, 0, 500 * KIB, 0, true, &y), 0);
    assert_ptr_equal(y.data, data); /* kept and used again */
    pen__budget_put(b, NULL, &y);
    assert_int_equal(pen__budget_get(b, NULL, 0, 900 * KIB, 0, true, &x),
                     0); /* kept one makes room */
    pen__budget_usage(b, &used, &peak);
    assert_true(used <= MIB && peak <= MIB);
    pen__budget_put(b, NULL, &x);
    pen__budget_free(b);
    assert_int_equal(pen__mem_live(), before);
}

static void what_can_never_fit_is_refused_and_what_cannot_fit_now_says_so(void **state)
{
    (void)state;
    pen__budget *b;
    assert_int_equal(pen__budget_create(&b, MIB, NULL), 0);
    pen__block x, y;
    assert_int_equal(pen__budget_get(b, NULL, 0, 2 * MIB, 0, true, &x), PEN_EBUDGET);
    assert_int_equal(pen__budget_get(b, NULL, 0, 64 * KIB, MIB, true, &x), PEN_EBUDGET);
    assert_int_equal(pen__budget_get(b, NULL, 0, 64 * KIB, 800 * KIB, true, &x), 0);
    assert_int_equal(pen__budget_get(b, NULL, 0, 300 * KIB, 0, false, &y), PEN_AGAIN);
    pen__budget_put(b, NULL, &x);
    assert_int_equal(pen__budget_get(b, NULL, 0, 300 * KIB, 0, false, &y), 0);
    pen__budget_put(b, NULL, &y);
    pen__budget_free(b);
}

static void a_block_at_home_is_found_again_or_given_up(void **state)
{
    (void)state;
    pen__budget *b;
    pen__home mine = {0}, theirs = {0};
    assert_int_equal(pen__budget_create(&b, MIB, NULL), 0);
    pen__budget_add_home(b, &mine);
    pen__budget_add_home(b, &theirs);
    pen__block x, y;
    assert_int_equal(pen__budget_get(b, &mine, 0, 300 * KIB, 100, true, &x), 0);
    uint8_t *data = x.data;
    pen__budget_put(b, &mine, &x);
    int64_t used, peak;
    pen__budget_usage(b, &used, &peak);
    assert_int_equal(used, 320 * KIB); /* without the extra, which was somebody else's */
    assert_int_equal(pen__budget_get(b, &theirs, 0, 300 * KIB, 0, true, &y), 0);
    assert_ptr_not_equal(y.data, data);
    pen__budget_put(b, &theirs, &y);
    assert_int_equal(pen__budget_get(b, &mine, 0, 290 * KIB, 50, true, &x), 0);
    assert_ptr_equal(x.data, data);
    /* theirs is free, and in the way of this one */
    assert_int_equal(pen__budget_get(b, NULL, 0, 600 * KIB, 0, false, &y), 0);
    pen__budget_put(b, NULL, &y);
    pen__budget_put(b, &mine, &x);
    pen__budget_remove_home(b, &theirs);
    pen__budget_remove_home(b, &mine);
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
    pen__home home = {0}, *own = index % 4 ? &home : NULL;
    if (own)
        pen__budget_add_home(l->budget, own);
    pen__rng rng;
    pen__rng_init(&rng, 1, PEN__RNG_OP, index, 0, 0, 0);
    for (int i = 0; i < 500; i++) {
        size_t bytes = 1 + pen__rng_below(&rng, (i % 50 ? 300 : 900) * KIB);
        size_t extra = pen__rng_below(&rng, 64 * KIB);
        pen__block x;
        int64_t rank = atomic_fetch_add(&l->next_rank, 1);
        if (pen__budget_get(l->budget, own, rank, bytes, extra, true, &x))
            continue;
        int64_t now =
            atomic_fetch_add(&l->in_use, (int64_t)(bytes + extra)) + (int64_t)(bytes + extra);
        if (now > MIB)
            atomic_fetch_add(&l->n_over, 1);
        memset(x.data, i, bytes);
        atomic_fetch_sub(&l->in_use, (int64_t)(bytes + extra));
        pen__budget_put(l->budget, own, &x);
        atomic_fetch_add(&l->n_done, 1);
    }
    if (own)
        pen__budget_remove_home(l->budget, own);
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
    if (pen__budget_get(l->budget, NULL, 5, 500 * KIB, 0, true, &x) == PEN_ECANCELED)
        atomic_fetch_add(&l->n_done, 1);
}

static void cancelling_ends_the_wait(void **state)
{
    (void)state;
    load l = {0};
    assert_int_equal(pen__budget_create(&l.budget, MIB, &l.cancel), 0);
    pen__block x;
    assert_int_equal(pen__budget_get(l.budget, NULL, 0, 900 * KIB, 0, true, &x), 0);
    pen__pool *pool;
    assert_int_equal(pen__pool_start(&pool, 3, wait_for_block, &l), 0);
    atomic_store(&l.cancel, true);
    pen__budget_wake(l.budget);
    pen__pool_join(pool);
    assert_int_equal(l.n_done, 3);
    pen__budget_put(l.budget, NULL, &x);
    pen__budget_free(l.budget);
}

static void a_failed_allocation_gives_the_reservation_back(void **state)
{
    (void)state;
    pen__budget *b;
    assert_int_equal(pen__budget_create(&b, MIB, NULL), 0);
    pen__block x;
    pen__mem_fail_at(1);
    assert_int_equal(pen__budget_get(b, NULL, 0, 100 * KIB, 10, true, &x), PEN_ENOMEM);
    pen__mem_fail_at(0);
    int64_t used, peak;
    pen__budget_usage(b, &used, &peak);
    assert_int_equal(used, 0);
    pen__budget_free(b);
}

typedef struct shelf {
    pen__block blocks[8];
    int n;
} shelf;

static size_t give_one(void *ctx, void **data)
{
    shelf *s = ctx;
    if (s->n == 0)
        return 0;
    *data = s->blocks[--s->n].data;
    return s->blocks[s->n].cap;
}

static void what_can_wait_leaves_a_quarter_and_is_reclaimed(void **state)
{
    (void)state;
    int64_t before = pen__mem_live(), used, peak;
    pen__budget *b;
    pen__block x;
    shelf s = {0};
    assert_int_equal(pen__budget_create(&b, MIB, NULL), 0);
    pen__budget_set_reclaim(b, give_one, &s);
    while (s.n < 8 && pen__budget_get_spare(b, 100 * KIB, &s.blocks[s.n]) == 0)
        s.n++;
    assert_int_equal(s.n, 6); /* of 128 KiB */
    pen__budget_usage(b, &used, &peak);
    assert_true(used <= MIB / 4 * 3);
    assert_int_equal(pen__budget_get(b, NULL, 0, 700 * KIB, 0, false, &x), 0);
    assert_int_equal(s.n, 2); /* four had to go */
    pen__budget_usage(b, &used, &peak);
    assert_true(used <= MIB && peak <= MIB);
    pen__budget_put(b, NULL, &x);
    assert_int_equal(pen__budget_get_spare(b, 2 * MIB, &x), PEN_AGAIN);
    while (s.n > 0)
        pen__budget_put(b, NULL, &s.blocks[--s.n]);
    pen__budget_free(b);
    assert_int_equal(pen__mem_live(), before);
}

/* Whether the page at an address is in memory. */
static bool is_resident(void *page)
{
    unsigned char found = 0;
    return mincore(page, 1, &found) == 0 && (found & 1);
}

static void what_is_given_up_leaves_the_process(void **state)
{
    (void)state;
#if defined(PEN__MEM_IS_GUARDED)
    skip(); /* its allocator keeps everything for a while, on purpose */
#endif
    enum { N = 8 };
    pen__budget *b;
    pen__block blocks[N], large;
    uint8_t *places[N];
    assert_int_equal(pen__budget_create(&b, (N + 1) * MIB, NULL), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(pen__budget_get(b, NULL, 0, MIB - KIB, 0, true, &blocks[i]), 0);
        places[i] = memset(blocks[i].data, 1, MIB - KIB);
    }
    for (int i = 0; i < N; i++)
        pen__budget_put(b, NULL, &blocks[i]);
    for (int i = 0; i < N; i++)
        assert_true(is_resident(places[i])); /* kept */
    assert_int_equal(pen__budget_get(b, NULL, 0, N * MIB, 0, true, &large), 0);
    for (int i = 0; i < N; i++)
        assert_false(is_resident(places[i]));
    pen__budget_put(b, NULL, &large);
    pen__budget_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_counted_reused_and_given_up),
        cmocka_unit_test(what_can_never_fit_is_refused_and_what_cannot_fit_now_says_so),
        cmocka_unit_test(a_block_at_home_is_found_again_or_given_up),
        cmocka_unit_test(the_limit_holds_under_eight_threads_and_all_finish),
        cmocka_unit_test(cancelling_ends_the_wait),
        cmocka_unit_test(a_failed_allocation_gives_the_reservation_back),
        cmocka_unit_test(what_can_wait_leaves_a_quarter_and_is_reclaimed),
        cmocka_unit_test(what_is_given_up_leaves_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
