/* test_rapl.c - package energy: which zones count, wrapping, zones that cannot be read. */
#include "kernels.h"

#include "telemetry/rapl.h"

static pen__rapl rapl;
static char buffer[PEN__WATCH_CAP];

static int fini(void **state)
{
    pen__rapl_fini(&rapl);
    return tree_teardown(state);
}

static void put_energy(int zone, const char *text)
{
    char path[96];
    snprintf(path, sizeof path, "sys/class/powercap/intel-rapl:%d/energy_uj", zone);
    put_text(path, text);
}

static void packages_add_up_and_wrap(void **state)
{
    (void)state;
    unpack_kernel("linux-5.10.txt");
    assert_int_equal(pen__rapl_init(&rapl, tree), 0);
    assert_int_equal(rapl.n_zones, 2); /* neither psys nor parts nor the second view */
    assert_is(pen__rapl_read(&rapl, buffer), 0);
    put_energy(0, "262143200000\n"); /* 0.2 J */
    put_energy(1, "4000000\n");      /* 3 J */
    assert_is(pen__rapl_read(&rapl, buffer), 3.2);
    put_energy(0, "71150\n"); /* 0.12885 J to its end, 0.07115 J after it */
    assert_is(pen__rapl_read(&rapl, buffer), 3.4);
}

static void a_package_that_cannot_be_read_makes_it_unavailable(void **state)
{
    (void)state;
    unpack_kernel("linux-5.10.txt");
    assert_int_equal(pen__rapl_init(&rapl, tree), 0);
    assert_is(pen__rapl_read(&rapl, buffer), 0);
    put_energy(1, "");
    assert_unavailable(pen__rapl_read(&rapl, buffer));
    put_energy(1, "2000000\n"); /* it is back, and nothing was lost */
    assert_is(pen__rapl_read(&rapl, buffer), 1);
}

static void without_a_range_a_wrap_is_not_guessed(void **state)
{
    (void)state;
    put_text("sys/class/powercap/intel-rapl:0/name", "package-0\n");
    put_energy(0, "5000000\n");
    assert_int_equal(pen__rapl_init(&rapl, tree), 0);
    assert_is(pen__rapl_read(&rapl, buffer), 0);
    put_energy(0, "1000000\n");
    assert_unavailable(pen__rapl_read(&rapl, buffer));
    put_energy(0, "2000000\n");
    assert_is(pen__rapl_read(&rapl, buffer), 1);
}

static void no_zones_are_unavailable(void **state)
{
    (void)state;
    assert_int_equal(pen__rapl_init(&rapl, tree), 0);
    assert_unavailable(pen__rapl_read(&rapl, buffer));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(packages_add_up_and_wrap, tree_setup, fini),
        cmocka_unit_test_setup_teardown(a_package_that_cannot_be_read_makes_it_unavailable,
                                        tree_setup, fini),
        cmocka_unit_test_setup_teardown(without_a_range_a_wrap_is_not_guessed, tree_setup, fini),
        cmocka_unit_test_setup_teardown(no_zones_are_unavailable, tree_setup, fini),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
