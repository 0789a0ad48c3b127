/* tar_index.h - the samples of one shard, from its headers or from the cache. */
#ifndef PEN_SOURCE_TAR_INDEX_H
#define PEN_SOURCE_TAR_INDEX_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "source/index.h"
#include "source/tar_walk.h"

/* One sample; also the record of a cache file. */
typedef struct pen__tar_record {
    uint32_t name;  /* the image member's path, in names */
    uint32_t block; /* where the image begins, in units of 512 */
    uint32_t length;
    int32_t label;
    pen__field_at fields[PEN_FIELD_COUNT - 1]; /* cls, json, txt; block 0: not there */
} pen__tar_record;
_Static_assert(sizeof(pen__tar_record) == 40, "part of the cache's format");

/* Zero-initialise.  Records are in strictly ascending order of key,
 * which is the image's path without its extension. */
typedef struct pen__tar_index {
    pen__tar_record *records;
    size_t n, cap;
    char *names; /* each NUL-terminated */
    size_t n_names, cap_names;
    uint64_t n_other; /* members that are no field of a sample */
} pen__tar_index;

/* Read all headers.  Progress, if given, gets bytes of this shard. */
int pen__tar_index_build(pen__tar_index *index, const pen__tar_bytes *in,
                         int (*progress)(void *ctx, uint64_t bytes_done, pen_error *err), void *ctx,
                         pen_error *err);
void pen__tar_index_fini(pen__tar_index *index);

/* A shard as it was when indexed: another stamp, another content. */
typedef struct pen__tar_stamp {
    uint64_t size, inode;
    int64_t mtime_ns, ctime_ns;
} pen__tar_stamp;
pen__tar_stamp pen__tar_stamp_of(const struct stat *st);

/* The cache (tar_cache.c).  `dir` is the cache directory.  Loading answers false for
 * whatever is missing, stale, damaged or forged; storing never fails loudly, since
 * the cache only saves time. */
bool pen__tar_cache_load(pen__tar_index *index, const char *dir, const char *shard,
                         const pen__tar_stamp *stamp);
void pen__tar_cache_store(const pen__tar_index *index, const char *dir, const char *shard,
                          const pen__tar_stamp *stamp);
/* The bytes of a cache file, taken apart: what load trusts, for tests and fuzzing. */
bool pen__tar_cache_parse(pen__tar_index *index, const void *bytes, size_t len,
                          const pen__tar_stamp *stamp);

#endif
