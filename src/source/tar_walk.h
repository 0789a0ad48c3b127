/* tar_walk.h - the members of a tar archive, one after another.
 *
 * Reads headers only: ustar, GNU long names, pax (path and size), base-256
 * sizes.  The bytes are hostile; every number is checked against the archive's
 * size before it is used, and nothing is allocated.
 */
#ifndef PEN_SOURCE_TAR_WALK_H
#define PEN_SOURCE_TAR_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/dataset.h>

/* Where the archive is: a file, or memory (tests and fuzzing) when mem is set. */
typedef struct pen__tar_bytes {
    int fd;
    const uint8_t *mem;
    uint64_t size;
} pen__tar_bytes;

typedef struct pen__tar_member {
    const char *name; /* cleaned, NUL-terminated; until the next call */
    size_t name_len;
    uint64_t header_at, data_at, size;
} pen__tar_member;

typedef struct pen__tar_walk {
    pen__tar_bytes in;
    uint64_t at; /* the next header */
    /* what long-name and pax headers said about the member to come */
    bool has_name, has_size;
    uint64_t extended_size;
    size_t extended_len;
    char extended_name[PEN_KEY_MAX];
    char name[PEN_KEY_MAX];
    /* the last stretch read: headers of small members lie close together */
    uint64_t window_at;
    size_t window_len;
    uint8_t window[4096];
} pen__tar_walk;

void pen__tar_walk_init(pen__tar_walk *walk, const pen__tar_bytes *in);
/* The next regular file; directories and volume labels are passed over.  Returns 1,
 * 0 at the end, or PEN_ECORRUPT, PEN_EUNSUPPORTED (links, devices, sparse files),
 * PEN_ELIMIT, PEN_EIO; messages hold offsets, the caller adds the shard's name. */
int pen__tar_next(pen__tar_walk *walk, pen__tar_member *out, pen_error *err);
/* n bytes (at most 512) at `at`, which must be within the archive. */
int pen__tar_bytes_at(pen__tar_walk *walk, uint64_t at, size_t n, const uint8_t **out,
                      pen_error *err);

#endif
