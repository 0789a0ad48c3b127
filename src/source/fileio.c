/* fileio.c - reads that survive signals, FIFOs and files that shrink. */
#include "source/fileio.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/mem.h"
#include "source/names.h"

enum {
    FLAGS = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
    BENEATH_TRIES = 16, /* a rename anywhere meanwhile makes the kernel give up */
};

/* A descriptor of `path` that turned out to be a regular file; else it is closed again, and the
 * code is `other`. */
static int keep_regular(int fd, const char *path, int other, struct stat *st, pen_error *err)
{
    pen__shown shown;
    if (fstat(fd, st) != 0) {
        int reason = errno;
        close(fd);
        return pen__fail_errno(err, reason, "stat", pen__show(&shown, path, strlen(path)));
    }
    if (!S_ISREG(st->st_mode)) {
        close(fd);
        return pen__fail(err, other, -1, "'%s' is not a regular file",
                         pen__show(&shown, path, strlen(path)));
    }
    return fd;
}

int pen__open_regular(int dir_fd, const char *path, struct stat *st, pen_error *err)
{
    pen__shown shown;
    int fd;
    do
        fd = openat(dir_fd, path, FLAGS);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return pen__fail_errno(err, errno, "open", pen__show(&shown, path, strlen(path)));
    return keep_regular(fd, path, PEN_EIO, st, err);
}

int pen__openat_beneath(int dir_fd, const char *path, int flags)
{
    const struct open_how how = {.flags = (uint64_t)flags,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = -1;
    for (int i = 0; i < BENEATH_TRIES; i++) {
        fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
        if (fd >= 0 || (errno != EINTR && errno != EAGAIN))
            break;
    }
    return fd < 0 ? -errno : (int)fd;
}

int pen__open_beneath(int dir_fd, const char *path, struct stat *st, pen_error *err)
{
    pen__shown shown;
    const int fd = pen__openat_beneath(dir_fd, path, FLAGS);
    if (fd >= 0)
        return keep_regular(fd, path, PEN_ENOTFOUND, st, err);
    const int reason = -fd;
    pen__show(&shown, path, strlen(path));
    if (reason == ENOENT || reason == ENOTDIR)
        return pen__fail(err, PEN_ENOTFOUND, -1, "'%s' is gone", shown.text);
    if (reason == EXDEV || reason == ELOOP)
        return pen__fail(err, PEN_ENOTFOUND, -1,
                         "'%s' leads out of the directory that is served: refused", shown.text);
    if (reason == ENOSYS)
        return pen__fail(err, PEN_EIO, -1,
                         "cannot open '%s' safely: this kernel has no openat2 (Linux 5.6)",
                         shown.text);
    return pen__fail_errno(err, reason, "open", shown.text);
}

int64_t pen__pread_full(int fd, void *dst, size_t n, uint64_t offset)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, (char *)dst + done, n - done, (off_t)(offset + done));
        if (got == 0)
            break;
        if (got > 0)
            done += (size_t)got;
        else if (errno != EINTR)
            return -errno;
    }
    return (int64_t)done;
}

int64_t pen__pread_two(int fd, void *dst, size_t n, void *tail, size_t n_tail, uint64_t offset)
{
    const struct iovec places[] = {{dst, n}, {tail, n_tail}};
    ssize_t got = preadv(fd, places, 2, (off_t)offset);
    size_t done = got > 0 ? (size_t)got : 0; /* an error will come again */
    if (done < n) {
        int64_t more = pen__pread_full(fd, (char *)dst + done, n - done, offset + done);
        if (more < 0 || done + (uint64_t)more < n)
            return more < 0 ? more : (int64_t)done + more;
        done = n;
    }
    const size_t of_tail = done - n;
    int64_t more = pen__pread_full(fd, (char *)tail + of_tail, n_tail - of_tail, offset + done);
    return more < 0 ? more : (int64_t)done + more;
}

int pen__write_full(int fd, const void *src, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t put = write(fd, (const char *)src + done, n - done);
        if (put >= 0)
            done += (size_t)put;
        else if (errno != EINTR)
            return -errno;
    }
    return 0;
}

/* Fill a fresh block from an open file of `size` bytes. */
static int64_t read_whole(int fd, size_t size, const char *path, char **out, pen_error *err)
{
    char *block = pen__malloc(size + 1);
    if (!block)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    int64_t got = pen__pread_full(fd, block, size, 0);
    if (got < 0) {
        pen__shown shown;
        pen__free(block);
        return pen__fail_errno(err, (int)-got, "read", pen__show(&shown, path, strlen(path)));
    }
    block[got] = '\0';
    *out = block;
    return got;
}

int64_t pen__read_file(int dir_fd, const char *path, uint64_t max_bytes, char **out, pen_error *err)
{
    struct stat st;
    int fd = pen__open_regular(dir_fd, path, &st, err);
    if (fd < 0)
        return fd;
    int64_t got;
    pen__shown shown;
    if ((uint64_t)st.st_size > max_bytes)
        got = pen__fail(err, PEN_ELIMIT, -1, "'%s' has %lld bytes; the limit is %llu",
                        pen__show(&shown, path, strlen(path)), (long long)st.st_size,
                        (unsigned long long)max_bytes);
    else
        got = read_whole(fd, (size_t)st.st_size, path, out, err);
    close(fd);
    return got;
}
