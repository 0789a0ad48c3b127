/* remote_part.h - one part of a remote dataset, as a server describes it: an index under
 * construction that is made of pages and ends in an identity. */
#ifndef PEN_REMOTE_REMOTE_PART_H
#define PEN_REMOTE_REMOTE_PART_H

#include "source/index.h"
#include "source/source.h"

/* What is believed of a server's word.  Memory is taken for what came, never for what is said to
 * come. */
enum {
    PEN__PART_MAX_SAMPLES = 1 << 29,
    PEN__PART_MAX_PAGE = 1 << 16, /* samples */
    PEN__PART_MIN_PAGE = 1 << 10, /* where there are more than PEN__PART_SMALL samples */
    PEN__PART_SMALL = 1 << 16,
    PEN__PART_MAX_PAGE_BYTES = 64 << 20,  /* of one page, unpacked */
    PEN__PART_MAX_DESCRIPTION = 16 << 20, /* class names are most of it */
};

/* In an index of theirs, an image's block is its id, of which there are not so many, and a further
 * field's says which it is. */
static inline uint32_t pen__part_field_block(pen_field field)
{
    return UINT32_MAX - (uint32_t)field;
}

static inline pen_field pen__part_block_field(uint32_t block)
{
    return block > UINT32_MAX - PEN_FIELD_COUNT ? (pen_field)(UINT32_MAX - block) : PEN_FIELD_IMAGE;
}

/* What replicas have in common. */
typedef struct pen__identity {
    char samples[PEN__DIGEST_TEXT]; /* the dataset's hash */
    char classes[PEN__DIGEST_TEXT]; /* of the names of its labels, which that hash does not cover */
} pen__identity;

/* Zero-initialise. */
typedef struct pen__part {
    int64_t count, bytes, page;
    int64_t max_bytes; /* of memory, for a description while it is read, and for samples; 0: no
                          limit */
    pen__identity identity;
    pen__intern classes; /* in order of label */
    pen__index index;    /* ids as the server has them; blocks are ids, shards 0 */
    uint64_t *headers;   // (index.n), as in pen_dataset
    size_t headers_cap;
} pen__part;

void pen__part_fini(pen__part *part);

/* Read a description: {"count", "bytes", "hash", "classes", "page", "crc32c"}.  PEN_EIO: it was
 * damaged on its way; PEN_ECORRUPT: it is none, or nonsense; PEN_ELIMIT: more memory than it may
 * have; PEN_ENOMEM. */
int pen__part_describe(pen__part *part, const char *json, size_t len, pen_error *err);
/* How many samples the page that begins with the next one has. */
uint32_t pen__part_next_page(const pen__part *part);
/* Add that page.  PEN_ECORRUPT, PEN_ENOMEM; PEN_ELIMIT: more memory than it may have. */
int pen__part_add_page(pen__part *part, const uint8_t *page, size_t len, pen_error *err);
/* Memory that it takes so far, samples and names. */
int64_t pen__part_bytes(const pen__part *part);
/* What all parts of a dataset may take: a part of what memory there is. */
int64_t pen__parts_max_bytes(void);
/* All pages are in: give keys, and compare with what was described. */
int pen__part_finish(pen__part *part, pen_error *err);

/* Make one dataset of parts: the ids of one behind those of the one before, each entry with the
 * number of its part as shard and its id there as block.  Where all parts have classes, labels are
 * numbers in their sorted union; else they stay as they are.  Parts are used up. */
int pen__parts_join(pen_dataset *ds, pen__part *parts, int n, pen_error *err);

#endif
