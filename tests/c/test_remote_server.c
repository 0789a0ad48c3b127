/* test_remote_server.c - when a server may be asked, with a clock that the test turns. */
#include "testing.h"

#include <stdbool.h>

#include "remote/remote_server.h"

#define MS INT64_C(1000000)

enum { CAP = 4 };

static void pauses_grow_are_random_and_have_a_limit(void **state)
{
    (void)state;
    assert_int_equal(pen__pause_ns(1, 2000 * MS, 0), 0);
    int64_t before = 0;
    for (int n = 1; n <= 6; n++) {
        int64_t longest = pen__pause_ns(n, 2000 * MS, UINT32_MAX);
        assert_in_range(longest, (50 * MS << (n - 1)) - 1000, 50 * MS << (n - 1));
        assert_true(longest > before);
        before = longest;
        assert_in_range(pen__pause_ns(n, 2000 * MS, UINT32_MAX / 2), longest / 2 - 1000,
                        longest / 2 + 1000);
    }
    assert_in_range(pen__pause_ns(1000000, 2000 * MS, UINT32_MAX), 1999 * MS, 2000 * MS);
    assert_in_range(pen__pause_ns(3, 10 * MS, UINT32_MAX), 9 * MS, 10 * MS);
}

static void a_server_that_failed_is_put_aside_and_has_to_be_checked(void **state)
{
    (void)state;
    pen__server server = {.is_checked = true, .refuses_pipeline = true, .has_put = true};
    assert_int_equal(pen__server_room(&server, 0, CAP), CAP);
    pen__server_failed(&server, 1000 * MS, -1, 2000 * MS, UINT32_MAX, "it broke");
    assert_int_equal(pen__server_room(&server, 1001 * MS, CAP), 0);
    assert_int_equal(pen__server_room(&server, 1051 * MS, CAP), 1); /* for the question, only */
    assert_false(server.is_checked || server.refuses_pipeline || server.has_put);
    assert_string_equal(server.cause, "it broke");
    pen__server_failed(&server, 1051 * MS, -1, 2000 * MS, UINT32_MAX, "again");
    assert_int_equal(pen__server_room(&server, 1110 * MS, CAP), 0); /* twice as long */
    server.is_checked = true;
    pen__server_did(&server);
    assert_int_equal(server.n_faults, 0);
    assert_string_equal(server.cause, "");
    pen__server_failed(&server, 2000 * MS, 5000 * MS, 2000 * MS, 0, "busy"); /* its own wish */
    assert_int_equal(pen__server_room(&server, 6999 * MS, CAP), 0);
    assert_int_equal(pen__server_room(&server, 7000 * MS, CAP), CAP);
}

static void the_least_busy_of_those_that_work_is_chosen(void **state)
{
    (void)state;
    pen__server servers[4] = {
        {.shard = 0, .is_checked = true, .n_busy = 2},
        {.shard = 1, .is_checked = true},
        {.shard = 0, .is_checked = true, .n_busy = 1},
        {.shard = 0},
    };
    assert_ptr_equal(pen__server_choose(servers, 4, 0, 0, CAP), &servers[2]);
    assert_ptr_equal(pen__server_choose(servers, 4, 1, 0, CAP), &servers[1]);
    assert_null(pen__server_choose(servers, 4, 2, 0, CAP));
    servers[2].n_busy = CAP;
    assert_ptr_equal(pen__server_choose(servers, 4, 0, 0, CAP), &servers[0]);
    servers[0].aside_until_ns = 10;
    assert_ptr_equal(pen__server_choose(servers, 4, 0, 0, CAP), &servers[3]);
    servers[3].n_busy = 1; /* the question is under way */
    assert_null(pen__server_choose(servers, 4, 0, 0, CAP));
    assert_ptr_equal(pen__server_choose(servers, 4, 0, 10, CAP), &servers[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pauses_grow_are_random_and_have_a_limit),
        cmocka_unit_test(a_server_that_failed_is_put_aside_and_has_to_be_checked),
        cmocka_unit_test(the_least_busy_of_those_that_work_is_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
