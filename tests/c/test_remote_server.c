/* test_remote_server.c - when a server may be asked, with a clock that the test turns. */
#include "testing.h"

#include <stdbool.h>
#include <stdio.h>

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

static void fail_by_chance(pen__server *server, int64_t now_ns, int64_t took_ns, int64_t again_ns,
                           const char *cause, uint32_t chance)
{
    const pen__fault fault = {.now_ns = now_ns,
                              .took_ns = took_ns,
                              .again_ns = again_ns,
                              .max_pause_ns = 2000 * MS,
                              .chance = chance,
                              .cause = cause};
    pen__server_failed(server, &fault);
}

/* Pauses and rests are as long as they get. */
static void fail_at(pen__server *server, int64_t now_ns, int64_t took_ns, int64_t again_ns,
                    const char *cause)
{
    fail_by_chance(server, now_ns, took_ns, again_ns, cause, UINT32_MAX);
}

static void denials_count_until_it_does_its_work(void **state)
{
    (void)state;
    pen__server server = {.is_checked = true};
    pen__fault fault = {.again_ns = -1, .max_pause_ns = 2000 * MS, .cause = "400"};
    for (int i = 1; i <= 6; i++) {
        fault.now_ns = i * 1000 * MS;
        fault.is_denial = i % 2 == 0; /* with other faults between them */
        pen__server_failed(&server, &fault);
        assert_int_equal(server.n_denied, i / 2);
    }
    fault.took_ns = 1500 * MS; /* it was under way when another failed */
    pen__server_failed(&server, &fault);
    assert_int_equal(server.n_denied, 3);
    pen__server_did(&server, "");
    assert_int_equal(server.n_denied, 0);
}

static void a_server_that_failed_is_put_aside_and_has_to_be_checked(void **state)
{
    (void)state;
    pen__server server = {.is_checked = true};
    pen__server_note(&server, "a", true, true);
    assert_int_equal(pen__server_room(&server, 0, CAP), CAP);
    fail_at(&server, 1000 * MS, 0, -1, "it broke");
    assert_int_equal(pen__server_room(&server, 1001 * MS, CAP), 0);
    assert_int_equal(pen__server_room(&server, 1051 * MS, CAP), 1); /* for the question, only */
    assert_false(server.is_checked || pen__server_refuses(&server, "a") ||
                 pen__server_has_put(&server, "a"));
    assert_string_equal(server.cause, "it broke");
    fail_at(&server, 1051 * MS, 0, -1, "again");
    assert_int_equal(pen__server_room(&server, 1110 * MS, CAP), 0); /* twice as long */
    server.is_checked = true;
    assert_int_equal(pen__server_room(&server, 1200 * MS, CAP),
                     1); /* it has to show that it works */
    pen__server_did(&server, "");
    assert_int_equal(server.n_faults, 0);
    assert_string_equal(server.cause, "");
    fail_by_chance(&server, 2000 * MS, 0, 5000 * MS, "busy", 0); /* its own wish */
    assert_int_equal(pen__server_room(&server, 6999 * MS, CAP), 0);
    assert_int_equal(pen__server_room(&server, 7000 * MS, CAP), 1);
}

/* Clients that were refused or failed at one moment come back at moments all over the time there
 * is, and never before the one that was asked for. */
static void who_was_sent_away_together_does_not_come_back_together(void **state)
{
    (void)state;
    enum { N_PARTS = 8 };
    bool came_busy[N_PARTS] = {false}, came_rested[N_PARTS] = {false};
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t chance = i << 26 | 1;
        pen__server busy = {.is_checked = true}, failed = {.is_checked = true};
        fail_by_chance(&busy, 0, 0, 1000 * MS, "busy", chance);
        assert_in_range(busy.aside_until_ns, 1000 * MS, 2000 * MS - 1);
        assert_int_equal(busy.rest_until_ns, busy.aside_until_ns);
        came_busy[(busy.aside_until_ns - 1000 * MS) * N_PARTS / (1000 * MS)] = true;
        fail_by_chance(&failed, 0, 10000 * MS, -1, "gone", chance);
        assert_in_range(failed.rest_until_ns, failed.aside_until_ns, 40000 * MS - 1);
        came_rested[failed.rest_until_ns * N_PARTS / (40000 * MS)] = true;
    }
    for (int i = 0; i < N_PARTS; i++)
        assert_true(came_busy[i] && came_rested[i]);
}

static void repeats_have_a_budget_that_time_and_successes_fill(void **state)
{
    (void)state;
    pen__server server = {.is_checked = true};
    int n = 0;
    for (; pen__server_may_repeat(&server, 0); n++)
        pen__server_repeats(&server, 0);
    assert_int_equal(n, 100);
    assert_false(pen__server_may_repeat(&server, 99 * MS));
    assert_true(pen__server_may_repeat(&server, 100 * MS)); /* ten a second */
    for (int i = 0; i < 4; i++) {                           /* four successes are worth one */
        assert_false(pen__server_may_repeat(&server, 0));
        pen__server_did(&server, "");
    }
    assert_true(pen__server_may_repeat(&server, 0));
    pen__server_repeats(&server, 0);
    assert_int_equal(pen__server_room(&server, 0, CAP), CAP); /* for what is new */
    server.n_faults = 1;
    assert_int_equal(pen__server_room(&server, 0, CAP), 0);
    assert_int_equal(pen__server_room(&server, 100 * MS, CAP), 1);
    for (int i = 0; i < 1000; i++) /* nothing is saved up beyond that */
        pen__server_did(&server, "");
    for (n = 0; pen__server_may_repeat(&server, 1000000 * MS); n++)
        pen__server_repeats(&server, 1000000 * MS);
    assert_int_equal(n, 100);
}

/* However long it goes on, and whatever a client would like to ask. */
static void repeats_stay_a_part_of_what_a_server_answers(void **state)
{
    (void)state;
    pen__server server = {.is_checked = true};
    int n_repeats = 0;
    for (int i = 0; i < 10000; i++) { /* a success and as many repeats as may be, each ms */
        pen__server_did(&server, "");
        for (; pen__server_may_repeat(&server, i * MS); n_repeats++)
            pen__server_repeats(&server, i * MS);
    }
    assert_in_range(n_repeats, 2650, 2701); /* 10000 / 4, ten a second, a hundred */
}

static void each_pipeline_has_a_story_of_its_own(void **state)
{
    (void)state;
    pen__server server = {.is_checked = true};
    pen__server_note(&server, "a", false, true);
    pen__server_note(&server, "b", true, false);
    assert_true(pen__server_refuses(&server, "a") && !pen__server_has_put(&server, "a"));
    assert_true(!pen__server_refuses(&server, "b") && pen__server_has_put(&server, "b"));
    assert_false(pen__server_refuses(&server, "c") || pen__server_has_put(&server, "c"));
    pen__server_did(&server, "c"); /* no news of b */
    pen__server_did(&server, "");
    assert_true(pen__server_has_put(&server, "b"));
    pen__server_did(&server, "b");
    assert_true(!pen__server_has_put(&server, "b") && pen__server_refuses(&server, "a"));
    char hash[8];
    for (int i = 0; i < 1000; i++) { /* many, and the last ones are remembered */
        snprintf(hash, sizeof hash, "%d", i);
        pen__server_note(&server, hash, false, true);
        assert_true(pen__server_refuses(&server, hash));
    }
    assert_true(pen__server_refuses(&server, "998") && !pen__server_refuses(&server, "a"));
}

static void what_is_forgotten_again_and_again_is_a_fault_once(void **state)
{
    (void)state;
    pen__server server = {.is_checked = true};
    assert_false(pen__server_forgets(&server, "a"));
    fail_at(&server, 0, 0, -1, "404"); /* it may have been restarted, and is told again */
    pen__server_did(&server, "");
    assert_true(pen__server_forgets(&server, "a"));
    assert_false(pen__server_forgets(&server, "b"));
    assert_false(pen__server_forgets(&server, "a"));
    pen__server_did(&server, "a"); /* it works */
    assert_false(pen__server_forgets(&server, "a"));
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
    assert_ptr_equal(pen__server_choose(servers, 4, 0, 0, CAP, 0), &servers[2]);
    assert_ptr_equal(pen__server_choose(servers, 4, 0, 0, CAP, 1 << 2), &servers[0]);
    assert_ptr_equal(pen__server_choose(servers, 4, 1, 0, CAP, 0), &servers[1]);
    assert_null(pen__server_choose(servers, 4, 2, 0, CAP, 0));
    servers[2].n_busy = CAP;
    assert_ptr_equal(pen__server_choose(servers, 4, 0, 0, CAP, 0), &servers[0]);
    servers[0].aside_until_ns = 10;
    assert_ptr_equal(pen__server_choose(servers, 4, 0, 0, CAP, 0), &servers[3]);
    servers[3].n_busy = 1; /* the question is under way */
    assert_null(pen__server_choose(servers, 4, 0, 0, CAP, 0));
    assert_ptr_equal(pen__server_choose(servers, 4, 0, 10, CAP, 0), &servers[0]);
}

static void who_fails_rests_while_others_work(void **state)
{
    (void)state;
    pen__server servers[2] = {{.is_checked = true}, {.is_checked = true, .n_busy = CAP}};
    pen__server *bad = &servers[0], *good = &servers[1];
    fail_at(bad, 0, 0, -1, "500");
    bad->is_checked = true;
    assert_null(
        pen__server_choose(servers, 2, 0, 900 * MS, CAP, 0)); /* the other is busy, and well */
    assert_ptr_equal(pen__server_choose(servers, 2, 0, 900 * MS, CAP, 2), bad); /* and will not */
    assert_ptr_equal(pen__server_choose(servers, 2, 0, 1001 * MS, CAP, 0), bad);
    good->n_busy = CAP - 1; /* one that works first, however busy */
    assert_ptr_equal(pen__server_choose(servers, 2, 0, 1001 * MS, CAP, 0), good);
    good->n_busy = CAP;
    fail_at(bad, 12000 * MS, 10000 * MS, -1, "slow"); /* four times ten seconds, and twice that */
    bad->is_checked = true;
    assert_null(pen__server_choose(servers, 2, 0, 91000 * MS, CAP, 0));
    assert_ptr_equal(pen__server_choose(servers, 2, 0, 92001 * MS, CAP, 0), bad);
    for (int i = 0; i < 40; i++)
        fail_at(bad, (102001 + 10000 * i) * MS, 10000 * MS, -1, "slow");
    bad->is_checked = true; /* 5 minutes */
    assert_null(pen__server_choose(servers, 2, 0, (492001 + 299000) * MS, CAP, 0));
    assert_ptr_equal(pen__server_choose(servers, 2, 0, (492001 + 300001) * MS, CAP, 0), bad);
    fail_at(good, 500000 * MS, 0, -1, "gone");
    assert_ptr_equal(pen__server_choose(servers, 2, 0, 500000 * MS, CAP, 0), bad); /* at once */
}

/* All requests that are under way fail when a server dies. */
static void one_death_is_one_fault(void **state)
{
    (void)state;
    pen__server server = {.is_checked = true};
    for (int i = 0; i < CAP; i++)
        fail_at(&server, (10000 + i) * MS, 10000 * MS, -1, "silent");
    assert_int_equal(server.n_faults, 1);
    assert_in_range(server.rest_until_ns, 49999 * MS, 50000 * MS); /* four times ten seconds */
    fail_at(&server, 20000 * MS, 10 * MS, -1, "silent"); /* was asked again, and did no better */
    assert_int_equal(server.n_faults, 2);
    pen__server_did(&server, "");
    fail_at(&server, 21000 * MS, 20000 * MS, -1, "silent"); /* it had answered since */
    assert_int_equal(server.n_faults, 1);
}

static void who_asked_for_time_gets_it_whatever_happens(void **state)
{
    (void)state;
    pen__server server = {.is_checked = true};
    fail_by_chance(&server, 0, 0, 20000 * MS, "busy", 0);
    fail_by_chance(&server, 100 * MS, 0, -1, "broken", 0);
    assert_int_equal(pen__server_room(&server, 19999 * MS, CAP), 0);
    assert_int_equal(pen__server_room(&server, 20000 * MS, CAP), 1);
}

static void who_brings_far_less_than_others_lags(void **state)
{
    (void)state;
    pen__server servers[3] = {{.is_checked = true}, {.is_checked = true}, {.shard = 1}};
    const pen__server_pace slow = {1000, 1};
    assert_false(pen__server_lags(servers, 3, &servers[0], slow)); /* of others nothing is known */
    servers[1].pace = (pen__server_pace){9000, 9};
    assert_true(pen__server_lags(servers, 3, &servers[0], slow));
    assert_false(pen__server_lags(servers, 3, &servers[1], slow)); /* it is the only one it knows */
    assert_false(pen__server_lags(servers, 3, &servers[2], slow)); /* another shard */
    assert_false(
        pen__server_lags(servers, 3, &servers[0], (pen__server_pace){2000, 0})); /* a large file */
    assert_false(
        pen__server_lags(servers, 3, &servers[0], (pen__server_pace){10, 2})); /* small ones */
    servers[1].n_faults = 1;
    assert_false(pen__server_lags(servers, 3, &servers[0], slow)); /* nobody to go to */
}

/* Or each time that it has rested it would refuse as many again. */
static void a_server_that_is_full_gets_fewer_requests_at_once(void **state)
{
    (void)state;
    pen__server server = {.is_checked = true, .n_busy = 2};
    assert_int_equal(pen__server_room(&server, 0, CAP), 2);
    fail_at(&server, 0, 0, 100 * MS, "503"); /* a third one; two had room */
    assert_int_equal(pen__server_room(&server, 300 * MS, CAP), 0);
    server.n_busy = 0;
    assert_int_equal(pen__server_room(&server, 100 * MS, CAP), 0); /* it rests */
    assert_int_equal(pen__server_room(&server, 300 * MS, CAP), 2);
    fail_at(&server, 300 * MS, 0, 100 * MS, "503");
    assert_int_equal(pen__server_room(&server, 600 * MS, CAP), 1);
    pen__server_did(&server, "");
    assert_int_equal(pen__server_room(&server, 10000 * MS, CAP), 1);
    assert_int_equal(pen__server_room(&server, 10300 * MS, CAP), 2);
    assert_int_equal(pen__server_room(&server, 3600 * 1000 * MS, CAP), CAP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pauses_grow_are_random_and_have_a_limit),
        cmocka_unit_test(denials_count_until_it_does_its_work),
        cmocka_unit_test(a_server_that_failed_is_put_aside_and_has_to_be_checked),
        cmocka_unit_test(a_server_that_is_full_gets_fewer_requests_at_once),
        cmocka_unit_test(who_was_sent_away_together_does_not_come_back_together),
        cmocka_unit_test(repeats_have_a_budget_that_time_and_successes_fill),
        cmocka_unit_test(repeats_stay_a_part_of_what_a_server_answers),
        cmocka_unit_test(each_pipeline_has_a_story_of_its_own),
        cmocka_unit_test(what_is_forgotten_again_and_again_is_a_fault_once),
        cmocka_unit_test(the_least_busy_of_those_that_work_is_chosen),
        cmocka_unit_test(who_fails_rests_while_others_work),
        cmocka_unit_test(one_death_is_one_fault),
        cmocka_unit_test(who_asked_for_time_gets_it_whatever_happens),
        cmocka_unit_test(who_brings_far_less_than_others_lags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
