/* resize.h - Pillow's resize, to the bit, for all of the output or a window of it.
 *
 * Two passes of a separable filter in fixed point with a uint8 image in
 * between.  Which pass comes first follows Pillow 13 and depends on the whole
 * sizes only, so a window of the output has the same bytes as the whole.
 */
#ifndef PEN_OPS_RESIZE_H
#define PEN_OPS_RESIZE_H

#include <penstock/op.h>

#include "ops/image.h"

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

#endif
