/* test_order.c - orders are permutations, repeat, and mix. */
#include "testing.h"

#include <penstock/order.h>

static void assert_permutation(const pen_order *order, int64_t epoch)
{
    uint8_t *seen = calloc((size_t)order->count, 1);
    for (int64_t k = 0; k < order->count; k++) {
        int64_t id = pen_order_at(order, epoch, k);
        assert_in_range(id, 0, order->count - 1);
        assert_int_equal(seen[id], 0);
        seen[id] = 1;
    }
    free(seen);
}

static void every_order_of_every_small_count_is_a_permutation(void **state)
{
    (void)state;
    for (int64_t count = 1; count < 140; count++)
        for (int kind = PEN_ORDER_SEQUENTIAL; kind <= PEN_ORDER_BLOCK; kind++)
            for (int epoch = 0; epoch < 2; epoch++)
                assert_permutation(&(pen_order){(pen_order_kind)kind, 7, 3, 42, count}, epoch);
}

static void large_counts_are_permuted_too(void **state)
{
    (void)state;
    assert_permutation(&(pen_order){PEN_ORDER_SHUFFLE, 0, 0, 1, 1281167}, 3);
    assert_permutation(&(pen_order){PEN_ORDER_BLOCK, 256, 16, 1, 300001}, 3);
    pen_order huge = {PEN_ORDER_SHUFFLE, 0, 0, 1, (int64_t)1 << 40};
    for (int64_t k = 0; k < 1000; k++)
        assert_true(pen_order_at(&huge, 0, k * 1000003) < huge.count);
}

static void seed_and_epoch_change_the_order(void **state)
{
    (void)state;
    pen_order a = {PEN_ORDER_SHUFFLE, 0, 0, 1, 10000}, b = a;
    b.seed = 2;
    int same_seed = 0, same_epoch = 0;
    for (int64_t k = 0; k < a.count; k++) {
        same_seed += pen_order_at(&a, 0, k) == pen_order_at(&b, 0, k);
        same_epoch += pen_order_at(&a, 0, k) == pen_order_at(&a, 1, k);
    }
    assert_true(same_seed < 10 && same_epoch < 10);
}

/* All 24 orders of four things come up about equally often. */
static void small_shuffles_are_close_to_uniform(void **state)
{
    (void)state;
    int hits[256] = {0}, n_seen = 0;
    for (uint64_t seed = 0; seed < 24000; seed++) {
        pen_order order = {PEN_ORDER_SHUFFLE, 0, 0, seed, 4};
        int code = 0;
        for (int k = 0; k < 4; k++)
            code = code * 4 + (int)pen_order_at(&order, 0, k);
        hits[code]++;
    }
    for (int i = 0; i < 256; i++)
        if (hits[i])
            n_seen++;
    assert_true(n_seen == 12 || n_seen == 24); /* a power of two may give even ones only */
    for (int i = 0; i < 256; i++)
        if (hits[i])
            assert_in_range(hits[i], 24000 / n_seen * 8 / 10, 24000 / n_seen * 12 / 10);
}

/* Mean distance between neighbours in a shuffle is a third of the range. */
static void neighbours_are_far_apart(void **state)
{
    (void)state;
    pen_order order = {PEN_ORDER_SHUFFLE, 0, 0, 9, 50000};
    double sum = 0;
    for (int64_t k = 1; k < order.count; k++)
        sum += (double)llabs(pen_order_at(&order, 0, k) - pen_order_at(&order, 0, k - 1));
    double mean = sum / (double)(order.count - 1) / (double)order.count;
    assert_true(mean > 0.32 && mean < 0.345);
}

static void block_order_keeps_blocks_together(void **state)
{
    (void)state;
    pen_order order = {PEN_ORDER_BLOCK, 100, 4, 5, 10000};
    for (int64_t group = 0; group < 25; group++) { /* 400 positions touch 4 runs of 100 */
        uint8_t seen[10000] = {0};
        int n_runs = 0;
        for (int64_t k = 0; k < 400; k++)
            seen[pen_order_at(&order, 0, group * 400 + k)] = 1;
        for (int i = 0; i < 10000; i++)
            n_runs += seen[i] && !seen[(i + 9999) % 10000];
        assert_in_range(n_runs, 1, 4);
    }
}

static void positions_outside_are_refused(void **state)
{
    (void)state;
    pen_order order = {PEN_ORDER_SHUFFLE, 0, 0, 1, 10};
    assert_int_equal(pen_order_at(&order, 0, -1), PEN_EINVAL);
    assert_int_equal(pen_order_at(&order, 0, 10), PEN_EINVAL);
    assert_int_equal(pen_order_at(&order, -1, 0), PEN_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_of_every_small_count_is_a_permutation),
        cmocka_unit_test(large_counts_are_permuted_too),
        cmocka_unit_test(seed_and_epoch_change_the_order),
        cmocka_unit_test(small_shuffles_are_close_to_uniform),
        cmocka_unit_test(neighbours_are_far_apart),
        cmocka_unit_test(block_order_keeps_blocks_together),
        cmocka_unit_test(positions_outside_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
