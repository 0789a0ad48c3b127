/* augmix_ops.h - the operations of AugMix, which torchvision runs on tensors, to the bit.
 *
 * torchvision's AugMix turns a PIL image into a uint8 tensor first, so its pixels
 * are those of the tensor functions: float32, other blends and another affine
 * than Pillow's.  Invert, posterize, solarize and equalize are the same on both
 * ways (tone.h); these differ.  They follow torch 2.13 with one thread.
 *
 * Where ch == 1, `rgb` says whether that stands for three equal channels or is a
 * grey image: torch's grey of equal channels is not their value.
 */
#ifndef PEN_OPS_AUGMIX_OPS_H
#define PEN_OPS_AUGMIX_OPS_H

#include <stdbool.h>

#include <penstock/op.h>

#include "ops/image.h"

/* In place; the factor is 1 + magnitude, not negative. */
void pen__tensor_path_brightness(pen__image *im, double factor);
void pen__tensor_path_contrast(pen__image *im, double factor, bool rgb);
void pen__tensor_path_saturation(pen__image *im, double factor, bool rgb);
void pen__tensor_path_autocontrast(pen__image *im);
/* Takes pen__sharpness_scratch's bytes. */
void pen__tensor_path_sharpness(pen__image *im, double factor, void *scratch);

/* F.affine and F.rotate of a tensor, black outside.  `m` is pen__affine_matrix's, of a center
 * that counts from the middle of the image (rotate: of minus the angle).  The filter is
 * nearest or bilinear.  dst->px takes src's bytes; sets dst->w, h, ch.  No overlap. */
void pen__tensor_path_affine(const pen__image *src, const double m[6], pen_filter filter,
                             pen__image *dst);

/* Add weight times the image to `mix`, which has a float for each byte and begins with 0. */
void pen__tensor_path_add(float *mix, const pen__image *im, float weight);
/* The mixture as bytes, truncated. */
void pen__tensor_path_finish(const float *mix, pen__image *dst);

#endif
