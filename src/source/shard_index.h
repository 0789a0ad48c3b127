/* shard_index.h - the samples of one shard, whatever says which they are: the headers of a tar, its
 * cache file, the index of a pack. */
#ifndef PEN_SOURCE_SHARD_INDEX_H
#define PEN_SOURCE_SHARD_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "source/index.h"

/* One sample. */
typedef struct pen__shard_record {
    uint32_t name;  /* in names: tar: the image member's path; pack: the key */
    uint32_t block; /* where the image begins, in units of 512 */
    uint32_t length;
    int32_t label;
    pen__field_at fields[PEN_FIELD_COUNT - 1]; /* cls, json, txt; block 0: not there */
} pen__shard_record;

/* Zero-initialise. */
typedef struct pen__shard_index {
    pen__shard_record *records;
    size_t n, cap;
    char *names; /* each NUL-terminated */
    size_t n_names, cap_names;
    uint64_t n_other; /* members that are no field of a sample */
} pen__shard_index;

/* Add a sample; its name, of `len` bytes, is set here.  0 or PEN_ENOMEM. */
int pen__shard_index_add(pen__shard_index *index, const pen__shard_record *record, const char *name,
                         size_t len, pen_error *err);
void pen__shard_index_fini(pen__shard_index *index);

/* Records and names as they stand in files: little-endian, PEN__SHARD_RECORD bytes a record, then
 * the names.  docs/pack.md has the layout. */
enum { PEN__SHARD_RECORD = 40 };
size_t pen__shard_index_bytes(const pen__shard_index *index);
void pen__shard_index_put(const pen__shard_index *index, uint8_t *dst);
/* Take `len` bytes apart, which must be just that many records and bytes of names.  What comes out
 * is within the names, ends with a NUL, and has labels and fields that may be: each of them behind
 * the first block and before `end`, in bytes.  Names themselves are the caller's to judge.
 * 0, PEN_ECORRUPT or PEN_ENOMEM; *index is filled on success only. */
int pen__shard_index_get(pen__shard_index *index, const uint8_t *src, size_t len,
                         uint64_t n_records, uint64_t n_names, uint64_t end, pen_error *err);

/* A shard as it was when indexed: another stamp, another content. */
typedef struct pen__shard_stamp {
    uint64_t size, inode;
    int64_t mtime_ns, ctime_ns;
} pen__shard_stamp;
pen__shard_stamp pen__shard_stamp_of(const struct stat *st);

#endif
