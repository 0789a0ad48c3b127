/* tar_index.h - the samples of one shard, from its headers or from the cache. */
#ifndef PEN_SOURCE_TAR_INDEX_H
#define PEN_SOURCE_TAR_INDEX_H

#include <stdbool.h>
#include <stddef.h>

#include "source/shard_index.h"
#include "source/tar_walk.h"

/* Read all headers.  Names are those of image members; records are in strictly ascending order of
 * key, which is that name without its extension.  Progress, if given, gets bytes of this shard. */
int pen__tar_index_build(pen__shard_index *index, const pen__tar_bytes *in,
                         int (*progress)(void *ctx, uint64_t bytes_done, pen_error *err), void *ctx,
                         pen_error *err);

/* The cache (tar_cache.c).  `dir` is the cache directory.  Loading answers false for
 * whatever is missing, stale, damaged or forged; storing never fails loudly, since
 * the cache only saves time. */
bool pen__tar_cache_load(pen__shard_index *index, const char *dir, const char *shard,
                         const pen__shard_stamp *stamp);
void pen__tar_cache_store(const pen__shard_index *index, const char *dir, const char *shard,
                          const pen__shard_stamp *stamp);
/* The bytes of a cache file, taken apart: what load trusts, for tests and fuzzing. */
bool pen__tar_cache_parse(pen__shard_index *index, const void *bytes, size_t len,
                          const pen__shard_stamp *stamp);

#endif
