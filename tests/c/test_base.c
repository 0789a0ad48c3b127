/* test_base.c - errors, memory, randomness, arithmetic, text. */
#include "testing.h"

#include <math.h>

#include "base/fail.h"
#include "base/fmath.h"
#include "base/gamma.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "commas.h"

/* Known answers published with the Philox paper's reference library. */
static void philox_gives_the_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t want[4];
    } cases[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         0xffffffffffffffffULL,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         0x299f31d0a4093822ULL,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t got[4];
        pen__philox(cases[i].counter, cases[i].key, got);
        assert_memory_equal(got, cases[i].want, sizeof got);
    }
}

static void draws_differ_between_domains_samples_epochs_occurrences_and_ops(void **state)
{
    (void)state;
    pen__rng rng;
    uint64_t seen[6];
    static const struct {
        int domain, occurrence, op;
        int64_t sample, epoch;
    } keys[6] = {{0, 0, 0, 7, 0}, {1, 0, 0, 7, 0}, {0, 1, 0, 7, 0},
                 {0, 0, 1, 7, 0}, {0, 0, 0, 8, 0}, {0, 0, 0, 7, 1}};
    for (int i = 0; i < 6; i++) {
        pen__rng_init(&rng, 3, (pen__rng_domain)keys[i].domain, keys[i].sample, keys[i].epoch,
                      keys[i].occurrence, keys[i].op);
        seen[i] = pen__rng_u64(&rng);
        for (int j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
    }
}

static void below_stays_below_and_reaches_every_value(void **state)
{
    (void)state;
    pen__rng rng;
    pen__rng_init(&rng, 1, PEN__RNG_OP, 0, 0, 0, 0);
    int hits[7] = {0};
    for (int i = 0; i < 7000; i++) {
        uint32_t v = pen__rng_below(&rng, 7);
        assert_true(v < 7);
        hits[v]++;
    }
    for (int i = 0; i < 7; i++)
        assert_in_range(hits[i], 850, 1150);
}

static void normals_have_mean_zero_and_variance_one(void **state)
{
    (void)state;
    pen__rng rng;
    pen__rng_init(&rng, 1, PEN__RNG_OP, 0, 0, 0, 0);
    double sum = 0, squares = 0;
    for (int i = 0; i < 50000; i++) {
        float v[2];
        pen__rng_normal2(&rng, v);
        sum += v[0] + v[1];
        squares += v[0] * v[0] + v[1] * v[1];
    }
    assert_true(fabs(sum / 100000) < 0.02);
    assert_true(fabs(squares / 100000 - 1) < 0.02);
}

/* Mean and variance of `n` draws of Gamma(shape) are both `shape`; those of Beta(a, a) are
 * 1/2 and 1 / (4 (2a + 1)). */
static void gammas_and_betas_have_their_mean_and_variance(void **state)
{
    (void)state;
    enum { N = 40000 };
    static const double shapes[] = {0.1, 0.4, 1.0, 2.5, 30.0};
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
        double a = shapes[k], sum = 0, squares = 0, beta_sum = 0, beta_squares = 0;
        for (int64_t i = 0; i < N; i++) {
            pen__rng rng;
            pen__rng_init(&rng, 5, PEN__RNG_BATCH, i, 0, 0, (int)k);
            double gamma = pen__rng_gamma(&rng, a), beta = pen__rng_beta(&rng, a, a);
            assert_true(gamma > 0 && beta >= 0 && beta <= 1);
            sum += gamma;
            squares += gamma * gamma;
            beta_sum += beta;
            beta_squares += beta * beta;
        }
        double mean = sum / N, variance = squares / N - mean * mean;
        double beta_mean = beta_sum / N, beta_variance = beta_squares / N - beta_mean * beta_mean;
        assert_true(fabs(mean / a - 1) < 0.05);
        assert_true(fabs(variance / a - 1) < 0.1);
        assert_true(fabs(beta_mean - 0.5) < 0.01);
        assert_true(fabs(beta_variance * 4 * (2 * a + 1) - 1) < 0.05);
    }
}

/* Beta(2, 1) has mean 2/3; swapped, it would be 1/3. */
static void a_beta_keeps_its_two_shapes_apart(void **state)
{
    (void)state;
    double sum = 0;
    pen__rng rng;
    pen__rng_init(&rng, 5, PEN__RNG_BATCH, 0, 0, 0, 0);
    for (int i = 0; i < 20000; i++)
        sum += pen__rng_beta(&rng, 2, 1);
    assert_true(fabs(sum / 20000 - 2.0 / 3) < 0.01);
}

static void tiny_shapes_neither_vanish_nor_divide_by_zero(void **state)
{
    (void)state;
    pen__rng rng;
    pen__rng_init(&rng, 5, PEN__RNG_BATCH, 1, 0, 0, 0);
    int low = 0;
    for (int i = 0; i < 2000; i++) {
        assert_true(pen__rng_gamma(&rng, 1e-6) > 0);
        double beta = pen__rng_beta(&rng, 1e-6, 1e-6);
        assert_true(beta >= 0 && beta <= 1);
        low += beta < 0.5;
    }
    assert_in_range(low, 900, 1100);
}

static void own_functions_agree_with_libm(void **state)
{
    (void)state;
    for (double x = -20; x <= 20; x += 0.037)
        assert_true(fabs(pen__exp(x) / exp(x) - 1) < 1e-14);
    for (double x = 1e-9; x < 1e9; x *= 1.13)
        assert_true(fabs(pen__log(x) - log(x)) < 1e-14 * (1 + fabs(log(x))));
    for (double t = 0; t < 1; t += 0.00137) {
        double s, c;
        pen__sincos_turn(t, &s, &c);
        assert_true(fabs(s - sin(t * 2 * 3.14159265358979323846)) < 1e-13);
        assert_true(fabs(c - cos(t * 2 * 3.14159265358979323846)) < 1e-13);
    }
    assert_true(pen__round_even(0.5) == 0 && pen__round_even(1.5) == 2 &&
                pen__round_even(-2.5) == -2);
}

static void the_nth_allocation_fails_once(void **state)
{
    (void)state;
    int64_t before = pen__mem_live();
    pen__mem_fail_at(2);
    void *a = pen__malloc(8), *b = pen__malloc(8), *c = pen__malloc(8);
    pen__mem_fail_at(0);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    pen__free(a);
    pen__free(c);
    assert_int_equal(pen__mem_live(), before);
}

static void a_reason_gets_a_prefix_and_never_overflows(void **state)
{
    (void)state;
    pen_error err;
    assert_int_equal(pen__fail(&err, PEN_ECORRUPT, 12, "bad %s", "marker"), PEN_ECORRUPT);
    pen__fail_prefix(&err, "sample '%s'", "a/b");
    assert_string_equal(err.text, "sample 'a/b': bad marker");
    for (int i = 0; i < 100; i++)
        pen__fail_prefix(&err, "a long context that keeps growing");
    assert_true(strlen(err.text) < sizeof err.text);
    assert_int_equal(err.offset, 12);
    assert_true(pen_error_is_data(PEN_ECORRUPT) && !pen_error_is_data(PEN_EIO));
    assert_string_equal(pen_error_name(PEN_EIO), "PEN_EIO");
}

static void json_strings_are_escaped_and_valid(void **state)
{
    (void)state;
    pen__text text = {0};
    pen__text_add_json(&text, "a\"\\\n\xff\xc3\xa9", 7);
    assert_string_equal(text.data, "\"a\\u0022\\u005c\\u000a\\ufffd\xc3\xa9\"");
    pen__text_fini(&text);
    pen__mem_fail_at(1);
    pen__text_add(&text, "x");
    pen__mem_fail_at(0);
    pen__text_add(&text, "y");
    assert_true(text.failed && text.len == 0);
    pen__text_fini(&text);
}

static void any_bytes_are_hex_and_back(void **state)
{
    (void)state;
    pen__text text = {0};
    char bytes[256], back[257];
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    pen__text_add_hex(&text, bytes, sizeof bytes);
    assert_int_equal(text.len, 2 + 512);
    assert_int_equal(pen__text_from_hex(text.data + 1, 512, back, 257), 256);
    assert_memory_equal(back, bytes, 256);
    assert_int_equal(back[256], 0);
    assert_int_equal(pen__text_from_hex(text.data + 1, 512, back, 256), PEN_ENOSPC);
    assert_int_equal(pen__text_from_hex("abc", 3, back, 257), PEN_EINVAL);
    static const char *const odd[] = {"0g", "g0", "AB", "0\0", " 1"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        assert_int_equal(pen__text_from_hex(odd[i], 2, back, 257), PEN_EINVAL);
    assert_true(pen__text_is_utf8("", 0) && pen__text_is_utf8("a\xc3\xa9", 3));
    assert_false(pen__text_is_utf8("a\xe9", 2) || pen__text_is_utf8("a\xc3\xa9", 2));
    pen__text_fini(&text);
}

static void numbers_are_read_whatever_the_locale_is(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
        size_t len;
    } cases[] = {{"0.5", 0.5, 3}, {"12", 12, 2},        {"1e3", 1000, 3}, {"-0.25x", -0.25, 5},
                 {"0,5", 0, 1},   {"2.5&io=1", 2.5, 3}, {"", 0, 0},       {"auto", 0, 0}};
    for (int has_commas = 0; has_commas < 2; has_commas++) {
        if (has_commas && !use_commas())
            skip();
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            char *end;
            const double value = pen__text_number(cases[i].text, &end);
            assert_true(value == cases[i].value);
            assert_int_equal(end - cases[i].text, cases[i].len);
        }
        char here[16];
        snprintf(here, sizeof here, "%.1f", 0.5); /* the program keeps its own */
        setlocale(LC_ALL, "C");
        assert_string_equal(here, has_commas ? "0,5" : "0.5");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(draws_differ_between_domains_samples_epochs_occurrences_and_ops),
        cmocka_unit_test(below_stays_below_and_reaches_every_value),
        cmocka_unit_test(normals_have_mean_zero_and_variance_one),
        cmocka_unit_test(gammas_and_betas_have_their_mean_and_variance),
        cmocka_unit_test(a_beta_keeps_its_two_shapes_apart),
        cmocka_unit_test(tiny_shapes_neither_vanish_nor_divide_by_zero),
        cmocka_unit_test(own_functions_agree_with_libm),
        cmocka_unit_test(the_nth_allocation_fails_once),
        cmocka_unit_test(a_reason_gets_a_prefix_and_never_overflows),
        cmocka_unit_test(json_strings_are_escaped_and_valid),
        cmocka_unit_test(any_bytes_are_hex_and_back),
        cmocka_unit_test(numbers_are_read_whatever_the_locale_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
