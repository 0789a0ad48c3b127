/* geometry.h - operations that move pixels without changing them. */
#ifndef PEN_OPS_GEOMETRY_H
#define PEN_OPS_GEOMETRY_H

#include <penstock/op.h>

#include "ops/image.h"

/* In place. */
void pen__hflip(pen__image *im);
void pen__vflip(pen__image *im);

/* Cut `box`, in coordinates of `src`, into dst->px (box.w * box.h * ch bytes); sets
 * dst->w, h, ch.  Where the box hangs over the image, `mode` says what to put
 * there (as torchvision's pad; for REFLECT the overhang is smaller than the image,
 * for SYMMETRIC not larger).  `fill` has one byte a channel. */
void pen__crop(const pen__image *src, pen__rect box, pen_padding mode, const uint8_t *fill,
               pen__image *dst);

/* EXIF orientation 1..8 as Pillow's ImageOps.exif_transpose: src to dst (same
 * bytes, no overlap); sets dst->w, h, ch. */
void pen__orient(const pen__image *src, int orientation, pen__image *dst);
/* Where a rectangle of the turned image lies in the stored one.  stored_w and
 * stored_h are the stored image's size. */
pen__rect pen__orient_rect(pen__rect turned, int orientation, int32_t stored_w, int32_t stored_h);

/* One grey channel to three equal ones; src and dst do not overlap. */
void pen__spread(const pen__image *src, pen__image *dst);

#endif
