/* test_node_work.c - the line of requests that a storage node's threads take samples from. */
#include "testing.h"

#include <sched.h>

#include "base/mem.h"
#include "pictures.h"
#include "remote/node_impl.h"

enum { N_ITEMS = 5 };

static char folder[64];

static int make_world(void **state)
{
    (void)state;
    make_folder(folder, N_ITEMS);
    return 0;
}

static int unmake_world(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

static void *work(void *node)
{
    pen__work_run(node, 0);
    return NULL;
}

/* One thread makes what it can of an order, while its n-th allocation fails. */
static void run(pen_node *node, pen__exchange *x, int64_t n)
{
    pthread_t thread;
    pen__work_enqueue(node, x);
    pen__mem_fail_at(n);
    assert_int_equal(pthread_create(&thread, NULL, work, node), 0);
    pthread_mutex_lock(&node->lock);
    while (x->is_queued || x->n_held > 0) {
        pthread_mutex_unlock(&node->lock);
        sched_yield();
        pthread_mutex_lock(&node->lock);
    }
    node->is_closing = true;
    pthread_cond_broadcast(&node->work);
    pthread_mutex_unlock(&node->lock);
    pthread_join(thread, NULL);
    pen__mem_fail_at(0);
}

static pen_node *a_node(void)
{
    pen_node_opts opts;
    pen_node *node;
    pen_node_opts_init(&opts);
    opts.use_index = 0;
    assert_int_equal(pen_node_create(&node, &opts, NULL), 0);
    assert_int_equal(pen_node_add(node, "data", folder, NULL, NULL), 0);
    assert_int_equal(pen__work_init(node, 1), 0);
    return node;
}

/* For all files as they are. */
static pen__exchange a_request(pen_node *node)
{
    static pen__node_order order;
    static pen__client client;
    static pen__peer peer = {.client = &client};
    client = (pen__client){0};
    order.n_items = N_ITEMS;
    for (int i = 0; i < N_ITEMS; i++)
        order.items[i] = (pen__node_item){.id = i, .forms = 1U << PEN__FORM_RAW};
    return (pen__exchange){
        .node = node, .client = &client, .peer = &peer, .served = node->served, .order = &order};
}

/* True: there was no memory for its first frame. */
static bool lose_at(int64_t n)
{
    pen_node *node = a_node();
    pen__exchange x = a_request(node);
    run(node, &x, n);
    const bool is_lost = x.rc == PEN_ENOMEM;
    assert_int_equal(x.next_item, is_lost ? 1 : N_ITEMS);
    assert_int_equal(x.n_framed, is_lost ? 0 : N_ITEMS);
    assert_int_equal(node->n_waiting_items, 0);
    assert_null(node->jobs);
    assert_int_equal(x.held_bytes, x.queue.bytes);
    pen__queue_drop(&x.queue, &node->chunks);
    pen_node_free(node);
    return is_lost;
}

/* Nobody gets what is made for it from then on. */
static void a_request_whose_stream_is_lost_leaves_the_line(void **state)
{
    (void)state;
    const int64_t live = pen__mem_live();
    int64_t n = 1;
    while (n < 100 && !lose_at(n))
        n++;
    assert_true(n < 100);
    assert_int_equal(pen__mem_live(), live);
}

/* What the network's thread has sent since the last look is looked at when it is enough. */
static void what_was_sent_is_looked_at(void **state)
{
    (void)state;
    pen_node *node = a_node();
    pen__exchange x = a_request(node);
    node->sending.has_begun = true;
    node->stats.sent_bytes = PEN__SENDING_STEP;
    run(node, &x, 0);
    assert_int_equal(node->stats.frames, N_ITEMS);
    assert_int_equal(node->sending.n_looks, 1);
    assert_int_equal(node->sending.last.sent_bytes, PEN__SENDING_STEP);
    assert_true(node->sending.last.process_ns > 0 && node->sending.last.work_ns > 0);
    pen__queue_drop(&x.queue, &node->chunks);
    pen_node_free(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_whose_stream_is_lost_leaves_the_line),
        cmocka_unit_test(what_was_sent_is_looked_at),
    };
    return cmocka_run_group_tests(tests, make_world, unmake_world);
}
