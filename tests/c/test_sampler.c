/* test_sampler.c - whole readings: of recorded kernels, of an empty machine, of this one. */
#include "kernels.h"

#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "telemetry/sampler.h"

static pen_machine machine = PEN_MACHINE_INIT;
static double tick_s, page;

static int set_up(void **state)
{
    tick_s = 1.0 / (double)sysconf(_SC_CLK_TCK);
    page = (double)sysconf(_SC_PAGESIZE);
    memset(&machine, 0xAA, sizeof machine);
    machine.struct_size = sizeof machine;
    return tree_setup(state);
}

static void read_kernel(const char *kernel)
{
    pen_sampler *sampler;
    pen_error err = {0};
    if (kernel)
        unpack_kernel(kernel);
    assert_int_equal(pen__sampler_create_at(&sampler, tree, NULL, &err), 0);
    assert_int_equal(pen_sampler_read(sampler, &machine), 0);
    pen_sampler_free(sampler);
}

static void kernel_3_10_lacks_what_came_later(void **state)
{
    (void)state;
    read_kernel("linux-3.10.txt");
    assert_is(machine.cpu.busy_s, 1335 * tick_s);
    assert_is(machine.cpu.steal_s, 9 * tick_s);
    assert_int_equal(machine.n_cores, 1);
    assert_is(machine.memory.total_bytes, 2048000.0 * 1024);
    assert_unavailable(machine.memory.available_bytes);
    assert_is(machine.memory.swap_free_bytes, 1000000.0 * 1024);
    assert_is(machine.process.rss_bytes, 2500 * page);
    assert_is(machine.process.threads, 4);
    assert_is(machine.disks.reads, 1000);
    assert_is(machine.net.rx_bytes, 5000000);
    assert_unavailable(machine.pressure[PEN_PRESSURE_MEMORY].some_avg10);
    assert_unavailable(machine.cgroup.memory_limit_bytes);
    assert_unavailable(machine.package_j);
}

static void kernel_4_15_in_a_container(void **state)
{
    (void)state;
    read_kernel("linux-4.15.txt");
    assert_int_equal(machine.n_cores, 4);
    assert_unavailable(machine.cores[2].idle_s);
    assert_is(machine.cores[3].idle_s, 50000 * tick_s);
    assert_is(machine.process.major_faults, 42);
    assert_is(machine.process.threads, 9);
    assert_is(machine.memory.available_bytes, 8192000.0 * 1024);
    assert_is(machine.cgroup.cpu_quota_cores, 1.5);
    assert_is(machine.cgroup.memory_limit_bytes, 4294967296.0);
    assert_is(machine.disks.read_s, 40);
    assert_string_equal(machine.data_disk.name, "");
    assert_unavailable(machine.data_disk.reads);
}

static void kernel_5_10_has_pressure_and_energy(void **state)
{
    (void)state;
    read_kernel("linux-5.10.txt");
    assert_is(machine.pressure[PEN_PRESSURE_CPU].some_avg10, 0.125);
    assert_unavailable(machine.pressure[PEN_PRESSURE_CPU].full_avg10);
    assert_is(machine.pressure[PEN_PRESSURE_MEMORY].full_s, 1);
    assert_is(machine.pressure[PEN_PRESSURE_IO].some_avg10, 0.4);
    assert_is(machine.package_j, 0); /* counted from here on */
    assert_is(machine.net.tx_bytes, 98765432109.0);
    assert_is(machine.memory.swap_total_bytes, 0);
}

static void kernel_6_8_claims_no_full_pressure_of_the_cpu(void **state)
{
    (void)state;
    read_kernel("linux-6.8.txt");
    assert_is(machine.pressure[PEN_PRESSURE_CPU].some_s, 5);
    assert_unavailable(machine.pressure[PEN_PRESSURE_CPU].full_s); /* the file has a zero */
    assert_is(machine.cgroup.pressure[PEN_PRESSURE_CPU].full_s, 1.5);
    assert_int_equal(machine.disks.n_disks, 3);
    assert_int_equal(machine.net.n_interfaces, 2);
}

/* The one that was not invented: a virtual machine with v1 groups and an empty v2 beside them. */
static void kernel_6_18_says_what_was_recorded(void **state)
{
    (void)state;
    read_kernel("linux-6.18.txt");
    assert_int_equal(machine.n_cores, 2);
    assert_is(machine.cpu.busy_s, (248289 + 36508 + 421) * tick_s);
    assert_is(machine.cpu.idle_s, 72998 * tick_s);
    assert_is(machine.cpu.iowait_s, 944 * tick_s);
    assert_is(machine.cpu.steal_s, 962 * tick_s);
    assert_is(machine.cores[1].busy_s, (133532 + 18633 + 277) * tick_s);
    assert_is(machine.process.rss_bytes, 3387 * page);
    assert_is(machine.process.threads, 1);
    assert_is(machine.process.major_faults, 0);
    assert_is(machine.memory.total_bytes, 24684100.0 * 1024);
    assert_is(machine.memory.free_bytes, 21456392.0 * 1024);
    assert_is(machine.memory.available_bytes, 24003080.0 * 1024);
    assert_is(machine.memory.cached_bytes, 2489584.0 * 1024);
    assert_is(machine.memory.swap_total_bytes, 0);
    assert_is(machine.pressure[PEN_PRESSURE_CPU].some_avg10, 0.5552);
    assert_is(machine.pressure[PEN_PRESSURE_CPU].some_s, 614.280792);
    assert_unavailable(machine.pressure[PEN_PRESSURE_CPU].full_s);
    assert_is(machine.pressure[PEN_PRESSURE_IO].full_s, 6.483151);
    assert_unavailable(machine.package_j);
}

static void groups_of_6_18_are_not_limited(void **state)
{
    (void)state;
    read_kernel("linux-6.18.txt");
    assert_is(machine.cgroup.cpu_quota_cores, INFINITY);
    assert_is(machine.cgroup.memory_limit_bytes, INFINITY);
    assert_is(machine.cgroup.cpu_periods, 0);
    assert_is(machine.cgroup.memory_used_bytes, 17252352); /* of our own: none is tighter */
    assert_is(machine.cgroup.memory_file_bytes, 1323008 + 2232320);
    assert_is(machine.cgroup.memory_limit_events, 0);
    for (int i = 0; i < PEN_PRESSURE_COUNT; i++) /* v2's root, which is the machine */
        assert_unavailable(machine.cgroup.pressure[i].some_s);
}

static void devices_of_6_18_are_a_disk_and_an_interface(void **state)
{
    (void)state;
    read_kernel("linux-6.18.txt");
    assert_int_equal(machine.disks.n_disks, 1); /* eight loops and a zram are none */
    assert_is(machine.disks.reads, 95005);
    assert_is(machine.disks.read_bytes, 9126458.0 * 512);
    assert_is(machine.disks.read_s, 96.985);
    assert_is(machine.disks.writes, 38986);
    assert_is(machine.disks.write_bytes, 17655136.0 * 512);
    assert_is(machine.disks.busy_s, 22.376);
    assert_is(machine.disks.queue_s, 207.853);
    assert_is(machine.disks.in_flight, 0);
    assert_int_equal(machine.net.n_interfaces, 1); /* without the two that are virtual */
    assert_is(machine.net.rx_bytes, 700896698);
    assert_is(machine.net.tx_packets, 11041);
    assert_is(machine.loopback.rx_bytes, 18573980025.0);
}

static void a_machine_that_tells_nothing_is_unavailable_throughout(void **state)
{
    (void)state;
    read_kernel(NULL);
    assert_true(machine.time_ns > 0);
    assert_int_equal(machine.n_cores, 0);
    assert_unavailable(machine.cpu.busy_s);
    assert_unavailable(machine.process.rss_bytes);
    assert_unavailable(machine.memory.total_bytes);
    assert_unavailable(machine.pressure[PEN_PRESSURE_IO].full_s);
    assert_unavailable(machine.cgroup.cpu_s);
    assert_unavailable(machine.disks.busy_s);
    assert_unavailable(machine.data_disk.busy_s);
    assert_unavailable(machine.net.rx_bytes);
    assert_unavailable(machine.loopback.rx_bytes);
    assert_unavailable(machine.package_j);
}

static void files_that_become_nonsense_do_no_harm(void **state)
{
    (void)state;
    pen_sampler *sampler;
    unpack_kernel("linux-6.8.txt");
    assert_int_equal(pen__sampler_create_at(&sampler, tree, NULL, NULL), 0);
    static const char *const files[] = {"stat",      "meminfo",     "diskstats",      "net/dev",
                                        "self/stat", "pressure/io", "pressure/memory"};
    for (size_t i = 0; i < COUNT(files); i++) {
        char path[64];
        snprintf(path, sizeof path, "proc/%s", files[i]);
        put_bytes(path, "\0\xff cpu -1 )(: 1\n\n", 18);
    }
    assert_int_equal(pen_sampler_read(sampler, &machine), 0);
    assert_unavailable(machine.cpu.busy_s);
    assert_unavailable(machine.memory.total_bytes);
    assert_unavailable(machine.disks.reads);
    assert_unavailable(machine.net.rx_bytes);
    assert_unavailable(machine.process.rss_bytes);
    assert_is(machine.cgroup.cpu_quota_cores, 2.5); /* the rest is untouched */
    pen_sampler_free(sampler);
}

static void a_path_brings_its_disk(void **state)
{
    (void)state;
    struct stat st;
    char link[64];
    pen_sampler *sampler;
    pen_sampler_opts opts;
    pen_sampler_opts_init(&opts);
    opts.data_path = tree;
    unpack_kernel("linux-5.10.txt");
    assert_int_equal(stat(tree, &st), 0);
    snprintf(link, sizeof link, "sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
    make_parents(link);
    assert_int_equal(symlink("../../devices/block/sda", in_tree(link)), 0);
    assert_int_equal(pen__sampler_create_at(&sampler, tree, &opts, NULL), 0);
    assert_int_equal(pen_sampler_read(sampler, &machine), 0);
    pen_sampler_free(sampler);
    assert_string_equal(machine.data_disk.name, "sda");
    assert_is(machine.data_disk.reads, 1000);
    assert_is(machine.disks.reads, 501000);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    pen_sampler *sampler;
    pen_sampler_opts opts;
    pen_error err = {0};
    pen_sampler_opts_init(&opts);
    opts.data_path = in_tree("none");
    assert_int_equal(pen_sampler_create(&sampler, &opts, &err), PEN_ENOTFOUND);
    assert_null(sampler);
    assert_non_null(strstr(err.text, "none"));
    opts.struct_size = sizeof opts + 1;
    assert_int_equal(pen_sampler_create(&sampler, &opts, &err), PEN_EINVAL);
    assert_null(sampler);
}

static void an_older_caller_gets_what_it_knows(void **state)
{
    (void)state;
    pen_sampler *sampler;
    assert_int_equal(pen__sampler_create_at(&sampler, tree, NULL, NULL), 0);
    machine.struct_size = offsetof(pen_machine, cores);
    machine.cores[0].busy_s = 42;
    assert_int_equal(pen_sampler_read(sampler, &machine), 0);
    assert_int_equal(machine.struct_size, offsetof(pen_machine, cores));
    assert_is(machine.cores[0].busy_s, 42);
    machine.struct_size = sizeof machine + 1;
    assert_int_equal(pen_sampler_read(sampler, &machine), PEN_EINVAL);
    machine.struct_size = 0;
    assert_int_equal(pen_sampler_read(sampler, &machine), PEN_EINVAL);
    pen_sampler_free(sampler);
}

static void a_forked_child_is_told_to_make_its_own(void **state)
{
    (void)state;
    pen_sampler *sampler;
    int status = -1;
    assert_int_equal(pen_sampler_create(&sampler, NULL, NULL), 0);
    pid_t child = fork();
    if (child == 0) {
        int rc = pen_sampler_read(sampler, &machine);
        pen_sampler_free(sampler);
        _exit(rc == PEN_EFORK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(pen_sampler_read(sampler, &machine), 0);
    pen_sampler_free(sampler);
}

static void this_machine_is_read_without_an_allocation(void **state)
{
    (void)state;
    static pen_machine before = PEN_MACHINE_INIT;
    static pen_rates rates = PEN_RATES_INIT;
    int64_t live = pen__mem_live();
    int fds = open_fds();
    pen_sampler *sampler;
    pen_sampler_opts opts;
    pen_sampler_opts_init(&opts);
    opts.use_gpus = false; /* a real driver opens files of its own */
    assert_int_equal(pen_sampler_create(&sampler, &opts, NULL), 0);
    assert_int_equal(pen_sampler_read(sampler, &before), 0);
    int64_t count = pen__mem_count();
    int fds_open = open_fds();
    for (int i = 0; i < 50; i++)
        assert_int_equal(pen_sampler_read(sampler, &machine), 0);
    assert_int_equal(pen__mem_count(), count);
    assert_int_equal(open_fds(), fds_open);
    assert_true(machine.time_ns > before.time_ns);
    assert_true(machine.cpu.busy_s >= before.cpu.busy_s && machine.n_cores >= 1);
    assert_true(machine.memory.free_bytes <= machine.memory.total_bytes);
    assert_true(machine.process.rss_bytes > 0 && machine.process.threads >= 1);
    assert_true(machine.process.cpu_s > before.process.cpu_s);
    assert_int_equal(pen_machine_rates(&before, &machine, &rates), 0);
    assert_true(rates.process_cores > 0);
    pen_sampler_free(sampler);
    pen_sampler_free(NULL);
    assert_int_equal(pen__mem_live(), live);
    assert_int_equal(open_fds(), fds);
}

static void running_out_of_memory_anywhere_leaks_nothing(void **state)
{
    (void)state;
    unpack_kernel("linux-5.10.txt");
    int64_t live = pen__mem_live();
    int fds = open_fds(), rc = PEN_ENOMEM;
    pen_sampler_opts opts;
    pen_sampler_opts_init(&opts);
    opts.use_gpus = false;
    for (int n = 1; rc == PEN_ENOMEM; n++) {
        pen_sampler *sampler;
        pen_error err = {0};
        pen__mem_fail_at(n);
        rc = pen__sampler_create_at(&sampler, tree, &opts, &err);
        pen__mem_fail_at(0);
        assert_int_equal(err.code, rc);
        assert_true((sampler == NULL) == (rc != 0));
        pen_sampler_free(sampler);
        assert_int_equal(pen__mem_live(), live);
        assert_int_equal(open_fds(), fds);
    }
    assert_int_equal(rc, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(kernel_3_10_lacks_what_came_later, set_up, tree_teardown),
        cmocka_unit_test_setup_teardown(kernel_4_15_in_a_container, set_up, tree_teardown),
        cmocka_unit_test_setup_teardown(kernel_5_10_has_pressure_and_energy, set_up, tree_teardown),
        cmocka_unit_test_setup_teardown(kernel_6_8_claims_no_full_pressure_of_the_cpu, set_up,
                                        tree_teardown),
        cmocka_unit_test_setup_teardown(kernel_6_18_says_what_was_recorded, set_up, tree_teardown),
        cmocka_unit_test_setup_teardown(groups_of_6_18_are_not_limited, set_up, tree_teardown),
        cmocka_unit_test_setup_teardown(devices_of_6_18_are_a_disk_and_an_interface, set_up,
                                        tree_teardown),
        cmocka_unit_test_setup_teardown(a_machine_that_tells_nothing_is_unavailable_throughout,
                                        set_up, tree_teardown),
        cmocka_unit_test_setup_teardown(files_that_become_nonsense_do_no_harm, set_up,
                                        tree_teardown),
        cmocka_unit_test_setup_teardown(a_path_brings_its_disk, set_up, tree_teardown),
        cmocka_unit_test_setup_teardown(wrong_options_are_refused, set_up, tree_teardown),
        cmocka_unit_test_setup_teardown(an_older_caller_gets_what_it_knows, set_up, tree_teardown),
        cmocka_unit_test_setup_teardown(a_forked_child_is_told_to_make_its_own, set_up,
                                        tree_teardown),
        cmocka_unit_test_setup_teardown(this_machine_is_read_without_an_allocation, set_up,
                                        tree_teardown),
        cmocka_unit_test_setup_teardown(running_out_of_memory_anywhere_leaks_nothing, set_up,
                                        tree_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
