/* test_rates.c - two readings make rates, and what cannot be told stays so. */
#include "kernels.h"

#include <penstock/telemetry.h>

static pen_machine before, now;
static pen_rates rates;

/* Two equal readings, two seconds apart, with one core. */
static int set_up(void **state)
{
    (void)state;
    memset(&before, 0, sizeof before);
    before.struct_size = sizeof before;
    before.n_cores = 1;
    before.disks.n_disks = before.data_disk.n_disks = 1;
    now = before;
    now.time_ns = 2000000000;
    rates = (pen_rates)PEN_RATES_INIT;
    return 0;
}

static void make_rates(void)
{
    assert_int_equal(pen_machine_rates(&before, &now, &rates), 0);
}

static void shares_are_of_the_time_that_passed(void **state)
{
    (void)state;
    before.cpu = (pen_cpu_times){100, 200, 10, 1};
    now.cpu = (pen_cpu_times){103, 204, 12, 2};
    now.cores[0] = (pen_cpu_times){2, 0, 0, 0};
    now.process.cpu_s = 3;
    now.pressure[PEN_PRESSURE_IO].some_s = 0.5;
    make_rates();
    assert_is(rates.seconds, 2);
    assert_is(rates.cpu.busy, 0.3);
    assert_is(rates.cpu.iowait, 0.2);
    assert_is(rates.cpu.steal, 0.1);
    assert_is(rates.cores[0].busy, 1);
    assert_is(rates.process_cores, 1.5);
    assert_is(rates.pressure[PEN_PRESSURE_IO].some, 0.25);
    assert_is(rates.pressure[PEN_PRESSURE_IO].full, 0);
}

static void idle_time_that_steps_back_is_none(void **state)
{
    (void)state;
    before.cpu = (pen_cpu_times){100, 200, 10, 1};
    now.cpu = (pen_cpu_times){103, 201, 9.5, 1};
    make_rates();
    assert_is(rates.cpu.busy, 0.75);
    assert_is(rates.cpu.iowait, 0);
}

static void no_time_and_no_requests_have_no_mean(void **state)
{
    (void)state;
    make_rates();
    assert_unavailable(rates.cpu.busy);
    assert_unavailable(rates.disks.latency_s);
    assert_unavailable(rates.cgroup.throttled_share);
    assert_is(rates.disks.reads_per_s, 0);
    now.time_ns = before.time_ns;
    make_rates();
    assert_unavailable(rates.seconds);
    assert_unavailable(rates.disks.reads_per_s);
    assert_unavailable(rates.pressure[0].some);
}

static void unknown_and_shrinking_counters_have_no_rate(void **state)
{
    (void)state;
    before.net.rx_bytes = NAN;
    before.net.tx_bytes = 1000;
    now.net.tx_bytes = 999;
    before.package_j = 5;
    now.package_j = NAN;
    before.cpu.busy_s = 7;
    make_rates();
    assert_unavailable(rates.net.rx_bytes_per_s);
    assert_unavailable(rates.net.tx_bytes_per_s);
    assert_unavailable(rates.package_w);
    assert_unavailable(rates.cpu.busy);
}

static void disks_tell_latency_queue_and_use(void **state)
{
    (void)state;
    now.disks = (pen_disk){.n_disks = 1,
                           .reads = 100,
                           .writes = 50,
                           .read_bytes = 4e6,
                           .write_bytes = 2e6,
                           .read_s = 0.5,
                           .write_s = 1,
                           .busy_s = 1.2,
                           .queue_s = 3};
    make_rates();
    assert_is(rates.disks.reads_per_s, 50);
    assert_is(rates.disks.write_bytes_per_s, 1e6);
    assert_is(rates.disks.read_latency_s, 0.005);
    assert_is(rates.disks.write_latency_s, 0.02);
    assert_is(rates.disks.latency_s, 0.01);
    assert_is(rates.disks.queue, 1.5);
    assert_is(rates.disks.busy, 0.6);
    before.disks.n_disks = now.disks.n_disks = 2;
    now.disks.busy_s = 3;
    make_rates();
    assert_is(rates.disks.busy, 1.5);
    now.disks.busy_s = 4.004; /* a little more than there was */
    make_rates();
    assert_is(rates.disks.busy, 2);
}

static void times_of_32_bits_wrap(void **state)
{
    (void)state;
    before.disks.queue_s = before.disks.read_s = 4294967.0;
    now.disks.queue_s = 1.704; /* 2^32 ms are 4294967.296 s */
    now.disks.read_s = 0.704;
    now.disks.reads = 10;
    make_rates();
    assert_true(fabs(rates.disks.queue - 1) < 1e-6);
    assert_true(fabs(rates.disks.read_latency_s - 0.1) < 1e-6);
    before.disks.queue_s = 1000; /* far from the end: another disk of that name */
    make_rates();
    assert_unavailable(rates.disks.queue);
}

static void devices_that_come_and_go_have_no_rate_for_once(void **state)
{
    (void)state;
    now.disks.n_disks = 2;
    now.disks.reads = now.disks.read_s = 1e9;
    snprintf(now.data_disk.name, sizeof now.data_disk.name, "sdb");
    now.net.n_interfaces = 1;
    now.net.rx_bytes = 1e9;
    make_rates();
    assert_unavailable(rates.disks.reads_per_s);
    assert_unavailable(rates.disks.latency_s);
    assert_unavailable(rates.disks.busy);
    assert_unavailable(rates.data_disk.reads_per_s);
    assert_unavailable(rates.net.rx_bytes_per_s);
}

static void counters_of_different_groups_are_not_subtracted(void **state)
{
    (void)state;
    now.cgroup.cpu_s = 1;
    now.cgroup.cpu_periods = 20;
    now.cgroup.cpu_throttled_periods = 5;
    now.cgroup.cpu_throttled_s = 4;
    now.cgroup.memory_high_events = 6;
    make_rates();
    assert_is(rates.cgroup.cpu_cores, 0.5);
    assert_is(rates.cgroup.throttled_share, 0.25);
    assert_is(rates.cgroup.throttled_cores, 2);
    assert_is(rates.cgroup.memory_high_events_per_s, 3);
    now.cgroup.cpu_group = now.cgroup.memory_group = 1;
    make_rates();
    assert_is(rates.cgroup.cpu_cores, 0.5); /* our own in any case */
    assert_unavailable(rates.cgroup.throttled_share);
    assert_unavailable(rates.cgroup.throttled_cores);
    assert_unavailable(rates.cgroup.memory_high_events_per_s);
}

static void only_cores_of_both_readings_are_compared(void **state)
{
    (void)state;
    now.n_cores = 4;
    before.n_gpus = 2;
    make_rates();
    assert_int_equal(rates.n_cores, 1);
    assert_int_equal(rates.n_gpus, 0);
}

static void structs_of_another_library_are_refused(void **state)
{
    (void)state;
    rates.struct_size = sizeof rates + 8;
    assert_int_equal(pen_machine_rates(&before, &now, &rates), PEN_EINVAL);
    rates.struct_size = 0;
    assert_int_equal(pen_machine_rates(&before, &now, &rates), PEN_EINVAL);
    rates.struct_size = offsetof(pen_rates, package_w);
    rates.package_w = 42;
    make_rates();
    assert_is(rates.package_w, 42); /* beyond what the caller knows */
    now.struct_size = 8;
    assert_int_equal(pen_machine_rates(&before, &now, &rates), PEN_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(shares_are_of_the_time_that_passed, set_up),
        cmocka_unit_test_setup(idle_time_that_steps_back_is_none, set_up),
        cmocka_unit_test_setup(no_time_and_no_requests_have_no_mean, set_up),
        cmocka_unit_test_setup(unknown_and_shrinking_counters_have_no_rate, set_up),
        cmocka_unit_test_setup(disks_tell_latency_queue_and_use, set_up),
        cmocka_unit_test_setup(times_of_32_bits_wrap, set_up),
        cmocka_unit_test_setup(devices_that_come_and_go_have_no_rate_for_once, set_up),
        cmocka_unit_test_setup(counters_of_different_groups_are_not_subtracted, set_up),
        cmocka_unit_test_setup(only_cores_of_both_readings_are_compared, set_up),
        cmocka_unit_test_setup(structs_of_another_library_are_refused, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
