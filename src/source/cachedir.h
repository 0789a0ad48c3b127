/* cachedir.h - where files that only save time are kept, and how they are written. */
#ifndef PEN_SOURCE_CACHEDIR_H
#define PEN_SOURCE_CACHEDIR_H

#include <limits.h>
#include <stdbool.h>

#include <penstock/dataset.h>

/* opts->cache_dir, or where the environment says; false: nowhere, or not wanted. */
bool pen__cache_dir(const pen_dataset_opts *opts, char dst[PATH_MAX]);

/* May what is found out about samples be kept there from run to run?  PENSTOCK_INDEX=off says no.
 */
bool pen__cache_takes_index(void);

/* Make the directory and those above it, private to the user. */
bool pen__cache_make_dir(const char *dir);

enum { PEN__CACHE_TEMPORARY = PATH_MAX + 48 };

/* Open a new file beside `path`, for writing and reading; its name goes to `temporary`.
 * Returns a descriptor, or -1 and errno. */
int pen__cache_create(const char *path, char temporary[PEN__CACHE_TEMPORARY]);

/* For who reads the file at `path`, adds to it and writes it again: take turns with others who do.
 * What writers that were killed have left beside it is removed.
 * Returns a descriptor for pen__cache_unlock, or -1 and errno; ETIMEDOUT: others take too long. */
int pen__cache_lock(const char *path);
void pen__cache_unlock(int lock);

#endif
