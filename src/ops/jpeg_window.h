/* jpeg_window.h - a window of an ordinary JPEG file, decoded by our own code.
 *
 * Ordinary: sequential Huffman coding, 8 bits, one scan, grey or YCbCr with chroma at
 * full or half resolution.  Pixels are libjpeg-turbo's to the bit.  Every other
 * file, and every file with a flaw, is declined, and goes through libjpeg
 * (decode_jpeg.c), which alone decides what a flaw means.
 *
 * Why not libjpeg for all: it spends 70 % of the time of an ImageNet crop on Huffman codes,
 * one symbol at a time, and no less of it on blocks that the crop does not need.
 */
#ifndef PEN_OPS_JPEG_WINDOW_H
#define PEN_OPS_JPEG_WINDOW_H

#include "ops/decode_formats.h"
#include "ops/jpeg_count.h"
#include "ops/jpeg_marks.h"
#include "ops/jpeg_stretches.h"

/* pen__jpeg_window_decode's "not mine".  Not an error. */
enum { PEN__JPEG_DECLINED = 1 };

/* One thread's state from file to file.  Zeroed before first use; owns nothing. */
typedef struct pen__jpeg_window {
    pen__jpeg_tables tables;
    pen__jpeg_lane_tables lane_tables;
    pen__jpeg_stretch_room *room;         /* for lanes, the caller's; NULL: no lanes */
    pen__jpeg_count_tables *count_tables; /* likewise, zeroed; NULL: no places are guessed */
    pen__jpeg_counts counts;
    /* for the next file: an entry of marks, the caller's, and whether to gather some */
    const uint8_t *known;
    size_t n_known;
    bool gathers;
    uint64_t stamp;  /* of that file, for marks that are gathered */
    bool is_partial; /* only what the marks lead to is there (jpeg_extent.h) */
    size_t n_found;  /* length of the entry in marks.bytes; 0: the last file gave nothing new */
    pen__jpeg_marks marks;
} pen__jpeg_window;

/* Scratch that a decode of any window of such an image takes at most. */
size_t pen__jpeg_window_bound(const pen_image_info *info);

/* Carry out the job.  `scratch` has pen__jpeg_window_bound bytes, aligned to 64.
 * 0, PEN_ECANCELED or PEN__JPEG_DECLINED, which of a partial file says that all of it is needed; in
 * the last case the destination may have
 * been written to, and job->err has not. */
int pen__jpeg_window_decode(pen__jpeg_window *own, const pen__decode_job *job, uint8_t *scratch);

#endif
