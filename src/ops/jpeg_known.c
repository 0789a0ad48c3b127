/* jpeg_known.c - strips whose marks are known.
 *
 * What is above, beside and between is not looked at.  Where the processor has the vectors for it,
 * all stretches of as many strips as there is room for are decoded at once (jpeg_stretches.h),
 * from the mark before the window's left edge to the one behind its right edge.  Else, or where
 * lanes do not fit, strips are taken in twos, a band, by two scans in turns
 * (jpeg_pair.c).
 *
 * Each scan must pass the next marks on its way exactly, and each stretch must end at one, except
 * for the part between the last mark within the window and its right edge.  If one does not, the
 * marks are wrong, and all begins again without them.
 */
#include <string.h>

#include "ops/jpeg_strips.h"

typedef pen__jpeg_strips strips;

/* --- by two scans --- */

static size_t bytes_between(const pen__jpeg_mark *a, const pen__jpeg_mark *b)
{
    return b->at >= a->at ? b->at - a->at + 1 : PEN__JPEG_CHUNK_BYTES;
}

static bool is_same_mark(const pen__jpeg_mark *a, const pen__jpeg_mark *b)
{
    return a->at == b->at && a->n_bits == b->n_bits && memcmp(a->dc, b->dc, sizeof a->dc) == 0;
}

/* The next n MCUs of each strip of the band. */
static bool decode_band_mcus(strips *s, int n_strips, int32_t column, int32_t n)
{
    pen__jpeg_scan *const pair[BAND] = {&s->scans[0], &s->scans[1]};
    int16_t *const blocks[BAND] = {s->coefs, s->coefs + 64 * BATCH + PEN__JPEG_BLOCK_SLACK};
    uint8_t counts[BAND][BATCH], *const n_coefs[BAND] = {counts[0], counts[1]};
    int n_blocks = s->scans[0].n_blocks;
    if (n_strips == BAND && !pen__jpeg_scan_pair(pair, n, blocks, n_coefs))
        return false;
    for (int i = 0; i < n_strips; i++)
        for (int m = 0, b = 0; m < n; m++, b += n_blocks) {
            if (n_strips == 1 && !pen__jpeg_scan_mcu(pair[0], blocks[0] + 64 * b, counts[0] + b))
                return false;
            if (!pen__jpeg_add_mcu(s, blocks[i] + 64 * b, counts[i] + b,
                                   column + m - s->first_column, i))
                return false;
        }
    return pen__jpeg_flush(s);
}

static bool skip_band_mcus(strips *s, int n_strips, int32_t n)
{
    pen__jpeg_scan *const pair[BAND] = {&s->scans[0], &s->scans[1]};
    int16_t *const nothing[BAND] = {NULL, NULL};
    uint8_t *const no_counts[BAND] = {NULL, NULL};
    return n_strips == BAND ? pen__jpeg_scan_pair(pair, n, nothing, no_counts)
                            : pen__jpeg_scan_skip(pair[0], n);
}

/* Columns of a band: where its scans begin, and where they must be at a mark's place. */
typedef struct route {
    int32_t start, check; /* in units of the grid's step */
} route;

/* From the last mark before the window to the last one within it or at its end; where there is
 * none, on to the next. */
static route plan_route(const strips *s)
{
    int32_t step = s->marks->grid.step;
    int32_t start = s->first_column / step, check = s->end_column / step;
    bool is_row_end = s->end_column == s->n_columns;
    if (is_row_end || check <= start)
        check = div_up(s->end_column, step);
    return (route){start, check};
}

static bool seek_band(strips *s, int32_t first, int n_strips, route way)
{
    const pen__jpeg_grid *grid = &s->marks->grid;
    for (int i = 0; i < n_strips; i++) {
        int32_t at = (first + i) * grid->per_row;
        pen__jpeg_mark start = pen__jpeg_marks_get(s->marks, at + way.start);
        pen__jpeg_mark end = pen__jpeg_marks_get(s->marks, at + div_up(s->end_column, grid->step));
        int64_t n_mcus = (int64_t)(first + i) * s->n_columns + way.start * grid->step;
        if (!pen__jpeg_scan_seek(&s->scans[i], &start, n_mcus, bytes_between(&start, &end)))
            return false;
    }
    return true;
}

static bool check_band(strips *s, int32_t first, int n_strips, route way)
{
    for (int i = 0; i < n_strips; i++) {
        int32_t at = (first + i) * s->marks->grid.per_row;
        pen__jpeg_mark due = pen__jpeg_marks_get(s->marks, at + way.check), here;
        if (!pen__jpeg_scan_tell(&s->scans[i], &here) || !is_same_mark(&here, &due))
            return false;
    }
    return true;
}

/* The window's part of strips `first` and on. */
static bool decode_band(strips *s, int32_t first, int n_strips)
{
    if (!pen__jpeg_start_scans(s))
        return false;
    int32_t step = s->marks->grid.step, group = BATCH / s->scans[0].n_blocks;
    int32_t column = s->first_column, end = s->end_column;
    route way = plan_route(s);
    int32_t check = way.check * step < s->n_columns ? way.check * step : s->n_columns;
    if (!seek_band(s, first, n_strips, way) ||
        !skip_band_mcus(s, n_strips, column - way.start * step))
        return false;
    for (int32_t n; column < end; column += n) {
        int32_t stop = column < check && check < end ? check : end;
        n = group < stop - column ? group : stop - column;
        if (!decode_band_mcus(s, n_strips, column, n))
            return false;
        if (column + n == check && !check_band(s, first, n_strips, way))
            return false;
    }
    if (check <= end)
        return pen__jpeg_scan_is_sound(&s->scans[0]) &&
               pen__jpeg_scan_is_sound(&s->scans[n_strips - 1]);
    return skip_band_mcus(s, n_strips, check - end) && check_band(s, first, n_strips, way);
}

/* --- in lanes --- */

/* The window's stretches of a strip, if there is room for all.  1, or 0 for none, or -1 if they are
 * not sound.  Where the window ends between two marks, so does the last stretch, unless it is
 * the only one. */
static int add_strip(strips *s, int32_t strip)
{
    int32_t step = s->marks->grid.step, first = s->first_column / step;
    int32_t end = div_up(s->end_column, step);
    for (int32_t part = first; part < end; part++) {
        int32_t at = strip * s->marks->grid.per_row + part, left = s->n_columns - part * step;
        int32_t n = left < step ? left : step, n_wanted = s->end_column - part * step;
        bool is_cut = part > first && n_wanted < n;
        pen__jpeg_mark from = pen__jpeg_marks_get(s->marks, at);
        pen__jpeg_mark to = pen__jpeg_marks_get(s->marks, at + 1);
        int rc = pen__jpeg_stretches_add(&s->stretches, &from, &to, is_cut ? n_wanted : n, is_cut);
        if (rc <= 0)
            return rc;
    }
    return 1;
}

/* The wanted MCUs of a decoded stretch that begins at `column`. */
static bool take_stretch(strips *s, const pen__jpeg_stretch *stretch, int32_t column, int i)
{
    int n_blocks = s->stretches.codes.n_blocks;
    const int16_t *blocks = s->room->coefs + stretch->first_coef;
    const uint8_t *n_coefs = s->room->n_coefs + stretch->first_coef / 64;
    for (uint32_t at = 0; at < stretch->n_coefs; at += 64 * (uint32_t)n_blocks, column++) {
        if (column < s->first_column || column >= s->end_column)
            continue;
        bool is_full = s->full.n + n_blocks > BAND * BATCH || s->low.n + n_blocks > BAND * BATCH;
        if ((is_full && !pen__jpeg_flush(s)) ||
            !pen__jpeg_add_mcu(s, blocks + at, n_coefs + at / 64, column - s->first_column, i))
            return false;
    }
    return true;
}

/* The stretches of n strips, from number `first` of the list on, to samples. */
static bool take_strips(strips *s, int first, int n)
{
    int32_t step = s->marks->grid.step, from = s->first_column / step;
    int per_strip = div_up(s->end_column, step) - from;
    for (int i = 0; i < n; i++)
        for (int part = 0; part < per_strip; part++)
            if (!take_stretch(s, &s->stretches.list[(first + i) * per_strip + part],
                              (from + part) * step, i))
                return false;
    return pen__jpeg_flush(s);
}

/* As many strips as there is room for.  Returns their number, or -1 if they are not sound. */
static int decode_in_lanes(strips *s, int32_t first, int32_t end)
{
    int n = 0, rc = 1;
    pen__jpeg_stretches_clear(&s->stretches);
    while (first + n < end) {
        pen__jpeg_stretches_count before = pen__jpeg_stretches_counted(&s->stretches);
        rc = add_strip(s, first + n);
        if (rc == 0) /* a part of a strip is of no use */
            pen__jpeg_stretches_back_to(&s->stretches, before);
        if (rc <= 0)
            break;
        n++;
    }
    return rc < 0 || (n > 0 && !pen__jpeg_stretches_decode(&s->stretches)) ? -1 : n;
}

/* Strips from `first` on that lanes have decoded. */
static bool write_lanes(strips *s, int32_t first, int n)
{
    for (int i = 0; i < n; i += BAND) {
        int n_here = n - i < BAND ? n - i : BAND;
        if (!take_strips(s, i, n_here))
            return false;
        pen__jpeg_write_rows(s, first + i, n_here);
    }
    return true;
}

int pen__jpeg_decode_known(strips *s, int32_t first, int32_t end)
{
    for (int32_t i = first, n; i < end; i += n) {
        if (pen__job_cancelled(s->job))
            return pen__fail(s->job->err, PEN_ECANCELED, -1, "JPEG: cancelled");
        n = s->has_lanes ? decode_in_lanes(s, i, end) : 0;
        if (n < 0 || (n > 0 && !write_lanes(s, i, n)))
            return PEN__JPEG_DECLINED;
        if (n > 0)
            continue;
        n = end - i < BAND ? end - i : BAND;
        if (!decode_band(s, i, n))
            return PEN__JPEG_DECLINED;
        pen__jpeg_write_rows(s, i, n);
    }
    return 0;
}
