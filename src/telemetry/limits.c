/* limits.c - read limits from /proc and the cgroup file systems. */
#include "telemetry/limits.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "telemetry/cgroup.h"
#include "telemetry/procfs.h"

enum { PATH_CAP = 1024, TEXT_CAP = 4096 };

/* The start of a file; empty if there is none. */
static pen__scan read_text(const char *root, const char *dir, const char *name, char text[TEXT_CAP])
{
    char path[PATH_CAP];
    size_t n = 0;
    FILE *file = NULL;
    if (snprintf(path, sizeof path, "%s%s/%s", root, dir, name) < (int)sizeof path)
        file = fopen(path, "re");
    if (file) {
        n = fread(text, 1, TEXT_CAP, file);
        fclose(file);
    }
    return pen__scan_text(text, n);
}

static void visit_memory(const char *root, const char *dir, void *ctx)
{
    static const char *const files[] = {"memory.max", "memory.high", "memory.limit_in_bytes"};
    double *least = ctx;
    char text[TEXT_CAP];
    for (int i = 0; i < 3; i++) {
        double limit = pen__parse_memory_limit(read_text(root, dir, files[i], text));
        if (limit > 0 && limit < *least)
            *least = limit;
    }
}

int64_t pen__limit_memory_at(const char *root)
{
    char text[TEXT_CAP];
    pen_memory memory;
    pen__parse_meminfo(read_text(root, "/proc", "meminfo", text), &memory);
    double least = memory.total_bytes > 0 ? memory.total_bytes : INFINITY;
    pen__cgroup_walk(root, "memory", visit_memory, &least);
    return isinf(least) ? (int64_t)1 << 30 : (int64_t)least;
}

int64_t pen__limit_memory(void)
{
    return pen__limit_memory_at("");
}

static void visit_cpu(const char *root, const char *dir, void *ctx)
{
    double *least = ctx;
    char text[TEXT_CAP];
    double period_us = pen__parse_number(read_text(root, dir, "cpu.cfs_period_us", text));
    double v1 = pen__parse_cfs_quota(read_text(root, dir, "cpu.cfs_quota_us", text), period_us);
    double v2 = pen__parse_cpu_max(read_text(root, dir, "cpu.max", text));
    *least = fmin(*least, fmin(v1, v2)); /* NaN, "not told", loses */
}

double pen__limit_quota_at(const char *root)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                            : (int)sysconf(_SC_NPROCESSORS_ONLN);
    double least = cores < 1 ? 1 : cores;
    pen__cgroup_walk(root, "cpu", visit_cpu, &least);
    return least;
}

double pen__limit_quota(void)
{
    return pen__limit_quota_at("");
}

int pen__limit_cores_at(const char *root)
{
    const double quota = pen__limit_quota_at(root);
    return quota < 1 ? 1 : (int)ceil(quota);
}

int pen__limit_cores(void)
{
    return pen__limit_cores_at("");
}
