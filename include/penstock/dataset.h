/* dataset.h - where samples live.
 *
 * A dataset is an immutable, sorted list of samples: key, label, length and a
 * way to read the bytes.  Sample ids are 0..count-1 in sorted order of their
 * names: the directory's first component, then the rest of the directory, then
 * the file name with its extension, all bytewise.  For a class-per-directory
 * folder this is torchvision's ImageFolder order.  Ids, keys and the identity
 * hash do not depend on where or how the data is stored: a folder and a tar of
 * the same files with the same labels give the same stream, and so does a pack of either.
 *
 * Keys
 *   A key is the path below the root without its last extension: "n01/0001".
 *   Keys are unique:
 *   - files that differ only in their extension keep it ("a.jpg", "a.png");
 *   - when any key occurs in more than one shard, every key gets its shard's
 *     name in front ("shard-000/0001"): the path below the directory that all
 *     shards share, without ".tar".
 *
 * Folders
 *   Files with an image's extension (.jpg .jpeg .png .webp, any case) at any
 *   depth; the type itself is found from the content when decoding.  Every
 *   directory in the root is a class, labelled by its place in sorted order,
 *   also when it is empty (leaving it out would shift other labels).  Images in
 *   the root and nowhere else: every label is 0 and there are no classes.
 *   Images in both are an error.  Names that begin with a dot are passed over.
 *   Links are followed as torchvision does; a loop is an error.
 *
 * Tars
 *   ustar, GNU and pax, uncompressed, read in place.  Members whose names agree
 *   up to the first dot are one sample, as in WebDataset: the image, .cls (an
 *   integer: the label), .json, .txt; others are passed over ("a.mask.png" beside
 *   "a.jpg").  Without a plain image, names that have an image's extension count
 *   up to their last dot, as in folders.  Without any .cls, directories are classes as in
 *   folders; with some, the others have label -1.  Nothing is read from .json.  Links, devices,
 * sparse files, absolute names, ".." and two images in one sample are refused.
 *
 * Manifests
 *   .csv (path,label; RFC 4180; header optional) or .jsonl ({"path": ...,
 *   "label": ...}); paths are relative to the manifest.  Labels that are all
 *   integers stay as they are (-1: none); otherwise the distinct texts, sorted,
 *   are the classes.  Each file may be listed once, and must exist.
 *
 * Lists
 *   Files that a program names (pen_dataset_from_list).  Ids are the places in the list, in
 *   its own order; a file may be named more than once, and its samples share their key.
 *   Paths below the root become relative to it, so the list of a folder's files in the
 *   folder's order, with its labels, is the same dataset as the folder.
 *
 * Packs
 *   .pen files that pen_pack_write (pack.h) has made of any other dataset, the same as that: ids,
 *   keys, labels, classes, fields and identity.  Ids count on from one shard to the next, in
 *   whatever order they are named; some of a pack's shards are a dataset with fewer samples, and
 *   shards of different packs are refused.  Every field has a checksum, which is looked at when
 *   all of it is read; where it is wrong, and again, that is PEN_ECORRUPT.
 *
 * Remote
 *   penstock://HOST[:PORT]/NAME: a dataset that `penstock serve` offers, penstocks:// with TLS.
 *   Ids, keys, labels, classes, fields and identity are those it has there.
 *   HOST,HOST: replicas, which hold the same and stand in for each other.
 *   HOST+HOST: shards, which hold other samples each; ids count on from one to the next, and
 *   where all have class names, labels are places in their sorted union.
 *   $PENSTOCK_TOKEN or $PENSTOCK_TOKEN_FILE: the token.  $PENSTOCK_CA_FILE: certificates to trust
 *   instead of the system's.  $PENSTOCK_REMOTE_TIMEOUT: seconds after which a sample that cannot be
 *   had is an error (60).  After a fork, open it again: reading gives PEN_EFORK.
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
    PEN_SOURCE_LIST,
    PEN_SOURCE_REMOTE,
    PEN_SOURCE_PACK,
} pen_source_kind;

/* What a sample may carry beside its image (tar shards, and packs of them). */
typedef enum pen_field {
    PEN_FIELD_IMAGE = 0,
    PEN_FIELD_CLS,
    PEN_FIELD_JSON,
    PEN_FIELD_TXT,
    PEN_FIELD_COUNT
} pen_field;

/* "image", "cls", "json", "txt"; NULL for what is none. */
PEN_API const char *pen_field_name(pen_field field);

typedef struct pen_dataset_opts {
    size_t struct_size;    /* set by pen_dataset_opts_init */
    const char *cache_dir; /* indexes of tars and JPEG files; NULL: $PENSTOCK_CACHE,
                              $XDG_CACHE_HOME/penstock,
                              ~/.cache/penstock */
    bool use_cache;        /* default true; false neither reads nor writes it */
    bool allow_outside;    /* manifest: permit absolute paths and ".." (default false) */
    /* Called now and then while a long index is built; may be NULL.  Tars and packs: bytes of
     * shards indexed, of all; remote: samples known, of all; else: samples found, and -1
     * for a total.  Anything but 0
     * ends opening with PEN_ECANCELED. */
    int (*progress)(void *ctx, int64_t done, int64_t total);
    void *progress_ctx;
    /* Read no file that a link or ".." leads out of the directory to: PEN_EIO names it; in a folder
     * such links are left out.  For servers; needs Linux 5.6.  Default false: links are followed.
     */
    bool is_confined;
    /* Called now and then while a thread of the program's own waits for a sample of a remote
     * dataset: in pen_dataset_read, in pen_loader_replay, and in pen_loader_next of a loader
     * without workers.  Anything but 0 ends the wait: PEN_ECANCELED, in pen_loader_next PEN_AGAIN.
     * May be NULL; else it is good as long as the dataset is. */
    int (*waiting)(void *ctx);
    void *waiting_ctx;
} pen_dataset_opts;

PEN_API void pen_dataset_opts_init(pen_dataset_opts *opts);

/* Open `spec`: a directory, a .tar file, a brace range of them
 * ("shard-{000..146}.tar", "{train,extra}-{0..9}.tar"), a pack (.pen, or a brace range of its
 * shards), a manifest (.csv, .jsonl), or penstock://HOST/NAME.
 * `opts` may be NULL.  PEN_ENOTFOUND: nothing there, or no images in it.
 * On success the caller owns *out; on error *out is NULL. */
PEN_API int pen_dataset_open(pen_dataset **out, const char *spec, const pen_dataset_opts *opts,
                             pen_error *err);
/* A dataset of `n` files.  Relative paths begin at `root` (NULL: the current directory, as
 * it is now); absolute ones below `root` are made relative to it, the others stay.
 * `labels` may be NULL: every label is -1.  `classes` are names for labels 0..n_classes-1;
 * n_classes may be 0.  Nothing passed in is kept.  Every file must exist: PEN_ENOTFOUND
 * names the first that does not. */
PEN_API int pen_dataset_from_list(pen_dataset **out, const char *root, const char *const *paths,
                                  const int64_t *labels, int64_t n, const char *const *classes,
                                  int64_t n_classes, const pen_dataset_opts *opts, pen_error *err);
PEN_API pen_dataset *pen_dataset_ref(pen_dataset *ds);
/* Drops one reference; NULL is legal. */
PEN_API void pen_dataset_unref(pen_dataset *ds);

/* The index of JPEG files that loaders have written for this dataset so far: samples in it and its
 * bytes, 0 and 0 if there is none. */
PEN_API void pen_dataset_jpeg_index(const pen_dataset *ds, int64_t *n_samples, int64_t *n_bytes);

PEN_API pen_source_kind pen_dataset_kind(const pen_dataset *ds);
/* "folder", "tar", "manifest", "list", "remote", "pack". */
PEN_API const char *pen_source_kind_name(pen_source_kind kind);
PEN_API int64_t pen_dataset_count(const pen_dataset *ds);
PEN_API int64_t pen_dataset_bytes(const pen_dataset *ds);
/* Identity: 32 hex digits and a NUL over sorted (key, length, label, id). */
PEN_API const char *pen_dataset_hash(const pen_dataset *ds);
/* Bytes of memory the index takes, beside the names. */
PEN_API int64_t pen_dataset_index_bytes(const pen_dataset *ds);

/* The key of sample `id`, NUL-terminated in `dst`; returns its length, PEN_EINVAL
 * or PEN_ENOSPC.  PEN_KEY_MAX bytes always suffice. */
#define PEN_KEY_MAX 4096
PEN_API int64_t pen_dataset_key(const pen_dataset *ds, int64_t id, char *dst, size_t dst_cap);
/* The id of `key` (the first, where a list names it again), or PEN_ENOTFOUND. */
PEN_API int64_t pen_dataset_find(const pen_dataset *ds, const char *key);
/* Label, -1 if the sample has none. */
PEN_API int64_t pen_dataset_label(const pen_dataset *ds, int64_t id);
/* Length of the image in bytes, or PEN_EINVAL. */
PEN_API int64_t pen_dataset_length(const pen_dataset *ds, int64_t id);

/* Class names, where directories or a manifest's words give them; 0 otherwise. */
PEN_API int64_t pen_dataset_class_count(const pen_dataset *ds);
PEN_API const char *pen_dataset_class_name(const pen_dataset *ds, int64_t label);

/* Read the image of sample `id` into dst; returns its length.  Short reads and
 * EINTR are retried.  PEN_EIO (also when the file changed its size since it was
 * indexed), PEN_ECORRUPT (a pack's checksum), PEN_ENOSPC, PEN_EINVAL; remote: PEN_EFORK,
 * PEN_ECANCELED by opts.waiting. */
PEN_API int64_t pen_dataset_read(const pen_dataset *ds, int64_t id, uint8_t *dst, size_t dst_cap,
                                 pen_error *err);
/* Length of another field of the sample, or PEN_ENOTFOUND. */
PEN_API int64_t pen_dataset_field_length(const pen_dataset *ds, int64_t id, pen_field field);
PEN_API int64_t pen_dataset_field_read(const pen_dataset *ds, int64_t id, pen_field field,
                                       uint8_t *dst, size_t dst_cap, pen_error *err);
/* The same field of n samples, which a remote dataset asks for together: that of ids[i] goes to
 * dst[i], where there is room for its length; NULL: it is passed over.  0, or an error; what is in
 * the places then is not known. */
PEN_API int pen_dataset_fields_read(const pen_dataset *ds, const int64_t *ids, int64_t n,
                                    pen_field field, uint8_t *const *dst, pen_error *err);

#endif
