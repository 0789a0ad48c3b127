/* test_traits.c - how samples differ from what is usual, in a byte each. */
#include "testing.h"

#include <math.h>

#include "base/mem.h"
#include "engine/traits.h"

enum { N = 5 };

static pen__traits traits;

static int begin(void **state)
{
    (void)state;
    return pen__traits_init(&traits, N);
}

static int end(void **state)
{
    (void)state;
    pen__traits_fini(&traits);
    return 0;
}

static double factor(int64_t sample, pen__trait trait)
{
    return pen__traits_factor(&traits, sample, trait);
}

static void what_is_not_known_is_as_usual(void **state)
{
    (void)state;
    for (int trait = 0; trait < PEN__TRAIT_COUNT; trait++)
        assert_true(factor(0, (pen__trait)trait) == 1);
    assert_int_equal(pen__traits_word(&traits, 0), 0);
}

static void one_time_says_half_of_it(void **state)
{
    (void)state;
    for (double ratio = 0.06; ratio < 19; ratio *= 1.07) {
        pen__traits_fini(&traits);
        assert_int_equal(pen__traits_init(&traits, N), 0);
        pen__traits_note(&traits, 1, PEN__TRAIT_CPU, ratio);
        assert_true(fabs(log(factor(1, PEN__TRAIT_CPU) / sqrt(ratio))) < 0.0071);
        assert_true(factor(1, PEN__TRAIT_CUT_BYTES) == 1 && factor(2, PEN__TRAIT_CPU) == 1);
    }
}

static void times_are_averaged(void **state)
{
    (void)state;
    pen__traits_note(&traits, 0, PEN__TRAIT_CODED_BYTES, 2);
    pen__traits_note(&traits, 0, PEN__TRAIT_CODED_BYTES, 0.5);
    assert_true(fabs(factor(0, PEN__TRAIT_CODED_BYTES) - 1) < 0.03);
    for (int i = 0; i < 12; i++)
        pen__traits_note(&traits, 0, PEN__TRAIT_CODED_BYTES, 4);
    assert_true(fabs(factor(0, PEN__TRAIT_CODED_BYTES) - 2) < 0.1);
}

static void what_is_no_ratio_says_nothing_and_what_is_far_is_limited(void **state)
{
    (void)state;
    static const double none[] = {0, -1, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        pen__traits_note(&traits, 0, PEN__TRAIT_CPU, none[i]);
    assert_int_equal(pen__traits_word(&traits, 0), 0);
    pen__traits_note(&traits, 0, PEN__TRAIT_CPU, 1e300);
    pen__traits_note(&traits, 1, PEN__TRAIT_CPU, 1e-300);
    assert_true(fabs(factor(0, PEN__TRAIT_CPU) * factor(1, PEN__TRAIT_CPU) - 1) < 1e-9);
    assert_true(factor(0, PEN__TRAIT_CPU) > 4 && factor(0, PEN__TRAIT_CPU) < 5);
}

static void outside_there_is_nothing(void **state)
{
    (void)state;
    pen__traits none = {0};
    pen__traits_note(&traits, -1, PEN__TRAIT_CPU, 2);
    pen__traits_note(&traits, N, PEN__TRAIT_CPU, 2);
    pen__traits_note(&none, 0, PEN__TRAIT_CPU, 2);
    pen__traits_restore(&traits, N, 1);
    pen__traits_restore(&none, 0, 1);
    assert_true(factor(-1, PEN__TRAIT_CPU) == 1 && factor(N, PEN__TRAIT_CPU) == 1);
    assert_true(pen__traits_factor(&none, 0, PEN__TRAIT_CPU) == 1);
}

static void words_are_kept_and_never_overwrite(void **state)
{
    (void)state;
    pen__traits_note(&traits, 0, PEN__TRAIT_CUT_BYTES, 3);
    pen__traits_note(&traits, 0, PEN__TRAIT_CPU, 0.3);
    pen__traits_restore(&traits, 1, pen__traits_word(&traits, 0));
    for (int trait = 0; trait < PEN__TRAIT_COUNT; trait++)
        assert_true(factor(1, (pen__trait)trait) == factor(0, (pen__trait)trait));
    const uint32_t before = pen__traits_word(&traits, 0);
    pen__traits_restore(&traits, 0, 0x7F7F7F);
    assert_int_equal(pen__traits_word(&traits, 0), before);
    pen__traits_restore(&traits, 2, 0x01000000); /* there is no fourth */
    assert_int_equal(pen__traits_word(&traits, 2), 0);
}

static void without_memory_nothing_is_kept(void **state)
{
    (void)state;
    pen__traits other = {0};
    pen__mem_fail_at(1);
    assert_int_equal(pen__traits_init(&other, N), PEN_ENOMEM);
    pen__mem_fail_at(0);
    pen__traits_fini(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_not_known_is_as_usual, begin, end),
        cmocka_unit_test_setup_teardown(one_time_says_half_of_it, begin, end),
        cmocka_unit_test_setup_teardown(times_are_averaged, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_ratio_says_nothing_and_what_is_far_is_limited,
                                        begin, end),
        cmocka_unit_test_setup_teardown(outside_there_is_nothing, begin, end),
        cmocka_unit_test_setup_teardown(words_are_kept_and_never_overwrite, begin, end),
        cmocka_unit_test_setup_teardown(without_memory_nothing_is_kept, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
