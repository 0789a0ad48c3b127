/* test_devices.c - disks and interfaces: every byte once, whatever is stacked on what. */
#include "kernels.h"

#include "telemetry/devices.h"

static pen__devices devices;
static char buffer[PEN__WATCH_CAP];
static pen_disk all, one;
static pen_net net, loopback;

static int fini(void **state)
{
    pen__devices_fini(&devices);
    return tree_teardown(state);
}

static void read_disks(const char *kernel, const char *name)
{
    unpack_kernel(kernel);
    assert_int_equal(pen__disks_init(&devices, tree), 0);
    pen__disks_read(&devices, buffer, name, &all, &one);
}

static void read_interfaces(const char *kernel)
{
    unpack_kernel(kernel);
    assert_int_equal(pen__interfaces_init(&devices, tree), 0);
    pen__interfaces_read(&devices, buffer, &net, &loopback);
}

static void partitions_volumes_and_loops_do_not_count_again(void **state)
{
    (void)state;
    read_disks("linux-4.15.txt", "dm-0");
    assert_int_equal(all.n_disks, 2); /* sda and the empty drive sr0 */
    assert_is(all.reads, 10000);
    assert_is(all.write_bytes, 400000.0 * 512);
    assert_string_equal(all.name, "");
    assert_string_equal(one.name, "dm-0");
    assert_is(one.reads, 9950);
}

static void raid_multipath_and_memory_do_not_count_again(void **state)
{
    (void)state;
    read_disks("linux-6.8.txt", "nvme0n1");
    assert_int_equal(all.n_disks, 3); /* nvme0n1, sda, sdb */
    assert_is(all.reads, 7000 + 100 + 100);
    assert_is(all.queue_s, 9.52 + 0.5 + 0.5);
    assert_is(all.in_flight, 3);
    assert_is(one.in_flight, 3);
}

static void two_disks_add_up(void **state)
{
    (void)state;
    read_disks("linux-5.10.txt", "none");
    assert_int_equal(all.n_disks, 2);
    assert_is(all.read_bytes, (40000000.0 + 16000) * 512);
    assert_is(all.read_s, 259);
    assert_is(all.busy_s, 188);
    assert_string_equal(one.name, "");
    assert_unavailable(one.reads);
}

static void a_disk_that_appears_is_counted(void **state)
{
    (void)state;
    read_disks("linux-3.10.txt", "sda");
    assert_int_equal(all.n_disks, 1);
    put_text("sys/block/sdz/size", "1\n");
    put_text("proc/diskstats", "8 400 sdz 1 0 2 3 4 0 5 6 0 7 8\n"
                               "8 0 sda 1001 50 80000 2000 500 25 40000 3000 2 1500 5000\n");
    pen__disks_read(&devices, buffer, "sda", &all, &one);
    assert_int_equal(all.n_disks, 2);
    assert_is(all.reads, 1002);
    assert_is(one.reads, 1001);
}

static void without_sys_there_is_no_sum(void **state)
{
    (void)state;
    put_text("proc/diskstats", "8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n");
    assert_int_equal(pen__disks_init(&devices, tree), 0);
    pen__disks_read(&devices, buffer, "sda", &all, &one);
    assert_int_equal(all.n_disks, 0);
    assert_unavailable(all.reads);
    assert_is(one.reads, 1);
}

static void more_disks_than_can_be_told_apart_have_no_sum(void **state)
{
    (void)state;
    static char text[64 * (PEN__DEVICES_CAP + 2)];
    size_t n = 0;
    for (int i = 0; i <= PEN__DEVICES_CAP; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "8 %d loop%d 1 2 3 4 5 6 7 8 9 10 11\n", i,
                              i);
    put_text("proc/diskstats", text);
    put_text("sys/block/sda/size", "1\n");
    assert_int_equal(pen__disks_init(&devices, tree), 0);
    for (int i = 0; i < 2; i++) {
        pen__disks_read(&devices, buffer, "loop511", &all, &one);
        assert_unavailable(all.reads);
        assert_is(one.reads, 1);
    }
}

static void a_path_leads_to_its_whole_disk(void **state)
{
    (void)state;
    char name[PEN__DEVICE_NAME_CAP];
    unpack_kernel("linux-4.15.txt");
    assert_true(pen__disk_of(tree, 8, 2, name));
    assert_string_equal(name, "sda");
    assert_true(pen__disk_of(tree, 8, 0, name));
    assert_string_equal(name, "sda");
    assert_true(pen__disk_of(tree, 253, 0, name));
    assert_string_equal(name, "dm-0");
    assert_false(pen__disk_of(tree, 0, 42, name)); /* tmpfs, overlay, NFS */
    assert_string_equal(name, "");
    assert_int_equal(symlink("no-slash", in_tree("sys/dev/block/1:1")), 0);
    assert_true(pen__disk_of(tree, 1, 1, name));
    assert_string_equal(name, "no-slash");
    assert_int_equal(symlink("ends/", in_tree("sys/dev/block/1:2")), 0);
    assert_false(pen__disk_of(tree, 1, 2, name));
}

static void a_partition_of_a_multipath_disk_leads_to_it(void **state)
{
    (void)state;
    char name[PEN__DEVICE_NAME_CAP];
    unpack_kernel("linux-6.8.txt");
    assert_true(pen__disk_of(tree, 259, 2, name));
    assert_string_equal(name, "nvme0n1");
}

static void bonds_and_bridges_do_not_count_again(void **state)
{
    (void)state;
    read_interfaces("linux-6.8.txt");
    assert_int_equal(net.n_interfaces, 2); /* eth0 and eth1 */
    assert_is(net.rx_bytes, 4000000);
    assert_is(net.tx_bytes, 6000000);
    assert_is(net.errors, 1);
    assert_is(net.drops, 2);
    assert_int_equal(loopback.n_interfaces, 1);
    assert_is(loopback.rx_bytes, 5000);
}

static void in_a_container_the_end_of_a_pair_counts(void **state)
{
    (void)state;
    read_interfaces("linux-4.15.txt");
    assert_int_equal(net.n_interfaces, 1);
    assert_is(net.rx_bytes, 70000000);
    assert_is(net.drops, 5);
    assert_is(loopback.tx_packets, 2000);
}

static void old_kernels_leave_no_blank_after_the_colon(void **state)
{
    (void)state;
    read_interfaces("linux-3.10.txt");
    assert_is(net.rx_bytes, 5000000);
    assert_is(net.errors, 4);
    assert_is(loopback.rx_bytes, 1000);
}

static void interfaces_of_short_lives_are_forgotten(void **state)
{
    (void)state;
    put_text("sys/class/net/eth0/device/vendor", "1\n");
    put_text("proc/net/dev", "");
    assert_int_equal(pen__interfaces_init(&devices, tree), 0);
    for (int i = 0; i < 3 * PEN__DEVICES_CAP; i++) {
        char text[256];
        snprintf(
            text, sizeof text,
            "eth0: %d 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nveth%d: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n", i,
            i);
        put_text("proc/net/dev", text);
        pen__interfaces_read(&devices, buffer, &net, &loopback);
        assert_int_equal(net.n_interfaces, 1);
        assert_is(net.rx_bytes, i);
    }
}

static void no_list_is_unavailable(void **state)
{
    (void)state;
    assert_int_equal(pen__interfaces_init(&devices, tree), 0);
    pen__interfaces_read(&devices, buffer, &net, &loopback);
    assert_int_equal(net.n_interfaces, 0);
    assert_unavailable(net.rx_bytes);
    assert_unavailable(loopback.rx_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(partitions_volumes_and_loops_do_not_count_again, tree_setup,
                                        fini),
        cmocka_unit_test_setup_teardown(raid_multipath_and_memory_do_not_count_again, tree_setup,
                                        fini),
        cmocka_unit_test_setup_teardown(two_disks_add_up, tree_setup, fini),
        cmocka_unit_test_setup_teardown(a_disk_that_appears_is_counted, tree_setup, fini),
        cmocka_unit_test_setup_teardown(without_sys_there_is_no_sum, tree_setup, fini),
        cmocka_unit_test_setup_teardown(more_disks_than_can_be_told_apart_have_no_sum, tree_setup,
                                        fini),
        cmocka_unit_test_setup_teardown(a_path_leads_to_its_whole_disk, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(a_partition_of_a_multipath_disk_leads_to_it, tree_setup,
                                        tree_teardown),
        cmocka_unit_test_setup_teardown(bonds_and_bridges_do_not_count_again, tree_setup, fini),
        cmocka_unit_test_setup_teardown(in_a_container_the_end_of_a_pair_counts, tree_setup, fini),
        cmocka_unit_test_setup_teardown(old_kernels_leave_no_blank_after_the_colon, tree_setup,
                                        fini),
        cmocka_unit_test_setup_teardown(interfaces_of_short_lives_are_forgotten, tree_setup, fini),
        cmocka_unit_test_setup_teardown(no_list_is_unavailable, tree_setup, fini),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
