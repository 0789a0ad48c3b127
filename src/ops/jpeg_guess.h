/* jpeg_guess.h - marks of a file that has none, found ahead of its decoding.
 *
 * The scan is cut at guessed places and parsed at all of them at once (jpeg_count.h); where one
 * piece meets the next, what the next has found is proven.  What comes out are the marks
 * that a scan from the file's beginning would have gathered, or fewer of them, but no others:
 * each is reached from the first MCU by parsing all MCUs between.  With them,
 * jpeg_known.c decodes the window in lanes.
 */
#ifndef PEN_OPS_JPEG_GUESS_H
#define PEN_OPS_JPEG_GUESS_H

#include <stdatomic.h>

#include "ops/jpeg_count.h"
#include "ops/jpeg_marks.h"
#include "ops/jpeg_stretches.h"

/* A piece's size at least: less is not worth what pieces parse twice. */
enum { PEN__JPEG_GUESS_MIN_PIECE = 512 };

typedef struct pen__jpeg_guess_job {
    const pen__jpeg_frame *frame;
    const uint8_t *src;
    size_t len;
    pen__jpeg_stretch_room *room; /* free again afterwards */
    pen__jpeg_count_tables *tables;
    const atomic_bool *cancel; /* NULL, or asked before each round */
    bool (*count)(pen__jpeg_count_job *job);
    int32_t n_rows;     /* that marks are wanted for */
    uint32_t min_piece; /* bytes, PEN__JPEG_GUESS_MIN_PIECE except for tests */
} pen__jpeg_guess_job;

/* Whether there are enough bytes for it to be quicker than a scan.  Cheap, and looks at no
 * tables. */
bool pen__jpeg_guess_is_worth_it(const pen__jpeg_guess_job *job, const pen__jpeg_marks *marks);

/* Add marks of whole rows of MCUs to those that there are, if that is worth it.  No flaw is
 * reported, but nothing is found behind one.  Rounds take at most 1.5 times the bytes that are
 * left, and where pieces do not meet, 128 KiB; what pieces parse beyond their own ends comes on
 * top: for each half its length, or 2 KiB if that is more. */
void pen__jpeg_guess(const pen__jpeg_guess_job *job, pen__jpeg_marks *marks);

#endif
