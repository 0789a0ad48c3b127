/* test_stream.c - tails and ranks: which sample fills which slot. */
#include "testing.h"

#include "engine/stream.h"

static pen__stream make(int64_t count, int32_t local, int32_t rank, int32_t world, pen_tail tail)
{
    return (pen__stream){{PEN_ORDER_SHUFFLE, 1, 1, 11, count}, local, rank, world, tail};
}

static void tails_give_the_right_number_of_batches(void **state)
{
    (void)state;
    const pen_tail tails[] = {PEN_TAIL_SHORT, PEN_TAIL_DROP, PEN_TAIL_PAD, PEN_TAIL_WRAP};
    const int64_t uneven[] = {4, 3, 4, 4};
    for (int i = 0; i < 4; i++) {
        pen__stream a = make(100, 32, 0, 1, tails[i]), b = make(96, 32, 0, 1, tails[i]);
        assert_int_equal(pen__stream_batches(&a), uneven[i]);
        assert_int_equal(pen__stream_batches(&b), 3);
    }
    pen__stream tiny = make(5, 32, 0, 1, PEN_TAIL_DROP);
    assert_int_equal(pen__stream_batches(&tiny), 0);
}

static void a_short_tail_has_fewer_slots(void **state)
{
    (void)state;
    pen__stream s = make(100, 32, 0, 1, PEN_TAIL_SHORT);
    assert_int_equal(pen__stream_slots(&s, 2), 32);
    assert_int_equal(pen__stream_slots(&s, 3), 4);
    s.tail = PEN_TAIL_WRAP;
    assert_int_equal(pen__stream_slots(&s, 3), 32);
}

/* Four ranks of 8 see exactly what one rank of 32 sees, slice by slice. */
static void ranks_share_out_the_same_global_batch(void **state)
{
    (void)state;
    pen__stream one = make(100, 32, 0, 1, PEN_TAIL_WRAP);
    for (int rank = 0; rank < 4; rank++) {
        pen__stream part = make(100, 8, rank, 4, PEN_TAIL_WRAP);
        assert_int_equal(pen__stream_batches(&part), pen__stream_batches(&one));
        for (int64_t b = 0; b < pen__stream_batches(&one); b++)
            for (int i = 0; i < 8; i++) {
                pen__slot x = pen__stream_slot(&one, 2, b, rank * 8 + i);
                pen__slot y = pen__stream_slot(&part, 2, b, i);
                assert_int_equal(x.sample, y.sample);
                assert_int_equal(x.occurrence, y.occurrence);
                assert_int_equal(x.position, y.position);
            }
    }
}

static void wrapped_samples_are_second_occurrences_and_padding_is_marked(void **state)
{
    (void)state;
    for (int tail = PEN_TAIL_PAD; tail <= PEN_TAIL_WRAP; tail++) {
        pen__stream s = make(10, 8, 0, 1, (pen_tail)tail);
        for (int i = 0; i < 8; i++) {
            pen__slot slot = pen__stream_slot(&s, 0, 1, i);
            assert_int_equal(slot.occurrence, i >= 2);
            assert_int_equal(slot.is_repeat, i >= 2 && tail == PEN_TAIL_PAD);
            if (i >= 2)
                assert_int_equal(slot.sample, pen__stream_slot(&s, 0, 0, i - 2).sample);
        }
    }
}

/* A batch larger than the dataset goes round more than once. */
static void a_tiny_dataset_fills_a_large_batch(void **state)
{
    (void)state;
    pen__stream s = make(3, 8, 0, 1, PEN_TAIL_WRAP);
    assert_int_equal(pen__stream_batches(&s), 1);
    assert_int_equal(pen__stream_slot(&s, 0, 0, 7).occurrence, 2);
}

static void replacements_are_repeatable_and_vary(void **state)
{
    (void)state;
    pen__stream s = make(1000, 8, 0, 1, PEN_TAIL_WRAP);
    int n_equal = 0;
    for (int attempt = 1; attempt < 20; attempt++) {
        int64_t id = pen__stream_replacement(&s, 1, 77, attempt);
        assert_in_range(id, 0, 999);
        assert_int_equal(id, pen__stream_replacement(&s, 1, 77, attempt));
        n_equal += id == pen__stream_replacement(&s, 1, 78, attempt);
    }
    assert_true(n_equal < 3);
}

static void a_ghost_is_the_slot_before_and_goes_round(void **state)
{
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        pen__stream own = make(100, 8, rank, 4, PEN_TAIL_WRAP);
        pen__stream before = make(100, 8, (rank + 3) % 4, 4, PEN_TAIL_WRAP);
        for (int64_t batch = 0; batch < 4; batch++) {
            pen__slot ghost = pen__stream_ghost(&own, 3, batch);
            pen__slot last = pen__stream_slot(&before, 3, batch, 7);
            assert_int_equal(ghost.position, last.position);
            assert_int_equal(ghost.sample, last.sample);
            assert_int_equal(ghost.occurrence, last.occurrence);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tails_give_the_right_number_of_batches),
        cmocka_unit_test(a_short_tail_has_fewer_slots),
        cmocka_unit_test(ranks_share_out_the_same_global_batch),
        cmocka_unit_test(wrapped_samples_are_second_occurrences_and_padding_is_marked),
        cmocka_unit_test(a_tiny_dataset_fills_a_large_batch),
        cmocka_unit_test(a_ghost_is_the_slot_before_and_goes_round),
        cmocka_unit_test(replacements_are_repeatable_and_vary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
