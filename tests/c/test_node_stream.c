/* test_node_stream.c - bytes between a storage node's threads and the network. */
#include "testing.h"

#include "base/crc32c.h"
#include "base/mem.h"
#include "base/rng.h"
#include "remote/node_impl.h"

enum { N = 500000 };

static uint8_t bytes[N], got[N];

static int fill(void **state)
{
    (void)state;
    pen__rng rng;
    pen__rng_init(&rng, 5, PEN__RNG_OP, 0, 0, 0, 0);
    for (size_t i = 0; i < N; i++)
        bytes[i] = (uint8_t)pen__rng_u32(&rng);
    return 0;
}

/* Pieces of any size go in and out, in order, and no memory is taken twice. */
static void what_goes_in_comes_out(void **state)
{
    (void)state;
    const int64_t live = pen__mem_live();
    pen__chunks chunks = {0};
    pen__queue queue = {0};
    pen__rng rng;
    pen__rng_init(&rng, 6, PEN__RNG_OP, 0, 0, 0, 0);
    int64_t counted = 0;
    for (int round = 0; round < 20; round++) {
        size_t in = 0, out = 0;
        while (out < N) {
            size_t n = pen__rng_below(&rng, 150000);
            n = n < N - in ? n : N - in;
            assert_int_equal(pen__queue_put(&queue, &chunks, bytes + in, n), 0);
            in += n;
            assert_int_equal(queue.bytes, in - out);
            out += pen__queue_take(&queue, &chunks, got + out, pen__rng_below(&rng, 100000));
        }
        assert_memory_equal(bytes, got, N);
        assert_int_equal(pen__queue_take(&queue, &chunks, got, N), 0);
        if (round == 10)
            counted = pen__mem_count();
        assert_true(round < 10 || pen__mem_count() <= counted + 8); /* a longer line, at times */
    }
    pen__queue_put(&queue, &chunks, bytes, N);
    pen__queue_drop(&queue, &chunks);
    assert_int_equal(queue.bytes, 0);
    assert_null(queue.first);
    pen__chunks_fini(&chunks);
    assert_int_equal(pen__mem_live(), live);
}

static void without_memory_nothing_is_put(void **state)
{
    (void)state;
    const int64_t live = pen__mem_live();
    pen__chunks chunks = {0};
    pen__queue queue = {0};
    assert_int_equal(pen__queue_put(&queue, &chunks, bytes, 1000), 0);
    for (int n = 1; n <= 3; n++) {
        pen__mem_fail_at(n);
        assert_int_equal(pen__queue_put(&queue, &chunks, bytes, 300000), PEN_ENOMEM);
        pen__mem_fail_at(0);
        assert_int_equal(queue.bytes, 1000);
    }
    assert_int_equal(pen__queue_put(&queue, &chunks, bytes, 300000), 0);
    assert_int_equal(pen__queue_take(&queue, &chunks, got, N), 301000);
    assert_memory_equal(got, bytes, 1000);
    assert_memory_equal(got + 1000, bytes, 300000);
    pen__chunks_fini(&chunks);
    assert_int_equal(pen__mem_live(), live);
}

static void answers_stay_within_memory(void **state)
{
    (void)state;
    static pen_node node;
    pen__client one = {0}, two = {0}, three = {0};
    pen__exchange a = {.node = &node, .client = &one}, b = {.node = &node, .client = &one},
                  c = {.node = &node, .client = &two}, d = {.node = &node, .client = &three};
    node.opts.memory_bytes = 1000;
    assert_true(pen__may_hold(&a, 5000)); /* where nothing is held, there is always room */
    pen__hold(&a, 300);
    assert_true(pen__may_hold(&b, 200));
    assert_false(pen__may_hold(&b, 201)); /* half of it for one client */
    assert_true(pen__may_hold(&c, 700));
    assert_false(pen__may_hold(&c, 701)); /* and all of it for all */
    pen__hold(&c, 700);
    assert_false(pen__may_hold(&b, 1));
    node.is_short = true;
    pen__hold(&c, -400);
    assert_false(node.is_short); /* who waits for room was woken */
    assert_true(pen__may_hold(&b, 150));
    assert_false(pen__may_hold(&b, 151)); /* the last quarter is for who has little */
    assert_true(pen__may_hold(&d, 400));
    assert_int_equal(one.held_bytes + two.held_bytes, node.held_bytes);
    pen__hold(&c, -c.held_bytes);
    pen__hold(&a, -a.held_bytes);
    assert_int_equal(node.held_bytes, 0);
    assert_int_equal(one.held_bytes, 0);
}

/* A client takes a sample in many pieces. */
static void who_waits_for_room_is_not_woken_for_each_piece(void **state)
{
    (void)state;
    enum { PIECE = 16 << 10, PIECES = 20 };
    static pen_node node;
    pen__client client = {0};
    pen__exchange x = {.node = &node, .client = &client};
    int n_woken = 0;
    node.opts.memory_bytes = 64 << 20;
    node.opts.buffer_bytes = 4 << 20;
    pen__hold(&x, PIECES * PIECE);
    for (int i = 0; i < PIECES; i++) {
        node.is_short = true;
        pen__hold(&x, -PIECE);
        n_woken += !node.is_short;
    }
    assert_int_equal(n_woken, 3);  /* for eight pieces, and eight, */
    assert_false(node.is_short);   /* and the last one, behind which nothing is left to go */
    node.opts.buffer_bytes = 4096; /* where that is little, for little */
    pen__hold(&x, 2048);
    node.is_short = true;
    pen__hold(&x, -512);
    assert_false(node.is_short);
}

static void bodies_stay_within_memory(void **state)
{
    (void)state;
    static pen_node node;
    pen__client clients[5] = {0};
    pen__exchange x[5];
    node.opts.memory_bytes = 1600;
    for (int i = 0; i < 5; i++)
        x[i] = (pen__exchange){.node = &node, .client = &clients[i]};
    for (int i = 0; i < 4; i++) {
        assert_true(pen__may_hold_body(&x[i], 100));
        assert_false(pen__may_hold_body(&x[i], 101)); /* a sixteenth for one client */
        pen__hold_body(&x[i], 100);
    }
    assert_false(pen__may_hold_body(&x[4], 1)); /* and a quarter for all */
    pen__hold(&x[0], 100);
    assert_true(pen__may_hold(&x[4], 1100)); /* answers have what they leave */
    assert_false(pen__may_hold(&x[4], 1101));
    node.is_short = true;
    pen__hold_body(&x[0], -100);
    assert_false(node.is_short);
    pen__hold(&x[0], 700); /* half of it: it does not read, but may ask */
    assert_false(pen__may_hold(&x[0], 1));
    assert_true(pen__may_hold_body(&x[0], 100));
    pen__hold(&x[4], 450);
    assert_false(pen__may_hold_body(&x[0], 100)); /* all of it is taken */
    assert_int_equal(node.body_bytes, 300);
}

/* Or else a stream would end as if it was whole. */
static void a_frame_without_memory_is_not_counted(void **state)
{
    (void)state;
    static pen_node node;
    static pen__node_order order = {.n_items = 3};
    pen__client client = {0};
    pen__exchange x = {.node = &node, .client = &client, .order = &order};
    pen__mem_fail_at(1);
    pen__work_give_up(&node, &x, PEN_EIO, "too late");
    pen__mem_fail_at(0);
    assert_int_equal(x.rc, PEN_ENOMEM);
    assert_int_equal(x.next_item, 3);
    assert_int_equal(x.n_framed, 2);
    assert_int_equal(x.queue.bytes, 2 * (PEN__FRAME_HEAD + strlen("too late")));
    assert_int_equal(client.held_bytes, x.queue.bytes);
    pen__queue_drop(&x.queue, &node.chunks);
    pen__chunks_fini(&node.chunks);
}

static void a_frames_head_says_what_follows(void **state)
{
    (void)state;
    uint8_t head[PEN__FRAME_HEAD];
    static const uint8_t want[24] = {'P', 'E', 'N', 'F', 3,    0,    0,    0,    7,  1, 0, 0,
                                     0,   0,   0,   0,   0xFC, 0xFF, 0xFF, 0xFF, 11, 0, 0, 0};
    pen__frame_write_head(head, 3, 263, PEN_EIO, 5999, (const uint8_t *)"what a pity", 11);
    assert_memory_equal(head, want, sizeof want);
    uint8_t sums[12];
    pen__le_put(sums, pen__crc32c(0, "what a pity", 11), 4);
    pen__le_put(sums + 4, 5, 4); /* microseconds */
    pen__le_put(sums + 8, pen__crc32c(0, head, 32), 4);
    assert_memory_equal(head + 24, sums, sizeof sums);
    pen__frame_write_head(head, 0, 0, 0, INT64_MAX, NULL, 0);
    assert_memory_equal(head + 28, "\xFF\xFF\xFF\xFF", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(without_memory_nothing_is_put),
        cmocka_unit_test(answers_stay_within_memory),
        cmocka_unit_test(who_waits_for_room_is_not_woken_for_each_piece),
        cmocka_unit_test(bodies_stay_within_memory),
        cmocka_unit_test(a_frame_without_memory_is_not_counted),
        cmocka_unit_test(a_frames_head_says_what_follows),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
