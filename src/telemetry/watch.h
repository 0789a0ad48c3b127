/* watch.h - a small file that is read again and again.
 *
 * It is opened once and read from its start each time; /proc, /sys and cgroup files make
 * their text anew for that.  A file that is not there, or that fails (the group was
 * removed, the device unplugged), reads as empty and is tried again now and then.
 */
#ifndef PEN_TELEMETRY_WATCH_H
#define PEN_TELEMETRY_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "telemetry/scan.h"

/* What any of the files may hold; /proc/stat of 512 cores stays below it.  Of a longer
 * file the whole lines at its start are seen. */
enum { PEN__WATCH_CAP = 1 << 17 };

typedef struct pen__watch {
    char *path; /* NULL: nothing to watch */
    int fd;     /* -1: not open */
    int skip;   /* readings to let pass before the next try */
} pen__watch;

/* Watch "<root><dir>/<name>".  Returns 0 or PEN_ENOMEM; a missing file is no error. */
int pen__watch_init(pen__watch *watch, const char *root, const char *dir, const char *name);
/* Legal on a zeroed watch. */
void pen__watch_fini(pen__watch *watch);
/* Was it there at the last try? */
bool pen__watch_is_open(const pen__watch *watch);
/* The file's text now, in `buffer` of PEN__WATCH_CAP bytes; empty if there is none. */
pen__scan pen__watch_read(pen__watch *watch, char *buffer);

#endif
