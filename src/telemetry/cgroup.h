/* cgroup.h - the control groups this process is in, and what they say.
 *
 * v2, v1 and both side by side ("hybrid") are read at the places where systemd and
 * container runtimes mount them: /sys/fs/cgroup, /sys/fs/cgroup/unified, and a folder
 * for each v1 controller.
 */
#ifndef PEN_TELEMETRY_CGROUP_H
#define PEN_TELEMETRY_CGROUP_H

#include <penstock/telemetry.h>

#include "telemetry/watch.h"

/* Show `visit` the folder (below `root`) of each group of `controller` from ours up to
 * the mount's root, v2 first, then v1.  Folders need not exist: inside a container
 * the path in /proc/self/cgroup may not, and only the mount's root, which is the
 * container's own group, does. */
typedef void pen__cgroup_visit(const char *root, const char *dir, void *ctx);
void pen__cgroup_walk(const char *root, const char *controller, pen__cgroup_visit *visit,
                      void *ctx);

/* The files of a reading.  At most this many groups of a controller are kept, the ones
 * closest to us. */
enum { PEN__CGROUP_LEVELS = 12 };

typedef struct pen__cpu_group {
    pen__watch max;           /* v2 */
    pen__watch quota, period; /* v1 */
    pen__watch stat;
} pen__cpu_group;

typedef struct pen__memory_group {
    pen__watch max, high, used, stat;
    pen__watch events;   /* v2 */
    pen__watch failures; /* v1: one number */
} pen__memory_group;

typedef struct pen__cgroups {
    pen__cpu_group cpu[PEN__CGROUP_LEVELS];
    pen__memory_group memory[PEN__CGROUP_LEVELS];
    int n_cpu, n_memory;
    pen__watch usage; /* v1: cpuacct.usage of our own group */
    pen__watch stat;  /* v2: cpu.stat of our own group */
    pen__watch pressure[PEN_PRESSURE_COUNT];
    bool failed; /* out of memory while it was made */
} pen__cgroups;

/* Finds and opens the files.  Returns 0 or PEN_ENOMEM. */
int pen__cgroups_init(pen__cgroups *groups, const char *root);
void pen__cgroups_fini(pen__cgroups *groups);
/* `buffer` has PEN__WATCH_CAP bytes. */
void pen__cgroups_read(pen__cgroups *groups, char *buffer, pen_cgroup *out);

#endif
