/* decode_jpeg_memory.h - a memory manager for libjpeg: one block, used again. */
#ifndef PEN_OPS_DECODE_JPEG_MEMORY_H
#define PEN_OPS_DECODE_JPEG_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

typedef struct pen__jpeg_memory {
    struct jpeg_memory_mgr calls;    /* first: libjpeg sees this as cinfo->mem */
    struct jpeg_memory_mgr *library; /* the manager jpeg_create_decompress made */
    uint8_t *block;
    size_t cap, used;
    size_t limit; /* of this image: a larger block kept from another gives it no more */
    struct jvirt_barray_control *coefficients; /* requested, in a list */
} pen__jpeg_memory;

/* Take over from the manager that jpeg_create_decompress has just set up; what that
 * one holds lives on until jpeg_destroy_decompress.  Allocates nothing. */
void pen__jpeg_memory_init(pen__jpeg_memory *memory, struct jpeg_decompress_struct *cinfo);

/* Make room for one image.  The block kept from the last one is used again where
 * it is large enough.  0 or PEN_ENOMEM. */
int pen__jpeg_memory_reserve(pen__jpeg_memory *memory, size_t n_bytes);

/* The image is done: all that libjpeg took since `reserve` is void.  Keeps the
 * block unless it is larger than `keep` bytes. */
void pen__jpeg_memory_reset(pen__jpeg_memory *memory, size_t keep);

#endif
