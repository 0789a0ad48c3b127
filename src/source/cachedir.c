/* cachedir.c - the cache directory.
 *
 * Files there are written beside their final name and renamed, so that processes which
 * start together each see a whole file or none.
 */
#include "source/cachedir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

int pen__cache_create(const char *path, char temporary[PEN__CACHE_TEMPORARY])
{
    static atomic_uint serial; /* threads of one process */
    snprintf(temporary, PEN__CACHE_TEMPORARY, "%s.%ld-%u", path, (long)getpid(),
             atomic_fetch_add(&serial, 1));
    return open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
}
