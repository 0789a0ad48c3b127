/* test_feed.c - batches that the caller names: occurrences, epochs, what is refused. */
#include "testing.h"

#include "base/mem.h"
#include "engine/feed.h"

enum { SAMPLES = 10, MAX_BATCH = 4 };

static pen__feed *new_feed(void)
{
    pen__feed *feed;
    assert_int_equal(pen__feed_create(&feed, SAMPLES, MAX_BATCH), 0);
    return feed;
}

static void put(pen__feed *feed, int n, const int64_t *samples)
{
    pen_error err = {0};
    if (pen__feed_put(feed, samples, n, &err) != 0)
        fail_msg("%s", err.text);
}

#define PUT(feed, ...)                                                   \
    put(feed, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
        (const int64_t[]){__VA_ARGS__})

/* The oldest batch has this place, and slots with these occurrences. */
static void expect(pen__feed *feed, int64_t epoch, int64_t index, int n, const int32_t *occurrences)
{
    pen__fed *fed = pen__feed_take(feed);
    assert_non_null(fed);
    assert_int_equal(fed->epoch, epoch);
    assert_int_equal(fed->index, index);
    assert_int_equal(fed->n, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(fed->slots[i].occurrence, occurrences[i]);
    pen__free(fed);
}

#define EXPECT(feed, epoch, index, ...)                                                   \
    expect(feed, epoch, index, (int)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)), \
           (const int32_t[]){__VA_ARGS__})

static void repeats_are_counted_within_an_epoch_only(void **state)
{
    (void)state;
    pen__feed *feed = new_feed();
    PUT(feed, 3, 3, 5);
    PUT(feed, 5, 3);
    assert_int_equal(pen__feed_end(feed, 0, NULL), 0);
    PUT(feed, 3, 7);
    EXPECT(feed, 0, 0, 0, 1, 0);
    EXPECT(feed, 0, 1, 1, 2);
    EXPECT(feed, 1, 0, 0, 0);
    assert_null(pen__feed_take(feed));
    pen__feed_free(feed);
}

static void skipped_batches_count_as_if_they_had_been_fed(void **state)
{
    (void)state;
    pen__feed *feed = new_feed();
    pen__feed_restart(feed, 6, 0);
    assert_int_equal(pen__feed_skip(feed, (const int64_t[]){1, 2, 1}, 3, NULL), 0);
    assert_int_equal(pen__feed_skip(feed, (const int64_t[]){2}, 1, NULL), 0);
    PUT(feed, 1, 2, 3);
    EXPECT(feed, 6, 2, 2, 2, 0);
    assert_int_equal(pen__feed_skip(feed, (const int64_t[]){2}, 1, NULL), PEN_EINVAL);
    pen__feed_free(feed);
}

static void an_occurrence_never_reaches_those_of_stand_ins(void **state)
{
    (void)state;
    pen__feed *feed = new_feed();
    const int64_t again = 4;
    for (int i = 0; i < 0x8000; i++)
        assert_int_equal(pen__feed_skip(feed, &again, 1, NULL), 0);
    PUT(feed, 4, 4);
    EXPECT(feed, 0, 0x8000, 0, 1);
    pen__feed_free(feed);
}

static void what_is_refused_changes_nothing(void **state)
{
    (void)state;
    pen__feed *feed = new_feed();
    pen_error err;
    const int64_t good[5] = {0, 1, 2, 3, 4}, low[2] = {1, -1}, high[2] = {1, SAMPLES};
    assert_int_equal(pen__feed_put(feed, good, 0, &err), PEN_EINVAL);
    assert_int_equal(pen__feed_put(feed, good, 5, &err), PEN_EINVAL);
    assert_string_equal(err.text, "a batch of 5 samples: this loader takes 1 to 4");
    assert_int_equal(pen__feed_put(feed, low, 2, &err), PEN_EINVAL);
    assert_int_equal(pen__feed_put(feed, high, 2, &err), PEN_EINVAL);
    assert_string_equal(err.text, "no sample 10 (place 1 of the batch): the dataset has 10");
    assert_null(pen__feed_take(feed));
    PUT(feed, 1);
    EXPECT(feed, 0, 0, 0);
    pen__feed_free(feed);
}

static void two_epochs_are_open_at_most(void **state)
{
    (void)state;
    pen__feed *feed = new_feed();
    PUT(feed, 1);
    assert_int_equal(pen__feed_end(feed, 0, NULL), 0);
    PUT(feed, 2);
    PUT(feed, 3);
    assert_int_equal(pen__feed_end(feed, 0, NULL), PEN_EINVAL);
    assert_int_equal(pen__feed_waiting(feed, 0), 1);
    assert_int_equal(pen__feed_waiting(feed, 1), 2);
    assert_int_equal(pen__feed_waiting(feed, -1), 3);
    pen__feed_delivered(feed, 0);
    assert_int_equal(pen__feed_end(feed, 1, NULL), 0);
    assert_int_equal(pen__feed_epoch(feed), 2);
    pen__feed_restart(feed, 9, 4);
    assert_int_equal(pen__feed_waiting(feed, -1), 0);
    assert_null(pen__feed_take(feed));
    PUT(feed, 1);
    EXPECT(feed, 9, 4, 0);
    pen__feed_free(feed);
}

static void a_lack_of_memory_is_said_and_nothing_leaks(void **state)
{
    (void)state;
    int64_t live = pen__mem_live();
    for (int n = 1; n <= 2; n++) {
        pen__feed *feed;
        pen__mem_fail_at(n);
        assert_int_equal(pen__feed_create(&feed, SAMPLES, MAX_BATCH), PEN_ENOMEM);
        pen__mem_fail_at(0);
        assert_null(feed);
    }
    pen__feed *feed = new_feed();
    pen__mem_fail_at(1);
    assert_int_equal(pen__feed_put(feed, (const int64_t[]){1}, 1, NULL), PEN_ENOMEM);
    pen__mem_fail_at(0);
    PUT(feed, 1);
    PUT(feed, 1, 2);
    EXPECT(feed, 0, 0, 0);
    pen__feed_free(feed);
    assert_int_equal(pen__mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeats_are_counted_within_an_epoch_only),
        cmocka_unit_test(skipped_batches_count_as_if_they_had_been_fed),
        cmocka_unit_test(an_occurrence_never_reaches_those_of_stand_ins),
        cmocka_unit_test(what_is_refused_changes_nothing),
        cmocka_unit_test(two_epochs_are_open_at_most),
        cmocka_unit_test(a_lack_of_memory_is_said_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
