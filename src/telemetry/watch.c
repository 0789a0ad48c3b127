/* watch.c - files kept open and read again by pread. */
#include "telemetry/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/mem.h"

/* At the usual period of 100 ms a file that appears is found within two seconds, and one
 * that never does costs next to nothing. */
enum { SKIPPED = 19 };

static void try_open(pen__watch *watch)
{
    do
        watch->fd = open(watch->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (watch->fd < 0 && errno == EINTR);
    watch->skip = SKIPPED;
}

int pen__watch_init(pen__watch *watch, const char *root, const char *dir, const char *name)
{
    size_t n = strlen(root) + strlen(dir) + 1 + strlen(name) + 1;
    *watch = (pen__watch){.path = pen__malloc(n), .fd = -1};
    if (!watch->path)
        return PEN_ENOMEM;
    snprintf(watch->path, n, "%s%s/%s", root, dir, name);
    try_open(watch);
    return 0;
}

void pen__watch_fini(pen__watch *watch)
{
    if (watch->path && watch->fd >= 0)
        close(watch->fd);
    pen__free(watch->path);
    *watch = (pen__watch){.fd = -1};
}

bool pen__watch_is_open(const pen__watch *watch)
{
    return watch->path && watch->fd >= 0;
}

/* The kernel hands out such files in pieces, so one reads until nothing more comes. */
static ssize_t read_all(int fd, char *buffer)
{
    size_t n = 0;
    while (n < PEN__WATCH_CAP) {
        ssize_t got = pread(fd, buffer + n, PEN__WATCH_CAP - n, (off_t)n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            return (ssize_t)n;
        n += (size_t)got;
    }
    while (n > 0 && buffer[n - 1] != '\n') /* half a number would be a wrong one */
        n--;
    return (ssize_t)n;
}

pen__scan pen__watch_read(pen__watch *watch, char *buffer)
{
    if (watch->path && watch->fd < 0) {
        if (watch->skip > 0)
            watch->skip--;
        else
            try_open(watch);
    }
    ssize_t n = pen__watch_is_open(watch) ? read_all(watch->fd, buffer) : 0;
    if (n < 0) {
        close(watch->fd);
        watch->fd = -1;
        watch->skip = SKIPPED;
        n = 0;
    }
    return pen__scan_text(buffer, (size_t)n);
}
