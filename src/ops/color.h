/* color.h - operations on colour: Pillow's ImageEnhance, HSV and grey, to the bit.
 *
 * All work in place as torchvision's PIL path does on RGB.  A narrow grey image
 * (ch == 1) comes out as the three equal channels it stands for would.
 */
#ifndef PEN_OPS_COLOR_H
#define PEN_OPS_COLOR_H

#include "ops/image.h"

void pen__brightness(pen__image *im, float factor);
void pen__contrast(pen__image *im, float factor);
void pen__saturation(pen__image *im, float factor);
/* -0.5 <= factor <= 0.5, as torchvision's adjust_hue. */
void pen__hue(pen__image *im, float factor);

/* RGB to grey as convert("L"): (h, w, 3) at src to (h, w, 1) at dst; dst->px may be
 * src->px. */
void pen__to_grey(const pen__image *src, pen__image *dst);

#endif
