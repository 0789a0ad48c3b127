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
 * How far to parse.  Not only as far as pixels need, but as far as libjpeg would,
 * because a file that ends before that is an error there.  See n_strips_read().
 */
#include "ops/jpeg_window.h"

#include <string.h>

#include "ops/jpeg_kernels.h"
#include "ops/jpeg_scan.h"

enum {
    ROW_MARGIN = 64, /* before column 0: for the sample to its left, and alignment */
    BATCH = 24,      /* blocks between parsing and transforming: whole MCUs */
    GROUP_ROWS = 4,  /* of pixels, for a sink */
};

/* Rows of samples from column 0 of the first wanted MCU.  Row 0 is the last one of the
 * strip before. */
typedef struct plane {
    uint8_t *rows;
    ptrdiff_t stride;
} plane;

typedef struct jobs {
    int n;
    pen__jpeg_idct_job list[BATCH];
} jobs;

typedef struct strips {
    const pen__decode_job *job;
    pen__jpeg_frame frame;
    const pen__jpeg_kernels *kernels;
    pen__jpeg_scan scan;
    plane planes[PEN__JPEG_MAX_COMPONENTS];
    uint8_t *upsampled[2];            /* a row of chroma at full resolution, each */
    int32_t n_columns, n_strips;      /* of the image, in MCUs */
    int32_t first_column, end_column; /* wanted */
    int32_t next_row;                 /* to be written */
    plane group;                      /* rows of pixels on their way to a sink */
    int n_slots;                      /* blocks in `coefs` */
    jobs full, low; /* apart, because the kernel takes blocks of a kind in pairs */
    _Alignas(64) int16_t coefs[BATCH * 64];
} strips;

static uint8_t *row_of(const plane *p, int32_t y)
{
    return p->rows + y * p->stride;
}

static int32_t div_up(int32_t a, int32_t b)
{
    return (a + b - 1) / b;
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

/* All planes at full width, with the rows of the tallest strip, and pixels for a sink. */
size_t pen__jpeg_window_bound(const pen_image_info *info)
{
    enum { N_ROWS = 17 + 9 + 9 + 2 };
    size_t n_samples = ((size_t)info->width + 15) / 16 * 16;
    return padded(PEN__JPEG_CHUNK_BYTES + PEN__JPEG_CHUNK_SLACK) + N_ROWS * row_bytes(n_samples) +
           GROUP_ROWS * row_bytes(3 * (size_t)info->width);
}

static uint8_t *place_rows(plane *p, uint8_t *at, int32_t n_samples, int n_rows)
{
    p->stride = (ptrdiff_t)row_bytes((size_t)n_samples);
    p->rows = at + ROW_MARGIN;
    return at + n_rows * p->stride;
}

/* Returns the chunk. */
static uint8_t *place(strips *s, uint8_t *scratch)
{
    const pen__jpeg_frame *f = &s->frame;
    int32_t n_samples = 8 * (s->end_column - s->first_column);
    uint8_t *at = place_rows(&s->planes[0], scratch, n_samples * f->mcu_h, 8 * f->mcu_v + 1);
    for (int c = 1; c < f->n_components; c++) {
        at = place_rows(&s->planes[c], at, n_samples, 8 + 1);
        plane up;
        at = place_rows(&up, at, n_samples * f->mcu_h, 1);
        s->upsampled[c - 1] = up.rows;
    }
    int32_t n_bytes = s->job->window.w * (is_grey(s) ? 1 : 3);
    return s->job->sink ? place_rows(&s->group, at, n_bytes, GROUP_ROWS) : at;
}

/* --- what is wanted --- */

/* Columns of MCUs that hold the window and a chroma sample to each side. */
static void set_columns(strips *s)
{
    const pen__rect *w = &s->job->window;
    int h = s->frame.mcu_h;
    int32_t first = w->x / h, last = (w->x + w->w - 1) / h, margin = h - 1;
    int32_t edge = div_up(s->frame.width, h) - 1;
    first = first > margin ? first - margin : 0;
    last = last + margin < edge ? last + margin : edge;
    s->n_columns = div_up(s->frame.width, 8 * h);
    s->first_column = first / 8;
    s->end_column = last / 8 + 1;
}

static int32_t first_strip(const strips *s)
{
    int32_t y = s->job->window.y;
    bool looks_up = s->frame.mcu_v == 2 && y % 2 == 0 && y > 0;
    return (looks_up ? y - 1 : y) / (8 * s->frame.mcu_v);
}

/* Strips after this one hold nothing that the window needs. */
static int32_t end_of_wanted(const strips *s)
{
    int32_t last = last_row(s);
    bool looks_down = s->frame.mcu_v == 2 && last % 2 == 1;
    int32_t end = (looks_down ? last + 1 : last) / (8 * s->frame.mcu_v) + 1;
    return end < s->n_strips ? end : s->n_strips;
}

/* As many as libjpeg reads for the window.  Where chroma has half the rows, it upsamples
 * rows in twos and asks for the next strip before the last two of a strip.  A grey
 * file's strips come in groups of its vertical sampling factor. */
static int32_t n_strips_read(const strips *s)
{
    int32_t last = last_row(s), height = 8 * s->frame.mcu_v;
    int32_t end = div_up(last / height + 1, s->frame.group_v) * s->frame.group_v;
    if (s->frame.mcu_v == 2 && last % height >= height - 2)
        end++;
    return end < s->n_strips ? end : s->n_strips;
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

static bool flush(strips *s)
{
    bool is_sound = s->kernels->idct(s->full.list, s->full.n);
    is_sound &= s->kernels->idct(s->low.list, s->low.n);
    s->full.n = s->low.n = s->n_slots = 0;
    return is_sound;
}

static bool add_block(strips *s, int c, int slot, uint8_t n_coefs, int32_t x, int32_t y)
{
    const plane *p = &s->planes[c];
    const pen__jpeg_idct_job job = {s->coefs + 64 * slot, s->frame.components[c].quant,
                                    row_of(p, y + 1) + x, p->stride, n_coefs};
    if (n_coefs == 1)
        return fill_flat(&job);
    jobs *to = n_coefs <= PEN__JPEG_N_LOW ? &s->low : &s->full;
    to->list[to->n++] = job;
    return true;
}

/* The next MCU of the scan, `column` from the first wanted one. */
static bool decode_mcu(strips *s, int32_t column)
{
    const pen__jpeg_frame *f = &s->frame;
    uint8_t n_coefs[PEN__JPEG_MAX_BLOCKS];
    if (s->n_slots + s->scan.n_blocks > BATCH && !flush(s))
        return false;
    if (!pen__jpeg_scan_mcu(&s->scan, s->coefs + 64 * s->n_slots, n_coefs))
        return false;
    int b = 0;
    for (int y = 0; y < f->mcu_v; y++)
        for (int x = 0; x < f->mcu_h; x++, b++)
            if (!add_block(s, 0, s->n_slots + b, n_coefs[b], 8 * (column * f->mcu_h + x), 8 * y))
                return false;
    for (int c = 1; c < f->n_components; c++, b++)
        if (!add_block(s, c, s->n_slots + b, n_coefs[b], 8 * column, 0))
            return false;
    s->n_slots += b;
    return true;
}

/* The samples left and right of the image are those at its edge. */
static void repeat_edges(strips *s)
{
    const pen__jpeg_frame *f = &s->frame;
    int32_t width = div_up(f->width, f->mcu_h) - 8 * s->first_column;
    bool has_right = s->end_column == s->n_columns;
    for (int c = 1; c < f->n_components; c++)
        for (int y = 1; y <= 8; y++) {
            uint8_t *row = row_of(&s->planes[c], y);
            row[-1] = row[0];
            if (has_right)
                row[width] = row[width - 1];
        }
}

static bool decode_strip(strips *s)
{
    if (!pen__jpeg_scan_skip(&s->scan, s->first_column))
        return false;
    for (int32_t column = s->first_column; column < s->end_column; column++)
        if (!decode_mcu(s, column - s->first_column))
            return false;
    if (!flush(s) || !pen__jpeg_scan_skip(&s->scan, s->n_columns - s->end_column))
        return false;
    if (s->frame.mcu_h == 2)
        repeat_edges(s);
    return true;
}

/* --- samples to pixels --- */

/* Chroma row c of pixel row `y` at full resolution; `strip` is in the planes. */
static const uint8_t *chroma_row(const strips *s, int c, int32_t y, int32_t strip)
{
    const pen__jpeg_frame *f = &s->frame;
    const pen__rect *w = &s->job->window;
    const plane *p = &s->planes[c];
    int32_t row = y / f->mcu_v, left = w->x / f->mcu_h;
    int32_t n = (w->x + w->w - 1) / f->mcu_h + 1 - left;
    const uint8_t *near = row_of(p, row - 8 * strip + 1) + left - 8 * s->first_column;
    uint8_t *up = s->upsampled[c - 1];
    if (f->mcu_v == 1) {
        if (f->mcu_h == 1)
            return near;
        s->kernels->upsample_h2v1(near, up, n);
        return up + w->x % 2;
    }
    bool is_lower = y % 2 == 1;
    int32_t last = div_up(f->height, 2) - 1, neighbour = is_lower ? row + 1 : row - 1;
    const uint8_t *far = neighbour < 0 || neighbour > last ? near
                         : is_lower                        ? near + p->stride
                                                           : near - p->stride;
    if (f->mcu_h == 1) {
        s->kernels->upsample_h1v2(near, far, up, n, is_lower ? 2 : 1);
        return up;
    }
    s->kernels->upsample_h2v2(near, far, up, n);
    return up + w->x % 2;
}

static void convert_row(strips *s, int32_t y, int32_t strip, uint8_t *dst)
{
    const pen__rect *w = &s->job->window;
    int32_t column = w->x - 8 * s->frame.mcu_h * s->first_column;
    const uint8_t *luma = row_of(&s->planes[0], y - 8 * s->frame.mcu_v * strip + 1) + column;
    if (is_grey(s)) {
        memcpy(dst, luma, (size_t)w->w);
        return;
    }
    const uint8_t *cb = chroma_row(s, 1, y, strip), *cr = chroma_row(s, 2, y, strip);
    s->kernels->ycc_to_rgb(luma, cb, cr, dst, w->w);
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

/* All rows of the window that the strips up to this one complete. */
static void write_rows(strips *s, int32_t strip)
{
    int32_t height = 8 * s->frame.mcu_v, end = (strip + 1) * height;
    if (s->frame.mcu_v == 2 && strip + 1 < s->n_strips)
        end--;
    end = end < last_row(s) + 1 ? end : last_row(s) + 1;
    for (; s->next_row < end; s->next_row++)
        write_row(s, s->next_row, strip);
}

static void keep_last_row(strips *s)
{
    for (int c = 0; c < s->frame.n_components; c++) {
        const plane *p = &s->planes[c];
        int32_t last = c == 0 ? 8 * s->frame.mcu_v : 8;
        memcpy(p->rows - ROW_MARGIN, row_of(p, last) - ROW_MARGIN, (size_t)p->stride);
    }
}

/* --- the whole --- */

static int decode_strips(strips *s)
{
    int32_t first = first_strip(s), wanted = end_of_wanted(s), n = n_strips_read(s);
    for (int32_t i = 0; i < n; i++) {
        if (pen__job_cancelled(s->job))
            return pen__fail(s->job->err, PEN_ECANCELED, -1, "JPEG: cancelled");
        bool is_wanted = i >= first && i < wanted;
        bool is_sound = is_wanted ? decode_strip(s) : pen__jpeg_scan_skip(&s->scan, s->n_columns);
        if (!is_sound || !pen__jpeg_scan_is_sound(&s->scan))
            return PEN__JPEG_DECLINED;
        if (!is_wanted)
            continue;
        write_rows(s, i);
        if (s->frame.mcu_v == 2)
            keep_last_row(s);
    }
    /* with the last row in the window, what follows it counts, too */
    if (last_row(s) == s->frame.height - 1 && !pen__jpeg_scan_is_at_end(&s->scan))
        return PEN__JPEG_DECLINED;
    return 0;
}

static bool is_ours(strips *s)
{
    const pen__decode_job *job = s->job;
    return !job->info->is_progressive && pen__jpeg_frame_read(&s->frame, job->src, job->len) &&
           s->frame.width == job->info->width && s->frame.height == job->info->height &&
           s->frame.n_components == job->info->channels;
}

int pen__jpeg_window_decode(pen__jpeg_window *own, const pen__decode_job *job, uint8_t *scratch)
{
    strips s;
    s.job = job;
    if (!is_ours(&s)) {
        own->counts.n_foreign++;
        return PEN__JPEG_DECLINED;
    }
    s.kernels = pen__jpeg_kernels_get();
    s.full.n = s.low.n = s.n_slots = 0;
    s.next_row = job->window.y;
    s.n_strips = div_up(s.frame.height, 8 * s.frame.mcu_v);
    set_columns(&s);
    uint8_t *chunk = place(&s, scratch);
    int rc = PEN__JPEG_DECLINED;
    if (pen__jpeg_scan_start(&s.scan, &s.frame, &own->tables, job->src, job->len, chunk, NULL))
        rc = decode_strips(&s);
    own->counts.n_own += rc == 0;
    own->counts.n_flawed += rc == PEN__JPEG_DECLINED;
    return rc;
}
