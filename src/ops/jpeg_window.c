/* jpeg_window.c - the way of a window through the own JPEG decoder.
 *
 * The file is taken strip by strip; a strip is one row of MCUs, 8 or 16 rows of
 * pixels.  Strips above the window, and MCUs beside it, are parsed but not transformed.
 * Of the others, blocks are transformed as they come into planes that hold one
 * strip, and the rows of the window are upsampled, converted and written while
 * those planes are in the cache.  Strips below the window are not looked at.
 *
 * Upsampling looks one chroma sample beyond the window to each side.  Columns: the
 * wanted MCUs include that sample's.  Rows: where chroma has half the rows, the
 * last row of a strip waits for the next one; its luma and chroma are kept in row 0
 * of each plane, before the strip's own.  At the image's true edge, which may lie
 * inside a block, the last sample is repeated.
 *
 * Marks.  Where rows of MCUs begin is not known at first sight.  Where that pays, it is found
 * ahead (jpeg_guess.c); else the file is taken from its first MCU on, and marks are gathered on
 * the way.  Rows whose marks are known are jpeg_known.c's.  Where marks turn out to be wrong, all
 * begins again without them.
 *
 * How far to parse.  Not only as far as pixels need, but as far as libjpeg would,
 * because a file that ends before that is an error there.  See jpeg_need.c.
 */
#include "ops/jpeg_window.h"

#include <string.h>

#include "ops/jpeg_guess.h"
#include "ops/jpeg_need.h"
#include "ops/jpeg_strips.h"

typedef pen__jpeg_strips strips;
typedef pen__jpeg_plane plane;

static uint8_t *row_of(const plane *p, int32_t y)
{
    return p->rows + y * p->stride;
}

static bool is_grey(const strips *s)
{
    return s->frame.n_components == 1;
}

static int32_t last_row(const strips *s)
{
    return s->job->window.y + s->job->window.h - 1;
}

/* --- memory --- */

static size_t padded(size_t n_bytes)
{
    return (n_bytes + 63) / 64 * 64;
}

static size_t row_bytes(size_t n_samples)
{
    return padded(ROW_MARGIN + n_samples + PEN__JPEG_ROW_SLACK);
}

static size_t chunk_bytes(void)
{
    return padded(PEN__JPEG_CHUNK_BYTES + PEN__JPEG_CHUNK_SLACK);
}

/* All planes at full width, with the rows of the tallest band, and pixels for a sink. */
size_t pen__jpeg_window_bound(const pen_image_info *info)
{
    enum { N_ROWS = BAND * (16 + 8 + 8) + 3 + 2 };
    size_t n_samples = ((size_t)info->width + 15) / 16 * 16;
    return BAND * chunk_bytes() + N_ROWS * row_bytes(n_samples) +
           GROUP_ROWS * row_bytes(3 * (size_t)info->width);
}

static uint8_t *place_rows(plane *p, uint8_t *at, int32_t n_samples, int n_rows)
{
    p->stride = (ptrdiff_t)row_bytes((size_t)n_samples);
    p->rows = at + ROW_MARGIN;
    return at + n_rows * p->stride;
}

static void place(strips *s, uint8_t *scratch)
{
    const pen__jpeg_frame *f = &s->frame;
    int32_t n_samples = 8 * (s->end_column - s->first_column);
    uint8_t *at = scratch;
    for (int i = 0; i < BAND; i++, at += chunk_bytes())
        s->chunks[i] = at;
    at = place_rows(&s->planes[0], at, n_samples * f->mcu_h, BAND * 8 * f->mcu_v + 1);
    for (int c = 1; c < f->n_components; c++) {
        at = place_rows(&s->planes[c], at, n_samples, BAND * 8 + 1);
        plane up;
        at = place_rows(&up, at, n_samples * f->mcu_h, 1);
        s->upsampled[c - 1] = up.rows;
    }
    int32_t n_bytes = s->job->window.w * (is_grey(s) ? 1 : 3);
    if (s->job->sink)
        place_rows(&s->group, at, n_bytes, GROUP_ROWS);
}

/* --- what is wanted --- */

static void set_need(strips *s)
{
    const pen__jpeg_need need = pen__jpeg_need_of(&s->frame, s->job->window);
    s->n_columns = need.n_columns;
    s->n_strips = need.n_strips;
    s->first_column = need.first_column;
    s->end_column = need.end_column;
    s->first_strip = need.first_strip;
    s->end_strip = need.end_strip;
    s->n_strips_read = need.n_read;
}

/* --- blocks to samples --- */

/* A block with nothing but a DC: the transform gives this in every sample. */
static bool fill_flat(const pen__jpeg_idct_job *job)
{
    int dc = (int16_t)((uint32_t)job->coefs[0] * job->quant[0]);
    if (dc < -PEN__IDCT_MAX_ROW0 || dc >= PEN__IDCT_MAX_ROW0)
        return false;
    int value = ((dc + 4) >> 3) + 128;
    value = value < 0 ? 0 : value > 255 ? 255 : value;
    uint64_t eight = (uint64_t)value * 0x0101010101010101U;
    for (int y = 0; y < 8; y++)
        memcpy(job->dst + y * job->stride, &eight, sizeof eight);
    return true;
}

bool pen__jpeg_flush(strips *s)
{
    bool is_sound = s->kernels->idct(s->full.list, s->full.n);
    is_sound &= s->kernels->idct(s->low.list, s->low.n);
    s->full.n = s->low.n = s->n_slots = 0;
    return is_sound;
}

static bool add_block(strips *s, int c, const int16_t *coefs, uint8_t n_coefs, int32_t x, int32_t y)
{
    const plane *p = &s->planes[c];
    const pen__jpeg_idct_job job = {coefs, s->frame.components[c].quant, row_of(p, y + 1) + x,
                                    p->stride, n_coefs};
    if (n_coefs == 1)
        return fill_flat(&job);
    pen__jpeg_jobs *to = n_coefs <= PEN__JPEG_N_LOW ? &s->low : &s->full;
    to->list[to->n++] = job;
    return true;
}

bool pen__jpeg_add_mcu(strips *s, const int16_t *blocks, const uint8_t *n_coefs, int32_t column,
                       int i)
{
    const pen__jpeg_frame *f = &s->frame;
    int b = 0;
    for (int y = 0; y < f->mcu_v; y++)
        for (int x = 0; x < f->mcu_h; x++, b++)
            if (!add_block(s, 0, blocks + 64 * b, n_coefs[b], 8 * (column * f->mcu_h + x),
                           8 * (i * f->mcu_v + y)))
                return false;
    for (int c = 1; c < f->n_components; c++, b++)
        if (!add_block(s, c, blocks + 64 * b, n_coefs[b], 8 * column, 8 * i))
            return false;
    return true;
}

/* The samples left and right of the image are those at its edge. */
static void repeat_edges(strips *s, int n_strips)
{
    const pen__jpeg_frame *f = &s->frame;
    int32_t width = div_up(f->width, f->mcu_h) - 8 * s->first_column;
    bool has_right = s->end_column == s->n_columns;
    if (f->mcu_h == 1)
        return;
    for (int c = 1; c < f->n_components; c++)
        for (int y = 1; y <= 8 * n_strips; y++) {
            uint8_t *row = row_of(&s->planes[c], y);
            row[-1] = row[0];
            if (has_right)
                row[width] = row[width - 1];
        }
}

/* --- strips in sequence --- */

bool pen__jpeg_start_scans(strips *s)
{
    if (s->has_scans)
        return true;
    if (!pen__jpeg_scan_start(&s->scans[0], &s->frame, s->tables, s->job->src, s->job->len,
                              s->chunks[0]))
        return false;
    s->scans[0].is_zigzag = s->kernels->is_zigzag;
    s->scans[1] = s->scans[0];
    s->scans[1].chunk = s->chunks[1];
    s->has_scans = true;
    return true;
}

/* The next MCUs of the scan, up to column `end`. */
static bool decode_mcus(strips *s, int32_t column, int32_t end)
{
    pen__jpeg_scan *scan = &s->scans[0];
    for (; column < end; column++) {
        uint8_t n_coefs[PEN__JPEG_MAX_BLOCKS];
        if (s->n_slots + scan->n_blocks > BATCH && !pen__jpeg_flush(s))
            return false;
        int16_t *blocks = s->coefs + 64 * s->n_slots;
        if (!pen__jpeg_scan_mcu(scan, blocks, n_coefs) ||
            !pen__jpeg_add_mcu(s, blocks, n_coefs, column - s->first_column, 0))
            return false;
        s->n_slots += scan->n_blocks;
    }
    return true;
}

static int32_t clamp(int32_t x, int32_t low, int32_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* MCUs from one mark to the next: wanted ones are decoded, others passed over. */
static bool parse_part(strips *s, int32_t column, int32_t end, bool is_wanted)
{
    pen__jpeg_scan *scan = &s->scans[0];
    int32_t from = is_wanted ? clamp(s->first_column, column, end) : end;
    int32_t to = is_wanted ? clamp(s->end_column, column, end) : end;
    return pen__jpeg_scan_skip(scan, from - column) && decode_mcus(s, from, to) &&
           pen__jpeg_scan_skip(scan, end - to);
}

static bool gather(strips *s)
{
    pen__jpeg_mark mark;
    if (!pen__jpeg_scan_tell(&s->scans[0], &mark))
        return false;
    s->gathers = pen__jpeg_marks_add(s->marks, &mark);
    return true;
}

/* One strip at the scan's place. */
static bool parse_strip(strips *s, bool is_wanted)
{
    int32_t step = s->gathers ? s->marks->grid.step : s->n_columns;
    for (int32_t column = 0; column < s->n_columns; column += step) {
        int32_t end = column + step < s->n_columns ? column + step : s->n_columns;
        if (!parse_part(s, column, end, is_wanted) || (s->gathers && !gather(s)))
            return false;
    }
    return pen__jpeg_flush(s) && pen__jpeg_scan_is_sound(&s->scans[0]);
}

/* --- samples to pixels --- */

/* Chroma samples c of pixel row `y`, from the window's first on; the planes begin with `strip`. */
static pen__jpeg_chroma chroma_of(const strips *s, int c, int32_t y, int32_t strip)
{
    const pen__jpeg_frame *f = &s->frame;
    const plane *p = &s->planes[c];
    int32_t row = y / f->mcu_v, left = s->job->window.x / f->mcu_h;
    int32_t last = div_up(f->height, f->mcu_v) - 1, neighbour = y % 2 == 1 ? row + 1 : row - 1;
    const uint8_t *near = row_of(p, row - 8 * strip + 1) + left - 8 * s->first_column;
    if (neighbour < 0 || neighbour > last)
        return (pen__jpeg_chroma){near, near};
    return (pen__jpeg_chroma){near, near + (neighbour - row) * p->stride};
}

/* The same at full resolution. */
static const uint8_t *chroma_row(const strips *s, int c, int32_t y, int32_t strip)
{
    const pen__jpeg_frame *f = &s->frame;
    const pen__rect *w = &s->job->window;
    const pen__jpeg_chroma chroma = chroma_of(s, c, y, strip);
    int32_t n = (w->x + w->w - 1) / f->mcu_h + 1 - w->x / f->mcu_h;
    uint8_t *up = s->upsampled[c - 1];
    if (f->mcu_h == 1 && f->mcu_v == 1)
        return chroma.near;
    if (f->mcu_v == 1)
        s->kernels->upsample_h2v1(chroma.near, up, n);
    else if (f->mcu_h == 1)
        s->kernels->upsample_h1v2(chroma.near, chroma.far, up, n, y % 2 == 1 ? 2 : 1);
    else
        s->kernels->upsample_h2v2(chroma.near, chroma.far, up, n);
    return up + w->x % f->mcu_h;
}

static void convert_row(strips *s, int32_t y, int32_t strip, uint8_t *dst)
{
    const pen__jpeg_frame *f = &s->frame;
    const pen__rect *w = &s->job->window;
    int32_t column = w->x - 8 * f->mcu_h * s->first_column;
    const uint8_t *luma = row_of(&s->planes[0], y - 8 * f->mcu_v * strip + 1) + column;
    if (is_grey(s))
        memcpy(dst, luma, (size_t)w->w);
    else if (f->mcu_h == 2 && f->mcu_v == 2 && s->kernels->h2v2_to_rgb)
        s->kernels->h2v2_to_rgb(luma, chroma_of(s, 1, y, strip), chroma_of(s, 2, y, strip), dst,
                                w->w, w->x % 2);
    else
        s->kernels->ycc_to_rgb(luma, chroma_row(s, 1, y, strip), chroma_row(s, 2, y, strip), dst,
                               w->w);
}

static void write_row(strips *s, int32_t y, int32_t strip)
{
    const pen__decode_job *job = s->job;
    const pen__rect *w = &job->window;
    if (!job->sink) {
        size_t n_bytes = (size_t)w->w * (is_grey(s) ? 1 : 3);
        convert_row(s, y, strip, job->dst + (size_t)(y - w->y) * n_bytes);
        return;
    }
    int32_t n = (y - w->y) % GROUP_ROWS;
    convert_row(s, y, strip, row_of(&s->group, n++));
    if (n == GROUP_ROWS || y == last_row(s))
        job->sink->take(job->sink->ctx, y - w->y + 1 - n, s->group.rows, (size_t)s->group.stride,
                        n);
}

void pen__jpeg_write_rows(strips *s, int32_t strip, int n)
{
    repeat_edges(s, n);
    int32_t height = 8 * s->frame.mcu_v, end = (strip + n) * height;
    if (s->frame.mcu_v == 2 && strip + n < s->n_strips)
        end--;
    end = end < last_row(s) + 1 ? end : last_row(s) + 1;
    for (; s->next_row < end; s->next_row++)
        write_row(s, s->next_row, strip);
    if (s->frame.mcu_v == 1)
        return;
    for (int c = 0; c < s->frame.n_components; c++) { /* keep the last row for the next strip */
        const plane *p = &s->planes[c];
        int32_t last = n * (c == 0 ? height : 8);
        memcpy(p->rows - ROW_MARGIN, row_of(p, last) - ROW_MARGIN, (size_t)p->stride);
    }
}

/* --- the whole --- */

/* Strips from the first without marks to `n`. */
static int decode_unknown(strips *s, int32_t first, int32_t wanted, int32_t n)
{
    if (!pen__jpeg_start_scans(s))
        return PEN__JPEG_DECLINED;
    int32_t i = s->marks->n_rows;
    pen__jpeg_mark mark = pen__jpeg_marks_end(s->marks, &s->frame);
    if (!pen__jpeg_scan_seek(&s->scans[0], &mark, (int64_t)i * s->n_columns,
                             PEN__JPEG_CHUNK_BYTES) ||
        (i == 0 && s->gathers && !gather(s)))
        return PEN__JPEG_DECLINED;
    for (; i < n; i++) {
        if (pen__job_cancelled(s->job))
            return pen__fail(s->job->err, PEN_ECANCELED, -1, "JPEG: cancelled");
        bool is_wanted = i >= first && i < wanted;
        if (!parse_strip(s, is_wanted))
            return PEN__JPEG_DECLINED;
        if (is_wanted)
            pen__jpeg_write_rows(s, i, 1);
    }
    return 0;
}

/* With the last row in the window, what follows it counts, too. */
static bool needs_end(const strips *s)
{
    return last_row(s) == s->frame.height - 1 && !s->marks->is_complete;
}

static int decode_strips(strips *s)
{
    int32_t first = s->first_strip, wanted = s->end_strip, n = s->n_strips_read;
    int32_t known = s->marks->n_rows;
    bool is_end_unknown = needs_end(s);
    s->next_row = s->job->window.y;
    s->full.n = s->low.n = s->n_slots = 0;
    int rc = pen__jpeg_decode_known(s, first, known < wanted ? known : wanted);
    if (rc == 0 && (known < n || is_end_unknown))
        rc = decode_unknown(s, first, wanted, n);
    if (rc == 0 && is_end_unknown) {
        if (!pen__jpeg_scan_is_at_end(&s->scans[0]))
            return PEN__JPEG_DECLINED;
        s->marks->is_complete = s->marks->n_rows == s->n_strips;
    }
    return rc;
}

static bool is_ours(strips *s)
{
    const pen__decode_job *job = s->job;
    return !job->info->is_progressive && pen__jpeg_frame_read(&s->frame, job->src, job->len) &&
           s->frame.width == job->info->width && s->frame.height == job->info->height &&
           s->frame.n_components == job->info->channels;
}

/* Where marks come from: those that are given, and what is missing found ahead; all found ahead; or
 * gathered in passing. */
typedef enum source { GIVEN, GUESSED, PASSED } source;

static pen__jpeg_guess_job guess_job(const strips *s, const pen__jpeg_window *own)
{
    return (pen__jpeg_guess_job){.frame = &s->frame,
                                 .src = s->job->src,
                                 .len = s->job->len,
                                 .room = s->room,
                                 .tables = own->count_tables,
                                 .cancel = s->job->cancel,
                                 .count = pen__jpeg_count,
                                 .n_rows = s->n_strips_read,
                                 .min_piece = PEN__JPEG_GUESS_MIN_PIECE};
}

/* Lanes, and marks found ahead for them.  Tables are made only where there is use for them. */
static void set_lanes(strips *s, pen__jpeg_window *own, source from)
{
    const pen__jpeg_guess_job guess = guess_job(s, own);
    int32_t n_rows = s->marks->n_rows;
    bool can = from != PASSED && s->room && s->kernels->is_zigzag && s->marks->grid.per_row > 0;
    bool guesses = can && own->count_tables && !own->is_partial &&
                   pen__jpeg_guess_is_worth_it(&guess, s->marks);
    s->has_lanes = can && (n_rows > 0 || guesses) &&
                   pen__jpeg_stretches_start(&s->stretches, &s->frame, &own->lane_tables,
                                             s->job->src, s->job->len, s->room);
    if (s->has_lanes && guesses)
        pen__jpeg_guess(&guess, s->marks);
    s->has_guessed = s->marks->n_rows > n_rows;
}

static int decode_marked(strips *s, pen__jpeg_window *own, source from)
{
    const pen__decode_job *job = s->job;
    pen__jpeg_marks_begin(s->marks, &s->frame, job->len);
    if (from == GIVEN && !pen__jpeg_marks_load(s->marks, own->known, own->n_known,
                                               own->is_partial ? NULL : job->src, job->len))
        return PEN__JPEG_DECLINED;
    /* The entry may be another by now than the one by which the parts were chosen. */
    if (own->is_partial &&
        (s->marks->stamp != own->stamp || s->marks->n_rows < s->n_strips_read || needs_end(s)))
        return PEN__JPEG_DECLINED;
    s->gathers = own->gathers && !own->is_partial && s->marks->grid.per_row > 0;
    int32_t n_rows = s->marks->n_rows;
    bool was_complete = s->marks->is_complete;
    s->has_scans = false;
    s->tables = &own->tables;
    set_lanes(s, own, from);
    int rc = decode_strips(s);
    if (rc == 0 && s->gathers &&
        (s->marks->n_rows > n_rows || s->marks->is_complete > was_complete ||
         (n_rows > 0 && own->stamp && s->marks->stamp != own->stamp))) {
        s->marks->stamp = own->stamp;
        own->n_found = pen__jpeg_marks_seal(s->marks, job->src, job->len);
    }
    own->counts.n_indexed += rc == 0 && n_rows > 0;
    own->counts.n_guessed += rc == 0 && s->has_guessed;
    return rc;
}

int pen__jpeg_window_decode(pen__jpeg_window *own, const pen__decode_job *job, uint8_t *scratch)
{
    strips s;
    s.job = job;
    own->n_found = 0;
    if (!is_ours(&s)) {
        own->counts.n_foreign += !own->is_partial;
        return PEN__JPEG_DECLINED;
    }
    s.kernels = pen__jpeg_kernels_get();
    s.marks = &own->marks;
    s.room = own->room;
    set_need(&s);
    place(&s, scratch);
    int rc = own->n_known > 0 ? decode_marked(&s, own, GIVEN) : PEN__JPEG_DECLINED;
    if (rc == PEN__JPEG_DECLINED && !own->is_partial)
        rc = decode_marked(&s, own, GUESSED);
    if (rc == PEN__JPEG_DECLINED && !own->is_partial && s.has_guessed)
        rc = decode_marked(&s, own, PASSED);
    own->counts.n_own += rc == 0;
    own->counts.n_flawed += rc == PEN__JPEG_DECLINED && !own->is_partial;
    return rc;
}
