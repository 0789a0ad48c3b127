/* test_scan.c - lines, words and numbers, at their limits. */
#include "kernels.h"

#include "telemetry/scan.h"

static pen__scan of(const char *text)
{
    return pen__scan_text(text, strlen(text));
}

static void a_text_is_cut_into_lines_and_words(void **state)
{
    (void)state;
    pen__scan text = of("  one \t two\n\nlast"), line, word;
    assert_true(pen__scan_line(&text, &line));
    assert_true(pen__scan_word(&line, &word) && pen__scan_is(word, "one"));
    assert_true(pen__scan_word(&line, &word) && pen__scan_is(word, "two"));
    assert_false(pen__scan_word(&line, &word));
    assert_true(pen__scan_line(&text, &line));
    assert_false(pen__scan_word(&line, &word));
    assert_true(pen__scan_line(&text, &line));
    assert_true(pen__scan_word(&line, &word) && pen__scan_is(word, "last"));
    assert_false(pen__scan_line(&text, &line));
}

static void numbers_are_whole_words_of_digits(void **state)
{
    (void)state;
    assert_is(pen__scan_count(of("0")), 0);
    assert_is(pen__scan_count(of("0012")), 12);
    assert_is(pen__scan_count(of("9007199254740992")), 9007199254740992.0);
    const char *bad[] = {"", "-1", "+1", "1x", "x1", " 1", "0x10", "1e3", "nan", "max", "1.5"};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_unavailable(pen__scan_count(of(bad[i])));
}

static void numbers_that_no_double_holds_are_refused(void **state)
{
    (void)state;
    assert_unavailable(pen__scan_count(of("9007199254740994")));
    assert_unavailable(pen__scan_count(of("18446744073709551615")));
    assert_unavailable(pen__scan_count(of("99999999999999999999999999999999999999999999")));
}

static void decimals_have_one_point(void **state)
{
    (void)state;
    assert_is(pen__scan_decimal(of("12.50")), 12.5);
    assert_is(pen__scan_decimal(of("7")), 7);
    assert_is(pen__scan_decimal(of("0.01")), 0.01);
    const char *bad[] = {"", ".", "1.", ".5", "1.2.3", "-1.0", "1.5e3"};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_unavailable(pen__scan_decimal(of(bad[i])));
}

static void a_value_is_found_by_its_whole_key(void **state)
{
    (void)state;
    pen__scan text = of("total_high 1\nhigh 2\nhighest 3\nbare\nword x\n");
    assert_is(pen__scan_value(text, "high"), 2);
    assert_is(pen__scan_value(text, "highest"), 3);
    assert_unavailable(pen__scan_value(text, "hig"));
    assert_unavailable(pen__scan_value(text, "bare"));
    assert_unavailable(pen__scan_value(text, "word"));
    assert_unavailable(pen__scan_value(of(""), "high"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_cut_into_lines_and_words),
        cmocka_unit_test(numbers_are_whole_words_of_digits),
        cmocka_unit_test(numbers_that_no_double_holds_are_refused),
        cmocka_unit_test(decimals_have_one_point),
        cmocka_unit_test(a_value_is_found_by_its_whole_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
