/* test_procfs.c - the parsers on lines of several kernels, and on nonsense. */
#include "kernels.h"

#include "telemetry/procfs.h"

static pen__scan of(const char *text)
{
    return pen__scan_text(text, strlen(text));
}

static pen_machine machine;

static void guest_time_is_not_counted_twice(void **state)
{
    (void)state;
    pen__parse_stat(of("cpu  100 20 30 400 50 6 7 8 90 10\n"), 0.01, &machine);
    assert_is(machine.cpu.busy_s, 1.63); /* user, nice, system, irq, softirq */
    assert_is(machine.cpu.idle_s, 4);
    assert_is(machine.cpu.iowait_s, 0.5);
    assert_is(machine.cpu.steal_s, 0.08);
    assert_int_equal(machine.n_cores, 0);
}

static void cores_keep_their_numbers_when_one_is_offline(void **state)
{
    (void)state;
    pen__parse_stat(of("cpu  4 0 0 4 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0\ncpu2 3 0 0 3 0 0 0 0\nintr 5\n"
                       "cpu3 9 9 9 9 9 9 9 9\n"),
                    1, &machine);
    assert_int_equal(machine.n_cores, 3);
    assert_is(machine.cores[0].busy_s, 1);
    assert_unavailable(machine.cores[1].busy_s);
    assert_is(machine.cores[2].busy_s, 3);
}

static void absurd_cores_are_left_out(void **state)
{
    (void)state;
    pen__parse_stat(of("cpu512 1 1 1 1 1 1 1 1\ncpu99999999999999999999 1 1 1 1\ncpux 1 1 1 1\n"
                       "cpu511 1 0 0 1 0 0 0 0\ncpu1 18446744073709551615 0 0 1 0 0 0 0\n"),
                    1, &machine);
    assert_int_equal(machine.n_cores, 512);
    assert_is(machine.cores[511].busy_s, 1);
    assert_unavailable(machine.cores[1].busy_s); /* overflows */
    assert_unavailable(machine.cpu.busy_s);
}

static void a_process_name_may_look_like_fields(void **state)
{
    (void)state;
    pen_process p;
    pen__parse_self(of("9 (a) 1 2 (b) R 1 1 1 0 -1 0 5 0 77 0 1 1 0 0 20 -5 4 0 9 1000 256 1 1\n"),
                    4096, &p);
    assert_is(p.major_faults, 77);
    assert_is(p.threads, 4);
    assert_is(p.rss_bytes, 256 * 4096);
    pen__parse_self(of("9 (cut) R 1 1"), 4096, &p);
    assert_unavailable(p.rss_bytes);
    pen__parse_self(of("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24"), 4096, &p);
    assert_unavailable(p.threads); /* no name, so no place to count from */
}

static void memory_that_exceeds_the_machine_is_refused(void **state)
{
    (void)state;
    pen_memory m;
    pen__parse_meminfo(of("MemTotal: 1000 kB\nMemFree: 2000 kB\nMemAvailable: 900 kB\n"), &m);
    assert_is(m.total_bytes, 1024000);
    assert_unavailable(m.free_bytes);
    assert_is(m.available_bytes, 921600);
    assert_unavailable(m.swap_free_bytes);
    pen__parse_meminfo(of("MemTotal: 9007199254740992 kB\n"), &m);
    assert_unavailable(m.total_bytes);
}

static void pressure_is_shares_and_seconds(void **state)
{
    (void)state;
    pen_pressure p;
    pen__parse_pressure(of("some avg10=12.34 avg60=0.00 avg300=0.00 total=1500000\n"), &p);
    assert_is(p.some_avg10, 0.1234);
    assert_is(p.some_s, 1.5);
    assert_unavailable(p.full_avg10); /* the CPU's before 5.13 */
    assert_unavailable(p.full_s);
    pen__parse_pressure(of("full avg10=100.01 total=x\nsome avg10= total=\n"), &p);
    assert_unavailable(p.full_avg10);
    assert_unavailable(p.full_s);
    assert_unavailable(p.some_avg10);
    assert_unavailable(p.some_s);
}

static void disks_have_14_18_or_20_fields(void **state)
{
    (void)state;
    static const char *const tails[] = {"", " 1 2 3 4", " 1 2 3 4 5 6", " 1 2 3 4 5 6 7 8"};
    for (size_t i = 0; i < COUNT(tails); i++) {
        char line[256];
        pen_disk d;
        snprintf(line, sizeof line, "   8       0 sda 10 20 30 40 50 60 70 80 9 100 110%s",
                 tails[i]);
        assert_true(pen__parse_disk(of(line), &d));
        assert_string_equal(d.name, "sda");
        assert_is(d.reads, 10);
        assert_is(d.read_bytes, 30 * 512);
        assert_is(d.read_s, 0.04);
        assert_is(d.writes, 50);
        assert_is(d.write_bytes, 70 * 512);
        assert_is(d.write_s, 0.08);
        assert_is(d.in_flight, 9);
        assert_is(d.busy_s, 0.1);
        assert_is(d.queue_s, 0.11);
    }
}

static void lines_that_are_no_disk_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "8 0 sda",
        "8 1 sda1 10 20 30 40", /* partitions of 2.6.24 and before */
        "8 0 sda 1 2 3 4 5 6 7 8 9 10",
        "8 0 sda 1 2 3 4 5 6 7 8 9 10 -1",
        "x 0 sda 1 2 3 4 5 6 7 8 9 10 11",
        "8 0 .. 1 2 3 4 5 6 7 8 9 10 11",
        "8 0 a-name-that-is-far-too-long-for-a-disk 1 2 3 4 5 6 7 8 9 10 11",
    };
    pen_disk d;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(pen__parse_disk(of(bad[i]), &d));
    assert_true(pen__parse_disk(of("104 0 cciss/c0d0 1 2 3 4 5 6 7 8 9 10 11"), &d));
    assert_string_equal(d.name, "cciss!c0d0"); /* never a way out of its folder */
}

static void interfaces_add_up_both_directions(void **state)
{
    (void)state;
    char name[PEN__INTERFACE_CAP];
    pen_net n;
    assert_true(
        pen__parse_interface(of("  eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"), name, &n));
    assert_string_equal(name, "eth0");
    assert_is(n.rx_bytes, 1);
    assert_is(n.rx_packets, 2);
    assert_is(n.tx_bytes, 9);
    assert_is(n.tx_packets, 10);
    assert_is(n.errors, 3 + 11);
    assert_is(n.drops, 4 + 12);
    static const char *const bad[] = {
        " face |bytes    packets errs",
        ": 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
        "eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15",
        "a-very-long-name: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
        "eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 99999999999999999999",
    };
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(pen__parse_interface(of(bad[i]), name, &n));
}

static void no_limit_is_infinite_and_nonsense_is_unavailable(void **state)
{
    (void)state;
    assert_is(pen__parse_cpu_max(of("max 100000\n")), INFINITY);
    assert_is(pen__parse_cpu_max(of("150000 100000\n")), 1.5);
    assert_unavailable(pen__parse_cpu_max(of("0 100000\n")));
    assert_unavailable(pen__parse_cpu_max(of("150000\n")));
    assert_unavailable(pen__parse_cpu_max(of("")));
    assert_is(pen__parse_cfs_quota(of("-1\n"), 100000), INFINITY);
    assert_is(pen__parse_cfs_quota(of("50000\n"), 100000), 0.5);
    assert_unavailable(pen__parse_cfs_quota(of("-2\n"), 100000));
    assert_unavailable(pen__parse_cfs_quota(of("50000\n"), 0));
    assert_is(pen__parse_memory_limit(of("max\n")), INFINITY);
    assert_is(pen__parse_memory_limit(of("9223372036854771712\n")), INFINITY);
    assert_is(pen__parse_memory_limit(of("4096\n")), 4096);
    assert_unavailable(pen__parse_memory_limit(of("-1\n")));
    assert_unavailable(pen__parse_memory_limit(of("4k\n")));
    assert_unavailable(pen__parse_number(of("\n5")));
}

static void both_kinds_of_cpu_stat_are_read(void **state)
{
    (void)state;
    pen_cgroup g;
    pen__parse_cpu_stat(of("nr_periods 9\nnr_throttled 3\nthrottled_time 2500000000\n"), &g);
    assert_is(g.cpu_periods, 9);
    assert_is(g.cpu_throttled_periods, 3);
    assert_is(g.cpu_throttled_s, 2.5);
    assert_unavailable(g.cpu_s);
    pen__parse_cpu_stat(of("usage_usec 1500000\nnr_periods 1\nthrottled_usec 500000\n"), &g);
    assert_is(g.cpu_s, 1.5);
    assert_is(g.cpu_throttled_s, 0.5);
    assert_unavailable(g.cpu_throttled_periods);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guest_time_is_not_counted_twice),
        cmocka_unit_test(cores_keep_their_numbers_when_one_is_offline),
        cmocka_unit_test(absurd_cores_are_left_out),
        cmocka_unit_test(a_process_name_may_look_like_fields),
        cmocka_unit_test(memory_that_exceeds_the_machine_is_refused),
        cmocka_unit_test(pressure_is_shares_and_seconds),
        cmocka_unit_test(disks_have_14_18_or_20_fields),
        cmocka_unit_test(lines_that_are_no_disk_are_refused),
        cmocka_unit_test(interfaces_add_up_both_directions),
        cmocka_unit_test(no_limit_is_infinite_and_nonsense_is_unavailable),
        cmocka_unit_test(both_kinds_of_cpu_stat_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
