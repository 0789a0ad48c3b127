/* dataset.h - where samples live.
 *
 * A dataset is an immutable, sorted list of samples: key, label, length and a
 * way to read the bytes.  Sample ids are 0..count-1 in sorted order of their
 * names (directory first, then file), which for a class-per-directory folder
 * is torchvision's ImageFolder order.  Ids, keys and the identity hash do not
 * depend on where or how the data is stored: a folder and a tar of the same
 * files give the same stream.
 *
 * Thread safety: every call on an open dataset may be made from any thread.
 */
#ifndef PENSTOCK_DATASET_H
#define PENSTOCK_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

typedef struct pen_dataset pen_dataset;

typedef enum pen_source_kind {
    PEN_SOURCE_FOLDER = 0,
    PEN_SOURCE_TAR,
    PEN_SOURCE_MANIFEST,
} pen_source_kind;

/* What a sample may carry beside its image (tar shards). */
typedef enum pen_field {
    PEN_FIELD_IMAGE = 0,
    PEN_FIELD_CLS,
    PEN_FIELD_JSON,
    PEN_FIELD_TXT,
    PEN_FIELD_COUNT
} pen_field;

typedef struct pen_dataset_opts {
    size_t struct_size;    /* set by pen_dataset_opts_init */
    const char *cache_dir; /* tar indexes; NULL: $PENSTOCK_CACHE, $XDG_CACHE_HOME/penstock,
                              ~/.cache/penstock */
    bool use_cache;        /* default true; false neither reads nor writes it */
    bool allow_outside;    /* manifest: permit absolute paths and ".." (default false) */
    /* Called now and then while a long index is built; may be NULL. */
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *progress_ctx;
} pen_dataset_opts;

PEN_API void pen_dataset_opts_init(pen_dataset_opts *opts);

/* Open `spec`: a directory (class per directory, or flat: every label 0), a tar
 * file or brace range ("shard-{000..146}.tar"), or a manifest (.csv, .jsonl of
 * path,label; paths relative to it).  In folders, links are followed as
 * torchvision does, and a loop is an error; in tars, link members are refused.
 * `opts` may be NULL.
 * On success the caller owns *out; on error *out is NULL. */
PEN_API int pen_dataset_open(pen_dataset **out, const char *spec, const pen_dataset_opts *opts,
                             pen_error *err);
PEN_API pen_dataset *pen_dataset_ref(pen_dataset *ds);
/* Drops one reference; NULL is legal. */
PEN_API void pen_dataset_unref(pen_dataset *ds);

PEN_API pen_source_kind pen_dataset_kind(const pen_dataset *ds);
/* "folder", "tar", "manifest". */
PEN_API const char *pen_source_kind_name(pen_source_kind kind);
PEN_API int64_t pen_dataset_count(const pen_dataset *ds);
PEN_API int64_t pen_dataset_bytes(const pen_dataset *ds);
/* Identity: 32 hex digits and a NUL over sorted (key, length, label). */
PEN_API const char *pen_dataset_hash(const pen_dataset *ds);
/* Bytes of memory the index takes, beside the names. */
PEN_API int64_t pen_dataset_index_bytes(const pen_dataset *ds);

/* The key of sample `id`, NUL-terminated in `dst`; returns its length, PEN_EINVAL
 * or PEN_ENOSPC.  PEN_KEY_MAX bytes always suffice. */
#define PEN_KEY_MAX 4096
PEN_API int64_t pen_dataset_key(const pen_dataset *ds, int64_t id, char *dst, size_t dst_cap);
/* The id of `key`, or PEN_ENOTFOUND. */
PEN_API int64_t pen_dataset_find(const pen_dataset *ds, const char *key);
/* Label, -1 if the sample has none. */
PEN_API int64_t pen_dataset_label(const pen_dataset *ds, int64_t id);
/* Length of the image in bytes, or PEN_EINVAL. */
PEN_API int64_t pen_dataset_length(const pen_dataset *ds, int64_t id);

/* Class names, where directories give them; 0 otherwise. */
PEN_API int64_t pen_dataset_class_count(const pen_dataset *ds);
PEN_API const char *pen_dataset_class_name(const pen_dataset *ds, int64_t label);

/* Read the image of sample `id` into dst; returns its length.  Short reads and
 * EINTR are retried.  PEN_EIO (also when the file changed its size since it was
 * indexed), PEN_ENOSPC, PEN_EINVAL. */
PEN_API int64_t pen_dataset_read(const pen_dataset *ds, int64_t id, uint8_t *dst, size_t dst_cap,
                                 pen_error *err);
/* Length of another field of the sample, or PEN_ENOTFOUND. */
PEN_API int64_t pen_dataset_field_length(const pen_dataset *ds, int64_t id, pen_field field);
PEN_API int64_t pen_dataset_field_read(const pen_dataset *ds, int64_t id, pen_field field,
                                       uint8_t *dst, size_t dst_cap, pen_error *err);

#endif
