/* test_remote_asked.c - what an answer says it was asked, from the line to the verdict. */
#include "lines.h"

#include "base/crc32c.h"
#include "remote/remote_asked.h"

#define URL "http://[::1]:7470/v1/data/x/samples"

/* The line as it comes, without its NUL, for sanitizers to watch. */
static void hear(pen__asked *asked, const char *line)
{
    const size_t len = strlen(line);
    char *copy = malloc(len ? len : 1);
    memcpy(copy, line, len);
    pen__asked_hear(asked, copy, len);
    free(copy);
}

static pen__asked_verdict verdict_on(const char *line)
{
    pen__asked asked = {.sent = 0x0123abcd};
    hear(&asked, "HTTP/1.1 200 OK\r\n");
    hear(&asked, line);
    hear(&asked, "\r\n");
    return pen__asked_judge(&asked);
}

static void the_sum_is_of_target_and_body(void **state)
{
    (void)state;
    static const char all[] = "/v1/data/x/samples{\"seed\":\"1\"}";
    const char *body = strchr(all, '{');
    pen__asked asked = pen__asked_begin(URL, body, strlen(body));
    assert_int_equal(asked.sent, pen__crc32c(0, all, strlen(all)));
    assert_int_equal(pen__asked_judge(&asked), PEN__ASKED_UNTOLD);
    asked = pen__asked_begin("https://h/v1?page=1", NULL, 0);
    assert_int_equal(asked.sent, pen__crc32c(0, "/v1?page=1", 10));
    asked = pen__asked_begin("https://h", NULL, 0);
    assert_int_equal(asked.sent, 0);
}

static void a_line_says_what_was_asked(void **state)
{
    (void)state;
    assert_int_equal(verdict_on("Penstock-Asked: 0123abcd\r\n"), PEN__ASKED_THIS);
    assert_int_equal(verdict_on("penstock-asked:0123abcd"), PEN__ASKED_THIS);
    assert_int_equal(verdict_on("PENSTOCK-ASKED: \t 0123abcd \r\n"), PEN__ASKED_THIS);
    assert_int_equal(verdict_on("Penstock-Asked: 0123abce\r\n"), PEN__ASKED_SOMETHING_ELSE);
}

static void what_is_no_such_line_says_nothing(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        "Penstock-Asked",
        "Penstock-Asked:",
        "Penstock-Asked: \r\n",
        "Penstock-Asked: 0123abc\r\n",
        "Penstock-Asked: 0123abcd0\r\n",
        "Penstock-Asked: 0123ABCD\r\n",
        "Penstock-Asked: 0x23abcd\r\n",
        "Penstock-Asked: 0123 bcd\r\n",
        "Penstock-Asked : 0123abcd\r\n",
        "Penstock-Cores: 0123abcd\r\n",
    };
    for (size_t i = 0; i < COUNT(lines); i++)
        assert_int_equal(verdict_on(lines[i]), PEN__ASKED_UNTOLD);
}

static void each_head_speaks_for_itself(void **state)
{
    (void)state;
    pen__asked asked = {.sent = 0x0123abcd};
    hear(&asked, "HTTP/1.1 100 Continue\r\n");
    hear(&asked, "Penstock-Asked: 0123abcd\r\n");
    hear(&asked, "HTTP/1.1 200 OK\r\n");
    assert_int_equal(pen__asked_judge(&asked), PEN__ASKED_UNTOLD);
}

/* Neither in the line nor in the request can one be lost. */
static void no_flipped_bit_goes_unseen(void **state)
{
    (void)state;
    static const char body[] =
        "{\"pipeline\":null,\"base\":1,\"seed\":\"1\",\"items\":[[1,0,0,0,1]]}";
    char line[] = "Penstock-Asked: 0123abcd\r\n", changed[sizeof body];
    for (size_t bit = 0; bit < 8 * strlen("Penstock-Asked: 0123abcd"); bit++) {
        line[bit / 8] = (char)(line[bit / 8] ^ 1 << bit % 8);
        const bool is_letter = bit % 8 == 5 && bit / 8 < 14 && line[bit / 8] != '\r';
        const bool is_space = bit / 8 == 15; /* or what another kind of space became */
        if (!is_letter && !is_space)         /* "penstock-asked" is as good */
            assert_int_not_equal(verdict_on(line), PEN__ASKED_THIS);
        line[bit / 8] = (char)(line[bit / 8] ^ 1 << bit % 8);
    }
    const uint32_t sent = pen__asked_begin(URL, body, strlen(body)).sent;
    for (size_t bit = 0; bit < 8 * strlen(body); bit++) {
        memcpy(changed, body, sizeof body);
        changed[bit / 8] = (char)(changed[bit / 8] ^ 1 << bit % 8);
        assert_true(pen__asked_begin(URL, changed, strlen(body)).sent != sent);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_is_of_target_and_body),
        cmocka_unit_test(a_line_says_what_was_asked),
        cmocka_unit_test(what_is_no_such_line_says_nothing),
        cmocka_unit_test(each_head_speaks_for_itself),
        cmocka_unit_test(no_flipped_bit_goes_unseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
