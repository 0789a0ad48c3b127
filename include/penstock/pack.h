/* pack.h - write a dataset into .pen files, which pen_dataset_open reads.
 *
 * A pack is the same dataset as what it was packed from: ids, keys, labels, class names, fields and
 * identity, and so the stream.  docs/pack.md has the format, and when a pack is worth having.
 *
 *     char spec[PEN_PACK_SPEC_MAX];
 *     pen_pack_opts opts;
 *     pen_pack_opts_init(&opts);
 *     opts.shard_bytes = 4000000000;
 *     int64_t n = pen_pack_write(ds, "train.pen", &opts, spec, sizeof spec, &err);
 *     // n > 0: pen_dataset_open(&packed, spec, NULL, &err)
 */
#ifndef PENSTOCK_PACK_H
#define PENSTOCK_PACK_H

#include <penstock/dataset.h>

typedef struct pen_pack_opts {
    size_t struct_size;  /* set by pen_pack_opts_init */
    int64_t shard_bytes; /* a file has no more, unless one sample alone has; default 0: as much as
                            there may be, 1 TiB */
    bool overwrite;      /* take the place of files that are there (default false) */
    /* Called after each sample, with bytes of images and fields written so far, and of all; may be
     * NULL.  Anything but 0 ends writing with PEN_ECANCELED. */
    int (*progress)(void *ctx, int64_t done, int64_t total);
    void *progress_ctx;
} pen_pack_opts;

PEN_API void pen_pack_opts_init(pen_pack_opts *opts);

/* What any spec fits into. */
#define PEN_PACK_SPEC_MAX 4224

/* Write all samples of `ds` to `path`, which ends in ".pen"; where that takes several files, they
 * are "<path without .pen>-000.pen", -001 and so on.  `opts` may be NULL.  What they are to be
 * opened with goes to `spec` (may be NULL), NUL-terminated: the path, or a brace range.
 *
 * Nothing has its name before all is written and synced.  On any error nothing is left behind, and
 * what was there before is as it was; only where several files were being given their names over
 * others, those of them that had theirs are gone.
 * Returns how many files there are, or PEN_EINVAL: the path, a file that is there already, a key
 * that is no path below a root ("../x" of a list); PEN_EIO: a file cannot be written; PEN_ELIMIT,
 * PEN_ENOSPC (`spec` is too short), PEN_ECANCELED, and what reading a sample may give. */
PEN_API int64_t pen_pack_write(const pen_dataset *ds, const char *path, const pen_pack_opts *opts,
                               char *spec, size_t spec_cap, pen_error *err);

#endif
