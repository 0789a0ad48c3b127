/* test_node_watch.c - how fast the clients of a storage node take their answers, and how long they
 * wait for them. */
#include "testing.h"

#include <sched.h>

#include "remote/node_impl.h"

#define SECOND ((int64_t)1000000000)

enum { PIECE = 16 << 10 };

static pen_node_opts opts; /* 30 s, 4 KiB/s */
static pen__pace pace;

static int set_up(void **state)
{
    (void)state;
    pen_node_opts_init(&opts);
    pen__pace_begin(&pace, SECOND);
    return 0;
}

/* A piece every so many seconds, looked at each second; after how many it is too slow, or 0. */
static int seconds_until_slow(int every_s, int64_t bytes)
{
    for (int now = 2; now < 1000; now++) {
        if (now % every_s == 0)
            pace.bytes += bytes;
        if (pen__pace_is_slow(&pace, now * SECOND, &opts))
            return now - 1;
    }
    return 0;
}

static void a_piece_now_and_then_is_too_slow(void **state)
{
    (void)state;
    assert_int_equal(seconds_until_slow(29, PIECE), 30);
}

static void who_takes_enough_on_average_is_not(void **state)
{
    (void)state;
    assert_int_equal(seconds_until_slow(1, 4096), 0);
    pen__pace_begin(&pace, SECOND);
    assert_int_equal(seconds_until_slow(10, 3 * PIECE), 0); /* in bursts */
}

/* The kernel takes the beginning of an answer at once: that counts for as long as any bytes do. */
static void a_fast_beginning_does_not_help_for_long(void **state)
{
    (void)state;
    pace.bytes = 8 << 20;
    assert_int_equal(seconds_until_slow(29, PIECE), 60);
}

static void times_without_anything_to_send_do_not_count(void **state)
{
    (void)state;
    pen__pace_rest(&pace, 11 * SECOND);
    assert_false(pen__pace_is_slow(&pace, 1000 * SECOND, &opts));
    pen__pace_go_on(&pace, 1001 * SECOND);
    pen__pace_go_on(&pace, 1001 * SECOND); /* nothing rests */
    assert_false(pen__pace_is_slow(&pace, 1020 * SECOND, &opts));
    assert_true(pen__pace_is_slow(&pace, 1021 * SECOND, &opts));
}

static void without_a_limit_nothing_is_too_slow(void **state)
{
    (void)state;
    opts.slowest_bytes_per_s = 0;
    assert_int_equal(seconds_until_slow(29, 1), 0);
}

static void *watch(void *node)
{
    pen__watch_run(node, 0);
    return NULL;
}

/* The lock is held, and free afterwards. */
static void end_watch(pen_node *node, pthread_t watcher)
{
    node->is_closing = true;
    pthread_cond_broadcast(&node->tick);
    pthread_mutex_unlock(&node->lock);
    pthread_join(watcher, NULL);
}

/* Their connections have something to send, so none of them is to be resumed. */
static void all_that_waited_for_too_long_are_given_up_at_once(void **state)
{
    (void)state;
    enum { N = 3 };
    static pen__node_order order = {.n_items = 2};
    pen__client client = {0};
    pen__exchange late[N] = {0};
    pen_node *node;
    pthread_t watcher;
    assert_int_equal(pen_node_create(&node, &opts, NULL), 0);
    for (int i = 0; i < N; i++) {
        late[i] = (pen__exchange){.node = node, .client = &client, .order = &order};
        pen__work_enqueue(node, &late[i]);
        late[i].runnable_ns -= 3600 * SECOND;
    }
    assert_int_equal(pthread_create(&watcher, NULL, watch, node), 0);
    pthread_mutex_lock(&node->lock);
    while (late[0].is_queued) {
        pthread_mutex_unlock(&node->lock);
        sched_yield();
        pthread_mutex_lock(&node->lock);
    }
    for (int i = 0; i < N; i++) { /* nobody had the lock in between */
        assert_false(late[i].is_queued);
        assert_int_equal(late[i].n_framed, 2);
    }
    assert_int_equal(node->n_waiting_items, 0);
    end_watch(node, watcher);
    for (int i = 0; i < N; i++)
        pen__queue_drop(&late[i].queue, &node->chunks);
    pen_node_free(node);
}

static void time_without_requests_is_no_sending(void **state)
{
    (void)state;
    pen_node *node;
    pthread_t watcher;
    assert_int_equal(pen_node_create(&node, &opts, NULL), 0);
    node->sending.has_begun = true;
    node->quiet_ns = 1; /* long ago */
    assert_int_equal(pthread_create(&watcher, NULL, watch, node), 0);
    pthread_mutex_lock(&node->lock);
    while (node->sending.has_begun) {
        pthread_mutex_unlock(&node->lock);
        sched_yield();
        pthread_mutex_lock(&node->lock);
    }
    end_watch(node, watcher);
    pen_node_free(node);
}

/* A client has taken a little, and takes no more for now. */
static void whoever_waits_for_room_hears_of_a_little_as_well(void **state)
{
    (void)state;
    pen_node *node;
    pthread_t watcher;
    pen__client client = {0};
    assert_int_equal(pen_node_create(&node, &opts, NULL), 0);
    pen__exchange x = {.node = node, .client = &client};
    pen__hold(&x, 2 * PIECE);
    node->is_short = true;
    pen__hold(&x, -PIECE);
    assert_true(node->is_short); /* not worth waking up for at once */
    assert_int_equal(pthread_create(&watcher, NULL, watch, node), 0);
    pthread_mutex_lock(&node->lock);
    while (node->is_short) {
        pthread_mutex_unlock(&node->lock);
        sched_yield();
        pthread_mutex_lock(&node->lock);
    }
    end_watch(node, watcher);
    pen__hold(&x, -PIECE);
    pen_node_free(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_piece_now_and_then_is_too_slow, set_up),
        cmocka_unit_test_setup(who_takes_enough_on_average_is_not, set_up),
        cmocka_unit_test_setup(a_fast_beginning_does_not_help_for_long, set_up),
        cmocka_unit_test_setup(times_without_anything_to_send_do_not_count, set_up),
        cmocka_unit_test_setup(without_a_limit_nothing_is_too_slow, set_up),
        cmocka_unit_test_setup(all_that_waited_for_too_long_are_given_up_at_once, set_up),
        cmocka_unit_test_setup(time_without_requests_is_no_sending, set_up),
        cmocka_unit_test_setup(whoever_waits_for_room_hears_of_a_little_as_well, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
