/* fileio.h - opening and reading files that may be anything. */
#ifndef PEN_SOURCE_FILEIO_H
#define PEN_SOURCE_FILEIO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <penstock/error.h>

/* Open a regular file for reading, relative to `dir_fd`; never waits for the other
 * end of a FIFO, never becomes a terminal's owner.  Fills *st.
 * Returns a descriptor, or PEN_EIO. */
int pen__open_regular(int dir_fd, const char *path, struct stat *st, pen_error *err);

/* Open what is beneath `dir_fd` (openat2), whatever links and ".." are in the path.  A descriptor
 * or -errno; -EXDEV: it leads out, -ENOSYS: this kernel has no openat2. */
int pen__openat_beneath(int dir_fd, const char *path, int flags);

/* As pen__open_regular, and nothing that lies outside of `dir_fd`, whatever links and ".." are in
 * the path: the kernel resolves it beneath the directory (openat2).  PEN_ENOTFOUND: there is
 * nothing, or nothing that may be had.  PEN_EIO also where the kernel has no openat2. */
int pen__open_beneath(int dir_fd, const char *path, struct stat *st, pen_error *err);

/* Read n bytes at `offset`, whatever signals and short reads come between.
 * Returns what there was before the end of the file, or -errno. */
int64_t pen__pread_full(int fd, void *dst, size_t n, uint64_t offset);

/* The same for n bytes into `dst` and the n_tail that follow them into `tail`, in one call if the
 * kernel brings them so. */
int64_t pen__pread_two(int fd, void *dst, size_t n, void *tail, size_t n_tail, uint64_t offset);

/* Write all of it.  0 or -errno. */
int pen__write_full(int fd, const void *src, size_t n);

/* The whole file in a fresh block, NUL-terminated; the caller frees *out.
 * Returns its length, PEN_EIO, PEN_ELIMIT (over max_bytes) or PEN_ENOMEM. */
int64_t pen__read_file(int dir_fd, const char *path, uint64_t max_bytes, char **out,
                       pen_error *err);

#endif
