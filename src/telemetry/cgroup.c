/* cgroup.c - find this process's control groups and read them.
 *
 * A limit counts together with those of the groups above, so the walk goes from our own
 * group up to the root.  Which group limits us most is judged anew at each reading,
 * because limits may be changed while we run; its number is part of the reading, so that
 * nobody subtracts the counters of different groups.
 *
 * A process that is moved to another group later is not followed.
 */
#include "telemetry/cgroup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <penstock/error.h>

#include "telemetry/procfs.h"

enum { PATH_CAP = 1024 };

/* ---- finding ------------------------------------------------------------------ */

static void walk_mount(const char *root, const char *mount, char group[PATH_CAP],
                       pen__cgroup_visit *visit, void *ctx)
{
    char dir[PATH_CAP];
    for (;;) {
        size_t n = strlen(group);
        while (n > 0 && group[n - 1] == '/')
            group[--n] = '\0';
        if (snprintf(dir, sizeof dir, "%s%s", mount, group) < (int)sizeof dir)
            visit(root, dir, ctx);
        char *slash = strrchr(group, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

void pen__cgroup_walk(const char *root, const char *controller, pen__cgroup_visit *visit, void *ctx)
{
    const char *const v2_mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    char full[PATH_CAP], text[16384], group[PATH_CAP];
    size_t n = 0;
    snprintf(full, sizeof full, "%s/proc/self/cgroup", root);
    FILE *file = fopen(full, "re");
    if (file) {
        n = fread(text, 1, sizeof text, file);
        fclose(file);
    }
    for (int i = 0; i < 2; i++) {
        pen__parse_group(pen__scan_text(text, n), "", group, sizeof group);
        walk_mount(root, v2_mounts[i], group, visit, ctx);
    }
    snprintf(full, sizeof full, "/sys/fs/cgroup/%s", controller);
    pen__parse_group(pen__scan_text(text, n), controller, group, sizeof group);
    walk_mount(root, full, group, visit, ctx);
}

/* ---- opening ------------------------------------------------------------------- */

/* Watch a file that is there now; others of the same group need not be. */
static bool watch(pen__cgroups *groups, pen__watch *file, const char *root, const char *dir,
                  const char *name)
{
    if (pen__watch_init(file, root, dir, name) != 0)
        groups->failed = true;
    else if (pen__watch_is_open(file))
        return true;
    pen__watch_fini(file);
    return false;
}

static void add_cpu(const char *root, const char *dir, void *ctx)
{
    pen__cgroups *groups = ctx;
    if (groups->n_cpu == PEN__CGROUP_LEVELS)
        return;
    pen__cpu_group *group = &groups->cpu[groups->n_cpu];
    if (!watch(groups, &group->max, root, dir, "cpu.max") &&
        !watch(groups, &group->quota, root, dir, "cpu.cfs_quota_us"))
        return;
    watch(groups, &group->period, root, dir, "cpu.cfs_period_us");
    watch(groups, &group->stat, root, dir, "cpu.stat");
    groups->n_cpu++;
}

static void add_memory(const char *root, const char *dir, void *ctx)
{
    pen__cgroups *groups = ctx;
    if (groups->n_memory == PEN__CGROUP_LEVELS)
        return;
    pen__memory_group *group = &groups->memory[groups->n_memory];
    bool is_v2 = watch(groups, &group->max, root, dir, "memory.max");
    if (is_v2) {
        watch(groups, &group->high, root, dir, "memory.high");
        watch(groups, &group->used, root, dir, "memory.current");
        watch(groups, &group->events, root, dir, "memory.events");
    } else if (watch(groups, &group->max, root, dir, "memory.limit_in_bytes")) {
        watch(groups, &group->used, root, dir, "memory.usage_in_bytes");
        watch(groups, &group->failures, root, dir, "memory.failcnt");
    } else {
        return;
    }
    watch(groups, &group->stat, root, dir, "memory.stat");
    groups->n_memory++;
}

/* Every group of v2 has this file but the root; a container's root is no root. */
static bool is_below_root(const char *root, const char *dir)
{
    char path[PATH_CAP];
    return snprintf(path, sizeof path, "%s%s/cgroup.type", root, dir) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

/* What counts for our own group alone: the first folder that has the file. */
static void add_own(const char *root, const char *dir, void *ctx)
{
    static const char *const names[] = {"cpu.pressure", "memory.pressure", "io.pressure"};
    pen__cgroups *groups = ctx;
    if (!groups->usage.path)
        watch(groups, &groups->usage, root, dir, "cpuacct.usage");
    if (!groups->stat.path)
        watch(groups, &groups->stat, root, dir, "cpu.stat");
    if (!is_below_root(root, dir))
        return; /* the root's pressure is the machine's */
    for (int i = 0; i < PEN_PRESSURE_COUNT; i++)
        if (!groups->pressure[i].path)
            watch(groups, &groups->pressure[i], root, dir, names[i]);
}

int pen__cgroups_init(pen__cgroups *groups, const char *root)
{
    memset(groups, 0, sizeof *groups);
    pen__cgroup_walk(root, "cpu", add_cpu, groups);
    pen__cgroup_walk(root, "memory", add_memory, groups);
    pen__cgroup_walk(root, "cpuacct", add_own, groups);
    return groups->failed ? PEN_ENOMEM : 0;
}

void pen__cgroups_fini(pen__cgroups *groups)
{
    for (int i = 0; i < PEN__CGROUP_LEVELS; i++) {
        pen__cpu_group *cpu = &groups->cpu[i];
        pen__memory_group *memory = &groups->memory[i];
        pen__watch *const files[] = {
            &cpu->max,     &cpu->quota,   &cpu->period,  &cpu->stat,      &memory->max,
            &memory->high, &memory->used, &memory->stat, &memory->events, &memory->failures};
        for (size_t f = 0; f < sizeof files / sizeof files[0]; f++)
            pen__watch_fini(files[f]);
    }
    for (int i = 0; i < PEN_PRESSURE_COUNT; i++)
        pen__watch_fini(&groups->pressure[i]);
    pen__watch_fini(&groups->usage);
    pen__watch_fini(&groups->stat);
}

/* ---- reading ------------------------------------------------------------------- */

static double cpu_quota(pen__cpu_group *group, char *buffer)
{
    if (group->max.path)
        return pen__parse_cpu_max(pen__watch_read(&group->max, buffer));
    double period_us = pen__parse_number(pen__watch_read(&group->period, buffer));
    return pen__parse_cfs_quota(pen__watch_read(&group->quota, buffer), period_us);
}

static void read_cpu(pen__cgroups *groups, char *buffer, pen_cgroup *out)
{
    pen__watch none = {.path = NULL}, *stat = &none;
    out->cpu_group = -1;
    out->cpu_quota_cores = NAN;
    for (int i = 0; i < groups->n_cpu; i++) {
        double quota = cpu_quota(&groups->cpu[i], buffer);
        if (isnan(quota) || quota >= out->cpu_quota_cores)
            continue;
        out->cpu_quota_cores = quota;
        out->cpu_group = i;
        stat = &groups->cpu[i].stat;
    }
    pen__parse_cpu_stat(pen__watch_read(stat, buffer), out);
    if (groups->usage.path) {
        out->cpu_s = pen__parse_number(pen__watch_read(&groups->usage, buffer)) * 1e-9;
    } else {
        pen_cgroup own;
        pen__parse_cpu_stat(pen__watch_read(&groups->stat, buffer), &own);
        out->cpu_s = own.cpu_s;
    }
}

static void read_memory(pen__cgroups *groups, char *buffer, pen_cgroup *out)
{
    pen__memory_group none, *group = &none;
    double tightest = NAN;
    memset(&none, 0, sizeof none);
    out->memory_group = -1;
    out->memory_limit_bytes = out->memory_high_bytes = NAN;
    for (int i = 0; i < groups->n_memory; i++) {
        pen__memory_group *each = &groups->memory[i];
        double limit = pen__parse_memory_limit(pen__watch_read(&each->max, buffer));
        double high = pen__parse_memory_limit(pen__watch_read(&each->high, buffer));
        out->memory_limit_bytes = fmin(out->memory_limit_bytes, limit); /* NaN loses */
        out->memory_high_bytes = fmin(out->memory_high_bytes, high);
        double least = fmin(limit, high);
        if (isnan(least) || least >= tightest)
            continue;
        tightest = least;
        group = each;
        out->memory_group = i;
    }
    out->memory_used_bytes = pen__parse_number(pen__watch_read(&group->used, buffer));
    out->memory_file_bytes = pen__parse_memory_file(pen__watch_read(&group->stat, buffer));
    pen__scan events = pen__watch_read(&group->events, buffer);
    out->memory_high_events = pen__scan_value(events, "high");
    out->memory_limit_events = group->failures.path
                                   ? pen__parse_number(pen__watch_read(&group->failures, buffer))
                                   : pen__scan_value(events, "max");
}

void pen__cgroups_read(pen__cgroups *groups, char *buffer, pen_cgroup *out)
{
    read_cpu(groups, buffer, out);
    read_memory(groups, buffer, out);
    for (int i = 0; i < PEN_PRESSURE_COUNT; i++)
        pen__parse_pressure(pen__watch_read(&groups->pressure[i], buffer), &out->pressure[i]);
}
