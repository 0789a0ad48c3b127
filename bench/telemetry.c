/* telemetry.c - what one reading of the machine costs.
 *
 *     make bench-telemetry
 *
 * CPU time of the reading thread, the kernel's part included, spread as a sampler would
 * have it: one reading every few milliseconds, so that caches are as cold as they will
 * be.  Apart from that, how many cores there are, which a loader's control thread asks
 * every 400 ms.  The share is of one core at the usual period of 100 ms.
 */
#include <penstock/penstock.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "telemetry/limits.h"

enum { READINGS = 400, PAUSE_NS = 5000000, PERIODS_A_COUNT = 4 };

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

typedef struct cost {
    double us[READINGS], mean_us;
} cost;

static void finish(cost *c)
{
    qsort(c->us, READINGS, sizeof c->us[0], compare);
    for (int i = 0; i < READINGS; i++)
        c->mean_us += c->us[i] / READINGS;
}

static void measure_readings(pen_sampler *sampler, pen_machine *now, cost *c)
{
    static pen_machine before = PEN_MACHINE_INIT;
    static pen_rates rates = PEN_RATES_INIT;
    const struct timespec nap = {0, PAUSE_NS};
    pen_sampler_read(sampler, &before); /* the first looks every device up in /sys */
    for (int i = 0; i < READINGS; i++) {
        nanosleep(&nap, NULL);
        const double begin = cpu_us();
        pen_sampler_read(sampler, now);
        pen_machine_rates(&before, now, &rates);
        c->us[i] = cpu_us() - begin;
    }
    finish(c);
}

static void measure_cores(cost *c)
{
    const struct timespec nap = {0, PAUSE_NS};
    for (int i = 0; i < READINGS; i++) {
        nanosleep(&nap, NULL);
        const double begin = cpu_us();
        pen__limit_cores();
        c->us[i] = cpu_us() - begin;
    }
    finish(c);
}

static void print(const char *what, const cost *c)
{
    printf("%s %.1f us median, %.1f mean, %.1f at 99 %%; ", what, c->us[READINGS / 2], c->mean_us,
           c->us[READINGS * 99 / 100]);
}

int main(void)
{
    static pen_machine now = PEN_MACHINE_INIT;
    static cost reading, cores;
    pen_sampler *sampler;
    pen_error err;
    const double begin = cpu_us();
    if (pen_sampler_create(&sampler, NULL, &err) != 0) {
        fprintf(stderr, "bench: %s\n", err.text);
        return 1;
    }
    printf("create %.0f us; ", cpu_us() - begin);
    measure_readings(sampler, &now, &reading);
    measure_cores(&cores);
    pen_sampler_free(sampler);
    print("a reading with its rates", &reading);
    print("asking for the cores", &cores);
    printf("%.3f %% of a core every 100 ms, %.3f %% if the cores were asked each time (%d cores, "
           "%d disks, %d interfaces, %d GPUs)\n",
           (reading.mean_us + cores.mean_us / PERIODS_A_COUNT) / 1e5 * 100,
           (reading.mean_us + cores.mean_us) / 1e5 * 100, now.n_cores, now.disks.n_disks,
           now.net.n_interfaces, now.n_gpus);
    return 0;
}
