/* device.h - a device that is busy without using the CPU, and what a run beside it cost. */
#ifndef PEN_CLI_DEVICE_H
#define PEN_CLI_DEVICE_H

#include <penstock/penstock.h>

#include <stdbool.h>
#include <stdint.h>

/* A step takes mean_ms, give or take up to jitter_ms: the same sequence in every run. */
typedef struct device {
    double mean_ms, jitter_ms; /* mean 0: there is none */
    uint64_t random;
} device;

/* "40" or "40,10"; complains and returns false otherwise. */
bool device_parse(const char *text, device *out);
/* Be busy for one step: sleeps. */
void device_step(device *device);

/* What the process used, between two moments. */
typedef struct usage {
    double start_s, seconds;
    double start_cpu_s, cpu_s;
    double peak_bytes, mean_bytes; /* resident */
    double iowait;                 /* share of the machine's cores; NaN: not told */
    pen_sampler *sampler;
    double next_s, n_readings;
    pen_machine *first, *now;
} usage;

bool usage_begin(usage *u);
/* Call often: reads the memory some times a second. */
void usage_look(usage *u);
/* Fills seconds and the rest, and lets the sampler go. */
void usage_end(usage *u);

#endif
