/* filter.c - sharpness and Gaussian blur over the kernels. */
#include "ops/filter.h"

#include <string.h>

#include "base/cpu.h"
#include "ops/filter_kernels.h"

static const pen__filter_kernels *pick_kernels(void)
{
    return &pen__filter_kernels_c;
}

/* ---- sharpness ----------------------------------------------------------------------- */

size_t pen__sharpness_scratch(int32_t w, int32_t h, int ch)
{
    (void)h;
    return 2 * (size_t)w * (size_t)ch;
}

/* Each row is replaced while the next one still needs it as it was: two rows are
 * kept.  The border has no neighbours and stays as it is. */
void pen__sharpness(pen__image *im, float factor, void *scratch)
{
    size_t ch = (size_t)im->ch, row_bytes = (size_t)im->w * ch;
    uint8_t *above = scratch, *here = above + row_bytes;
    if (im->w < 3 || im->h < 3)
        return;
    memcpy(above, im->px, row_bytes);
    for (int32_t y = 1; y < im->h - 1; y++) {
        uint8_t *row = im->px + (size_t)y * row_bytes;
        memcpy(here, row, row_bytes);
        const uint8_t *const rows[3] = {above + ch, here + ch, row + row_bytes + ch};
        pick_kernels()->sharpen_row(rows, row_bytes - 2 * ch, im->ch, factor, row + ch);
        uint8_t *freed = above;
        above = here;
        here = freed;
    }
}
