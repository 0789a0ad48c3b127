/* jpeg_extent.c - from a window and marks to bytes. */
#include "ops/jpeg_extent.h"

#include "ops/jpeg_need.h"

/* A scan that has come to the last MCU looks some way ahead of it. */
enum { LOOKS_AHEAD = 2 * PEN__JPEG_MAX_MCU_BYTES + 64 };

bool pen__jpeg_extent_of(pen__jpeg_extent *out, const uint8_t *entry, size_t entry_len,
                         const pen__jpeg_marks_about *about, const uint8_t *head, size_t len,
                         const pen_image_info *info, pen__rect window)
{
    pen__jpeg_frame frame;
    if (info->is_progressive || !pen__jpeg_frame_read(&frame, head, about->scan_at) ||
        frame.scan_at != about->scan_at || frame.width != info->width ||
        frame.height != info->height)
        return false;
    const pen__jpeg_grid grid = pen__jpeg_grid_of(&frame, len);
    const pen__jpeg_need need = pen__jpeg_need_of(&frame, window);
    const bool is_to_the_end = window.y + window.h == frame.height;
    if (!pen__jpeg_marks_fit(&grid, about, entry_len) || need.n_read > about->n_rows ||
        (is_to_the_end && !about->is_complete))
        return false;
    const size_t begin = pen__jpeg_marks_at(entry, about->scan_at, need.first_strip * grid.per_row);
    const size_t end = pen__jpeg_marks_at(entry, about->scan_at, need.end_strip * grid.per_row);
    if (begin > end || end >= len)
        return false;
    out->begin = begin;
    out->end = len - end > LOOKS_AHEAD ? end + LOOKS_AHEAD : len;
    return true;
}
