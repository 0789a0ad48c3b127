/* tone.h - operations that act on each value by itself: Pillow's ImageOps, to the bit.
 *
 * All work in place as torchvision's PIL path does on RGB.  A narrow grey image
 * (ch == 1) comes out as the three equal channels it stands for would.
 */
#ifndef PEN_OPS_TONE_H
#define PEN_OPS_TONE_H

#include "ops/image.h"

void pen__invert(pen__image *im);
/* Keep the `bits` highest bits, 0 .. 8. */
void pen__posterize(pen__image *im, int bits);
/* Invert the values that are not below the threshold. */
void pen__solarize(pen__image *im, float threshold);
/* Stretch each channel to the whole range. */
void pen__autocontrast(pen__image *im);
/* Flatten each channel's histogram. */
void pen__equalize(pen__image *im);

#endif
