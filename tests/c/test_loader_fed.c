/* test_loader_fed.c - fed orders: the stream is a function of what is fed, and of nothing else. */
#include "testing.h"

#include "loading.h"

/* An epoch of uneven batches with repeats, within a batch and between batches. */
static const int32_t sizes[] = {4, 1, 3, 4, 2, 4};
static const int64_t ids[] = {22, 0, 7, 7, 3, 7, 0, 9, 11, 11, 11, 11, 5, 6, 1, 22, 2, 7};
enum { FED = 6 };

static pen_loader_opts fed_options(int workers)
{
    pen_loader_opts o = options(workers);
    o.order = PEN_ORDER_FED;
    return o;
}

static const int64_t *batch_ids(int b)
{
    const int64_t *at = ids;
    for (int i = 0; i < b; i++)
        at += sizes[i];
    return at;
}

static void feed(pen_loader *loader, int b)
{
    pen_error err;
    if (pen_loader_feed(loader, batch_ids(b), sizes[b], &err) != 0)
        fail_msg("%s", err.text);
}

/* The next batch is what batch `b` was fed with; its hash. */
static uint64_t next_is(pen_loader *loader, int64_t epoch, int b, uint64_t hash)
{
    pen_batch *batch;
    pen_error err;
    if (pen_loader_next(loader, -1, &batch, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(pen_batch_epoch(batch), epoch);
    assert_int_equal(pen_batch_index(batch), b);
    assert_int_equal(pen_batch_count(batch), sizes[b]);
    assert_memory_equal(pen_batch_ids(batch), batch_ids(b), (size_t)sizes[b] * 8);
    hash = hash_batch(batch, hash);
    pen_batch_unref(batch);
    return hash;
}

static int next_code(pen_loader *loader)
{
    pen_batch *batch;
    int rc = pen_loader_next(loader, -1, &batch, NULL);
    pen_batch_unref(batch);
    return rc;
}

/* One epoch, `ahead` batches fed before the first is taken. */
static uint64_t fed_epoch(int workers, int ready, int ahead)
{
    pen_loader_opts o = fed_options(workers);
    o.ready_batches = ready;
    pen_loader *loader = open_loader(&o);
    uint64_t hash = 0;
    int n_fed = 0;
    for (int b = 0; b < FED; b++) {
        while (n_fed < FED && n_fed <= b + ahead)
            feed(loader, n_fed++);
        if (n_fed == FED && b == FED - 1)
            assert_int_equal(pen_loader_feed_end(loader, NULL), 0);
        hash = next_is(loader, 0, b, hash);
    }
    assert_int_equal(next_code(loader), PEN_END);
    pen_loader_free(loader);
    return hash;
}

static void how_far_ahead_one_feeds_changes_no_byte(void **state)
{
    (void)state;
    uint64_t want = fed_epoch(0, 1, 0);
    for (int workers = 0; workers <= 3; workers++)
        for (int ahead = 0; ahead <= FED; ahead += 2)
            assert_true(fed_epoch(workers, 1 + ahead / 2, ahead) == want);
}

static void a_repeated_sample_looks_different_each_time(void **state)
{
    (void)state;
    pen_loader_opts o = fed_options(2);
    pen_loader *loader = open_loader(&o);
    pen_batch *batch;
    const int64_t same[4] = {3, 3, 3, 3};
    assert_int_equal(pen_loader_feed(loader, same, 4, NULL), 0);
    assert_int_equal(pen_loader_next(loader, -1, &batch, NULL), 0);
    size_t bytes = pen_batch_shape(batch).bytes;
    const uint8_t *data = pen_batch_data(batch);
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(memcmp(data + i * bytes, data + j * bytes, bytes) != 0);
    pen_batch_unref(batch);
    pen_loader_free(loader);
}

/* The first time in an epoch, a sample is what every other order makes of it. */
static void samples_in_order_equal_the_sequential_stream(void **state)
{
    (void)state;
    pen_loader_opts o = options(1);
    o.order = PEN_ORDER_SEQUENTIAL;
    uint64_t want = 0, hash = 0;
    pen_loader *loader = open_loader(&o);
    assert_int_equal(take(loader, 1000, &want), BATCHES);
    pen_loader_free(loader);
    o = fed_options(2);
    loader = open_loader(&o);
    for (int64_t i = 0; i < PICTURES; i += BATCH) {
        const int64_t run[BATCH] = {i, i + 1, i + 2, i + 3};
        int32_t n = PICTURES - i < BATCH ? (int32_t)(PICTURES - i) : BATCH;
        assert_int_equal(pen_loader_feed(loader, run, n, NULL), 0);
    }
    assert_int_equal(pen_loader_fed(loader), BATCHES);
    assert_int_equal(pen_loader_feed_end(loader, NULL), 0);
    assert_int_equal(take(loader, 1000, &hash), BATCHES);
    assert_true(hash == want);
    pen_loader_free(loader);
}

static void skipping_to_any_batch_goes_on_exactly(void **state)
{
    (void)state;
    for (int cut = 0; cut <= FED; cut++) {
        uint64_t hashes[2] = {0, 0};
        for (int part = 0; part < 2; part++) {
            pen_loader_opts o = fed_options(2);
            pen_loader *loader = open_loader(&o);
            assert_int_equal(pen_loader_seek(loader, 3, 0, NULL), 0);
            for (int b = 0; b < FED; b++) {
                if (part && b < cut)
                    assert_int_equal(pen_loader_skip(loader, batch_ids(b), sizes[b], NULL), 0);
                else
                    feed(loader, b);
            }
            assert_int_equal(pen_loader_feed_end(loader, NULL), 0);
            for (int b = part ? cut : 0; b < FED; b++) {
                int64_t epoch, batch;
                pen_loader_tell(loader, &epoch, &batch);
                assert_int_equal(epoch, 3);
                assert_int_equal(batch, b);
                uint64_t hash = next_is(loader, 3, b, 0);
                if (b >= cut)
                    hashes[part] = hashes[part] * 31 + hash;
            }
            assert_int_equal(next_code(loader), PEN_END);
            pen_loader_free(loader);
        }
        assert_true(hashes[0] == hashes[1]);
    }
}

static void epochs_may_be_fed_across_their_border(void **state)
{
    (void)state;
    pen_loader_opts o = fed_options(2);
    pen_loader *loader = open_loader(&o);
    feed(loader, 0);
    assert_int_equal(pen_loader_feed_end(loader, NULL), 0);
    feed(loader, 0);
    uint64_t first = next_is(loader, 0, 0, 0);
    assert_int_equal(next_code(loader), PEN_END);
    assert_true(next_is(loader, 1, 0, 0) != first);
    assert_int_equal(pen_loader_feed_end(loader, NULL), 0);
    assert_int_equal(next_code(loader), PEN_END);
    assert_int_equal(pen_loader_feed_end(loader, NULL), 0); /* an empty epoch */
    assert_int_equal(next_code(loader), PEN_END);
    int64_t epoch, batch;
    pen_loader_tell(loader, &epoch, &batch);
    assert_int_equal(epoch, 3);
    assert_int_equal(batch, 0);
    pen_loader_free(loader);
}

static void asking_before_feeding_is_an_error_and_not_the_end(void **state)
{
    (void)state;
    for (int workers = 0; workers < 2; workers++) {
        pen_loader_opts o = fed_options(workers);
        pen_loader *loader = open_loader(&o);
        pen_batch *batch;
        pen_error err;
        assert_int_equal(pen_loader_next(loader, -1, &batch, &err), PEN_EINVAL);
        assert_non_null(strstr(err.text, "nothing was fed"));
        feed(loader, 0);
        next_is(loader, 0, 0, 0);
        assert_int_equal(pen_loader_next(loader, -1, &batch, &err), PEN_EINVAL);
        pen_loader_free(loader);
    }
}

static void a_seek_forgets_what_was_fed(void **state)
{
    (void)state;
    uint64_t want = fed_epoch(0, 1, 0);
    pen_loader_opts o = fed_options(3);
    pen_loader *loader = open_loader(&o);
    for (int b = 0; b < FED; b++)
        feed(loader, FED - 1 - b);
    next_code(loader);
    assert_int_equal(pen_loader_seek(loader, 0, 0, NULL), 0);
    assert_int_equal(pen_loader_fed(loader), 0);
    uint64_t hash = 0;
    for (int b = 0; b < FED; b++) {
        feed(loader, b);
        hash = next_is(loader, 0, b, hash);
    }
    assert_true(hash == want);
    assert_int_equal(pen_loader_seek(loader, 2, 5, NULL), 0); /* nothing of the past is known */
    feed(loader, 5);
    next_is(loader, 2, 5, 0);
    pen_loader_free(loader);
}

static void a_state_says_where_to_go_on(void **state)
{
    (void)state;
    char text[PEN_STATE_MAX];
    pen_loader_opts o = fed_options(1);
    pen_loader *loader = open_loader(&o);
    pen_loader_seek(loader, 4, 0, NULL);
    feed(loader, 0);
    feed(loader, 1);
    next_is(loader, 4, 0, 0);
    assert_true(pen_loader_state(loader, text, sizeof text) > 0);
    pen_loader_free(loader);
    loader = open_loader(&o);
    assert_int_equal(pen_loader_resume(loader, text, NULL), 0);
    int64_t epoch, batch;
    pen_loader_tell(loader, &epoch, &batch);
    assert_int_equal(epoch, 4);
    assert_int_equal(batch, 1);
    pen_loader_free(loader);
    o = options(1);
    loader = open_loader(&o);
    assert_int_equal(pen_loader_resume(loader, text, NULL), PEN_ESTATE);
    pen_loader_free(loader);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    pen_error err;
    pen_batch *batch;
    pen_loader_opts o = fed_options(1);
    pen_loader *loader = open_loader(&o);
    assert_int_equal(pen_loader_batches(loader), PEN_EINVAL);
    assert_int_equal(pen_loader_replay(loader, 0, 0, &batch, &err), PEN_EINVAL);
    assert_int_equal(pen_loader_feed(loader, &(int64_t){PICTURES}, 1, &err), PEN_EINVAL);
    assert_int_equal(pen_loader_seek(loader, 0, INT64_MAX, &err), PEN_EINVAL);
    pen_loader_free(loader);
    o.tail = PEN_TAIL_DROP;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
    o = options(1);
    loader = open_loader(&o);
    assert_int_equal(pen_loader_feed(loader, ids, 1, &err), PEN_EINVAL);
    assert_int_equal(pen_loader_feed_end(loader, &err), PEN_EINVAL);
    assert_int_equal(pen_loader_fed(loader), PEN_EINVAL);
    pen_loader_free(loader);
}

static void a_loader_ends_with_batches_still_waiting(void **state)
{
    (void)state;
    for (int taken = 0; taken < 3; taken++) {
        pen_loader_opts o = fed_options(3);
        pen_loader *loader = open_loader(&o);
        for (int b = 0; b < FED; b++)
            feed(loader, b);
        for (int b = 0; b < taken; b++)
            next_is(loader, 0, b, 0);
        pen_loader_free(loader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(how_far_ahead_one_feeds_changes_no_byte),
        cmocka_unit_test(a_repeated_sample_looks_different_each_time),
        cmocka_unit_test(samples_in_order_equal_the_sequential_stream),
        cmocka_unit_test(skipping_to_any_batch_goes_on_exactly),
        cmocka_unit_test(epochs_may_be_fed_across_their_border),
        cmocka_unit_test(asking_before_feeding_is_an_error_and_not_the_end),
        cmocka_unit_test(a_seek_forgets_what_was_fed),
        cmocka_unit_test(a_state_says_where_to_go_on),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(a_loader_ends_with_batches_still_waiting),
    };
    return cmocka_run_group_tests(tests, make_world, unmake_world);
}
