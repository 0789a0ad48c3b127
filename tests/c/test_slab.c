/* test_slab.c - slabs are bounded, shared, returned, and outlive their pool. */
#include "testing.h"

#include <penstock/error.h>

#include "base/mem.h"
#include "engine/slab.h"

static const pen__slab_plan eight = {
    .shape = {3, 4, 4, PEN_DTYPE_UINT8, PEN_LAYOUT_NCHW, 48},
    .n_slots = 8,
};
static const pen__slab_plan four = {
    .shape = {3, 4, 4, PEN_DTYPE_UINT8, PEN_LAYOUT_NCHW, 48},
    .n_slots = 4,
};

static void dropped_slabs_are_used_again(void **state)
{
    (void)state;
    int64_t before = pen__mem_live();
    pen__slab_pool *pool;
    assert_int_equal(pen__slab_pool_create(&pool, &eight, 2), 0);
    pen_batch *a = pen__slab_get(pool), *b = pen__slab_get(pool);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(pen__slab_pool_used(pool), 2 * (int64_t)pen__slab_bytes(&eight));
    void *data = pen_batch_data(a);
    pen_batch_unref(a);
    a = pen__slab_get(pool);
    assert_ptr_equal(pen_batch_data(a), data);
    pen_batch_unref(a);
    pen_batch_unref(b);
    pen__slab_pool_release(pool);
    assert_int_equal(pen__mem_live(), before);
}

static void handed_over_slabs_leave_the_count_and_may_come_back(void **state)
{
    (void)state;
    int64_t before = pen__mem_live();
    pen__slab_pool *pool;
    assert_int_equal(pen__slab_pool_create(&pool, &eight, 2), 0);
    pen_batch *held[10];
    for (int i = 0; i < 10; i++) { /* list(loader): the user may keep any number */
        held[i] = pen__slab_get(pool);
        assert_non_null(held[i]);
        pen__slab_hand_over(held[i]);
    }
    assert_int_equal(pen__slab_pool_used(pool), 0);
    for (int i = 0; i < 10; i++)
        pen_batch_unref(held[i]);
    assert_int_equal(pen__slab_pool_used(pool), 2 * (int64_t)pen__slab_bytes(&eight));
    pen__slab_pool_release(pool);
    assert_int_equal(pen__mem_live(), before);
}

/* The user takes a batch, a worker opens the next one before the old one is given back. */
static pen_batch *a_late_return(pen__slab_pool *pool, pen_batch *held, pen_batch **ready)
{
    pen_batch *taken = *ready;
    pen__slab_hand_over(taken);
    *ready = pen__slab_get(pool);
    pen_batch_unref(held);
    return taken;
}

static void a_slab_too_many_is_kept_only_where_that_is_usual(void **state)
{
    (void)state;
    const int64_t before = pen__mem_live(), one = (int64_t)pen__slab_bytes(&eight);
    pen__slab_pool *pool;
    assert_int_equal(pen__slab_pool_create(&pool, &eight, 8), 0);
    pen__slab_pool_keep(pool, 1);
    pen_batch *held = pen__slab_get(pool), *ready;
    pen__slab_hand_over(held);
    ready = pen__slab_get(pool);
    held = a_late_return(pool, held, &ready);
    assert_int_equal(pen__slab_pool_used(pool), one); /* once: it was freed */
    for (int i = 0; i < 10; i++) {                    /* in time: nothing is ever made */
        pen__slab_hand_over(ready);
        pen_batch_unref(held);
        held = ready;
        ready = pen__slab_get(pool);
        assert_int_equal(pen__slab_pool_used(pool), one);
    }
    for (int i = 0; i < 10; i++)
        held = a_late_return(pool, held, &ready);
    assert_int_equal(pen__slab_pool_used(pool), 2 * one); /* always: it is used again */
    const int64_t n_allocations = pen__mem_count();
    held = a_late_return(pool, held, &ready);
    assert_int_equal(pen__mem_count(), n_allocations);
    pen_batch_unref(held);
    pen_batch_unref(ready);
    pen__slab_pool_release(pool);
    assert_int_equal(pen__mem_live(), before);
}

static void a_batch_outlives_its_pool(void **state)
{
    (void)state;
    int64_t before = pen__mem_live();
    pen__slab_pool *pool;
    assert_int_equal(pen__slab_pool_create(&pool, &eight, 2), 0);
    pen_batch *a = pen__slab_get(pool);
    pen__slab_hand_over(a);
    pen_batch_ref(a);
    pen__slab_pool_release(pool);
    memset(pen_batch_data(a), 1, 8 * eight.shape.bytes);
    pen_batch_unref(a);
    pen_batch_unref(a);
    pen_batch_unref(NULL);
    assert_int_equal(pen__mem_live(), before);
}

static void faults_are_sorted_and_bad_slots_cut_out(void **state)
{
    (void)state;
    pen__slab_pool *pool;
    assert_int_equal(pen__slab_pool_create(&pool, &four, 1), 0);
    pen_batch *b = pen__slab_get(pool);
    for (int i = 0; i < 4; i++) {
        b->ids[i] = 100 + i;
        b->labels[i] = i;
        b->mask[i] = i == 1 ? PEN__SLOT_BAD : 1;
        memset(b->data + (size_t)i * four.shape.bytes, i, four.shape.bytes);
    }
    pen_error error = {.code = PEN_ECORRUPT};
    assert_int_equal(pen__slab_note_bad(b, 3, 0, 1, &error), 0);
    assert_int_equal(pen__slab_note_bad(b, 1, 1, 2, &error), 0);
    assert_int_equal(pen__slab_note_bad(b, 1, 0, 3, &error), 0);
    pen__slab_sort_bad(b);
    assert_int_equal(b->bad->sample, 3);
    assert_int_equal(b->bad->next->sample, 2);
    assert_int_equal(b->bad->next->next->sample, 1);
    pen__slab_compact(b);
    assert_int_equal(pen_batch_count(b), 3);
    assert_int_equal(b->ids[1], 102);
    assert_int_equal(b->data[four.shape.bytes], 2);
    pen_batch_unref(b);
    pen__slab_pool_release(pool);
}

/* A slot that is begun again has no faults of before. */
static void faults_of_one_slot_can_be_forgotten(void **state)
{
    (void)state;
    const int64_t before = pen__mem_live();
    const pen_error error = {.code = PEN_ECORRUPT};
    pen__slab_pool *pool;
    assert_int_equal(pen__slab_pool_create(&pool, &four, 1), 0);
    pen_batch *b = pen__slab_get(pool);
    for (int32_t i = 0; i < 6; i++)
        assert_int_equal(pen__slab_note_bad(b, i % 3, i / 3, i, &error), 0);
    pen__slab_forget_bad(b, 1);
    pen__slab_forget_bad(b, 3); /* it has none */
    pen__slab_sort_bad(b);
    int n = 0;
    for (const pen__bad *bad = b->bad; bad; bad = bad->next, n++)
        assert_int_not_equal(bad->slot, 1);
    assert_int_equal(n, 4);
    pen_batch_unref(b);
    pen__slab_pool_release(pool);
    assert_int_equal(pen__mem_live(), before);
}

static void failed_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    int64_t before = pen__mem_live();
    for (int n = 1; n < 5; n++) {
        pen__slab_pool *pool = NULL;
        pen__mem_fail_at(n);
        if (pen__slab_pool_create(&pool, &four, 1) == 0) {
            pen_batch *b = pen__slab_get(pool);
            pen_error error = {0};
            if (b)
                pen__slab_note_bad(b, 0, 0, 0, &error);
            pen_batch_unref(b);
        }
        pen__slab_pool_release(pool);
    }
    pen__mem_fail_at(0);
    assert_int_equal(pen__mem_live(), before);
}

static void the_ghost_and_mixed_labels_have_their_own_room(void **state)
{
    (void)state;
    pen__slab_plan plan = eight;
    plan.has_ghost = true;
    plan.n_classes = 5;
    assert_true(pen__slab_bytes(&plan) > pen__slab_bytes(&eight));
    pen__slab_pool *pool;
    assert_int_equal(pen__slab_pool_create(&pool, &plan, 1), 0);
    pen_batch *b = pen__slab_get(pool);
    memset(b->data, 1, 9 * plan.shape.bytes);
    for (int i = 0; i < 9; i++) {
        b->labels[i] = 2;
        b->ids[i] = 3;
        b->mask[i] = 4;
    }
    for (int i = 0; i < 8 * 5; i++)
        b->mixed[i] = 5;
    for (int i = 0; i < 9; i++) {
        assert_int_equal(b->data[(size_t)(i + 1) * plan.shape.bytes - 1], 1);
        assert_int_equal(b->labels[i], 2);
        assert_int_equal(b->ids[i], 3);
        assert_int_equal(b->mask[i], 4);
    }
    assert_int_equal(pen_batch_classes(b), 5);
    assert_ptr_equal(pen_batch_mixed_labels(b), b->mixed);
    pen_batch_unref(b);
    pen__slab_pool_release(pool);
}

/* What comes back from the user counts again, and may be more than ever was made ahead. */
static void the_peak_is_never_below_what_is_used(void **state)
{
    (void)state;
    pen__slab_pool *pool;
    pen_batch *taken[3];
    assert_int_equal(pen__slab_pool_create(&pool, &eight, 4), 0);
    for (int i = 0; i < 3; i++) {
        taken[i] = pen__slab_get(pool);
        pen__slab_hand_over(taken[i]);
    }
    for (int i = 0; i < 3; i++)
        pen_batch_unref(taken[i]);
    assert_true(pen__slab_pool_used(pool) == 3 * (int64_t)pen__slab_bytes(&eight));
    assert_true(pen__slab_pool_peak(pool) == pen__slab_pool_used(pool));
    pen__slab_pool_release(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropped_slabs_are_used_again),
        cmocka_unit_test(handed_over_slabs_leave_the_count_and_may_come_back),
        cmocka_unit_test(a_slab_too_many_is_kept_only_where_that_is_usual),
        cmocka_unit_test(a_batch_outlives_its_pool),
        cmocka_unit_test(faults_are_sorted_and_bad_slots_cut_out),
        cmocka_unit_test(faults_of_one_slot_can_be_forgotten),
        cmocka_unit_test(failed_allocations_leave_nothing_behind),
        cmocka_unit_test(the_ghost_and_mixed_labels_have_their_own_room),
        cmocka_unit_test(the_peak_is_never_below_what_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
