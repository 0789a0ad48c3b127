/* device.c - steps that sleep, and readings of what a run takes. */
#include "device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "cli.h"

static const double most_ms = 60000, reading_s = 0.05;

bool device_parse(const char *text, device *out)
{
    char *end;
    *out = (device){.random = 1};
    out->mean_ms = strtod(text, &end);
    if (end != text && *end == ',') {
        const char *second = end + 1;
        out->jitter_ms = strtod(second, &end);
        if (end == second)
            end = NULL;
    }
    bool is_good = end && end != text && *end == '\0' && out->mean_ms > 0 &&
                   out->mean_ms <= most_ms && out->jitter_ms >= 0 && out->jitter_ms <= out->mean_ms;
    if (!is_good)
        cli_complain("--step-ms takes MEAN or MEAN,JITTER in milliseconds, jitter at most the "
                     "mean, not '%s'",
                     text);
    return is_good;
}

void device_step(device *d)
{
    if (d->mean_ms <= 0)
        return;
    d->random = d->random * 6364136223846793005u + 1442695040888963407u;
    const double at = (double)(d->random >> 11) * 0x1p-52 - 1; /* -1 to 1 */
    const double ns = (d->mean_ms + at * d->jitter_ms) * 1e6;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t total = until.tv_nsec + (int64_t)ns;
    until.tv_sec += total / 1000000000;
    until.tv_nsec = total % 1000000000;
    while (!cli_is_interrupted() &&
           clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
    }
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool usage_begin(usage *u)
{
    memset(u, 0, sizeof *u);
    pen_sampler_opts opts;
    pen_sampler_opts_init(&opts);
    opts.use_gpus = false;
    u->first = calloc(2, sizeof *u->first);
    if (!u->first || pen_sampler_create(&u->sampler, &opts, NULL) != 0) {
        free(u->first);
        cli_complain("out of memory");
        return false;
    }
    u->now = u->first + 1;
    u->first->struct_size = u->now->struct_size = sizeof *u->now;
    pen_sampler_read(u->sampler, u->first);
    u->start_s = cli_seconds();
    u->start_cpu_s = cpu_seconds();
    return true;
}

void usage_look(usage *u)
{
    const double now_s = cli_seconds();
    if (now_s < u->next_s)
        return;
    u->next_s = now_s + reading_s;
    if (pen_sampler_read(u->sampler, u->now) == 0) {
        u->n_readings++;
        u->mean_bytes += (u->now->process.rss_bytes - u->mean_bytes) / u->n_readings;
    }
}

void usage_end(usage *u)
{
    struct rusage used;
    pen_rates *rates = calloc(1, sizeof *rates);
    u->seconds = cli_seconds() - u->start_s;
    u->cpu_s = cpu_seconds() - u->start_cpu_s;
    u->peak_bytes = getrusage(RUSAGE_SELF, &used) == 0 ? (double)used.ru_maxrss * 1024 : NAN;
    u->iowait = NAN;
    if (rates) {
        rates->struct_size = sizeof *rates;
        if (pen_sampler_read(u->sampler, u->now) == 0 &&
            pen_machine_rates(u->first, u->now, rates) == 0)
            u->iowait = rates->cpu.iowait;
    }
    free(rates);
    pen_sampler_free(u->sampler);
    free(u->first);
}
