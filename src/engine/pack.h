/* pack.h - the storage node's side of parcels: the smallest allowed form of a file. */
#ifndef PEN_ENGINE_PACK_H
#define PEN_ENGINE_PACK_H

#include <stdatomic.h>

#include "engine/parcel.h"
#include "ops/jpeg_index.h"

/* One thread's tools. */
typedef struct pen__packer pen__packer;

/* `cancel`, may be NULL: once it is true, what is under way ends soon, and travels in the smallest
 * form that was found by then.  0 or PEN_ENOMEM. */
int pen__packer_create(pen__packer **out, const atomic_bool *cancel);
void pen__packer_free(pen__packer *packer);

/* What is wanted. */
typedef struct pen__pack_order {
    const pen_pipeline *pipe; /* NULL: raw */
    pen_key key;
    int max_cut;      /* the furthest cut allowed, in operations of the line; 0: no pixels */
    uint32_t forms;   /* a mask; without raw, that is what is sent where nothing else can be */
    bool wants_index; /* where the marks of a JPEG file are of use and are not given: find them */
} pen__pack_order;

/* Write head and payload of the smallest allowed form of the file at src to dst, which has room for
 * PEN__PARCEL_HEAD + len bytes (and, where raw is not allowed, for more: pen__parcel_bound).
 * What cannot be decoded here, or would take too much memory, travels raw: whoever wants it finds
 * the fault as if the file were its own.  `marks` of a JPEG file (jpeg_marks.h) may be NULL, 0; the
 * parcel is the same with them, without, and with those that are found where that is wanted.
 * Never reads past src+len nor writes past dst+dst_cap, whatever the input.
 * Returns the parcel's length, or PEN_ENOSPC. */
int64_t pen__pack(pen__packer *packer, const pen__pack_order *order, const uint8_t *src, size_t len,
                  const void *marks, size_t n_marks, uint8_t *dst, size_t dst_cap, pen_error *err);

/* What became of the marks of the file that was packed last, where they were wanted.  An entry is
 * the packer's, until its next file. */
pen__jpeg_indexed pen__packer_indexed(const pen__packer *packer);

#endif
