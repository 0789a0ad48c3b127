/* index.h - the compact, sorted list of samples behind every dataset.
 *
 * A source adds what it finds in any order, then:
 *
 *     pen__index_sort      ids are given: entries in order of (directory, file name);
 *                          a list keeps its own order and sorts directories alone
 *     pen__index_keys      keys are given: by_key in order of (directory, key's last part)
 *     pen__index_freeze    spare room goes; from here on it is read-only
 *
 * A sample takes one 32-byte entry, 4 bytes in by_key and 8 for each further
 * field, at most 60 bytes; directories are stored once, and so is each file
 * name, whose first bytes are also the key.  No pointer per sample: names and
 * directories are numbers into shared blocks, so a million samples are a
 * handful of allocations.
 *
 * Order of directories: first component, then the rest as plain bytes.  That is
 * what torchvision's ImageFolder does (sorted classes, and within each class
 * sorted path strings), and it differs from plain string order where a class
 * name has a byte below '/', as in "cat" and "cat-like".
 */
#ifndef PEN_SOURCE_INDEX_H
#define PEN_SOURCE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/dataset.h>

#include "base/digest.h"
#include "source/intern.h"

#define PEN__BLOCK 512 /* tar's unit; offsets are kept in it */

typedef struct pen__entry {
    uint32_t block; /* tar: where the image begins in its shard; manifest: the line */
    uint32_t name_lo;
    uint32_t length;
    int32_t label;
    uint32_t dir;
    uint32_t shard;
    uint32_t first_field; /* in fields; only where flags has a field bit */
    uint16_t stem_len;    /* of the name, the key's last part */
    uint8_t name_hi;      /* name offset, bits 32..39 */
    uint8_t flags;        /* 1 << pen_field for each further field; PEN__FULL_NAME */
} pen__entry;
_Static_assert(sizeof(pen__entry) == 32, "an entry is 32 bytes");

#define PEN__FULL_NAME 0x80 /* the key keeps the extension, for another has the same stem */
#define PEN__REPEATED  0x40 /* while keys are made unique */

typedef struct pen__field_at {
    uint32_t block, length;
} pen__field_at;

/* Zero-initialise. */
typedef struct pen__index {
    pen__entry *entries;
    size_t n, cap;
    pen__field_at *fields; /* of a sample: adjacent, in order of pen_field */
    size_t n_fields, cap_fields;
    uint32_t *by_key; /* ids in order of key */
    char *names;      /* file names, each NUL-terminated */
    size_t n_names, cap_names;
    pen__intern dirs; /* "" is the root; no slash in front or at the end */
    int64_t total_bytes;
} pen__index;

/* What a source says about one sample. */
typedef struct pen__found {
    uint32_t dir;
    const char *name;
    size_t name_len, stem_len;
    uint64_t length;
    int32_t label;
    uint32_t shard, block;
    pen__field_at fields[PEN_FIELD_COUNT]; /* block 0: not there; [PEN_FIELD_IMAGE] unused */
} pen__found;

/* The directory's number, or PEN_ENOMEM. */
int64_t pen__index_dir(pen__index *index, const char *dir, size_t len);
/* PEN_ENOMEM, or PEN_ELIMIT: an image of 4 GiB, a path of PEN_KEY_MAX. */
int pen__index_add(pen__index *index, const pen__found *found, pen_error *err);
int pen__index_sort(pen__index *index, pen_error *err);
/* Only the directories, which keys need: ids stay as samples were added. */
int pen__index_sort_dirs(pen__index *index, pen_error *err);
void pen__index_freeze(pen__index *index);
void pen__index_fini(pen__index *index);

/* Order by_key.  Returns how many samples have a key that an earlier one has too
 * (*a, *b: the first such pair), or PEN_ENOMEM. */
int64_t pen__index_keys(pen__index *index, uint32_t *a, uint32_t *b, pen_error *err);
/* The same, and make keys of different files differ: where some collide, those keep their
 * extension. */
int pen__index_unique_keys(pen__index *index, pen_error *err);
/* For ids that stay as samples were added, and keys that are known: both steps.  Keys may repeat,
 * as a list may name a file twice. */
int pen__index_keys_as_added(pen__index *index, pen_error *err);
/* Identity over (key, length, label) in key order. */
int pen__index_digest(const pen__index *index, char out[PEN__DIGEST_TEXT], pen_error *err);
/* The id of `key`, the lowest if several samples are the same file, or PEN_ENOTFOUND. */
int64_t pen__index_find(const pen__index *index, const char *key, size_t len);

static inline const char *pen__index_name(const pen__index *index, const pen__entry *entry)
{
    return index->names + ((uint64_t)entry->name_hi << 32 | entry->name_lo);
}

/* Directory and name joined in dst, NUL-terminated; `name_len` bytes of the name.
 * PEN_KEY_MAX bytes suffice for every entry.  Returns the length. */
size_t pen__index_path(const pen__index *index, const pen__entry *entry, size_t name_len,
                       char *dst);
/* The part of the name that belongs to the key. */
size_t pen__index_key_part(const pen__index *index, const pen__entry *entry);
/* Where a further field is, or NULL. */
const pen__field_at *pen__index_field(const pen__index *index, const pen__entry *entry,
                                      pen_field field);
/* Bytes taken beside the names. */
int64_t pen__index_bytes(const pen__index *index);

/* Sorting by class first: see above. */
int pen__dir_compare(const char *a, size_t a_len, const char *b, size_t b_len);
/* memcmp, shorter first. */
int pen__bytes_compare(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
