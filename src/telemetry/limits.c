/* limits.c - read limits from /proc and the cgroup file systems.
 *
 * A cgroup's limit counts together with those of its parents, so the walk goes
 * from this process's group up to the root.  Inside a container the path in
 * /proc/self/cgroup may not exist under the mount; then only the root of the
 * mount is seen, which is the container's own group.
 */
#include "telemetry/limits.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_CAP = 1024, TEXT_CAP = 4096 };

/* The file as NUL-terminated text; false if there is none. */
static bool read_text(const char *root, const char *path, char text[TEXT_CAP])
{
    char full[PATH_CAP];
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
        return false;
    FILE *file = fopen(full, "re");
    if (!file)
        return false;
    size_t n = fread(text, 1, TEXT_CAP - 1, file);
    text[n] = '\0';
    fclose(file);
    return n > 0;
}

/* A non-negative number, or -1 ("max", no file, nonsense). */
static int64_t number(const char *text)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    return end == text || value < 0 ? -1 : value;
}

/* This process's group for a v1 controller, or for v2 (controller ""). */
static bool group_of(const char *root, const char *controller, char out[PATH_CAP])
{
    char text[TEXT_CAP];
    if (!read_text(root, "/proc/self/cgroup", text))
        return false;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        names++;
        bool is_it = *controller == '\0' && *names == '\0';
        char *inner = NULL;
        for (char *name = strtok_r(names, ",", &inner); name; name = strtok_r(NULL, ",", &inner))
            is_it |= strcmp(name, controller) == 0 && *controller;
        if (is_it)
            return snprintf(out, PATH_CAP, "%s", path) < PATH_CAP;
    }
    return false;
}

/* Ask `visit` about every group from ours up to the mount's root. */
static void walk_up(const char *root, const char *mount, const char *controller,
                    void (*visit)(const char *root, const char *dir, void *ctx), void *ctx)
{
    char group[PATH_CAP] = "", dir[PATH_CAP];
    group_of(root, controller, group);
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

static bool read_in(const char *root, const char *dir, const char *file, char text[TEXT_CAP])
{
    char path[PATH_CAP];
    return snprintf(path, sizeof path, "%s/%s", dir, file) < (int)sizeof path &&
           read_text(root, path, text);
}

static void visit_memory(const char *root, const char *dir, void *ctx)
{
    static const char *const files[] = {"memory.max", "memory.high", "memory.limit_in_bytes"};
    int64_t *least = ctx;
    char text[TEXT_CAP];
    for (int i = 0; i < 3; i++) {
        int64_t limit = read_in(root, dir, files[i], text) ? number(text) : -1;
        if (limit > 0 && limit < *least)
            *least = limit;
    }
}

int64_t pen__limit_memory_at(const char *root)
{
    char text[TEXT_CAP];
    int64_t least = INT64_MAX;
    const char *total = read_text(root, "/proc/meminfo", text) ? strstr(text, "MemTotal:") : NULL;
    if (total && number(total + strlen("MemTotal:")) > 0)
        least = number(total + strlen("MemTotal:")) * 1024;
    walk_up(root, "/sys/fs/cgroup", "", visit_memory, &least);
    walk_up(root, "/sys/fs/cgroup/memory", "memory", visit_memory, &least);
    return least == INT64_MAX ? (int64_t)1 << 30 : least;
}

int64_t pen__limit_memory(void)
{
    return pen__limit_memory_at("");
}

static void visit_cpu(const char *root, const char *dir, void *ctx)
{
    int *least = ctx;
    char text[TEXT_CAP], period_text[TEXT_CAP];
    int64_t quota = -1, period = -1;
    if (read_in(root, dir, "cpu.max", text)) { /* "max 100000" or "200000 100000" */
        const char *space = strchr(text, ' ');
        quota = number(text);
        period = space ? number(space + 1) : -1;
    } else if (read_in(root, dir, "cpu.cfs_quota_us", text) &&
               read_in(root, dir, "cpu.cfs_period_us", period_text)) {
        quota = number(text);
        period = number(period_text);
    }
    if (quota <= 0 || period <= 0)
        return;
    int64_t cores = (quota + period - 1) / period;
    if (cores < *least)
        *least = cores < 1 ? 1 : (int)cores;
}

int pen__limit_cores_at(const char *root)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                            : (int)sysconf(_SC_NPROCESSORS_ONLN);
    cores = cores < 1 ? 1 : cores;
    walk_up(root, "/sys/fs/cgroup", "", visit_cpu, &cores);
    walk_up(root, "/sys/fs/cgroup/cpu", "cpu", visit_cpu, &cores);
    return cores;
}

int pen__limit_cores(void)
{
    return pen__limit_cores_at("");
}
