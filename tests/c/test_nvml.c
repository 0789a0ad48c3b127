/* test_nvml.c - GPUs through dlopen, with a double of the driver's library.
 *
 * The double has the real library's name as its soname and is loaded first, so that
 * the sampler's own dlopen, by that name, finds it.
 */
#include "kernels.h"

#include <dlfcn.h>

#include "base/mem.h"
#include "fake_nvml.h"
#include "telemetry/nvml.h"
#include "telemetry/sampler.h"

static void *library;
static fake_nvml_state *fake;

static int load_fake(void **state)
{
    (void)state;
    library = dlopen(FAKE_NVML, RTLD_NOW);
    fake = library ? dlsym(library, "fake_nvml") : NULL;
    if (!fake)
        return -1;
    *fake = (fake_nvml_state){.n_gpus = 2, .busy_percent = 75, .energy_mj = 1000500};
    return 0;
}

static int unload_fake(void **state)
{
    (void)state;
    return dlclose(library);
}

static void several_gpus_are_read(void **state)
{
    (void)state;
    pen_gpu gpus[PEN_MACHINE_GPUS];
    pen__nvml *nvml = pen__nvml_open(PEN__NVML_LIBRARY);
    assert_non_null(nvml);
    assert_int_equal(pen__nvml_read(nvml, gpus), 2);
    assert_string_equal(gpus[0].name, "Fake GPU 0");
    assert_is(gpus[0].busy, 0.75);
    assert_is(gpus[0].memory_busy, 0.3);
    assert_is(gpus[0].memory_used_bytes, 4e9);
    assert_is(gpus[0].memory_total_bytes, 16e9);
    assert_is(gpus[0].power_w, 250.5);
    assert_is(gpus[0].energy_j, 1000.5);
    assert_string_equal(gpus[1].name, "Fake GPU 1");
    assert_is(gpus[1].busy, 0.76);
    pen__nvml_close(nvml);
    assert_int_equal(fake->n_init, 1);
    assert_int_equal(fake->n_shutdown, 1);
}

static void what_a_gpu_does_not_support_is_unavailable(void **state)
{
    (void)state;
    pen_gpu gpus[PEN_MACHINE_GPUS];
    pen__nvml *nvml = pen__nvml_open(PEN__NVML_LIBRARY);
    fake->busy_percent = 101;
    assert_int_equal(pen__nvml_read(nvml, gpus), 2);
    assert_unavailable(gpus[0].busy); /* no percentage */
    assert_is(gpus[0].power_w, 250.5);
    assert_unavailable(gpus[1].power_w);
    assert_unavailable(gpus[1].energy_j);
    assert_is(gpus[1].memory_used_bytes, 4e9);
    pen__nvml_close(nvml);
}

static void a_lost_gpu_is_left_out(void **state)
{
    (void)state;
    pen_gpu gpus[PEN_MACHINE_GPUS];
    fake->lost_gpu = 1;
    pen__nvml *nvml = pen__nvml_open(PEN__NVML_LIBRARY);
    assert_int_equal(pen__nvml_read(nvml, gpus), 1);
    assert_string_equal(gpus[0].name, "Fake GPU 1");
    pen__nvml_close(nvml);
}

static void more_gpus_than_fit_are_left_out(void **state)
{
    (void)state;
    pen_gpu gpus[PEN_MACHINE_GPUS];
    fake->n_gpus = 40;
    pen__nvml *nvml = pen__nvml_open(PEN__NVML_LIBRARY);
    assert_int_equal(pen__nvml_read(nvml, gpus), PEN_MACHINE_GPUS);
    pen__nvml_close(nvml);
}

static void without_a_working_driver_there_are_no_gpus(void **state)
{
    (void)state;
    int64_t live = pen__mem_live();
    fake->fails_init = 1;
    assert_null(pen__nvml_open(PEN__NVML_LIBRARY));
    assert_int_equal(fake->n_shutdown, 0);
    assert_null(pen__nvml_open("libpenstock-no-such-library.so.1"));
    assert_null(pen__nvml_open("libm.so.6")); /* a library, and not that one */
    pen__mem_fail_at(1);
    assert_null(pen__nvml_open(PEN__NVML_LIBRARY));
    pen__mem_fail_at(0);
    pen__nvml_close(NULL);
    assert_int_equal(pen__nvml_read(NULL, NULL), 0);
    assert_int_equal(pen__mem_live(), live);
}

static void a_sampler_sees_gpus_and_their_watts(void **state)
{
    (void)state;
    static pen_machine before = PEN_MACHINE_INIT, now = PEN_MACHINE_INIT;
    static pen_rates rates = PEN_RATES_INIT;
    pen_sampler *sampler;
    assert_int_equal(pen_sampler_create(&sampler, NULL, NULL), 0);
    assert_int_equal(pen_sampler_read(sampler, &before), 0);
    fake->energy_mj += 600000; /* 600 J */
    assert_int_equal(pen_sampler_read(sampler, &now), 0);
    pen_sampler_free(sampler);
    assert_int_equal(now.n_gpus, 2);
    now.time_ns = before.time_ns + 2000000000;
    assert_int_equal(pen_machine_rates(&before, &now, &rates), 0);
    assert_int_equal(rates.n_gpus, 2);
    assert_is(rates.gpu_w[0], 300);
    assert_unavailable(rates.gpu_w[1]);
    assert_int_equal(fake->n_init, fake->n_shutdown);
}

static void a_sampler_may_do_without(void **state)
{
    (void)state;
    static pen_machine now = PEN_MACHINE_INIT;
    pen_sampler *sampler;
    pen_sampler_opts opts;
    pen_sampler_opts_init(&opts);
    opts.use_gpus = false;
    assert_int_equal(pen_sampler_create(&sampler, &opts, NULL), 0);
    assert_int_equal(pen_sampler_read(sampler, &now), 0);
    assert_int_equal(now.n_gpus, 0);
    assert_int_equal(fake->n_init, 0);
    pen_sampler_free(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(several_gpus_are_read, load_fake, unload_fake),
        cmocka_unit_test_setup_teardown(what_a_gpu_does_not_support_is_unavailable, load_fake,
                                        unload_fake),
        cmocka_unit_test_setup_teardown(a_lost_gpu_is_left_out, load_fake, unload_fake),
        cmocka_unit_test_setup_teardown(more_gpus_than_fit_are_left_out, load_fake, unload_fake),
        cmocka_unit_test_setup_teardown(without_a_working_driver_there_are_no_gpus, load_fake,
                                        unload_fake),
        cmocka_unit_test_setup_teardown(a_sampler_sees_gpus_and_their_watts, load_fake,
                                        unload_fake),
        cmocka_unit_test_setup_teardown(a_sampler_may_do_without, load_fake, unload_fake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
