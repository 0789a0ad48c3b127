/* guess_check.h - marks found at guessed places against those a scan passes one by one.
 *
 * For fuzz_jpeg_guess.c and test_jpeg_guess.c.
 */
#ifndef PEN_FUZZ_GUESS_CHECK_H
#define PEN_FUZZ_GUESS_CHECK_H

#include <stdlib.h>
#include <string.h>

#include "ops/jpeg_guess.h"

enum { GUESS_GUARD = 4096 };

typedef struct guess_bench {
    pen__jpeg_tables tables;
    uint8_t chunk[PEN__JPEG_CHUNK_BYTES + PEN__JPEG_CHUNK_SLACK];
    pen__jpeg_marks by_scan, by_guess;
    pen__jpeg_count_tables count_tables;
    /* vectors are stored unseen by sanitizers */
    uint8_t before[GUESS_GUARD];
    pen__jpeg_stretch_room room;
    uint8_t behind[GUESS_GUARD];
} guess_bench;

static inline guess_bench *guess_bench_new(void)
{
    guess_bench *b = aligned_alloc(64, (sizeof *b + 63) / 64 * 64);
    if (!b)
        return NULL;
    memset(b, 0, sizeof *b);
    memset(b->before, 0xA5, GUESS_GUARD);
    memset(b->behind, 0xA5, GUESS_GUARD);
    return b;
}

static inline bool guess_is_guarded(const guess_bench *b)
{
    bool is_whole = true;
    for (int i = 0; i < GUESS_GUARD; i++)
        is_whole &= b->before[i] == 0xA5 && b->behind[i] == 0xA5;
    return is_whole;
}

/* Nothing is known yet, with marks every `step` MCUs, whatever the file's length, or as many as
 * there is room for. */
static inline void guess_begin(pen__jpeg_marks *marks, const pen__jpeg_frame *frame, size_t len,
                               int32_t step)
{
    pen__jpeg_grid *grid = &marks->grid;
    pen__jpeg_marks_begin(marks, frame, len);
    for (grid->step = step;; grid->step *= 2) {
        grid->per_row = (grid->n_columns + grid->step - 1) / grid->step;
        int64_t n = (int64_t)grid->per_row * grid->n_rows + 1;
        if (n * PEN__JPEG_MARK_BYTES <= PEN__JPEG_MARKS_MAX - PEN__JPEG_MARKS_HEAD)
            return;
        if (grid->per_row == 1)
            break;
    }
    grid->per_row = 0;
}

/* As many marks as there are before a flaw. */
static inline void scan_marks(guess_bench *b, const pen__jpeg_frame *frame, const uint8_t *data,
                              size_t len)
{
    pen__jpeg_scan scan;
    pen__jpeg_marks *marks = &b->by_scan;
    pen__jpeg_mark mark = pen__jpeg_first_mark(frame);
    if (!pen__jpeg_scan_start(&scan, frame, &b->tables, data, len, b->chunk) ||
        !pen__jpeg_scan_seek(&scan, &mark, 0, PEN__JPEG_CHUNK_BYTES))
        return;
    pen__jpeg_marks_add(marks, &mark);
    for (int32_t row = 0; row < marks->grid.n_rows; row++)
        for (int32_t column = 0; column < marks->grid.n_columns; column += marks->grid.step) {
            int32_t n = marks->grid.n_columns - column;
            n = n < marks->grid.step ? n : marks->grid.step;
            if (!pen__jpeg_scan_skip(&scan, n) || !pen__jpeg_scan_tell(&scan, &mark))
                return;
            pen__jpeg_marks_add(marks, &mark);
        }
    marks->is_complete = pen__jpeg_scan_is_at_end(&scan);
}

/* Scans look ahead, and refuse what comes long after the last mark.  The same without most of that.
 */
static inline void scan_shorter_file(guess_bench *b, const pen__jpeg_frame *frame,
                                     const uint8_t *data, size_t len, int32_t step)
{
    enum { MARGIN = 64 }; /* that a guess sees behind its marks, too */
    pen__jpeg_mark last = pen__jpeg_marks_get(&b->by_guess, b->by_guess.n_marks - 1);
    size_t n = last.at + MARGIN < len ? last.at + MARGIN : len;
    uint8_t *copy = malloc(n + 3);
    memcpy(copy, data, n);
    if (copy[n - 1] == 0xFF)
        copy[n] = n < len ? data[n] : 0, n++;
    copy[n] = 0xFF, copy[n + 1] = 0xD9;
    guess_begin(&b->by_scan, frame, len, step);
    scan_marks(b, frame, copy, n + 2);
    free(copy);
}

/* Whether all that is found ahead is what a scan finds.  A NULL `count` is the scalar twin. */
static inline bool guess_is_true(guess_bench *b, const pen__jpeg_frame *frame, const uint8_t *data,
                                 size_t len, int32_t step, uint32_t min_piece, int32_t n_rows,
                                 bool (*count)(pen__jpeg_count_job *))
{
    guess_begin(&b->by_scan, frame, len, step);
    guess_begin(&b->by_guess, frame, len, step);
    if (b->by_scan.grid.per_row == 0)
        return true;
    scan_marks(b, frame, data, len);
    const pen__jpeg_guess_job job = {.frame = frame,
                                     .src = data,
                                     .len = len,
                                     .room = &b->room,
                                     .tables = &b->count_tables,
                                     .count = count ? count : pen__jpeg_count_c,
                                     .n_rows = n_rows,
                                     .min_piece = min_piece};
    pen__jpeg_guess(&job, &b->by_guess);
    int32_t n = b->by_guess.n_marks;
    if (n > b->by_scan.n_marks)
        scan_shorter_file(b, frame, data, len, step);
    return guess_is_guarded(b) && n <= b->by_scan.n_marks && b->by_guess.n_rows <= n_rows &&
           n == (b->by_guess.n_rows > 0 ? b->by_guess.n_rows * b->by_guess.grid.per_row + 1 : 0) &&
           b->by_guess.is_complete <= b->by_scan.is_complete &&
           memcmp(b->by_guess.bytes + PEN__JPEG_MARKS_HEAD, b->by_scan.bytes + PEN__JPEG_MARKS_HEAD,
                  (size_t)n * PEN__JPEG_MARK_BYTES) == 0;
}

#endif
