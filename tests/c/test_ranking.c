/* test_ranking.c - offers in order of their worth. */
#include "testing.h"

#include <math.h>

#include "engine/ranking.h"

/* A sample of 100 KB that saves 10 KB for as long as gives it this worth. */
static void add(pen__ranking *r, double worth)
{
    const pen__offer offer = {.saved_bytes = 10000, .cpu_s = 10000 / worth};
    pen__ranking_add(r, 100000, &offer, 1);
}

static void the_threshold_parts_the_best_from_the_rest(void **state)
{
    (void)state;
    pen__ranking r = {0};
    for (int i = 0; i < 100; i++) {
        add(&r, 1e6);
        add(&r, 1e7);
        add(&r, 1e8);
        add(&r, 1e9);
    }
    const double threshold = pen__ranking_threshold(&r, 0.5);
    assert_true(threshold > 1e7 && threshold < 1.2e8);
    assert_true(pen__ranking_threshold(&r, 0.76) < 1.2e7);
    assert_true(pen__ranking_threshold(&r, 0.76) > 1e6);
    assert_true(pen__ranking_threshold(&r, 1) == 0);
    assert_true(isinf(pen__ranking_threshold(&r, 0)));
}

static void an_empty_ranking_knows_nothing(void **state)
{
    (void)state;
    pen__ranking r = {0};
    assert_true(pen__ranking_threshold(&r, 0.5) == 0); /* whoever comes first is welcome */
    assert_true(isinf(pen__ranking_threshold(&r, 0)));
    assert_true(isnan(pen__ranking_raw_bytes(&r)));
    assert_true(pen__ranking_gain(&r, 1).saved_bytes == 0);
}

static void gains_grow_and_each_part_costs_more_than_the_last(void **state)
{
    (void)state;
    pen__ranking r = {0};
    uint64_t dice = 7;
    for (int i = 0; i < 5000; i++) {
        dice = dice * 6364136223846793005u + 1442695040888963407u;
        add(&r, 1e5 * exp2((double)(dice >> 40) / 16777216 * 16));
    }
    assert_true(fabs(pen__ranking_raw_bytes(&r) - 100000) < 1e-3);
    pen__gain before = {0, 0};
    double last = INFINITY;
    for (int i = 1; i <= 8; i++) {
        const pen__gain now = pen__ranking_gain(&r, i / 8.0);
        const double worth = (now.saved_bytes - before.saved_bytes) / (now.cpu_s - before.cpu_s);
        assert_true(now.saved_bytes > before.saved_bytes && now.cpu_s > before.cpu_s);
        assert_true(worth < last);
        last = worth;
        before = now;
    }
    assert_true(fabs(before.saved_bytes - 10000) < 1e-3);
}

static void what_is_long_ago_is_forgotten(void **state)
{
    (void)state;
    pen__ranking r = {0};
    for (int i = 0; i < 20000; i++)
        add(&r, 1e6);
    for (int i = 0; i < 20000; i++) /* weights are scaled on the way */
        add(&r, 1e9);
    assert_true(pen__ranking_threshold(&r, 0.99) > 1e8);
    for (int i = 0; i < PEN__RANKS; i++)
        assert_true(isfinite(r.n[i]) && isfinite(r.cpu_s[i]));
}

static void any_worth_has_a_place(void **state)
{
    (void)state;
    const pen__offer odd[] = {{0, 1e300, 1e-300}, {0, 1e-9, 1e9}, {0, 1, 0}};
    pen__ranking r = {0};
    pen__ranking_add(&r, 1, odd, 3);
    double n = 0;
    for (int i = 0; i < PEN__RANKS; i++)
        n += r.n[i];
    assert_true(n == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_threshold_parts_the_best_from_the_rest),
        cmocka_unit_test(an_empty_ranking_knows_nothing),
        cmocka_unit_test(gains_grow_and_each_part_costs_more_than_the_last),
        cmocka_unit_test(what_is_long_ago_is_forgotten),
        cmocka_unit_test(any_worth_has_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
