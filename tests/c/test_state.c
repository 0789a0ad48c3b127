/* test_state.c - states round-trip, foreign text is refused, differences are named. */
#include "testing.h"

#include "engine/state.h"

static pen__state example(void)
{
    pen__state s = {.epoch = 3,
                    .batch = 141,
                    .n_bad = 2,
                    .seed = UINT64_MAX,
                    .global_batch = 256,
                    .order = PEN_ORDER_BLOCK,
                    .block = 64,
                    .window = 8,
                    .tail = PEN_TAIL_WRAP,
                    .numerics = 1};
    strcpy(s.dataset, "0123456789abcdef0123456789abcdef");
    strcpy(s.pipeline, "fedcba9876543210fedcba9876543210");
    return s;
}

static void a_state_survives_writing_and_parsing(void **state)
{
    (void)state;
    pen__state a = example(), b;
    char text[PEN_STATE_MAX];
    int64_t n = pen__state_write(&a, text, sizeof text);
    assert_true(n > 0 && n < PEN_STATE_MAX);
    assert_int_equal(pen__state_parse(&b, text, NULL), 0);
    assert_int_equal(b.epoch, 3);
    assert_int_equal(b.batch, 141);
    assert_int_equal(b.n_bad, 2);
    assert_true(b.seed == UINT64_MAX);
    assert_int_equal(pen__state_match(&b, &a, NULL), 0);
    assert_int_equal(pen__state_write(&a, text, 40), PEN_ENOSPC);
}

static void text_that_is_no_state_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "", "{}", "[]", "null", "{\"penstock\":1}", "{\"penstock\":1,\"epoch\":\"x\"}", "\xff\xfe",
    };
    pen__state s;
    pen_error err;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_int_equal(pen__state_parse(&s, texts[i], &err), PEN_EINVAL);
    char text[PEN_STATE_MAX], cut[PEN_STATE_MAX];
    pen__state good = example();
    int64_t n = pen__state_write(&good, text, sizeof text);
    for (int64_t i = 0; i < n; i++) { /* every truncation, every flipped byte */
        memcpy(cut, text, (size_t)n + 1);
        cut[i] = '\0';
        assert_int_equal(pen__state_parse(&s, cut, &err), PEN_EINVAL);
        memcpy(cut, text, (size_t)n + 1);
        cut[i] ^= 1;
        pen__state_parse(&s, cut, &err); /* may be another valid state; must not crash */
    }
    char *large = calloc(1, 100000);
    memset(large, '[', 99999);
    assert_int_equal(pen__state_parse(&s, large, &err), PEN_EINVAL);
    free(large);
}

static void differences_are_named(void **state)
{
    (void)state;
    pen__state a = example(), b = example();
    pen_error err;
    b.dataset[0] = 'x';
    assert_int_equal(pen__state_match(&a, &b, &err), PEN_ESTATE);
    assert_non_null(strstr(err.text, "dataset"));
    b = example();
    b.global_batch = 128;
    assert_int_equal(pen__state_match(&a, &b, &err), PEN_ESTATE);
    assert_non_null(strstr(err.text, "128"));
    b = example();
    b.tail = PEN_TAIL_DROP;
    assert_int_equal(pen__state_match(&a, &b, &err), PEN_ESTATE);
    a.is_tail_auto = b.is_tail_auto = true; /* what the number of ranks decides may change */
    assert_int_equal(pen__state_match(&a, &b, &err), 0);
    a = b = example();
    b.seed = 1;
    assert_int_equal(pen__state_match(&a, &b, &err), PEN_ESTATE);
    assert_non_null(strstr(err.text, "seed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_survives_writing_and_parsing),
        cmocka_unit_test(text_that_is_no_state_is_refused),
        cmocka_unit_test(differences_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
