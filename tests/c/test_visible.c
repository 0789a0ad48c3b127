/* test_visible.c - what CUDA_VISIBLE_DEVICES says, and when its numbers mean anything. */
#include "testing.h"

#include "telemetry/visible.h"

static pen_machine machine;

/* So many GPUs; of two kinds by turns, or of one. */
static void make_gpus(int n, bool are_alike)
{
    machine.n_gpus = n;
    for (int i = 0; i < n; i++)
        snprintf(machine.gpus[i].name, sizeof machine.gpus[i].name, "kind %d",
                 are_alike ? 0 : i % 2);
}

/* -1: not known; else a bit for each that is visible. */
static int mask_of(const char *devices, const char *order)
{
    pen__visible visible;
    bool picked[PEN_MACHINE_GPUS];
    int mask = 0, n_bits = 0;
    pen__visible_parse(&visible, devices, order);
    const int n = pen__visible_pick(&visible, &machine, picked);
    for (int i = 0; i < PEN_MACHINE_GPUS; i++) {
        mask |= picked[i] << i;
        n_bits += picked[i];
    }
    assert_true(n == -1 || n == n_bits);
    return n < 0 ? -1 : mask;
}

static void all_are_visible_where_nothing_is_said(void **state)
{
    (void)state;
    for (int n = 0; n <= PEN_MACHINE_GPUS; n++) {
        make_gpus(n, false);
        assert_int_equal(mask_of(NULL, NULL), (1 << n) - 1);
    }
}

static void numbers_name_gpus_of_one_kind(void **state)
{
    (void)state;
    make_gpus(4, true);
    assert_int_equal(mask_of("0", NULL), 1);
    assert_int_equal(mask_of("2,1", NULL), 6);
    assert_int_equal(mask_of(" 3 , 0", NULL), 9);
    assert_int_equal(mask_of("", NULL), 0);
}

static void a_list_ends_at_a_number_that_there_is_not(void **state)
{
    (void)state;
    make_gpus(4, true);
    assert_int_equal(mask_of("-1", NULL), 0);
    assert_int_equal(mask_of("1,-1,0", NULL), 2);
    assert_int_equal(mask_of("1,7,0", NULL), 2);
    assert_int_equal(mask_of("1,99999999999999999999,0", NULL), 2);
}

static void names_are_not_guessed_at(void **state)
{
    (void)state;
    static const char *const lists[] = {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
                                        "0,GPU-8932f937",
                                        "MIG-GPU-1/0/0",
                                        "0,",
                                        ",",
                                        "0x1",
                                        "one",
                                        "1,1",
                                        "0 1",
                                        "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"};
    make_gpus(4, true);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (mask_of(lists[i], "PCI_BUS_ID") != -1)
            fail_msg("'%s' is known", lists[i]);
}

/* CUDA counts the fastest first unless it is told to count along the bus. */
static void numbers_of_different_gpus_need_an_order(void **state)
{
    (void)state;
    make_gpus(4, false);
    assert_int_equal(mask_of("1", NULL), -1);
    assert_int_equal(mask_of("1", "FASTEST_FIRST"), -1);
    assert_int_equal(mask_of("1", "PCI_BUS_ID"), 2);
    assert_int_equal(mask_of("3,2,1,0", NULL), 15); /* whichever is which */
    assert_int_equal(mask_of("", NULL), 0);
}

static void gpus_that_are_not_listed_are_not_known(void **state)
{
    (void)state;
    make_gpus(PEN_MACHINE_GPUS, true);
    assert_int_equal(mask_of("15", NULL), 1 << 15);
    assert_int_equal(mask_of("0,16", NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_visible_where_nothing_is_said),
        cmocka_unit_test(numbers_name_gpus_of_one_kind),
        cmocka_unit_test(a_list_ends_at_a_number_that_there_is_not),
        cmocka_unit_test(names_are_not_guessed_at),
        cmocka_unit_test(numbers_of_different_gpus_need_an_order),
        cmocka_unit_test(gpus_that_are_not_listed_are_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
