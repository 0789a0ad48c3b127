/* limits.h - what this process may use: memory and cores, cgroups respected. */
#ifndef PEN_TELEMETRY_LIMITS_H
#define PEN_TELEMETRY_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of memory: the machine's, or the tightest cgroup's (v1 or v2) above us. */
int64_t pen__limit_memory(void);
/* Cores: affinity and cgroup quota, at least 1: how many threads may run at once. */
int pen__limit_cores(void);
/* The same as it is, with fractions: a tenth of a core is 0.1.  How much they get done. */
double pen__limit_quota(void);

/* The same below another root than "/", for tests with recorded files. */
int64_t pen__limit_memory_at(const char *root);
int pen__limit_cores_at(const char *root);
double pen__limit_quota_at(const char *root);

#endif
