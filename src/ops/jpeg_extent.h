/* jpeg_extent.h - which bytes of an indexed JPEG file a window is decoded from.
 *
 * The head, and with marks (jpeg_marks.h) a stretch from the first row of MCUs that is wanted to
 * the end of the last.  Where a file comes slowly, the rest need not come at all.
 */
#ifndef PEN_OPS_JPEG_EXTENT_H
#define PEN_OPS_JPEG_EXTENT_H

#include <penstock/image.h>

#include "ops/image.h"
#include "ops/jpeg_marks.h"

/* Bytes of the file, beside its head: those before scan_at. */
typedef struct pen__jpeg_extent {
    size_t begin, end;
} pen__jpeg_extent;

/* `entry` is a file's of `len` bytes, of which those before about->scan_at are at `head`, and
 * `info` is what was found there.  False: all of the file may be needed. */
bool pen__jpeg_extent_of(pen__jpeg_extent *out, const uint8_t *entry, size_t entry_len,
                         const pen__jpeg_marks_about *about, const uint8_t *head, size_t len,
                         const pen_image_info *info, pen__rect window);

#endif
