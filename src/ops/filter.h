/* filter.h - operations that look at a pixel's neighbours: sharpness and Gaussian blur.
 *
 * A narrow grey image (ch == 1) comes out as the three equal channels it stands
 * for would.  Scratch is 64-byte aligned.
 */
#ifndef PEN_OPS_FILTER_H
#define PEN_OPS_FILTER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "ops/image.h"

/* Scratch bytes pen__sharpness takes. */
size_t pen__sharpness_scratch(int32_t w, int32_t h, int ch);
/* Pillow's ImageEnhance.Sharpness(im).enhance(factor), in place.  0 smooths, 1
 * changes nothing. */
void pen__sharpness(pen__image *im, float factor, void *scratch);

/* What torchvision's gaussian_blur takes.  Sides are odd and not negative; half
 * of one is smaller than the image's (torch's reflection needs that). */
typedef struct pen__blur {
    int32_t kernel_w, kernel_h;
    float sigma_x, sigma_y;
} pen__blur;

/* Scratch bytes pen__gaussian_blur takes. */
size_t pen__gaussian_blur_scratch(const pen__blur *blur, int32_t w, int32_t h, int ch);
/* Blur `src` into dst->px (as many bytes); sets dst->w, h, ch.  No overlap.  The largest
 * kernel takes minutes for a large image: once `cancel` (may be NULL) is true, the
 * rows left are not made. */
void pen__gaussian_blur(const pen__image *src, const pen__blur *blur, pen__image *dst,
                        void *scratch, const atomic_bool *cancel);

#endif
