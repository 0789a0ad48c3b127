/* resize.h - Pillow's resize, to the bit, for all of the output or a window of it.
 *
 * Two passes of a separable filter in fixed point with a uint8 image in
 * between.  Which pass comes first follows Pillow 13 and depends on the whole
 * sizes only, so a window of the output has the same bytes as the whole.
 */
#ifndef PEN_OPS_RESIZE_H
#define PEN_OPS_RESIZE_H

#include <penstock/op.h>

#include <stdbool.h>

#include "ops/image.h"
#include "ops/resize_taps.h"

/* Bytes that must be readable after the end of every row that a flow gets. */
#define PEN__RESIZE_SLACK 16

typedef struct pen__resize_spec {
    int32_t in_w, in_h;   /* size of the whole input */
    int32_t out_w, out_h; /* size of the whole output */
    pen_filter filter;
    pen__rect window; /* the part of the output that is wanted */
} pen__resize_spec;

/* The part of the input that the window depends on. */
pen__rect pen__resize_needs(const pen__resize_spec *spec);

/* Scratch bytes pen__resize takes for `ch` channels: coefficients and the image in between. */
size_t pen__resize_scratch(const pen__resize_spec *spec, int ch);

/* Resize `src`, which holds the rectangle `have` of the whole input (at least
 * what pen__resize_needs says), into dst->px (window.w * window.h * src->ch
 * bytes); sets dst->w, h, ch.  `scratch` has the size given above, 64-byte aligned.
 * src and dst must not overlap.  Cannot fail. */
void pen__resize(const pen__resize_spec *spec, const pen__image *src, pen__rect have,
                 pen__image *dst, void *scratch);

/* The same with an input that comes a few rows at a time, so that it need not lie in
 * memory as a whole: each row is narrowed at once, and rows of the output are made as
 * soon as what they need is there.  Not for resizes that begin with the other pass. */
bool pen__resize_can_flow(const pen__resize_spec *spec);

typedef struct pen__resize_flow {
    pen__taps across, down; /* down.count == 0: rows stay as they come */
    int ch;
    size_t left_bytes;         /* in a row, before the part that is needed */
    int32_t first_row, n_rows; /* needed */
    uint8_t *narrowed;         // (n_rows, across.count, ch)
    int32_t n_narrowed;        /* rows so far */
    int32_t n_finished;        /* rows of the output */
    pen__image *dst;
} pen__resize_flow;

/* Arguments as above; rows will be those of `have`, with `ch` channels. */
void pen__resize_flow_begin(pen__resize_flow *flow, const pen__resize_spec *spec, pen__rect have,
                            int ch, pen__image *dst, void *scratch);
/* Row `y` of `have` and those after it, without gaps.  Rows are best given in fours; given
 * again, they replace the earlier ones.  With the last row, dst is complete. */
void pen__resize_flow_rows(pen__resize_flow *flow, int32_t y, const uint8_t *rows, size_t stride,
                           int32_t n_rows);

#endif
