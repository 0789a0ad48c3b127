/* exif.h - the one thing we want from EXIF and XMP: which way is up. */
#ifndef PEN_OPS_EXIF_H
#define PEN_OPS_EXIF_H

#include <stddef.h>
#include <stdint.h>

/* Orientation from a TIFF block (what follows "Exif\0\0" in JPEG, or is in PNG's eXIf and
 * WebP's EXIF chunk; a leading "Exif\0\0" is skipped).  Reads the first directory
 * only, so it ends after at most 65535 entries.  Never reads past data+len.
 * 1..8, 1 also for a value that makes no sense; 0 where there is no such tag. */
int pen__exif_orientation(const uint8_t *data, size_t len);

/* Orientation from an XMP packet, as Pillow falls back to it: the digit after the
 * first `tiff:Orientation="` or `tiff:Orientation>`.  1..8, 1 also for 0 and 9; 0 where
 * there is none. */
int pen__xmp_orientation(const uint8_t *data, size_t len);

#endif
