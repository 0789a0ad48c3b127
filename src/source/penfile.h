/* penfile.h - one .pen file: what its header says, and what of it is believed.
 *
 * docs/pack.md describes the format.  The bytes are hostile: every number is checked against the
 * file before it is used, and memory is taken for what the file really holds, up to a limit: a file
 * with holes may hold nothing, at any length.
 */
#ifndef PEN_SOURCE_PENFILE_H
#define PEN_SOURCE_PENFILE_H

#include "base/digest.h"
#include "source/intern.h"
#include "source/shard_index.h"

enum {
    PEN__PENFILE_VERSION = 1,
    PEN__PENFILE_HEAD = 512,
    PEN__PENFILE_SUM = 4, /* behind each field */
    PEN__PENFILE_ID = PEN__DIGEST_TEXT - 1,
    PEN__PENFILE_MAX_CLASSES = 1 << 24,
};
/* Bytes of an index: what one file can make a reader take memory for. */
#define PEN__PENFILE_MAX_INDEX ((uint64_t)UINT32_MAX)

typedef struct pen__penfile_head {
    uint64_t n_records;
    uint64_t first_id, n_all; /* of the first sample in the whole pack; samples in all its shards */
    uint64_t index_at;        /* bytes; a multiple of 512.  The index goes to the file's end */
    uint64_t n_names, n_classes, n_class_names; /* names: in bytes, with their NULs */
    uint32_t index_sum;
    char id[PEN__DIGEST_TEXT]; /* of the dataset that was packed: of the same pack, the same */
} pen__penfile_head;

static inline uint64_t pen__penfile_index_bytes(const pen__penfile_head *head)
{
    return head->n_records * PEN__SHARD_RECORD + head->n_names + head->n_class_names;
}

/* Blocks that a field of `len` bytes and its checksum take. */
static inline uint64_t pen__penfile_blocks(uint64_t len)
{
    return (len + PEN__PENFILE_SUM + PEN__BLOCK - 1) / PEN__BLOCK;
}

/* Would a pack have this as a key?  *why: what is wrong with it. */
bool pen__penfile_takes_key(const char *key, size_t len, const char **why);

void pen__penfile_put_head(const pen__penfile_head *head, uint8_t dst[PEN__PENFILE_HEAD]);
/* The first `len` bytes of a file of `size` bytes.  After it, index_at + index_bytes == size.
 * PEN_ECORRUPT; PEN_EUNSUPPORTED: a newer version; PEN_ELIMIT. */
int pen__penfile_get_head(pen__penfile_head *head, const uint8_t *src, size_t len, uint64_t size,
                          pen_error *err);
/* The index, pen__penfile_index_bytes of it: names are keys.  `classes` is added to.
 * PEN_ECORRUPT or PEN_ENOMEM; *index is filled on success only. */
int pen__penfile_get_index(pen__shard_index *index, pen__intern *classes,
                           const pen__penfile_head *head, const uint8_t *src, pen_error *err);

#endif
