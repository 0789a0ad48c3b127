/* slowfs - a folder seen through a slow store.
 *
 *     slowfs FOLDER MOUNTPOINT [FUSE OPTIONS]
 *     echo 'open_ms=30 read_ms=0 bytes_per_s=2e7' > MOUNTPOINT/.control
 *
 * Read only.  Opening a file takes open_ms, as the first byte of a request does; each read takes
 * read_ms, and all of them together get bytes_per_s (0: as fast as it goes).  The kernel keeps no
 * pages (direct_io), so every epoch is as slow as the first.  Names and sizes are cached: listing
 * is free.  Symbolic links are followed here, so that nobody gets around it.
 *
 * Only the benchmark uses this.  Requests that wait each hold one of libfuse's threads.
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 314
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char control_path[] = "/.control";
static const double keep_names_s = 3600;
enum { MOST_THREADS = 256, CONTROL_CAP = 256 };

static int root_fd; /* of the folder */

/* How slow it is, and until when the wire is taken; `lock` guards both. */
static struct {
    pthread_mutex_t lock;
    double open_ms, read_ms, bytes_per_s;
    double free_at; /* s, monotonic */
} speed = {.lock = PTHREAD_MUTEX_INITIALIZER};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_until(double when)
{
    const double whole = (double)(time_t)when;
    const struct timespec t = {(time_t)when, (long)(1e9 * (when - whole))};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* Wait for the latency of `is_open`'s kind and for the wire to carry `len_bytes`. */
static void delay(int is_open, size_t len_bytes)
{
    const double now = now_s();
    pthread_mutex_lock(&speed.lock);
    double until = now + 1e-3 * (is_open ? speed.open_ms : speed.read_ms);
    if (speed.bytes_per_s > 0 && len_bytes > 0) {
        const double begin = speed.free_at > now ? speed.free_at : now;
        speed.free_at = begin + (double)len_bytes / speed.bytes_per_s;
        until += speed.free_at - now;
    }
    pthread_mutex_unlock(&speed.lock);
    if (until > now)
        sleep_until(until);
}

static const char *below_root(const char *path)
{
    return path[1] == '\0' ? "." : path + 1;
}

static int get_attributes(const char *path, struct stat *st, struct fuse_file_info *file)
{
    (void)file;
    if (strcmp(path, control_path) == 0) {
        *st = (struct stat){.st_mode = S_IFREG | 0600, .st_nlink = 1};
        return 0;
    }
    return fstatat(root_fd, below_root(path), st, 0) == 0 ? 0 : -errno;
}

static int list(const char *path, void *out, fuse_fill_dir_t fill, off_t offset,
                struct fuse_file_info *file, enum fuse_readdir_flags flags)
{
    (void)offset, (void)file, (void)flags;
    const int fd = openat(root_fd, below_root(path), O_RDONLY | O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return -errno;
    for (struct dirent *entry; (entry = readdir(dir));)
        fill(out, entry->d_name, NULL, 0, 0);
    closedir(dir);
    return 0;
}

static int open_file(const char *path, struct fuse_file_info *file)
{
    file->direct_io = 1;
    if (strcmp(path, control_path) == 0) {
        file->fh = (uint64_t)-1;
        return 0;
    }
    if ((file->flags & O_ACCMODE) != O_RDONLY)
        return -EROFS;
    delay(1, 0);
    const int fd = openat(root_fd, below_root(path), O_RDONLY);
    file->fh = (uint64_t)fd;
    return fd < 0 ? -errno : 0;
}

static int read_file(const char *path, char *out, size_t len_bytes, off_t offset,
                     struct fuse_file_info *file)
{
    (void)path;
    if (file->fh == (uint64_t)-1)
        return 0;
    const ssize_t n = pread((int)file->fh, out, len_bytes, offset);
    if (n < 0)
        return -errno;
    delay(0, (size_t)n);
    return (int)n;
}

/* `name=number` words; whatever is not named stays. */
static int control(const char *path, const char *text, size_t len_bytes, off_t offset,
                   struct fuse_file_info *file)
{
    (void)path, (void)offset, (void)file;
    char line[CONTROL_CAP], *rest = NULL;
    if (len_bytes >= sizeof line)
        return -EINVAL;
    memcpy(line, text, len_bytes);
    line[len_bytes] = '\0';
    pthread_mutex_lock(&speed.lock);
    for (char *word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
        char *value = strchr(word, '=');
        if (!value)
            continue;
        *value++ = '\0';
        double *const to = strcmp(word, "open_ms") == 0       ? &speed.open_ms
                           : strcmp(word, "read_ms") == 0     ? &speed.read_ms
                           : strcmp(word, "bytes_per_s") == 0 ? &speed.bytes_per_s
                                                              : NULL;
        if (to)
            *to = strtod(value, NULL);
    }
    speed.free_at = 0; /* what was queued at the old rate is not held against the new one */
    pthread_mutex_unlock(&speed.lock);
    return (int)len_bytes;
}

static int shorten(const char *path, off_t size, struct fuse_file_info *file)
{
    (void)size, (void)file;
    return strcmp(path, control_path) == 0 ? 0 : -EROFS; /* the shell's `>` */
}

static int close_file(const char *path, struct fuse_file_info *file)
{
    (void)path;
    if (file->fh != (uint64_t)-1)
        close((int)file->fh);
    return 0;
}

static void *begin(struct fuse_conn_info *connection, struct fuse_config *config)
{
    connection->max_background = MOST_THREADS;
    config->entry_timeout = config->attr_timeout = config->negative_timeout = keep_names_s;
    config->use_ino = 1;
    return NULL;
}

static const struct fuse_operations operations = {
    .init = begin,
    .getattr = get_attributes,
    .readdir = list,
    .open = open_file,
    .read = read_file,
    .write = control,
    .truncate = shorten,
    .release = close_file,
};

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: slowfs FOLDER MOUNTPOINT [FUSE OPTIONS]\n", stderr);
        return 2;
    }
    root_fd = open(argv[1], O_RDONLY | O_DIRECTORY);
    if (root_fd < 0) {
        perror(argv[1]);
        return 1;
    }
    char threads[64];
    snprintf(threads, sizeof threads, "-omax_threads=%d,max_idle_threads=%d", MOST_THREADS,
             MOST_THREADS);
    /* libfuse sees its own arguments only: its name, and what follows the folder. */
    struct fuse_args arguments = FUSE_ARGS_INIT(0, NULL);
    int failed = fuse_opt_add_arg(&arguments, argv[0]);
    for (int i = 2; i < argc; i++)
        failed |= fuse_opt_add_arg(&arguments, argv[i]);
    failed |= fuse_opt_add_arg(&arguments, threads) | fuse_opt_add_arg(&arguments, "-f");
    if (!failed)
        failed = fuse_main(arguments.argc, arguments.argv, &operations, NULL);
    fuse_opt_free_args(&arguments);
    return failed;
}
