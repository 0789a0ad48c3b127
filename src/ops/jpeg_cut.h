/* jpeg_cut.h - a JPEG file that holds only what a window of another one needs.
 *
 * Ordinary files (jpeg_frame.h) are cut in the compressed domain: the bits of the MCUs that the
 * window's pixels depend on are copied as they are, and only DC differences whose predecessor has
 * changed are coded anew.  Nothing is decoded to pixels and nothing is lost: the window decoded
 * from the cut is the window decoded from the file, byte for byte.
 *
 * What is in the cut beside the window is not the file's: blocks that no pixel of the window
 * depends on are flat.
 */
#ifndef PEN_OPS_JPEG_CUT_H
#define PEN_OPS_JPEG_CUT_H

#include <stddef.h>
#include <stdint.h>

#include "ops/image.h"
#include "ops/jpeg_marks.h"

/* One thread's state, reused from file to file. */
typedef struct pen__jpeg_cutter pen__jpeg_cutter;

/* 0 or PEN_ENOMEM. */
int pen__jpeg_cutter_create(pen__jpeg_cutter **out);
void pen__jpeg_cutter_free(pen__jpeg_cutter *cutter);

/* Write the cut of `window`, which lies in the stored image (no EXIF turn), to dst, and to *kept
 * which rectangle of the stored image it is.  Decoding the window shifted by (-kept->x, -kept->y)
 * from the cut gives what decoding `window` from the file gives.
 *
 * Returns the length, or 0 where the file is declined: it is not ordinary, has a flaw in what a
 * decoder would read for the window, or the cut does not fit into dst_cap bytes.
 *
 * marks: an entry of jpeg_marks.h, or NULL, 0; the result is the same, sooner.
 *
 * Never reads past src + len nor writes past dst + dst_cap, whatever the input.  Allocates nothing.
 */
int64_t pen__jpeg_cut(pen__jpeg_cutter *cutter, const uint8_t *src, size_t len, pen__rect window,
                      const void *marks, size_t n_marks, uint8_t *dst, size_t dst_cap,
                      pen__rect *kept);

/* The same with marks that were found to be this file's (jpeg_index.h), or NULL. */
int64_t pen__jpeg_cut_known(pen__jpeg_cutter *cutter, const uint8_t *src, size_t len,
                            pen__rect window, const pen__jpeg_marks *marks, uint8_t *dst,
                            size_t dst_cap, pen__rect *kept);

#endif
