/* telemetry.h - what the machine under the loader is doing.
 *
 *     pen_sampler *sampler;
 *     int rc = pen_sampler_create(&sampler, NULL, &err);
 *     pen_machine before = PEN_MACHINE_INIT, now = PEN_MACHINE_INIT;
 *     pen_rates rates = PEN_RATES_INIT;
 *     pen_sampler_read(sampler, &before);
 *     ...                                     // 100 ms later
 *     pen_sampler_read(sampler, &now);
 *     pen_machine_rates(&before, &now, &rates);
 *
 * A reading holds gauges and counters as the kernel keeps them; two readings make
 * rates.  Units are in the names; times are in seconds, shares from 0 to 1.
 *
 * A value that this machine does not tell is NaN, and is never estimated: a missing
 * or unreadable file, a field that the kernel is too old for, a number that makes no
 * sense.  A limit that is known not to exist is INFINITY.  A rate is NaN if either
 * reading lacks its counter, if the counter went backwards, or if it is a mean over
 * nothing.  docs/telemetry.md has every field, its source, and when it is missing.
 *
 * Fields are only ever added at the end of pen_machine and pen_rates, never to the structs
 * inside them; struct_size says how much the caller knows.
 */
#ifndef PENSTOCK_TELEMETRY_H
#define PENSTOCK_TELEMETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

#define PEN_MACHINE_CORES 512 /* further cores count in the total, and are not listed */
#define PEN_MACHINE_GPUS  16  /* further GPUs are left out */

/* Time since boot, of one core or of all together. */
typedef struct pen_cpu_times {
    double busy_s; /* running anything: user, nice, system, interrupts */
    double idle_s;
    double iowait_s; /* idle with a disk request under way */
    double steal_s;  /* wanted to run, and the hypervisor ran somebody else */
} pen_cpu_times;

typedef struct pen_process {
    double cpu_s;     /* of all threads */
    double rss_bytes; /* resident, mapped files included */
    double threads;
    double major_faults; /* page faults that read from a disk */
} pen_process;

typedef struct pen_memory {
    double total_bytes, free_bytes;
    double available_bytes; /* free, or the kernel would make it free */
    double cached_bytes;    /* page cache, tmpfs included */
    double swap_total_bytes, swap_free_bytes;
} pen_memory;

/* Pressure stall information: `some` of the tasks, or all of them (`full`), waited. */
typedef struct pen_pressure {
    double some_avg10, full_avg10; /* share of the last ten seconds */
    double some_s, full_s;         /* since boot */
} pen_pressure;

enum { PEN_PRESSURE_CPU, PEN_PRESSURE_MEMORY, PEN_PRESSURE_IO, PEN_PRESSURE_COUNT };

/* This process's control group, v1 or v2.  Limits are the tightest on the way up to the
 * root; what belongs to a limit is read from the group that sets it: 0 is our own, 1 its
 * parent; -1 where nothing was found. */
typedef struct pen_cgroup {
    int32_t cpu_group, memory_group;
    double cpu_quota_cores; /* INFINITY: none is set */
    double cpu_periods, cpu_throttled_periods;
    double cpu_throttled_s;     /* summed over cores */
    double cpu_s;               /* used by our own group */
    double memory_limit_bytes;  /* memory.max or v1's limit; INFINITY: none is set */
    double memory_high_bytes;   /* v2: above this the kernel slows the group down */
    double memory_used_bytes;   /* page cache included */
    double memory_file_bytes;   /* the part of it that is page cache and can be dropped */
    double memory_high_events;  /* v2: times it was slowed down at memory.high */
    double memory_limit_events; /* times the limit was hit */
    pen_pressure pressure[PEN_PRESSURE_COUNT]; /* of our own group */
} pen_cgroup;

/* One disk, or the sum of all. */
typedef struct pen_disk {
    char name[32]; /* "nvme0n1"; "" for the sum, and where there is none */
    int32_t n_disks;
    double reads, writes; /* requests completed */
    double read_bytes, write_bytes;
    double read_s, write_s; /* request time, summed over requests; wraps at 2^32 ms */
    double busy_s;          /* time with a request under way; wraps at 2^32 ms */
    double queue_s;         /* time weighted by the requests under way; wraps at 2^32 ms */
    double in_flight;       /* requests under way now */
} pen_disk;

/* The sum over interfaces: of the machine, or loopback alone. */
typedef struct pen_net {
    int32_t n_interfaces;
    double rx_bytes, tx_bytes;
    double rx_packets, tx_packets;
    double errors, drops; /* both directions */
} pen_net;

typedef struct pen_gpu {
    char name[64];
    double busy;        /* share of the driver's last window with a kernel running */
    double memory_busy; /* the same for reading or writing its memory */
    double memory_used_bytes, memory_total_bytes;
    double power_w;
    double energy_j; /* since the driver was loaded */
} pen_gpu;

typedef struct pen_machine {
    size_t struct_size;
    int64_t time_ns; /* monotonic */
    int32_t n_cores; /* entries of `cores`: the highest number online, plus one */
    int32_t n_gpus;
    pen_cpu_times cpu;
    pen_process process;
    pen_memory memory;
    pen_pressure pressure[PEN_PRESSURE_COUNT];
    pen_cgroup cgroup;
    pen_disk disks;     /* every physical disk once: no partitions, no dm, md, loop, zram */
    pen_disk data_disk; /* the one that holds opts.data_path */
    pen_net net, loopback;
    double package_j; /* all CPU packages, since the sampler was made */
    pen_gpu gpus[PEN_MACHINE_GPUS];
    pen_cpu_times cores[PEN_MACHINE_CORES];
} pen_machine;
#define PEN_MACHINE_INIT                   \
    {                                      \
        .struct_size = sizeof(pen_machine) \
    }

typedef struct pen_cpu_shares {
    double busy, iowait, steal; /* of the time of this core, or of all cores */
} pen_cpu_shares;

typedef struct pen_pressure_rates {
    double some, full; /* share of the time between the readings */
} pen_pressure_rates;

typedef struct pen_cgroup_rates {
    double cpu_cores;       /* used by our own group */
    double throttled_share; /* of the scheduling periods */
    double throttled_cores; /* how many cores more would have run */
    double memory_high_events_per_s, memory_limit_events_per_s;
    pen_pressure_rates pressure[PEN_PRESSURE_COUNT];
} pen_cgroup_rates;

typedef struct pen_disk_rates {
    double reads_per_s, writes_per_s;
    double read_bytes_per_s, write_bytes_per_s;
    double read_latency_s, write_latency_s, latency_s; /* mean of a request, queueing included */
    double queue;                                      /* mean number of requests under way */
    double busy; /* share of the time with a request under way; the sum's: disks busy on average */
} pen_disk_rates;

typedef struct pen_net_rates {
    double rx_bytes_per_s, tx_bytes_per_s;
    double rx_packets_per_s, tx_packets_per_s;
    double errors_per_s, drops_per_s;
} pen_net_rates;

typedef struct pen_rates {
    size_t struct_size;
    double seconds; /* between the readings */
    int32_t n_cores, n_gpus;
    pen_cpu_shares cpu;
    double process_cores; /* CPU seconds a second */
    double major_faults_per_s;
    pen_pressure_rates pressure[PEN_PRESSURE_COUNT];
    pen_cgroup_rates cgroup;
    pen_disk_rates disks, data_disk;
    pen_net_rates net, loopback;
    double package_w;
    double gpu_w[PEN_MACHINE_GPUS]; /* from the energy counters; pen_gpu.power_w is the gauge */
    pen_cpu_shares cores[PEN_MACHINE_CORES];
} pen_rates;
#define PEN_RATES_INIT                   \
    {                                    \
        .struct_size = sizeof(pen_rates) \
    }

typedef struct pen_sampler pen_sampler;

typedef struct pen_sampler_opts {
    size_t struct_size;    /* set by pen_sampler_opts_init */
    const char *data_path; /* whose disk `data_disk` is; NULL: none */
    bool use_gpus;         /* load the NVIDIA driver's library if there is one; default true */
} pen_sampler_opts;

PEN_API void pen_sampler_opts_init(pen_sampler_opts *opts);

/* Opens what there is to read and keeps it open; `opts` may be NULL.  A machine that
 * tells nothing is no error.  Loading the GPU driver may take a while. */
PEN_API int pen_sampler_create(pen_sampler **out, const pen_sampler_opts *opts, pen_error *err);
/* NULL is legal. */
PEN_API void pen_sampler_free(pen_sampler *sampler);

/* Fill *out, as far as out->struct_size reaches, with the present state.  One thread at a
 * time; allocates nothing.  Returns 0, PEN_EINVAL for a struct_size of another library, or
 * PEN_EFORK in a child that inherited the sampler: its files are about the parent. */
PEN_API int pen_sampler_read(pen_sampler *sampler, pen_machine *out);

/* What happened between two readings of one sampler.  Pure.  Returns 0, or PEN_EINVAL for
 * a struct_size of another library. */
PEN_API int pen_machine_rates(const pen_machine *before, const pen_machine *now, pen_rates *out);

#endif
