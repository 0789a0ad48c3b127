/* jpeg_index.h - all marks of a JPEG file, found without decoding it.
 *
 * A loader finds marks in passing, as far down as its windows reach, and an entry grows from epoch
 * to epoch.  Who hands out windows of files, as a storage node does, decodes nothing on the way.
 * Here a file is parsed from its first MCU to its end, and the outcome is a complete entry: the
 * one, to the byte, that decoding the whole image would have gathered (jpeg_marks.h).
 *
 * A file that is not ordinary, has a flaw anywhere or is too small for marks has none.  Whatever is
 * made of a file with its entry, such as a cut (jpeg_cut.h), is the same without.
 */
#ifndef PEN_OPS_JPEG_INDEX_H
#define PEN_OPS_JPEG_INDEX_H

#include <stdatomic.h>

#include "ops/jpeg_marks.h"

/* One thread's tools, about 0.8 MB; a sixth of that without AVX-512. */
typedef struct pen__jpeg_indexer pen__jpeg_indexer;

/* `cancel` may be NULL; once it is true, what is under way ends soon.  0 or PEN_ENOMEM. */
int pen__jpeg_indexer_create(pen__jpeg_indexer **out, const atomic_bool *cancel);
void pen__jpeg_indexer_free(pen__jpeg_indexer *indexer);

typedef enum pen__jpeg_index_state {
    PEN__INDEX_NONE = 0, /* nobody has asked, or it was cancelled */
    PEN__INDEX_KNOWN,    /* the entry that was given is the file's, and complete */
    PEN__INDEX_MADE,     /* now */
    PEN__INDEX_HOPELESS, /* there are no marks of this file, and will not be */
} pen__jpeg_index_state;

typedef struct pen__jpeg_indexed {
    pen__jpeg_index_state state;
    const pen__jpeg_marks *marks; /* KNOWN, MADE: the indexer's, until its next file; else NULL */
    size_t n_bytes;               /* of the entry, which is marks->bytes */
} pen__jpeg_indexed;

/* The marks of a whole file.  `entry`, which may be NULL, 0, is what is known of it already: where
 * that is not this file's, or not complete, all is found anew.
 * Never reads past src + len, whatever the input.  Allocates nothing. */
pen__jpeg_indexed pen__jpeg_index(pen__jpeg_indexer *indexer, const uint8_t *src, size_t len,
                                  const void *entry, size_t n_entry);

#endif
