/* test_cgroup.c - control groups of v1, v2 and both, as recorded. */
#include "kernels.h"

#include "base/mem.h"
#include "telemetry/cgroup.h"
#include "telemetry/limits.h"

static pen__cgroups groups;
static char buffer[PEN__WATCH_CAP];

static pen_cgroup read_groups(const char *kernel)
{
    pen_cgroup out;
    if (kernel)
        unpack_kernel(kernel);
    assert_int_equal(pen__cgroups_init(&groups, tree), 0);
    pen__cgroups_read(&groups, buffer, &out);
    return out;
}

static int fini(void **state)
{
    pen__cgroups_fini(&groups);
    return tree_teardown(state);
}

static void v1_in_a_container_is_the_mounts_root(void **state)
{
    (void)state;
    pen_cgroup g = read_groups("linux-4.15.txt");
    assert_is(g.cpu_quota_cores, 1.5);
    assert_is(g.cpu_periods, 2000);
    assert_is(g.cpu_throttled_periods, 500);
    assert_is(g.cpu_throttled_s, 25);
    assert_is(g.cpu_s, 123);
    assert_is(g.memory_limit_bytes, 4294967296.0);
    assert_unavailable(g.memory_high_bytes);
    assert_is(g.memory_used_bytes, 3221225472.0);
    assert_is(g.memory_file_bytes, 2e9);
    assert_is(g.memory_limit_events, 17);
    assert_unavailable(g.memory_high_events);
    assert_unavailable(g.pressure[PEN_PRESSURE_MEMORY].some_avg10);
}

static void the_tightest_group_speaks_for_its_limit(void **state)
{
    (void)state;
    pen_cgroup g = read_groups("linux-6.8.txt");
    assert_int_equal(g.cpu_group, 1); /* the pod's 2.5 cores, not our 4 */
    assert_is(g.cpu_quota_cores, 2.5);
    assert_is(g.cpu_throttled_periods, 50);
    assert_is(g.cpu_throttled_s, 3);
    assert_is(g.cpu_s, 5); /* our own all the same */
    assert_int_equal(g.memory_group, 0);
    assert_is(g.memory_limit_bytes, 8589934592.0);
    assert_is(g.memory_high_bytes, 7516192768.0);
    assert_is(g.memory_used_bytes, 6442450944.0);
    assert_is(g.memory_file_bytes, 3.9e9);
    assert_is(g.memory_high_events, 12);
    assert_is(g.memory_limit_events, 3);
    assert_is(g.pressure[PEN_PRESSURE_CPU].full_avg10, 0.1);
    assert_is(g.pressure[PEN_PRESSURE_CPU].full_s, 1.5);
    assert_is(g.pressure[PEN_PRESSURE_IO].some_s, 100e-6);
}

static void v1_and_v2_side_by_side_are_both_read(void **state)
{
    (void)state;
    pen_cgroup g = read_groups("linux-5.10.txt");
    assert_is(g.cpu_quota_cores, INFINITY);
    assert_is(g.cpu_throttled_s, 0);
    assert_is(g.cpu_s, 77);
    assert_int_equal(g.memory_group, 1);
    assert_is(g.memory_limit_bytes, 6e9);
    assert_is(g.memory_used_bytes, 7e8);
    assert_is(g.memory_file_bytes, 3000);
    assert_is(g.memory_limit_events, 3);
    assert_is(g.pressure[PEN_PRESSURE_MEMORY].full_s, 3);
    assert_unavailable(g.pressure[PEN_PRESSURE_CPU].some_s);
}

static void a_limit_that_changes_is_seen(void **state)
{
    (void)state;
    pen_cgroup g = read_groups("linux-6.8.txt");
    put_text("sys/fs/cgroup/kubepods.slice/cpu.max", "100000 100000\n");
    put_text("sys/fs/cgroup/kubepods.slice/pod1.slice/train.scope/memory.high", "max\n");
    pen__cgroups_read(&groups, buffer, &g);
    assert_int_equal(g.cpu_group, 2);
    assert_is(g.cpu_quota_cores, 1);
    assert_unavailable(g.cpu_throttled_s); /* that group shows none */
    assert_is(g.memory_high_bytes, INFINITY);
    assert_is(g.memory_limit_bytes, 8589934592.0);
}

static void the_root_group_has_no_pressure_of_its_own(void **state)
{
    (void)state;
    put_text("proc/self/cgroup", "0::/\n");
    put_text("sys/fs/cgroup/cpu.pressure", "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
    pen_cgroup g = read_groups(NULL);
    assert_unavailable(g.pressure[PEN_PRESSURE_CPU].full_s);
}

static void without_groups_all_is_unavailable(void **state)
{
    (void)state;
    put_text("proc/self/cgroup", ":::\n\n0\n::\n7:memory\n1:a,,b:/x\n");
    pen_cgroup g = read_groups(NULL);
    assert_int_equal(g.cpu_group, -1);
    assert_int_equal(g.memory_group, -1);
    assert_unavailable(g.cpu_quota_cores);
    assert_unavailable(g.cpu_s);
    assert_unavailable(g.memory_limit_bytes);
    assert_unavailable(g.memory_used_bytes);
    assert_unavailable(g.memory_limit_events);
}

static void a_deep_group_keeps_the_closest_levels(void **state)
{
    (void)state;
    char path[512] = "sys/fs/cgroup", file[600], line[600];
    for (int i = 0; i < PEN__CGROUP_LEVELS + 5; i++) {
        strcat(path, "/deeper");
        snprintf(file, sizeof file, "%s/cpu.max", path);
        snprintf(line, sizeof line, "%d00000 100000\n", 10 + i);
        put_text(file, line);
    }
    snprintf(line, sizeof line, "0::%s\n", path + strlen("sys/fs/cgroup"));
    put_text("proc/self/cgroup", line);
    pen_cgroup g = read_groups(NULL);
    assert_int_equal(groups.n_cpu, PEN__CGROUP_LEVELS);
    assert_is(g.cpu_quota_cores, 15); /* 26 is ours, 15 the last of twelve */
}

static void running_out_of_memory_anywhere_leaks_nothing(void **state)
{
    (void)state;
    unpack_kernel("linux-6.8.txt");
    int64_t live = pen__mem_live();
    int fds = open_fds(), rc = PEN_ENOMEM;
    for (int n = 1; rc == PEN_ENOMEM; n++) {
        pen__mem_fail_at(n);
        rc = pen__cgroups_init(&groups, tree);
        pen__mem_fail_at(0);
        pen__cgroups_fini(&groups);
        assert_int_equal(pen__mem_live(), live);
        assert_int_equal(open_fds(), fds);
    }
    assert_int_equal(rc, 0);
}

static void the_limits_know_the_unified_mount_too(void **state)
{
    (void)state;
    put_text("proc/meminfo", "MemTotal: 16384000 kB\n");
    put_text("proc/self/cgroup", "0::/job\n");
    put_text("sys/fs/cgroup/unified/job/memory.max", "5000000000\n");
    assert_int_equal(pen__limit_memory_at(tree), 5000000000LL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(v1_in_a_container_is_the_mounts_root, tree_setup, fini),
        cmocka_unit_test_setup_teardown(the_tightest_group_speaks_for_its_limit, tree_setup, fini),
        cmocka_unit_test_setup_teardown(v1_and_v2_side_by_side_are_both_read, tree_setup, fini),
        cmocka_unit_test_setup_teardown(a_limit_that_changes_is_seen, tree_setup, fini),
        cmocka_unit_test_setup_teardown(the_root_group_has_no_pressure_of_its_own, tree_setup,
                                        fini),
        cmocka_unit_test_setup_teardown(without_groups_all_is_unavailable, tree_setup, fini),
        cmocka_unit_test_setup_teardown(a_deep_group_keeps_the_closest_levels, tree_setup, fini),
        cmocka_unit_test_setup_teardown(running_out_of_memory_anywhere_leaks_nothing, tree_setup,
                                        tree_teardown),
        cmocka_unit_test_setup_teardown(the_limits_know_the_unified_mount_too, tree_setup,
                                        tree_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
