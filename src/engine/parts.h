/* parts.h - a sample's file in memory: all of it or, where reading is slow, what its journey needs.
 *
 * A crop of an indexed JPEG file is decoded from the file's head and some rows of MCUs
 * (ops/jpeg_extent.h), 84 of 109 KB on average of ImageNet files.  Where reading a
 * sample usually takes a millisecond or more, the rest is not read.  Bytes stay where they are in
 * the file, and what is between them is left as it was: nobody looks there, and whoever finds that
 * he would have to asks for all. Pixels are the same either way.
 *
 * Whether the index fits is told by a hash of the whole file where there is one, and by the file's
 * length and times (its stamp) where there is not.  PENSTOCK_PARTS=off is for file systems whose
 * times cannot be trusted.
 */
#ifndef PEN_ENGINE_PARTS_H
#define PEN_ENGINE_PARTS_H

#include "engine/carry.h"

/* What PENSTOCK_PARTS says: "off", "always", or nothing. */
pen__parts_mode pen__parts_mode_wanted(void);

/* What is known of a file in memory; it lies behind the file's bytes. */
typedef struct pen__file_note {
    uint64_t stamp;  /* when it was read; 0: not known */
    bool is_partial; /* there are holes */
} pen__file_note;

/* Bytes of a file in memory, with its note. */
size_t pen__parts_room(size_t len);
pen__file_note pen__parts_note(const uint8_t *file, size_t len);

/* Read sample key->sample, or parts of it if reading is slow, and write the note.  Returns the
 * bytes that were read; 0: it could not be, and pen_dataset_read can tell why. */
int64_t pen__parts_read(const pen__carry_env *env, const pen_key *key, bool is_slow, uint8_t *dst,
                        size_t len);

#endif
