/* draw.h - what draw*.c and plan_check.c share. */
#ifndef PEN_ENGINE_DRAW_H
#define PEN_ENGINE_DRAW_H

#include "base/rng.h"
#include "engine/pipeline.h"

/* Draw the parameters of one operation that is no group.  kind, in_w and in_h are set, the rest is
 * zero. */
int pen__draw_leaf(const pen_op *op, pen__rng *rng, pen_params *out, pen_error *err);

/* AutoAugment and its relatives: the primitives and their magnitudes. */
void pen__draw_augment(const pen_op *op, pen__rng *rng, pen_params *out);

/* Is what lies outside of the image, for a crop or a Pad with this box, something to show? */
bool pen__overhang_is_legal(const pen_op *op, const pen_params *p);

/* Set the size after a rotation by out->warp.angle, or say that it is too large. */
int pen__size_rotation(const pen_op *op, pen_params *out, pen_error *err);

#endif
