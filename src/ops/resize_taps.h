/* resize_taps.h - which input pixels make an output pixel, and with what weight.
 *
 * One axis of a resize: output i is
 *
 *     clip((HALF + sum over t of in[start[i] + t] * weight[i][t]) >> 22)
 *
 * with weights in 22-bit fixed point, computed in double and rounded as Pillow
 * does.  Both axes use the same code.
 */
#ifndef PEN_OPS_RESIZE_TAPS_H
#define PEN_OPS_RESIZE_TAPS_H

#include <penstock/op.h>

#include <stddef.h>
#include <stdint.h>

#define PEN__TAPS_BITS 22
#define PEN__TAPS_HALF (1 << (PEN__TAPS_BITS - 1))

/* Up to this stride there is room for groups of outputs as resize_avx512.c packs them. */
#define PEN__TAPS_MAX_GROUPED 128

/* An axis of the whole resize: any filter but nearest. */
typedef struct pen__axis {
    int32_t in_size, out_size;
    pen_filter filter;
} pen__axis;

/* The outputs [first, first + count) of an axis. */
typedef struct pen__taps {
    int32_t count;
    int32_t stride;  /* weights kept an output: the most that any can use */
    int32_t widest;  /* the most that one of these really uses */
    int32_t extent;  /* inputs the row or column holds: start[i] + used[i] <= extent */
    int32_t *start;  // (count)
    int32_t *used;   // (count), at least 1
    int32_t *weight; // (count, stride)
    double *real;    // (stride), while computing
    /* Room for a SIMD kernel's own form: */
    int32_t *packed_start; // (count)
    void *packed;          /* (count, stride) int32 or a little more, 64-byte aligned */
    int32_t n_windows;     /* resize_avx512.c's */
} pen__taps;

/* Input range [*from, *to) that the outputs [first, first + count) look at. */
void pen__axis_needs(const pen__axis *axis, int32_t first, int32_t count, int32_t *from,
                     int32_t *to);

/* Bytes of memory that `count` outputs take, a multiple of 64. */
size_t pen__taps_bytes(const pen__axis *axis, int32_t count);

/* Compute the weights of outputs [first, first + count) in `memory` (64-byte
 * aligned, pen__taps_bytes).  `origin` is the input index that the row or
 * column starts with, `extent` how many it holds. */
void pen__taps_init(pen__taps *taps, const pen__axis *axis, int32_t first, int32_t count,
                    int32_t origin, int32_t extent, void *memory);

#endif
