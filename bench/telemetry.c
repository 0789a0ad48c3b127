/* telemetry.c - what one reading of the machine costs.
 *
 *     make bench-telemetry
 *
 * CPU time of the reading thread, the kernel's part included, spread as a sampler would
 * have it: one reading every few milliseconds, so that caches are as cold as they will
 * be.  The share is of one core at the usual period of 100 ms.
 */
#include <penstock/penstock.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { READINGS = 400, PAUSE_NS = 5000000 };

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

int main(void)
{
    static pen_machine now = PEN_MACHINE_INIT, before = PEN_MACHINE_INIT;
    static pen_rates rates = PEN_RATES_INIT;
    static double us[READINGS];
    const struct timespec nap = {0, PAUSE_NS};
    pen_sampler *sampler;
    pen_error err;
    double begin = cpu_us();
    if (pen_sampler_create(&sampler, NULL, &err) != 0) {
        fprintf(stderr, "bench: %s\n", err.text);
        return 1;
    }
    double create_us = cpu_us() - begin;
    pen_sampler_read(sampler, &before); /* the first looks every device up in /sys */
    double sum_us = 0;
    for (int i = 0; i < READINGS; i++) {
        nanosleep(&nap, NULL);
        begin = cpu_us();
        pen_sampler_read(sampler, &now);
        pen_machine_rates(&before, &now, &rates);
        us[i] = cpu_us() - begin;
        sum_us += us[i];
    }
    pen_sampler_free(sampler);
    qsort(us, READINGS, sizeof us[0], compare);
    printf("create %.0f us; a reading with its rates %.1f us median, %.1f mean, %.1f at 99 %%: "
           "%.3f %% of a core every 100 ms (%d cores, %d disks, %d interfaces, %d GPUs)\n",
           create_us, us[READINGS / 2], sum_us / READINGS, us[READINGS * 99 / 100],
           sum_us / READINGS / 1e5 * 100, now.n_cores, now.disks.n_disks, now.net.n_interfaces,
           now.n_gpus);
    return 0;
}
