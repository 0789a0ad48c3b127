/* cli_file.c - files that a command writes: whole, or as they were.
 *
 * What is new is written beside the old and takes its place at the end.  What is no regular file,
 * a pipe or a device, is written to as it is; so is one whose directory takes no other file.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

typedef struct output {
    char path[PATH_MAX]; /* where it is to be, links followed */
    char temporary[PATH_MAX];
} output;

/* A file beside it, or -1 where it is to be written in place. */
static int open_beside(output *out, const char *path)
{
    struct stat st;
    const bool is_there = stat(path, &st) == 0;
    const bool is_loose_link = !is_there && lstat(path, &st) == 0;
    if ((is_there && !S_ISREG(st.st_mode)) || is_loose_link)
        return -1;
    char real[PATH_MAX];
    const char *found = is_there ? realpath(path, real) : path;
    const int n = snprintf(out->path, sizeof out->path, "%s", found ? found : path);
    const int n_beside =
        snprintf(out->temporary, sizeof out->temporary, "%s.%ld~", out->path, (long)getpid());
    if (n >= (int)sizeof out->path || n_beside >= (int)sizeof out->temporary)
        return -1;
    const int fd = open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 && is_there && fchmod(fd, st.st_mode & 0777) != 0) {
        close(fd);
        unlink(out->temporary);
        return -1;
    }
    return fd;
}

/* 0 or an errno: what a stream keeps back may fail only when it is closed. */
static int print_and_close(FILE *file, void (*print)(FILE *, const void *), const void *what)
{
    errno = 0;
    print(file, what);
    int fault = ferror(file) ? errno ? errno : EIO : 0;
    if (fflush(file) != 0 && !fault)
        fault = errno;
    if (fclose(file) != 0 && !fault)
        fault = errno;
    return fault;
}

bool cli_write_file(const char *path, void (*print)(FILE *, const void *), const void *what)
{
    output out;
    const int fd = open_beside(&out, path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : fopen(path, "we");
    int fault = file ? print_and_close(file, print, what) : errno;
    if (fd >= 0 && !fault && rename(out.temporary, out.path) != 0)
        fault = errno;
    if (fd >= 0 && fault)
        unlink(out.temporary);
    if (fault)
        cli_complain("cannot write %s: %s", path, strerror(fault));
    return !fault;
}

int cli_end_stdout(int code)
{
    const bool is_broken = ferror(stdout);
    errno = 0;
    if (fflush(stdout) == 0 && !is_broken)
        return code;
    const int fault = errno ? errno : EIO;
    if (fault != EPIPE) /* `penstock info ... | head`: who has seen enough need not be told */
        cli_complain("cannot write: %s", strerror(fault));
    return EXIT_FAILED;
}
