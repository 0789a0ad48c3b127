/* shards.h - datasets in a few large files: what tar shards and packs have in common.
 *
 * Opening lists the files and looks at each; a source adds their samples to the dataset's index.
 * Reading finds a field by shard and block.
 */
#ifndef PEN_SOURCE_SHARDS_H
#define PEN_SOURCE_SHARDS_H

#include <stdatomic.h>

#include "source/brace.h"
#include "source/shard_index.h"
#include "source/source.h"

typedef struct pen__shard {
    char *path; /* points into paths */
    pen__shard_stamp stamp;
    atomic_int fd; /* -1 until it is kept open */
} pen__shard;

/* The state of such a dataset. */
typedef struct pen__shards {
    pen__paths paths;
    pen__shard *items;
    size_t n;
    uint64_t bytes;  /* of all */
    bool are_summed; /* a field's checksum follows it (pen__opened) */
    atomic_int n_kept;
    int max_kept;
    int start_fd; /* the directory relative paths were given in: the program may leave it */
} pen__shards;

/* Make ds->state: every file that `spec` stands for, by name or by braces, looked at. */
int pen__shards_open(pen_dataset *ds, const char *spec, pen_error *err);
/* Read what a shard says of itself: `look` gets the open file.  The stamp becomes that of the file
 * actually read; one that changes meanwhile is an error.  Reasons get the shard's path in front. */
int pen__shard_look(pen__shard *shard, int (*look)(void *ctx, int fd, pen_error *err), void *ctx,
                    pen_error *err);
/* Add the samples of shard `number`.  `are_keys`: names are keys, to their end. */
int pen__shards_add(pen_dataset *ds, const pen__shard_index *from, uint32_t number, bool are_keys,
                    pen_error *err);
/* "shard 'path': " in front of the reason; returns rc. */
int pen__shard_prefix(pen_error *err, int rc, const char *path);

/* For pen__source. */
int pen__shards_read(const pen_dataset *ds, const pen__entry *entry, uint32_t block, uint8_t *dst,
                     size_t len, pen_error *err);
int pen__shards_open_field(const pen_dataset *ds, const pen__entry *entry, uint32_t block,
                           size_t len, pen__opened *out, pen_error *err);
void pen__shards_close(pen_dataset *ds);

#endif
