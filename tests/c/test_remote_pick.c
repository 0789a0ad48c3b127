/* test_remote_pick.c - who is asked for what, with a clock that the test turns. */
#include "testing.h"

#include <string.h>

#include "remote/remote_pick.h"

enum { CAP = 4, N_CALLS = 6 };

static pen__server servers[2];
static pen__call calls[N_CALLS];
static pen__calls waiting;
static const pen__picker picker = {&waiting, servers, 2, CAP};

static int set_up(void **state)
{
    (void)state;
    memset(servers, 0, sizeof servers);
    servers[0].is_checked = servers[1].is_checked = true;
    waiting = (pen__calls){0};
    for (int i = 0; i < N_CALLS; i++) {
        calls[i] = (pen__call){.id = (uint32_t)i};
        pen__calls_put(&waiting, &calls[i], NULL);
    }
    return 0;
}

static void the_oldest_go_together(void **state)
{
    (void)state;
    pen__call *out[N_CALLS];
    int n_ready, n_all;
    assert_ptr_equal(pen__pick_server(&picker, 0, 0, &n_ready), &servers[0]);
    assert_int_equal(n_ready, N_CALLS);
    assert_int_equal(pen__pick_room(&picker, 0, 0, &n_all), 2 * CAP);
    calls[1].not_before_ns = 10;
    calls[2].n_tries = 3; /* it travels alone */
    assert_int_equal(pen__pick_calls(&picker, &servers[0], 0, out, 3, 3), 3);
    assert_true(out[0] == &calls[0] && out[1] == &calls[3] && out[2] == &calls[4]);
    calls[0].shard = 1;
    assert_int_equal(pen__pick_calls(&picker, &servers[0], 0, out, 3, 3), 1);
    assert_ptr_equal(out[0], &calls[2]);
}

static void fields_travel_with_fields_and_in_one(void **state)
{
    (void)state;
    pen__call *out[N_CALLS];
    for (int i = 2; i < N_CALLS; i++)
        calls[i].field = i % 2 ? PEN_FIELD_TXT : PEN_FIELD_JSON;
    assert_int_equal(pen__pick_calls(&picker, &servers[0], 0, out, N_CALLS, N_CALLS), 2);
    assert_true(out[0] == &calls[0] && out[1] == &calls[1]);
    pen__calls_take(&waiting, &calls[0]);
    pen__calls_take(&waiting, &calls[1]);
    assert_int_equal(pen__pick_calls(&picker, &servers[0], 0, out, 1, N_CALLS), 4);
    assert_int_equal(pen__pick_calls(&picker, &servers[0], 0, out, 1, 3), 3);
    assert_ptr_equal(out[0], &calls[2]);
}

static void nobody_is_asked_for_what_he_refused(void **state)
{
    (void)state;
    pen__call *out[N_CALLS];
    int n_ready;
    servers[1].n_busy = 1;
    for (int i = 0; i < N_CALLS; i++)
        calls[i].refused_by = 1;
    assert_ptr_equal(pen__pick_server(&picker, 0, 0, &n_ready), &servers[1]);
    calls[5].refused_by = 2;
    assert_ptr_equal(pen__pick_server(&picker, 0, 0, &n_ready), &servers[0]);
    assert_int_equal(n_ready, 1);
    assert_int_equal(pen__pick_calls(&picker, &servers[0], 0, out, N_CALLS, N_CALLS), 1);
    assert_ptr_equal(out[0], &calls[5]);
    assert_int_equal(pen__pick_calls(&picker, &servers[1], 0, out, N_CALLS, N_CALLS), 5);
    for (int i = 0; i < N_CALLS; i++)
        calls[i].refused_by = 3;
    assert_null(pen__pick_server(&picker, 0, 0, &n_ready));
}

static void who_failed_gets_one_sample_that_has_time(void **state)
{
    (void)state;
    pen__call *out[N_CALLS];
    servers[0].n_faults = 1;
    calls[5].n_tries = 1;
    assert_int_equal(pen__pick_calls(&picker, &servers[0], 0, out, N_CALLS, N_CALLS), 1);
    assert_ptr_equal(out[0], &calls[4]);
    calls[4].refused_by = 1;
    assert_int_equal(pen__pick_calls(&picker, &servers[0], 0, out, N_CALLS, N_CALLS), 1);
    assert_ptr_equal(out[0], &calls[3]);
}

static void who_was_asked_too_often_again_gets_what_is_new(void **state)
{
    (void)state;
    pen__call *out[N_CALLS];
    int n_ready;
    while (pen__server_may_repeat(&servers[0], 0))
        pen__server_repeats(&servers[0], 0);
    servers[1].shard = 1;
    for (int i = 0; i < N_CALLS; i++)
        calls[i].n_tries = i != 2;
    assert_ptr_equal(pen__pick_server(&picker, 0, 0, &n_ready), &servers[0]);
    assert_int_equal(n_ready, 1);
    assert_int_equal(pen__pick_calls(&picker, &servers[0], 0, out, N_CALLS, N_CALLS), 1);
    assert_ptr_equal(out[0], &calls[2]);
    assert_int_equal(pen__pick_calls(&picker, &servers[0], 1000000000, out, N_CALLS, N_CALLS),
                     N_CALLS);
    servers[1].shard = 0; /* another one has a budget of its own */
    assert_int_equal(pen__pick_calls(&picker, &servers[1], 0, out, N_CALLS, N_CALLS), N_CALLS);
}

/* ---- how many in one ---- */

static int share(int n_ready, int n_sent, int n_busy)
{
    const pen__pick_counts counts = {.n_ready = n_ready,
                                     .n_sent = n_sent,
                                     .n_room = CAP - n_busy,
                                     .n_all = CAP,
                                     .n_busy = n_busy};
    return pen__pick_share(&counts);
}

static void few_calls_share_two_requests(void **state)
{
    (void)state;
    assert_int_equal(CAP, 4);
    assert_int_equal(share(1, 0, 0), 1);
    assert_int_equal(share(4, 0, 0), 2);
    assert_int_equal(share(2, 2, 1), 2); /* the second half */
    assert_int_equal(share(2, 2, 2), 0); /* no third request */
    assert_int_equal(share(1, 3, 1), 0); /* too few for a half: more will come */
    assert_int_equal(share(16, 0, 0), 8);
}

static void many_calls_share_all_requests(void **state)
{
    (void)state;
    assert_int_equal(share(24, 0, 0), 8);
    assert_int_equal(share(32, 0, 0), 8);
    assert_int_equal(share(64, 0, 0), 16);
    assert_int_equal(share(16, 48, 3), 16);
    assert_int_equal(share(15, 49, 3), 0);
}

static void a_server_with_nothing_to_do_is_never_kept_waiting(void **state)
{
    (void)state;
    /* another one has four requests and answers none of them */
    const pen__pick_counts counts = {.n_ready = 4, .n_sent = 4, .n_room = 4, .n_all = 8};
    assert_int_equal(pen__pick_share(&counts), 4);
    for (int n_ready = 1; n_ready < 100; n_ready++)
        for (int n_sent = 0; n_sent < 100; n_sent++) {
            const pen__pick_counts hangs = {
                .n_ready = n_ready, .n_sent = n_sent, .n_room = 4, .n_all = 8};
            assert_true(pen__pick_share(&hangs) >= 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_oldest_go_together, set_up),
        cmocka_unit_test_setup(fields_travel_with_fields_and_in_one, set_up),
        cmocka_unit_test_setup(nobody_is_asked_for_what_he_refused, set_up),
        cmocka_unit_test_setup(who_failed_gets_one_sample_that_has_time, set_up),
        cmocka_unit_test_setup(who_was_asked_too_often_again_gets_what_is_new, set_up),
        cmocka_unit_test(few_calls_share_two_requests),
        cmocka_unit_test(many_calls_share_all_requests),
        cmocka_unit_test(a_server_with_nothing_to_do_is_never_kept_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
