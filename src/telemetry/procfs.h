/* procfs.h - what the kernel's text files say: pure functions from text to numbers.
 *
 * Each fills all of its output, with NaN for what the text lacks, so that an empty text
 * is how a missing file reads.  Any bytes are legal input; the kernels from 4.15 on are
 * what was tested.  Numbers that overflow or that no machine has count as missing.
 */
#ifndef PEN_TELEMETRY_PROCFS_H
#define PEN_TELEMETRY_PROCFS_H

#include <penstock/telemetry.h>

#include "telemetry/scan.h"

/* /proc/stat: `cpu`, `cores` and `n_cores` of *out.  tick_s is the kernel's USER_HZ. */
void pen__parse_stat(pen__scan text, double tick_s, pen_machine *out);
/* /proc/self/stat: all but cpu_s, which a clock tells better. */
void pen__parse_self(pen__scan text, double page_bytes, pen_process *out);
void pen__parse_meminfo(pen__scan text, pen_memory *out);
/* /proc/pressure/ and the *.pressure files of a group. */
void pen__parse_pressure(pen__scan text, pen_pressure *out);

/* One line of /proc/diskstats, 14 fields or more; false if it is none.  n_disks is 1. */
bool pen__parse_disk(pen__scan line, pen_disk *out);
/* One line of /proc/net/dev; false for the heading and for nonsense.  `name` as the
 * kernel limits it. */
enum { PEN__INTERFACE_CAP = 16 };
bool pen__parse_interface(pen__scan line, char name[PEN__INTERFACE_CAP], pen_net *out);

/* cpu.max: "max 100000" or "150000 100000"; cores, INFINITY without a limit. */
double pen__parse_cpu_max(pen__scan text);
/* v1's cpu.cfs_quota_us: -1 is no limit. */
double pen__parse_cfs_quota(pen__scan text, double period_us);
/* cpu.stat, v1 or v2: the throttling of *out; cpu_s too with v2. */
void pen__parse_cpu_stat(pen__scan text, pen_cgroup *out);
/* memory.max, memory.high, v1's memory.limit_in_bytes: INFINITY without a limit. */
double pen__parse_memory_limit(pen__scan text);
/* memory.stat, v1 or v2: page cache that can be dropped. */
double pen__parse_memory_file(pen__scan text);
/* /proc/self/cgroup: our group's path for a v1 controller ("4:memory:/job"), or with ""
 * for v2 ("0::/job"); "" if there is none or it does not fit. */
void pen__parse_group(pen__scan text, const char *controller, char *path, size_t cap);
/* A file that holds one number and nothing else. */
double pen__parse_number(pen__scan text);

#endif
