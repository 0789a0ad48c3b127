/* test_observe_machine.c - the machine's part of the state, and what is not told. */
#include "kernels.h"

#include "engine/observe.h"

static pen_machine machine;
static pen_rates rates;
static pen_policy_state state;

/* Everything is told, and every value is another. */
static int set_up(void **unused)
{
    (void)unused;
    machine = (pen_machine){.n_cores = 8, .n_gpus = 2};
    machine.memory.available_bytes = 5e9;
    machine.cgroup =
        (pen_cgroup){.cpu_quota_cores = 1.5, .memory_limit_bytes = 4e9, .memory_used_bytes = 1e9};
    rates = (pen_rates){.process_cores = 2, .package_w = 65, .n_cores = 8, .n_gpus = 2};
    for (int i = 0; i < 8; i++) /* 4 of 8 */
        rates.cores[i].busy = i % 2 ? 0.75 : 0.25;
    rates.cpu = (pen_cpu_shares){.busy = 0.5, .steal = 0.05};
    for (int i = 0; i < PEN_PRESSURE_COUNT; i++) {
        rates.pressure[i].some = 0.1 * (i + 1);
        rates.cgroup.pressure[i].some = 0.01 * (i + 1);
    }
    rates.cgroup.throttled_share = 0.25;
    rates.disks = (pen_disk_rates){.read_bytes_per_s = 7e7, .read_latency_s = 0.004};
    rates.net = (pen_net_rates){.rx_bytes_per_s = 3e8, .tx_bytes_per_s = 1};
    for (int i = 0; i < 2; i++) {
        machine.gpus[i] = (pen_gpu){.busy = 0.2 + 0.6 * i,
                                    .memory_used_bytes = 4e9 * (i + 1),
                                    .memory_total_bytes = 16e9,
                                    .power_w = 50};
        rates.gpu_w[i] = 100 * (i + 1);
    }
    memset(&state, 0xff, sizeof state); /* NaN */
    state.cores = 4;
    return 0;
}

static void what_is_told_is_in_the_state(void **unused)
{
    (void)unused;
    pen__observe_machine(&machine, &rates, &state);
    assert_is(state.process_cores, 2);
    assert_is(state.machine_busy, 0.5);
    assert_is(state.steal, 0.05);
    assert_is(state.throttled_share, 0.25);
    assert_is(state.memory_available_bytes, 5e9);
    assert_is(state.group_memory_share, 0.25);
    assert_is(state.disk_latency_s, 0.004);
    assert_is(state.disk_bytes_per_s, 7e7);
    assert_is(state.net_bytes_per_s, 3e8);
    assert_is(state.package_watts, 65);
    assert_is(state.cores, 1.5);
    assert_unavailable(state.gpu_busy); /* asked for apart */
}

static double rivals(const cpu_set_t *own, double cores)
{
    state.cores = cores;
    pen__observe_rivals(&rates, own, &state);
    return state.other_cores;
}

static void others_count_where_they_keep_something_from_us(void **unused)
{
    (void)unused;
    cpu_set_t own;
    CPU_ZERO(&own);
    for (int i = 0; i < 8; i++)
        CPU_SET(i, &own);
    assert_is(rivals(NULL, 8), 2);
    assert_is(rivals(&own, 8), 2);
    for (int i = 0; i < 8; i += 2) /* the cores on which they hardly run */
        CPU_CLR(i, &own);
    rates.process_cores = 2.5;
    assert_is(rivals(&own, 4), 0.5);
    rates.process_cores = 3.5; /* clocks are read one after another */
    assert_is(rivals(&own, 4), 0);
}

/* 2 of 8 cores by quota, 6 used by others: nobody has less for it. */
static void others_that_use_what_a_quota_leaves_are_no_rivals(void **unused)
{
    (void)unused;
    for (int i = 0; i < 8; i++)
        rates.cores[i].busy = 1;
    rates.cgroup.cpu_cores = NAN;
    assert_is(rivals(NULL, 2), 0);
    rates.process_cores = 1.25; /* and there are 6.75 now */
    assert_is(rivals(NULL, 2), 0.75);
    rates.cgroup.cpu_cores = 2.25; /* of which one has its part of our quota */
    assert_is(rivals(NULL, 2), 1);
}

static void cores_that_are_offline_are_not_anybodys(void **unused)
{
    (void)unused;
    for (int i = 1; i < 8; i += 2)
        rates.cores[i].busy = NAN;
    rates.process_cores = 0.5;
    assert_is(rivals(NULL, 4), 0.5);
    rates.process_cores = NAN;
    assert_unavailable(rivals(NULL, 4));
    rates.process_cores = 0.5;
    rates.n_cores = 0;
    assert_unavailable(rivals(NULL, 4));
}

static void pressure_is_the_groups_else_the_machines(void **unused)
{
    (void)unused;
    pen__observe_machine(&machine, &rates, &state);
    assert_is(state.cpu_pressure, 0.01);
    assert_is(state.memory_pressure, 0.02);
    assert_is(state.io_pressure, 0.03);
    rates.cgroup.pressure[PEN_PRESSURE_MEMORY].some = NAN;
    pen__observe_machine(&machine, &rates, &state);
    assert_is(state.memory_pressure, 0.2);
    assert_is(state.io_pressure, 0.03);
    rates.pressure[PEN_PRESSURE_MEMORY].some = NAN;
    pen__observe_machine(&machine, &rates, &state);
    assert_unavailable(state.memory_pressure);
}

static void no_limit_has_no_share(void **unused)
{
    (void)unused;
    static const double limits[] = {INFINITY, NAN, 0};
    for (size_t i = 0; i < COUNT(limits); i++) {
        machine.cgroup.memory_limit_bytes = limits[i];
        pen__observe_machine(&machine, &rates, &state);
        assert_unavailable(state.group_memory_share);
    }
    machine.cgroup.memory_limit_bytes = 4e9;
    machine.cgroup.memory_used_bytes = NAN;
    pen__observe_machine(&machine, &rates, &state);
    assert_unavailable(state.group_memory_share);
}

static void observe_gpus(const char *devices)
{
    pen__visible visible;
    pen__visible_parse(&visible, devices, "PCI_BUS_ID");
    pen__observe_gpus(&machine, &rates, &visible, &state);
}

static void gpus_are_those_that_are_visible(void **unused)
{
    (void)unused;
    observe_gpus(NULL);
    assert_is(state.gpu_busy, 0.5);
    assert_is(state.gpu_memory_share, 12.0 / 32);
    assert_is(state.gpu_watts, 300);
    observe_gpus("1");
    assert_is(state.gpu_busy, 0.8);
    assert_is(state.gpu_memory_share, 0.5);
    assert_is(state.gpu_watts, 200);
    rates.gpu_w[1] = NAN; /* it counts no energy, and says what it draws */
    observe_gpus("1");
    assert_is(state.gpu_watts, 50);
}

static void what_is_not_certain_of_gpus_is_not_told(void **unused)
{
    (void)unused;
    static const char *const lists[] = {"", "GPU-8932f937", "7"};
    for (size_t i = 0; i < COUNT(lists); i++) {
        observe_gpus(lists[i]);
        assert_unavailable(state.gpu_busy);
        assert_unavailable(state.gpu_memory_share);
        assert_unavailable(state.gpu_watts);
    }
    machine.gpus[0].busy = NAN; /* of one that says nothing, a mean is none */
    observe_gpus(NULL);
    assert_unavailable(state.gpu_busy);
    assert_is(state.gpu_watts, 300);
    machine.n_gpus = 0;
    set_up(NULL);
    machine.n_gpus = 0;
    observe_gpus(NULL);
    assert_unavailable(state.gpu_watts);
}

/* Of the period, not of the run. */
static void the_share_of_hits_is_the_periods(void **unused)
{
    (void)unused;
    pen__facts before = {.time_ns = 1000000000, .cache_hits = 5, .cache_misses = 100};
    pen__facts now = before;
    now.time_ns += 100000000;
    pen__observe_state(&before, &before, &now, NULL, NULL, 2, 64, &state);
    assert_unavailable(state.cache_share);
    now.cache_hits += 3;
    now.cache_misses += 1;
    pen__observe_state(&before, &before, &now, NULL, NULL, 2, 64, &state);
    assert_is(state.cache_share, 0.75);
    assert_unavailable(state.net_bytes_per_s);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_told_is_in_the_state),
        TEST(others_count_where_they_keep_something_from_us),
        TEST(others_that_use_what_a_quota_leaves_are_no_rivals),
        TEST(cores_that_are_offline_are_not_anybodys),
        TEST(pressure_is_the_groups_else_the_machines),
        TEST(no_limit_has_no_share),
        TEST(gpus_are_those_that_are_visible),
        TEST(what_is_not_certain_of_gpus_is_not_told),
        TEST(the_share_of_hits_is_the_periods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
