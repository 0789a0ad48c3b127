/* test_brace.c - patterns of shard names. */
#include "testing.h"

#include "base/mem.h"
#include "source/brace.h"

static void expands_to(const char *pattern, const char *joined)
{
    pen__paths paths = {0};
    pen_error err = {0};
    if (pen__brace_expand(&paths, pattern, &err) != 0)
        fail_msg("'%s': %s", pattern, err.text);
    char got[512] = "";
    for (size_t i = 0; i < paths.n; i++) {
        strcat(got, i ? " " : "");
        strcat(got, paths.items[i]);
    }
    assert_string_equal(got, joined);
    pen__paths_fini(&paths);
}

static void refuses(const char *pattern, int code)
{
    int64_t live = pen__mem_live();
    pen__paths paths = {0};
    pen_error err = {0};
    assert_int_equal(pen__brace_expand(&paths, pattern, &err), code);
    assert_true(err.text[0] != '\0');
    pen__paths_fini(&paths);
    assert_int_equal(pen__mem_live(), live);
}

static void ranges_keep_the_width_of_leading_zeros(void **state)
{
    (void)state;
    expands_to("a-{000..003}.tar", "a-000.tar a-001.tar a-002.tar a-003.tar");
    expands_to("{8..11}", "8 9 10 11");
    expands_to("{08..11}", "08 09 10 11");
    expands_to("{8..011}", "008 009 010 011");
    expands_to("{3..1}", "3 2 1");
    expands_to("{0..0}", "0");
}

static void lists_nest_and_multiply(void **state)
{
    (void)state;
    expands_to("plain.tar", "plain.tar");
    expands_to("{a,b}.tar", "a.tar b.tar");
    expands_to("x{a,}y", "xay xy");
    expands_to("{a,b}-{0..1}", "a-0 a-1 b-0 b-1");
    expands_to("{a{0..1},b{x,y}}", "a0 a1 bx by");
    expands_to("{{a,b},{0..1}}{c,d}", "ac ad bc bd 0c 0d 1c 1d");
}

static void what_is_malformed_is_said(void **state)
{
    (void)state;
    refuses("{a,b", PEN_EINVAL);
    refuses("a}b", PEN_EINVAL);
    refuses("{a}", PEN_EINVAL);
    refuses("{}", PEN_EINVAL);
    refuses("{0..}", PEN_EINVAL);
    refuses("{0..x}", PEN_EINVAL);
    refuses("{0..1..2}", PEN_EINVAL);
    refuses("{0..99999999999999999999}", PEN_EINVAL);
}

static void expansion_is_bounded(void **state)
{
    (void)state;
    refuses("{0..1000000}", PEN_ELIMIT);
    refuses("{0..9999}{0..9999}", PEN_ELIMIT);
    refuses("{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}{,}", PEN_ELIMIT);
    refuses("{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{a,b}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}", PEN_ELIMIT);
}

static void a_failing_allocation_leaks_nothing(void **state)
{
    (void)state;
    int64_t live = pen__mem_live();
    int rc = PEN_ENOMEM;
    for (int64_t n = 1; rc != 0; n++) {
        pen__paths paths = {0};
        pen__mem_fail_at(n);
        rc = pen__brace_expand(&paths, "{a,{b,c}}{0..20}", NULL);
        pen__mem_fail_at(0);
        assert_true(rc == 0 || rc == PEN_ENOMEM);
        pen__paths_fini(&paths);
        assert_int_equal(pen__mem_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_keep_the_width_of_leading_zeros),
        cmocka_unit_test(lists_nest_and_multiply),
        cmocka_unit_test(what_is_malformed_is_said),
        cmocka_unit_test(expansion_is_bounded),
        cmocka_unit_test(a_failing_allocation_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
