/* test_remote_blame.c - errors that name the right servers. */
#include "testing.h"

#include <string.h>

#include "base/fail.h"
#include "remote/remote_blame.h"

enum { SECOND = 1000000000, N = 3 };

static pen__server servers[N];
static pen__call call;

static int set_up(void **state)
{
    (void)state;
    static const char *const labels[N] = {"a:1", "b:2", "other:3"};
    memset(servers, 0, sizeof servers);
    for (int i = 0; i < N; i++) {
        snprintf(servers[i].label, sizeof servers[i].label, "%s", labels[i]);
        servers[i].shard = i == 2;
    }
    call = (pen__call){.shard = 0};
    return 0;
}

static void time_that_runs_out_names_each_server_of_the_shard(void **state)
{
    (void)state;
    snprintf(servers[1].cause, sizeof servers[1].cause, "connection refused");
    snprintf(servers[2].cause, sizeof servers[2].cause, "not asked");
    call.n_tries = 2;
    pen__blame_all(&call, servers, N, SECOND);
    assert_int_equal(call.result, PEN_EIO);
    assert_string_equal(call.err.text,
                        "could not be had in 1.0 s, 2 failed tries: a:1: it is too slow; "
                        "b:2: connection refused");
}

static void the_samples_own_fault_is_its_servers(void **state)
{
    (void)state;
    pen__fail(&call.err, PEN_EIO, -1, "the disk is unwell");
    call.blamed = &servers[1];
    pen__blame_all(&call, servers, N, 0);
    assert_string_equal(call.err.text,
                        "could not be had in 0.0 s: a:1: it is too slow; b:2: the disk is unwell");
}

static void refusals_stand_before_silence(void **state)
{
    (void)state;
    pen__blame_refusal(&call, servers, N, 1, "answers", "401, wrong token");
    pen__blame_refusal(&call, servers, N, 1, "answers", "401, wrong token"); /* known */
    pen__blame_all(&call, servers, N, SECOND);
    assert_string_equal(
        call.err.text,
        "could not be had in 1.0 s: b:2 answers 401, wrong token; a:1: it is too slow");
    pen__blame_refusal(&call, servers, N, 0, "cannot send it:", "it is too large");
    assert_int_equal(call.refused_by, 3);
    pen__blame_all(&call, servers, N, SECOND);
    assert_string_equal(call.err.text,
                        "b:2 answers 401, wrong token; a:1 cannot send it: it is too large");
}

static void many_long_reasons_leave_room_for_each_other(void **state)
{
    (void)state;
    char text[400] = "", reason[300];
    memset(reason, 'x', sizeof reason);
    reason[sizeof reason - 1] = '\0';
    for (int i = 0; i < 4; i++) {
        reason[0] = (char)('0' + i);
        pen__blame_add(text, sizeof text, 4, reason);
    }
    for (int i = 0; i < 4; i++)
        assert_non_null(strchr(text, '0' + i));
    for (int i = 0; i < 100; i++) /* and however many there are, they end */
        pen__blame_add(text, sizeof text, 100, reason);
    assert_true(strlen(text) < sizeof text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(time_that_runs_out_names_each_server_of_the_shard, set_up),
        cmocka_unit_test_setup(the_samples_own_fault_is_its_servers, set_up),
        cmocka_unit_test_setup(refusals_stand_before_silence, set_up),
        cmocka_unit_test(many_long_reasons_leave_room_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
