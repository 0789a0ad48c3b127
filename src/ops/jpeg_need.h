/* jpeg_need.h - which parts of an ordinary JPEG file the pixels of a window depend on.
 *
 * One place for this question: who decodes a window (jpeg_window.c) and who cuts it out of the
 * file (jpeg_cut.c) must give the same answer, or a cut would decode to other pixels.
 *
 * Upsampling looks at one chroma sample beyond the window's own to each side, in directions in
 * which chroma has half the samples; luma, and chroma at full resolution, have no margin.
 */
#ifndef PEN_OPS_JPEG_NEED_H
#define PEN_OPS_JPEG_NEED_H

#include "ops/image.h"
#include "ops/jpeg_frame.h"

/* In MCUs; a strip is a row of them. */
typedef struct pen__jpeg_need {
    int32_t n_columns, n_strips;      /* of the image */
    int32_t first_column, end_column; /* wanted */
    int32_t first_strip, end_strip;   /* wanted */
    int32_t
        n_read; /* strips that libjpeg reads for the window: data that end before are an error */
} pen__jpeg_need;

/* `window` lies in the image. */
pen__jpeg_need pen__jpeg_need_of(const pen__jpeg_frame *frame, pen__rect window);

#endif
