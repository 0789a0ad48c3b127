/* source.h - what a dataset is inside, and what a kind of source has to provide.
 *
 * A source fills ds->index (sorted, keys given) when it opens, and reads one
 * field of one entry later.  Everything else - ids, keys, labels, identity,
 * reference counts - is common and lives in dataset.c and index.c.
 */
#ifndef PEN_SOURCE_SOURCE_H
#define PEN_SOURCE_SOURCE_H

#include <stdatomic.h>

#include <penstock/dataset.h>
#include <penstock/pipeline.h>

#include "source/index.h"

/* What may be done with a sample before it is sent. */
typedef struct pen__choice {
    int max_cut;    /* furthest cut, in operations of the line */
    uint32_t forms; /* mask of what may come: 1 << pen__form (engine/parcel.h), PEN__FORMS_... */
} pen__choice;

/* Which journey of which sample somebody is about to make. */
typedef struct pen__wanted {
    const pen_pipeline *pipe;
    pen_key key;
    pen__choice choice;
    int64_t *node_ns; /* gets what it took the processors of who sends it, if that is told */
    bool is_callers;  /* the thread is the program's: it may be told to leave (opts.waiting) */
} pen__wanted;

/* What a parcel's place has beyond the file or, where they are more, the finished pixels. */
enum { PEN__SOURCE_PARCEL_ROOM = 64 };

/* A field of a sample in an open file. */
typedef struct pen__opened {
    int fd;
    bool is_own;    /* closed afterwards */
    uint64_t at;    /* of its first byte */
    uint64_t stamp; /* of the file (pen__file_stamp) */
    bool is_summed; /* its CRC-32C follows it, 4 bytes, little-endian */
} pen__opened;

/* A field of a sample that is to be read: its bytes go to dst. */
typedef struct pen__field_read {
    const pen__entry *entry;
    pen__field_at at;
    uint8_t *dst;
} pen__field_read;

enum { PEN__FIELD_READS = 256 }; /* at once, at most */

typedef struct pen__source {
    const char *name;
    /* Fill ds->index (through pen__index_keys) and ds->classes.  `opts` is complete.  On error
     * the caller calls close.  NULL: a list, which is not opened by name. */
    int (*open)(pen_dataset *ds, const char *spec, const pen_dataset_opts *opts, pen_error *err);
    /* Read `len` bytes of a field; the caller has checked that they are there and fit.
     * Thread-safe.  Returns 0 or PEN_EIO; PEN_ENOTFOUND of a confined dataset, see below;
     * PEN_ECORRUPT where the source knows that what is there is not what was written. */
    int (*read)(const pen_dataset *ds, const pen__entry *entry, uint32_t block, uint8_t *dst,
                size_t len, pen_error *err);
    /* Read 1 to PEN__FIELD_READS fields beside images, for a source that is quicker with many at
     * once than one after the other.  0, or the error of the first that has one.  NULL: it is not.
     */
    int (*read_many)(const pen_dataset *ds, const pen__field_read *reads, int n, pen_error *err);
    /* Where the `len` bytes of a field are, for somebody who wants some of them; ended by
     * pen__opened_close.  Thread-safe.  0 or as `read`.  NULL: they cannot be had like that. */
    int (*open_field)(const pen_dataset *ds, const pen__entry *entry, uint32_t block, size_t len,
                      pen__opened *out, pen_error *err);
    /* Bring a sample as a parcel (engine/parcel.h) into dst, instead of its file: from where
     * somebody has done a part of the journey already.  dst_cap is pen__parcel_bound of the file's
     * length, and PEN__SOURCE_PARCEL_ROOM more.  Blocks, until `cancel`, which may be NULL, ends it
     * with PEN_ECANCELED.  Thread-safe.  Returns the bytes written, or PEN_EIO, which is tried
     * again; no error of its is a fault of the data.  NULL: a source that has files. */
    int64_t (*fetch)(const pen_dataset *ds, const pen__wanted *wanted, uint8_t *dst, size_t dst_cap,
                     const atomic_bool *cancel, pen_error *err);
    /* Cores that those who pack say parcels for this pipeline may use; NaN: not known.
     * Thread-safe.  NULL: nobody says. */
    double (*cores)(const pen_dataset *ds, const pen_pipeline *pipe);
    /* What users of this pipeline should know, each but once: a line in dst, which has room, or "".
     * Thread-safe.  NULL: nothing. */
    void (*warning)(const pen_dataset *ds, const pen_pipeline *pipe, char *dst, size_t dst_cap);
    bool is_patient; /* tries again by itself: read and fetch are called once */
    /* Free ds->state; called on half-opened datasets too.  NULL: nothing to free. */
    void (*close)(pen_dataset *ds);
} pen__source;

struct pen_dataset {
    atomic_int refs;
    pen_source_kind kind;
    const pen__source *source;
    pen__index index;
    pen__intern classes; /* in order of label */
    char hash[PEN__DIGEST_TEXT];
    char *cache;       /* the cache directory, or NULL */
    char *root;        /* folder, list: the directory, manifest: the one it is in; for messages */
    int root_fd;       /* what names are relative to, or -1 */
    bool is_confined;  /* links do not lead out of it, and messages do not tell where it is */
    int64_t n_outside; /* folder: links that would have, and were left out */
    uint64_t *headers; // (index.n): of images, as far as they are known (engine/headers.h); or NULL
    void *state;       /* tar, pack: its shards (shards.h) */
    size_t state_bytes;
};

extern const pen__source pen__source_folder, pen__source_tar, pen__source_manifest,
    pen__source_list, pen__source_remote, pen__source_pack;

/* Is that the address of a dataset on storage nodes? */
bool pen__is_remote(const char *spec);

/* Of a file that is another one than was indexed.  A node's clients ask again after PEN_EIO; this
 * is PEN_ENOTFOUND there, as it is of one that is gone or leads out. */
int pen__changed_code(const pen_dataset *ds);

/* Open ds->root as a directory into ds->root_fd. */
int pen__dataset_open_root(pen_dataset *ds, const char *path, size_t len, pen_error *err);
/* The read of folders, manifests and lists: one file relative to root_fd. */
int pen__dataset_read_file(const pen_dataset *ds, const pen__entry *entry, uint32_t block,
                           uint8_t *dst, size_t len, pen_error *err);

/* Their open_field. */
int pen__dataset_open_file(const pen_dataset *ds, const pen__entry *entry, uint32_t block,
                           size_t len, pen__opened *out, pen_error *err);

/* Where a sample is, to read some of it: PEN_EUNSUPPORTED if its source has no open_field. */
int pen__dataset_open_sample(const pen_dataset *ds, int64_t id, pen__opened *out, pen_error *err);
void pen__opened_close(const pen__opened *opened);
/* Read all `len` bytes of it, and look at its checksum if it has one.  Returns the bytes that there
 * were, or -errno; -EBADMSG: the checksum is not that of the bytes. */
int64_t pen__opened_read(const pen__opened *from, uint8_t *dst, size_t len);
/* A number that a file keeps as long as it is not changed, from its length and times; 0 for one
 * that was changed just now, and could be again without having another time. */
struct stat;
uint64_t pen__file_stamp(const struct stat *st);

/* Make the first component of each sample's directory its class.  Needs a sorted index. */
int pen__dataset_label_by_directory(pen_dataset *ds, pen_error *err);

/* Tell the caller how far opening has come; PEN_ECANCELED if it wants no more. */
int pen__dataset_report(const pen_dataset_opts *opts, int64_t done, int64_t total, pen_error *err);

#endif
