/* cachedir.c - the cache directory.
 *
 * Files there are written beside their final name and renamed, so that processes which
 * start together each see a whole file or none.
 */
#include "source/cachedir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    CREATE_TRIES = 1000,
    LOCK_TRIES = 500, /* ten milliseconds each */
};

bool pen__cache_dir(const pen_dataset_opts *opts, char dst[PATH_MAX])
{
    const char *given = opts->cache_dir ? opts->cache_dir : getenv("PENSTOCK_CACHE");
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (!opts->use_cache)
        return false;
    if (given && *given)
        n = snprintf(dst, PATH_MAX, "%s", given);
    else if (xdg && *xdg)
        n = snprintf(dst, PATH_MAX, "%s/penstock", xdg);
    else if (home && *home)
        n = snprintf(dst, PATH_MAX, "%s/.cache/penstock", home);
    else
        return false;
    return n < PATH_MAX;
}

bool pen__cache_takes_index(void)
{
    const char *wish = getenv("PENSTOCK_INDEX");
    return !wish || strcmp(wish, "off") != 0;
}

bool pen__cache_make_dir(const char *dir)
{
    char path[PATH_MAX];
    size_t len = strlen(dir);
    if (len == 0 || len >= sizeof path)
        return false;
    memcpy(path, dir, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        char keep = path[i];
        path[i] = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return false;
        path[i] = keep;
    }
    return true;
}

/* In a container every process may have the same number, and find what one before it has left. */
int pen__cache_create(const char *path, char temporary[PEN__CACHE_TEMPORARY])
{
    static atomic_uint serial; /* threads of one process */
    int fd = -1;
    for (int i = 0; i < CREATE_TRIES && fd < 0; i++) {
        snprintf(temporary, PEN__CACHE_TEMPORARY, "%s.%ld-%u", path, (long)getpid(),
                 atomic_fetch_add(&serial, 1));
        fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

/* Is `name` one that pen__cache_create gives to a file beside `base`? */
static bool is_temporary(const char *name, const char *base)
{
    static const char digits[] = "0123456789";
    const size_t len = strlen(base);
    if (strncmp(name, base, len) != 0 || name[len] != '.')
        return false;
    const char *process = name + len + 1, *dash = process + strspn(process, digits);
    const size_t n_serial = *dash == '-' ? strspn(dash + 1, digits) : 0;
    return dash > process && n_serial > 0 && dash[1 + n_serial] == '\0';
}

/* Those who will rename what they write hold the lock, as we do; and a file that is to have no name
 * loses it at once. */
static void remove_leftovers(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const struct dirent *entry;
    if (!slash || snprintf(dir, sizeof dir, "%.*s", (int)(slash - path + 1), path) >= PATH_MAX)
        return;
    DIR *d = opendir(dir);
    while (d && (entry = readdir(d)) != NULL)
        if (is_temporary(entry->d_name, slash + 1))
            unlinkat(dirfd(d), entry->d_name, 0);
    if (d)
        closedir(d);
}

int pen__cache_lock(const char *path)
{
    char name[PEN__CACHE_TEMPORARY];
    snprintf(name, sizeof name, "%s.lock", path);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return fd; /* a file system without locks: as good as it gets */
        if (i == LOCK_TRIES) {
            close(fd);
            errno = ETIMEDOUT;
            return -1;
        }
        nanosleep(&(struct timespec){0, 10 * 1000000}, NULL);
    }
    if (fd >= 0)
        remove_leftovers(path);
    return fd;
}

void pen__cache_unlock(int lock)
{
    flock(lock, LOCK_UN); /* a child that was forked meanwhile holds it, too */
    close(lock);
}
