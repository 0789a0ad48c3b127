/* test_limits.c - memory and core limits from files as kernels write them. */
#include "testing.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "telemetry/limits.h"

static char root[64];

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        mkdir(full, 0777);
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/penstock-limits-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void without_cgroups_the_machine_is_the_limit(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB\n");
    assert_int_equal(pen__limit_memory_at(root), 16384000LL * 1024);
    assert_true(pen__limit_cores_at(root) >= 1);
}

static void v2_takes_the_tightest_group_on_the_way_up(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal:       16384000 kB\n");
    put("/proc/self/cgroup", "0::/pods/one\n");
    put("/sys/fs/cgroup/pods/one/memory.max", "max\n");
    put("/sys/fs/cgroup/pods/memory.max", "4000000000\n");
    put("/sys/fs/cgroup/pods/one/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/pods/cpu.max", "50000 100000\n");
    assert_int_equal(pen__limit_memory_at(root), 4000000000LL);
    assert_int_equal(pen__limit_cores_at(root), 1);
}

static void a_quota_may_be_a_part_of_a_core(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/pods/one\n");
    put("/sys/fs/cgroup/pods/one/cpu.max", "10000 100000\n");
    assert_true(fabs(pen__limit_quota_at(root) - 0.1) < 1e-9);
    assert_int_equal(pen__limit_cores_at(root), 1);
    put("/sys/fs/cgroup/pods/one/cpu.max", "max 100000\n");
    assert_true(pen__limit_quota_at(root) == pen__limit_cores_at(root));
}

static void v1_has_a_mount_a_controller(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal:       16384000 kB\n");
    put("/proc/self/cgroup", "5:memory:/job\n3:cpu,cpuacct:/job\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000000000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(pen__limit_memory_at(root), 2000000000LL);
    assert_int_equal(pen__limit_cores_at(root), 1);
}

static void nonsense_is_ignored(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal: many\n");
    put("/proc/self/cgroup", "::::\n\nx\n0::\n");
    put("/sys/fs/cgroup/memory.max", "-5\n");
    put("/sys/fs/cgroup/cpu.max", "0 0\n");
    assert_int_equal(pen__limit_memory_at(root), 1LL << 30);
    assert_true(pen__limit_cores_at(root) >= 1);
}

static void this_machine_has_limits_too(void **state)
{
    (void)state;
    assert_true(pen__limit_memory() > 1 << 26);
    assert_true(pen__limit_cores() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_cgroups_the_machine_is_the_limit, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(v2_takes_the_tightest_group_on_the_way_up, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(a_quota_may_be_a_part_of_a_core, make_root, remove_root),
        cmocka_unit_test_setup_teardown(v1_has_a_mount_a_controller, make_root, remove_root),
        cmocka_unit_test_setup_teardown(nonsense_is_ignored, make_root, remove_root),
        cmocka_unit_test(this_machine_has_limits_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
