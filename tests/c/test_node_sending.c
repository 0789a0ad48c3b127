/* test_node_sending.c - what it takes a storage node to send a frame. */
#include "testing.h"

#include "remote/node_sending.h"

#define STEP  ((int64_t)PEN__SENDING_STEP)
#define FRAME ((int64_t)PEN__SENDING_FRAME)

/* What a frame of `bytes` takes. */
static int64_t takes(const pen__sending *s, int64_t bytes)
{
    return pen__sending_ns(s, 1, bytes);
}

/* `bytes` were sent, frames counted as such. */
static pen__sending_sums sums(int64_t bytes, int64_t process_ns, int64_t work_ns)
{
    return (pen__sending_sums){bytes, 0, process_ns, work_ns};
}

static void look(pen__sending *s, int64_t bytes, int64_t process_ns, int64_t work_ns)
{
    const pen__sending_sums now = sums(bytes, process_ns, work_ns);
    pen__sending_look(s, &now);
}

static void the_usual_is_told_before_enough_was_sent(void **state)
{
    (void)state;
    pen__sending s = {.has_begun = true};
    const pen__sending_sums little = sums(STEP - 1, 0, 0), enough = sums(STEP, STEP * 2, 0),
                            soon = sums(2 * STEP - 1, 0, 0);
    assert_int_equal(takes(&s, 111000), 600 * (111000 + FRAME) / 1000);
    assert_int_equal(pen__sending_ns(&s, 0, 1000), 600);
    assert_false(pen__sending_is_due(&s, &little));
    assert_true(pen__sending_is_due(&s, &enough));
    pen__sending_look(&s, &enough);
    assert_int_equal(takes(&s, 1000000), 2 * (1000000 + FRAME));
    assert_false(pen__sending_is_due(&s, &soon));
}

/* Opening datasets, new threads and connections. */
static void what_was_before_the_first_look_is_no_sending(void **state)
{
    (void)state;
    pen__sending s = {.has_begun = false};
    const pen__sending_sums first = sums(STEP / 4, STEP * 100, 0);
    assert_true(pen__sending_is_due(&s, &first));
    pen__sending_look(&s, &first);
    assert_int_equal(takes(&s, 1000), 600 * (1000 + FRAME) / 1000); /* as if nothing was seen */
    look(&s, STEP / 4 + STEP, STEP * 101, 0);
    assert_int_equal(takes(&s, 1000), FRAME + 1000);
}

/* A node that waits for clients for hours still looks after its connections. */
static void what_passes_while_nobody_asks_is_no_sending(void **state)
{
    (void)state;
    pen__sending s = {.has_begun = true};
    look(&s, STEP, STEP, 0);
    pen__sending_pause(&s);
    assert_int_equal(takes(&s, 1000), FRAME + 1000); /* as it was */
    const pen__sending_sums again = sums(STEP + STEP / 4, STEP * 100, 0);
    assert_true(pen__sending_is_due(&s, &again));
    pen__sending_look(&s, &again);
    assert_int_equal(takes(&s, 1000), FRAME + 1000);
    look(&s, STEP * 3, STEP * 100 + STEP * 7 / 4, 0);
    assert_int_equal(takes(&s, 1000), FRAME + 1000);
}

static void frames_count_beside_their_bytes(void **state)
{
    (void)state;
    const int64_t n = STEP / FRAME;
    pen__sending s = {.has_begun = true};
    const pen__sending_sums few = {0, n - 1, 0, 0}, small = {0, n, STEP, 0};
    assert_false(pen__sending_is_due(&s, &few));
    assert_true(pen__sending_is_due(&s, &small));
    pen__sending_look(&s, &small); /* frames with nothing in them: 1 ns a byte */
    assert_int_equal(takes(&s, 0), FRAME);
    assert_int_equal(takes(&s, 1000), FRAME + 1000);
}

/* What was learned of small frames holds for large ones, if both take what is measured. */
static void small_frames_tell_of_large_ones(void **state)
{
    (void)state;
    const int64_t n = 1000;
    pen__sending small = {.has_begun = true}, large = small;
    pen__sending_look(&small, &(pen__sending_sums){41000 * n, n, 100000 * n, 0});
    pen__sending_look(&large, &(pen__sending_sums){111000 * n, n, 142000 * n, 0});
    assert_in_range(takes(&small, 111000), 135000, 149000);
    assert_in_range(takes(&large, 41000), 95000, 105000);
}

static void work_is_no_sending(void **state)
{
    (void)state;
    pen__sending s = {.has_begun = true};
    look(&s, STEP, STEP * 5, STEP * 4);
    assert_int_equal(takes(&s, 1000), FRAME + 1000);
    /* From there on: as much work again, and half as much time for the same bytes. */
    for (int i = 2; i < 200; i++)
        look(&s, STEP * i, STEP * 5 + STEP / 2 * (i - 1), STEP * 4);
    assert_in_range(takes(&s, 1000), (FRAME + 1000) / 2, (FRAME + 1000) * 51 / 100);
}

static void one_look_does_not_change_everything(void **state)
{
    (void)state;
    pen__sending s = {.has_begun = true};
    for (int i = 1; i <= 20; i++)
        look(&s, STEP * i, STEP * i, 0);
    look(&s, STEP * 21, STEP * 29, 0); /* nine times as much */
    assert_int_equal(takes(&s, 1000), 2 * (FRAME + 1000));
    pen__sending few = {.has_begun = true}; /* of two, each says half */
    look(&few, STEP, STEP, 0);
    look(&few, STEP * 2, STEP * 4, 0);
    assert_int_equal(takes(&few, 1000), 2 * (FRAME + 1000));
}

/* Work is counted when it is done, and so may be of the time before. */
static void odd_figures_stay_within_bounds(void **state)
{
    (void)state;
    const int64_t most = 10 * (FRAME + 1000);
    pen__sending s = {.has_begun = true};
    look(&s, STEP, STEP, STEP * 3);
    assert_in_range(takes(&s, 1000), 0, FRAME / 500);
    look(&s, STEP * 2, INT64_C(1) << 60, STEP * 3);
    assert_in_range(takes(&s, 1000), most * 49 / 100, most * 51 / 100);
    assert_true(takes(&s, INT64_C(1) << 40) > 0);
    look(&s, STEP * 3, 0, 0); /* clocks do not go back */
    assert_in_range(takes(&s, 1000), most / 4, most);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_usual_is_told_before_enough_was_sent),
        cmocka_unit_test(what_was_before_the_first_look_is_no_sending),
        cmocka_unit_test(what_passes_while_nobody_asks_is_no_sending),
        cmocka_unit_test(frames_count_beside_their_bytes),
        cmocka_unit_test(small_frames_tell_of_large_ones),
        cmocka_unit_test(work_is_no_sending),
        cmocka_unit_test(one_look_does_not_change_everything),
        cmocka_unit_test(odd_figures_stay_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
