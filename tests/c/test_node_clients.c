/* test_node_clients.c - accounts of a storage node's clients, and the pipelines they put. */
#include "lines.h"

#include <arpa/inet.h>

#include "base/mem.h"
#include "remote/node_impl.h"

#define SECOND ((int64_t)1000000000)

static pen_node_opts opts;
static pen__clients clients;

static int set_up(void **state)
{
    (void)state;
    pen_node_opts_init(&opts);
    opts.requests_per_s = 10;
    opts.cpus_per_client = 0.5;
    return pen__clients_init(&clients, 4);
}

static int tear_down(void **state)
{
    (void)state;
    pen__clients_fini(&clients);
    return 0;
}

static pen__client *enter(const char *address, int64_t now)
{
    pen__place place;
    char text[80];
    snprintf(text, sizeof text, strchr(address, ':') ? "[%s]:1" : "%s:1", address);
    assert_true(pen__place_parse(text, &place));
    return pen__clients_enter(&clients, &place.any, now, &opts);
}

static void an_address_is_a_client_and_so_is_a_network(void **state)
{
    (void)state;
    pen__client *one = enter("10.0.0.1", 0);
    assert_ptr_equal(enter("10.0.0.1", 0), one);
    assert_int_equal(one->n_peers, 2);
    assert_ptr_not_equal(enter("10.0.0.2", 0), one);
    assert_ptr_equal(enter("::ffff:10.0.0.1", 0), one);
    pen__client *six = enter("2001:db8::1", 0);
    assert_ptr_equal(enter("2001:db8::ffff:2", 0), six);
    assert_ptr_not_equal(enter("2001:db8:0:1::1", 0), six);
}

static bool may_connect_at(const char *address, int64_t now_ns)
{
    pen__place place;
    assert_true(pen__place_parse(address, &place));
    return pen__clients_may_connect(&clients, &place.any, now_ns, &opts);
}

static bool may_connect(const char *address)
{
    return may_connect_at(address, 0);
}

/* Who makes connections and closes them has none, and costs a handshake each. */
static void new_connections_are_limited_and_come_back_with_time(void **state)
{
    (void)state;
    const int64_t second = 1000000000;
    opts.max_per_client = 1 << 20;
    for (int i = 0; i < 3000; i++) {
        assert_true(may_connect("10.0.0.1:1"));
        pen__clients_leave(enter("10.0.0.1", 0));
    }
    assert_false(may_connect("10.0.0.1:1"));
    assert_true(may_connect("10.0.0.2:1"));
    assert_true(may_connect_at("10.0.0.1:1", second));
    for (int i = 0; i < 300; i++)
        pen__clients_leave(enter("10.0.0.1", second));
    assert_false(may_connect_at("10.0.0.1:1", second));
}

/* A network is one client, however many addresses it has, and so is an IPv4 address. */
static void connections_are_limited(void **state)
{
    (void)state;
    opts.max_per_client = 2;
    assert_true(may_connect("[2001:db8::1]:1"));
    pen__client *six = enter("2001:db8::1", 0);
    assert_true(may_connect("[2001:db8::2]:1"));
    assert_ptr_equal(enter("2001:db8::2", 0), six);
    assert_false(may_connect("[2001:db8::3]:1"));
    assert_true(may_connect("[2001:db8:0:1::3]:1"));
    pen__clients_leave(six);
    assert_true(may_connect("[2001:db8::3]:1"));
    enter("10.0.0.1", 0);
    enter("::ffff:10.0.0.1", 0);
    assert_false(may_connect("10.0.0.1:1"));
    assert_false(may_connect("[::ffff:10.0.0.1]:1"));
    assert_true(may_connect("[::ffff:10.0.0.2]:1"));
}

static void requests_are_limited_and_come_back_with_time(void **state)
{
    (void)state;
    pen__client *one = enter("10.0.0.1", 0);
    for (int i = 0; i < 100; i++) /* ten seconds' worth */
        assert_true(pen__client_may_ask(one, 0, &opts));
    assert_false(pen__client_may_ask(one, 0, &opts));
    assert_true(pen__client_may_ask(one, SECOND / 5, &opts));
    assert_true(pen__client_may_ask(one, SECOND / 5, &opts));
    assert_false(pen__client_may_ask(one, SECOND / 5, &opts));
    pen__clients_leave(one); /* coming back does not help */
    assert_ptr_equal(enter("10.0.0.1", SECOND / 5), one);
    assert_false(pen__client_may_ask(one, SECOND / 5, &opts));
    for (int i = 0; i < 100; i++)
        assert_true(pen__client_may_ask(one, 1000 * SECOND, &opts));
    assert_false(pen__client_may_ask(one, 1000 * SECOND, &opts));
}

static void cpu_time_is_limited_and_comes_back_with_time(void **state)
{
    (void)state;
    pen__client *one = enter("10.0.0.1", 0);
    assert_true(pen__client_may_pack(one, 0, &opts));
    pen__client_used(one, 3 * SECOND);
    assert_false(pen__client_may_pack(one, 0, &opts));
    assert_false(pen__client_may_pack(one, 4 * SECOND - 1, &opts));
    assert_true(pen__client_may_pack(one, 5 * SECOND, &opts));
    opts.cpus_per_client = 0; /* no limit */
    pen__client_used(one, 1000 * SECOND);
    assert_true(pen__client_may_pack(one, 5 * SECOND, &opts));
}

static void blocks_are_to_be_had_while_packing_uses_all(void **state)
{
    (void)state;
    pen__client *one = enter("10.0.0.1", 0);
    pen__client_used(one, 3 * SECOND / 2);
    assert_false(pen__client_may_pack(one, 0, &opts));
    assert_true(pen__client_may_have_block(one, 0, &opts));
    pen__client_used(one, SECOND);
    assert_false(pen__client_may_have_block(one, 0, &opts)); /* there is an end to that, too */
    assert_true(pen__client_may_have_block(one, 2 * SECOND, &opts));
    assert_false(pen__client_may_pack(one, 2 * SECOND, &opts));
}

static void what_is_done_in_any_case_leaves_no_debt(void **state)
{
    (void)state;
    pen__client *one = enter("10.0.0.1", 0);
    pen__client_took(one, SECOND / 2);
    pen__client_used(one, SECOND / 4);
    assert_true(pen__client_may_pack(one, 0, &opts)); /* a quarter of a second is left */
    pen__client_took(one, 1000 * SECOND);
    assert_false(pen__client_may_pack(one, 0, &opts));
    assert_true(pen__client_may_pack(one, 1, &opts));
    pen__client_used(one, SECOND);
    pen__client_took(one, 1000 * SECOND);
    assert_false(pen__client_may_pack(one, SECOND, &opts)); /* that debt is still there */
    assert_true(pen__client_may_pack(one, 3 * SECOND, &opts));
}

static void reading_orders_is_limited_and_comes_back_with_time(void **state)
{
    (void)state;
    pen__client *one = enter("10.0.0.1", 0);
    assert_true(pen__client_may_be_read(one, 0, &opts));
    pen__client_was_read(one, 3 * SECOND, &opts);
    assert_false(pen__client_may_be_read(one, 4 * SECOND - 1, &opts));
    assert_true(pen__client_may_be_read(one, 5 * SECOND, &opts));
    opts.cpus_per_client = 0; /* no limit */
    pen__client_was_read(one, 1000 * SECOND, &opts);
    assert_true(pen__client_may_be_read(one, 5 * SECOND, &opts));
}

/* Who sends orders all the time has nothing packed, and gets no more than its limit in all. */
static void orders_and_packing_share_a_limit(void **state)
{
    (void)state;
    pen__client *one = enter("10.0.0.1", 0);
    pen__client_used(one, 1000 * SECOND);
    assert_true(pen__client_may_be_read(one, 0, &opts)); /* it gets samples as they are stored */
    pen__client *two = enter("10.0.0.2", 0);
    pen__client_was_read(two, 1000 * SECOND, &opts);
    assert_false(pen__client_may_pack(two, 0, &opts));
    assert_true(pen__client_may_have_block(two, 0, &opts));
    assert_true(pen__client_may_pack(two, 2 * SECOND, &opts)); /* not after hours */
}

/* A hundred requests a second of 64 samples each, if it takes a tenth of a millisecond to read one.
 */
static void no_limit_is_so_small_that_a_loader_cannot_ask(void **state)
{
    (void)state;
    opts.cpus_per_client = 1e-9;
    pen__client *one = enter("10.0.0.1", 0);
    for (int i = 0; i < 10000; i++) {
        assert_true(pen__client_may_be_read(one, i * (SECOND / 100), &opts));
        pen__client_was_read(one, SECOND / 10000, &opts);
    }
}

/* There is room for as many as may be connected, whoever came before. */
static void thousands_of_addresses_come_and_go(void **state)
{
    (void)state;
    pen__client *keeper = enter("10.9.9.9", 0), *worked_for = enter("10.8.8.8", 0);
    pen__clients_leave(worked_for);
    worked_for->n_open = 1; /* a thread is still at its request, and will charge it */
    for (int i = 0; i < 5000; i++) {
        char address[32];
        snprintf(address, sizeof address, "10.1.%d.%d", i / 250, i % 250);
        pen__client *client = enter(address, i);
        assert_non_null(client);
        assert_ptr_not_equal(client, keeper);
        assert_ptr_not_equal(client, worked_for);
        assert_ptr_equal(enter(address, i), client);
        pen__clients_leave(client);
        pen__clients_leave(client);
    }
    assert_ptr_equal(enter("10.9.9.9", 0), keeper);
    assert_ptr_equal(enter("10.8.8.8", 0), worked_for);
    assert_true(clients.n <= clients.cap);
}

/* Put pipeline number i for one of the clients; true: it is new.  `hash` gets its hash. */
static bool put(pen__pipelines *store, int i, uint8_t client, char hash[PEN__DIGEST_TEXT])
{
    const uint8_t owner[16] = {client};
    pen_pipeline *pipe = make((pen_op[]){pen_op_center_crop(8 + i, 8)}, 1);
    const bool is_new = pen__pipelines_put(store, pipe, owner);
    assert_false(pen__pipelines_put(store, pipe, owner));
    memcpy(hash, pen_pipeline_hash(pipe), PEN__DIGEST_TEXT);
    pen_pipeline_unref(pipe);
    return is_new;
}

static bool is_known(pen__pipelines *store, const char *hash)
{
    pen_pipeline *pipe = pen__pipelines_get(store, hash);
    pen_pipeline_unref(pipe);
    return pipe != NULL;
}

static void the_pipeline_not_used_for_longest_leaves(void **state)
{
    (void)state;
    const int64_t live = pen__mem_live();
    static pen__pipelines store;
    char first[PEN__DIGEST_TEXT], second[PEN__DIGEST_TEXT], hash[PEN__DIGEST_TEXT];
    for (int i = 0; i <= PEN__NODE_PIPELINES; i++) {
        if (i == PEN__NODE_PIPELINES) /* the first one is in use again before the last comes */
            assert_true(is_known(&store, first));
        assert_true(put(&store, i, (uint8_t)(i % 8), i == 0 ? first : i == 1 ? second : hash));
    }
    assert_false(is_known(&store, second));
    assert_true(is_known(&store, first));
    assert_false(is_known(&store, "0123456789abcdef0123456789abcdef"));
    pen__pipelines_fini(&store);
    assert_int_equal(pen__mem_live(), live);
}

static void who_puts_many_pipelines_makes_nobody_elses_leave(void **state)
{
    (void)state;
    static pen__pipelines store;
    char others[2][PEN__DIGEST_TEXT], early[PEN__DIGEST_TEXT], hash[PEN__DIGEST_TEXT];
    assert_true(put(&store, 0, 1, others[0]));
    assert_true(put(&store, 1, 2, others[1]));
    for (int i = 2; i < 2000; i++)
        assert_true(put(&store, i, 3, i == 2 ? early : hash));
    assert_true(is_known(&store, others[0]) && is_known(&store, others[1]));
    assert_true(is_known(&store, hash) && !is_known(&store, early));
    assert_int_equal(store.n, 2 + PEN__NODE_PIPELINES_EACH);
    pen__pipelines_fini(&store);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(an_address_is_a_client_and_so_is_a_network),
        CASE(connections_are_limited),
        CASE(new_connections_are_limited_and_come_back_with_time),
        CASE(requests_are_limited_and_come_back_with_time),
        CASE(cpu_time_is_limited_and_comes_back_with_time),
        CASE(blocks_are_to_be_had_while_packing_uses_all),
        CASE(what_is_done_in_any_case_leaves_no_debt),
        CASE(reading_orders_is_limited_and_comes_back_with_time),
        CASE(orders_and_packing_share_a_limit),
        CASE(no_limit_is_so_small_that_a_loader_cannot_ask),
        CASE(thousands_of_addresses_come_and_go),
        CASE(the_pipeline_not_used_for_longest_leaves),
        CASE(who_puts_many_pipelines_makes_nobody_elses_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
