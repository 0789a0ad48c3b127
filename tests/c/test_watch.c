/* test_watch.c - files that are read again, that vanish, that come late, that are long. */
#include "kernels.h"

#include "base/mem.h"
#include "telemetry/watch.h"

static char *buffer;

static int set_up(void **state)
{
    buffer = malloc(PEN__WATCH_CAP);
    return buffer ? tree_setup(state) : -1;
}

static int tear_down(void **state)
{
    free(buffer);
    return tree_teardown(state);
}

static void assert_reads_as(pen__watch *watch, const char *want)
{
    pen__scan text = pen__watch_read(watch, buffer);
    assert_int_equal(text.end - text.at, strlen(want));
    assert_memory_equal(text.at, want, strlen(want));
}

static void a_file_is_opened_once_and_read_anew(void **state)
{
    (void)state;
    pen__watch watch;
    put_text("proc/one", "1\n");
    assert_int_equal(pen__watch_init(&watch, tree, "/proc", "one"), 0);
    int fds = open_fds();
    assert_reads_as(&watch, "1\n");
    put_text("proc/one", "22\n"); /* the same file, rewritten */
    assert_reads_as(&watch, "22\n");
    assert_int_equal(open_fds(), fds);
    pen__watch_fini(&watch);
    assert_int_equal(open_fds(), fds - 1);
}

/* Reading a folder fails, as reading a file of a removed group does. */
static void a_file_that_fails_reads_as_empty_and_is_tried_again(void **state)
{
    (void)state;
    pen__watch watch;
    put_text("proc/one/in", "");
    assert_int_equal(pen__watch_init(&watch, tree, "/proc", "one"), 0);
    assert_reads_as(&watch, "");
    assert_false(pen__watch_is_open(&watch));
    assert_int_equal(unlink(in_tree("proc/one/in")), 0);
    assert_int_equal(rmdir(in_tree("proc/one")), 0);
    put_text("proc/one", "back\n");
    int tries = 0;
    while (pen__watch_read(&watch, buffer).end == buffer && tries < 100)
        tries++;
    assert_in_range(tries, 1, 50); /* not at once, and not never */
    assert_reads_as(&watch, "back\n");
    pen__watch_fini(&watch);
}

static void a_file_that_never_was_is_no_error(void **state)
{
    (void)state;
    pen__watch watch;
    assert_int_equal(pen__watch_init(&watch, tree, "/proc", "none"), 0);
    for (int i = 0; i < 100; i++)
        assert_reads_as(&watch, "");
    pen__watch_fini(&watch);
    pen__watch_fini(&watch);
}

static void of_a_long_file_whole_lines_are_seen(void **state)
{
    (void)state;
    pen__watch watch;
    size_t len = PEN__WATCH_CAP + 1000;
    char *text = malloc(len);
    for (size_t i = 0; i < len; i++)
        text[i] = i % 7 == 6 ? '\n' : '8';
    put_bytes("proc/long", text, len);
    free(text);
    assert_int_equal(pen__watch_init(&watch, tree, "/proc", "long"), 0);
    pen__scan seen = pen__watch_read(&watch, buffer);
    assert_int_equal(seen.end - seen.at, PEN__WATCH_CAP / 7 * 7);
    assert_int_equal(seen.end[-1], '\n');
    pen__watch_fini(&watch);
}

static void running_out_of_memory_is_reported(void **state)
{
    (void)state;
    pen__watch watch;
    pen__mem_fail_at(1);
    assert_int_equal(pen__watch_init(&watch, tree, "/proc", "one"), PEN_ENOMEM);
    pen__mem_fail_at(0);
    pen__watch_fini(&watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_is_opened_once_and_read_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_fails_reads_as_empty_and_is_tried_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_never_was_is_no_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_a_long_file_whole_lines_are_seen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(running_out_of_memory_is_reported, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
