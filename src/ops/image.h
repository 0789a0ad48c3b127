/* image.h (ops) - pixels on their way through operations. */
#ifndef PEN_OPS_IMAGE_H
#define PEN_OPS_IMAGE_H

#include <stddef.h>
#include <stdint.h>

typedef struct pen__rect {
    int32_t x, y, w, h;
} pen__rect;

/* uint8 pixels, rows of w*ch bytes without gaps.  ch is 1 or 3; where a
 * pipeline works on RGB, 1 stands for three equal channels that have not been
 * spread yet (grey files stay narrow as long as nothing needs them wide).
 * Never owns its memory. */
typedef struct pen__image {
    uint8_t *px; // (h, w, ch)
    int32_t w, h, ch;
} pen__image;

static inline size_t pen__image_bytes(const pen__image *im)
{
    return (size_t)im->w * (size_t)im->h * (size_t)im->ch;
}

#endif
