/* jpeg_index.c - from a file to a complete entry of marks.
 *
 * Where the processor has lanes and the file is worth it, marks are found at guessed places
 * (jpeg_guess.c), in about half the time of one stream.  What that leaves, and files with restart
 * markers, one stream passes over row by row.
 *
 * Only complete entries leave this file.  A scan refuses a file that ends too early some kilobytes
 * before its end, and where exactly depends on where it began.  So marks of the sound part of such
 * a file could make a cut succeed that fails without them; pixels would be the same, but not the
 * form in which they travel.
 */
#include "ops/jpeg_index.h"

#include <penstock/error.h>

#include <string.h>

#include "base/mem.h"
#include "ops/jpeg_guess.h"

/* What guessing needs; where lanes are not possible there is none. */
typedef struct lanes {
    pen__jpeg_count_tables tables;
    pen__jpeg_stretch_room room;
} lanes;

struct pen__jpeg_indexer {
    const atomic_bool *cancel;
    lanes *lanes;
    pen__jpeg_frame frame;
    pen__jpeg_scan scan;
    pen__jpeg_tables tables;
    pen__jpeg_marks marks;
    uint8_t chunk[PEN__JPEG_CHUNK_BYTES + PEN__JPEG_CHUNK_SLACK];
};

int pen__jpeg_indexer_create(pen__jpeg_indexer **out, const atomic_bool *cancel)
{
    *out = NULL;
    pen__jpeg_indexer *ix = pen__calloc(1, sizeof *ix);
    if (!ix)
        return PEN_ENOMEM;
    ix->cancel = cancel;
    if (pen__jpeg_stretches_are_possible()) {
        ix->lanes = pen__aligned(64, sizeof *ix->lanes);
        if (!ix->lanes) {
            pen__free(ix);
            return PEN_ENOMEM;
        }
        memset(&ix->lanes->tables, 0, sizeof ix->lanes->tables);
    }
    *out = ix;
    return 0;
}

void pen__jpeg_indexer_free(pen__jpeg_indexer *ix)
{
    if (!ix)
        return;
    pen__free(ix->lanes);
    pen__free(ix);
}

static bool is_cancelled(const pen__jpeg_indexer *ix)
{
    return ix->cancel && atomic_load_explicit(ix->cancel, memory_order_relaxed);
}

static void guess(pen__jpeg_indexer *ix, const uint8_t *src, size_t len)
{
    if (!ix->lanes)
        return;
    const pen__jpeg_guess_job job = {.frame = &ix->frame,
                                     .src = src,
                                     .len = len,
                                     .room = &ix->lanes->room,
                                     .tables = &ix->lanes->tables,
                                     .cancel = ix->cancel,
                                     .count = pen__jpeg_count,
                                     .n_rows = ix->marks.grid.n_rows,
                                     .min_piece = PEN__JPEG_GUESS_MIN_PIECE};
    pen__jpeg_guess(&job, &ix->marks);
}

static bool add_mark(pen__jpeg_indexer *ix)
{
    pen__jpeg_mark mark;
    return pen__jpeg_scan_tell(&ix->scan, &mark) && pen__jpeg_marks_add(&ix->marks, &mark);
}

static bool scan_row(pen__jpeg_indexer *ix)
{
    const pen__jpeg_grid *grid = &ix->marks.grid;
    for (int32_t column = 0; column < grid->n_columns; column += grid->step) {
        int32_t left = grid->n_columns - column;
        if (!pen__jpeg_scan_skip(&ix->scan, left < grid->step ? left : grid->step) || !add_mark(ix))
            return false;
    }
    return true;
}

/* Rows that are not known yet, and what follows the last one.  False at a flaw, or if it was
 * cancelled. */
static bool scan_rest(pen__jpeg_indexer *ix, const uint8_t *src, size_t len)
{
    pen__jpeg_marks *marks = &ix->marks;
    const pen__jpeg_mark from = pen__jpeg_marks_end(marks, &ix->frame);
    if (!pen__jpeg_scan_start(&ix->scan, &ix->frame, &ix->tables, src, len, ix->chunk) ||
        !pen__jpeg_scan_seek(&ix->scan, &from, (int64_t)marks->n_rows * marks->grid.n_columns,
                             PEN__JPEG_CHUNK_BYTES) ||
        (marks->n_rows == 0 && !add_mark(ix)))
        return false;
    while (marks->n_rows < marks->grid.n_rows)
        if (is_cancelled(ix) || !scan_row(ix))
            return false;
    marks->is_complete = pen__jpeg_scan_is_at_end(&ix->scan);
    return marks->is_complete;
}

pen__jpeg_indexed pen__jpeg_index(pen__jpeg_indexer *ix, const uint8_t *src, size_t len,
                                  const void *entry, size_t n_entry)
{
    pen__jpeg_marks *marks = &ix->marks;
    if (!pen__jpeg_frame_read(&ix->frame, src, len))
        return (pen__jpeg_indexed){.state = PEN__INDEX_HOPELESS};
    pen__jpeg_marks_begin(marks, &ix->frame, len);
    if (marks->grid.per_row == 0)
        return (pen__jpeg_indexed){.state = PEN__INDEX_HOPELESS};
    if (n_entry > 0 && pen__jpeg_marks_load(marks, entry, n_entry, src, len)) {
        if (marks->is_complete)
            return (pen__jpeg_indexed){PEN__INDEX_KNOWN, marks, n_entry};
        pen__jpeg_marks_begin(marks, &ix->frame, len); /* a loader's, as far as its windows went */
    }
    guess(ix, src, len);
    if (!marks->is_complete && !scan_rest(ix, src, len))
        return (pen__jpeg_indexed){.state =
                                       is_cancelled(ix) ? PEN__INDEX_NONE : PEN__INDEX_HOPELESS};
    return (pen__jpeg_indexed){PEN__INDEX_MADE, marks, pen__jpeg_marks_seal(marks, src, len)};
}
