/* sidecar.h - small blocks of bytes about samples, kept beside a dataset from run to run.
 *
 * What the blocks mean is their owner's business (JPEG marks: ops/jpeg_marks.h), and so is
 * telling whether one still fits its sample.  Here they are only kept: found again, or not.
 *
 * One file a dataset, named by the dataset's hash, in the cache directory.  Blocks that are new in
 * this process go to a file without a name first; pen__sidecar_save joins both into a new one.
 * Memory: eight bytes a sample; blocks themselves are read when wanted.
 *
 * Any number of threads get and put, without a lock.  One thread saves.
 */
#ifndef PEN_SOURCE_SIDECAR_H
#define PEN_SOURCE_SIDECAR_H

#include <stddef.h>
#include <stdint.h>

#include "source/source.h"

typedef struct pen__sidecar pen__sidecar;

enum { PEN__SIDECAR_MAX_BLOCK = (1 << 20) - 1 };

/* Open what is kept for `ds`, or begin.  max_bytes limits the file: beyond it nothing more is
 * kept; 0: 4 % of the dataset, at most 4 GiB.  NULL if there is no cache directory, or nothing can
 * be written there: then there is simply no sidecar. */
pen__sidecar *pen__sidecar_open(const pen_dataset *ds, int64_t max_bytes);
/* Does not save.  NULL is legal. */
void pen__sidecar_free(pen__sidecar *sidecar);

/* Copy the block of a sample.  Returns its length; 0 if there is none, or more than cap. */
size_t pen__sidecar_get(const pen__sidecar *sidecar, int64_t id, void *dst, size_t cap);
/* Keep a block, instead of what there was.  False: there is no room for it, here or on the disk. */
bool pen__sidecar_put(pen__sidecar *sidecar, int64_t id, const void *block, size_t len);

/* Write the file if enough is new to be worth it.  Blocks that others have added meanwhile are
 * taken over. */
void pen__sidecar_save(pen__sidecar *sidecar);
/* Is there enough to save? */
bool pen__sidecar_has_news(const pen__sidecar *sidecar);

typedef struct pen__sidecar_size {
    int64_t n_blocks, bytes; /* on disk, or waiting to be saved */
} pen__sidecar_size;
pen__sidecar_size pen__sidecar_size_of(const pen__sidecar *sidecar);
/* Of the file alone; zeros if there is none. */
pen__sidecar_size pen__sidecar_look(const pen_dataset *ds);
/* Memory that a sidecar of this dataset takes. */
int64_t pen__sidecar_memory(const pen_dataset *ds);

#endif
