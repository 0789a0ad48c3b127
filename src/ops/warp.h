/* warp.h - Pillow's Image.transform and rotate, and torchvision's matrices for them, to the bit.
 *
 * A matrix leads from the output's pixels to the input's, as Pillow's do.  A
 * narrow grey image (ch == 1) comes out as the three equal channels it stands for
 * would; its fill is grey and fill[0] counts.
 */
#ifndef PEN_OPS_WARP_H
#define PEN_OPS_WARP_H

#include <stdbool.h>

#include <penstock/op.h>

#include "ops/image.h"

typedef enum pen__warp_kind { PEN__WARP_AFFINE, PEN__WARP_PERSPECTIVE } pen__warp_kind;

typedef struct pen__warp_spec {
    pen__warp_kind kind;
    double m[8];       /* AFFINE uses the first six */
    pen_filter filter; /* nearest, bilinear or bicubic */
    uint8_t fill[3];   /* what lies outside of the input */
    int32_t out_w, out_h;
} pen__warp_spec;

/* Image.transform((out_w, out_h), kind, m, filter, fillcolor=fill) into dst->px
 * (out_w * out_h * src->ch bytes); sets dst->w, h, ch.  No overlap.  The output is
 * no larger than 32767 on a side where the input is not. */
void pen__warp(const pen__image *src, const pen__warp_spec *spec, pen__image *dst);

/* The size of what pen__rotate gives for a w by h image. */
void pen__rotate_size(int32_t w, int32_t h, double angle, bool expand, const double *center,
                      int32_t *out_w, int32_t *out_h);
/* Image.rotate(angle, filter, expand, center, fillcolor=fill): degrees, counter-clockwise.
 * `center` is (x, y), or NULL for the middle.  dst->px takes pen__rotate_size's
 * bytes; sets dst->w, h, ch.  No overlap. */
void pen__rotate(const pen__image *src, double angle, bool expand, const double *center,
                 pen_filter filter, const uint8_t fill[3], pen__image *dst);

/* torchvision's affine for images: degrees clockwise, pixels, degrees.  `center` is (x, y);
 * F.affine takes (w / 2, h / 2) where none is given. */
void pen__affine_matrix(double m[6], const double center[2], double angle,
                        const double translate[2], double scale, const double shear[2]);

/* The shear, in degrees, that the AutoAugment family gives for a magnitude: of a slope. */
double pen__shear_degrees(double magnitude);

/* torchvision's perspective: the coefficients that lead from `end` back to `start`, each four
 * corners x, y.  Returns 0, or PEN_EINVAL where the corners of `end` leave no solution. */
int pen__perspective_coeffs(double m[8], const int32_t start[8], const int32_t end[8]);

#endif
