/* jpeg_unstuff.h - the bytes of a scan as they were before 0xFF was told from markers. */
#ifndef PEN_OPS_JPEG_UNSTUFF_H
#define PEN_OPS_JPEG_UNSTUFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Write bytes from *src on without their stuffing until dst_end or a marker, and move *src to what
 * was not taken.  The end of what was written; NULL if the file ends without a marker, or has
 * fill bytes before it: libjpeg has its own ideas about both. */
uint8_t *pen__jpeg_unstuff(uint8_t *dst, const uint8_t *dst_end, const uint8_t **src,
                           const uint8_t *src_end, bool *is_at_marker);

/* How many bytes of the file these are: every 0xFF had a zero behind it. */
size_t pen__jpeg_stuffed_bytes(const uint8_t *bytes, size_t n);

#endif
