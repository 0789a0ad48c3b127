/* jpeg_cut.c - the bits of a window's MCUs, from one JPEG file into another.
 *
 * The scan is parsed as for decoding, only that nothing is kept of it but where blocks begin and
 * what their DCs are.  Bits that go over as they are form a run; it is copied when it ends, not
 * block by block.  Two things end a run:
 *
 * - A DC difference to a predecessor that is another one in the cut: at the beginning of each
 * strip, behind a restart marker (the cut has none), behind a flat block.  It is coded anew.  As
 * soon as a component's block has been copied, its predecessor is the file's again.
 * - A luma block that no pixel of the window depends on, in an MCU at the window's edge that is
 *   there for its chroma or for its other blocks.  It becomes flat: no difference, end of block.
 *
 * With marks, what is above the window and beside it is not parsed; and in strips that lie in the
 * window with all their rows, neither is what lies between the marks: bits are copied from mark to
 * mark.  An entry of marks is bound to the file's bytes (jpeg_marks.h), and each strip is checked
 * to pass the first mark on its way exactly; where that fails, all begins again without marks.
 *
 * At the image's right and bottom edge the cut ends where the image ends, so that upsampling finds
 * the same edge.  Images at most four pixels wide are not interpolated, so such a cut takes one
 * more MCU.
 */
#include "ops/jpeg_cut.h"

#include <penstock/error.h>

#include <string.h>

#include "base/mem.h"
#include "ops/jpeg_bits.h"
#include "ops/jpeg_cut_head.h"
#include "ops/jpeg_need.h"
#include "ops/jpeg_put.h"

/* One file's way. */
typedef struct walk {
    pen__jpeg_scan scan;
    pen__jpeg_put put;
    const pen__jpeg_frame *frame;
    const pen__jpeg_marks *marks;
    pen__jpeg_need need;
    pen__jpeg_cut_head head;
    int32_t dc[PEN__JPEG_MAX_COMPONENTS]; /* predecessors in the cut */
    int64_t run_from; /* bit of the chunk: what was parsed since is to be copied */
    int32_t luma_x, luma_end_x, luma_y, luma_end_y; /* luma blocks that the window needs */
    uint32_t eob;
    int n_eob; /* bits of the luma code's end of block; 0: no block can be made flat */
} walk;

struct pen__jpeg_cutter {
    pen__jpeg_tables tables;
    pen__jpeg_marks marks;
    pen__jpeg_frame frame;
    walk walk;
    uint8_t chunk[PEN__JPEG_CHUNK_BYTES + PEN__JPEG_CHUNK_SLACK];
};

int pen__jpeg_cutter_create(pen__jpeg_cutter **out)
{
    *out = pen__calloc(1, sizeof **out);
    return *out ? 0 : PEN_ENOMEM;
}

void pen__jpeg_cutter_free(pen__jpeg_cutter *cutter)
{
    pen__free(cutter);
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* --- runs --- */

ALWAYS_INLINE int64_t bit_of(const walk *w, const pen__jpeg_bits *in)
{
    return (in->next - w->scan.chunk) * 8 - in->n_bits;
}

static void begin_run(walk *w)
{
    w->run_from = bit_of(w, &w->scan.in);
}

static void end_run(walk *w)
{
    pen__jpeg_put_copy(&w->put, w->scan.chunk, w->run_from, bit_of(w, &w->scan.in));
    begin_run(w);
}

/* --- MCUs --- */

/* Which blocks of an MCU to copy, a bit for each; the others become flat. */
ALWAYS_INLINE unsigned wanted_blocks(const walk *w, int32_t strip, int32_t column)
{
    int h = w->frame->mcu_h, v = w->frame->mcu_v;
    int32_t x = column * h, y = strip * v;
    unsigned all = (1U << w->scan.n_blocks) - 1, wanted = all;
    if (x >= w->luma_x && x + h <= w->luma_end_x && y >= w->luma_y && y + v <= w->luma_end_y)
        return all;
    for (int j = 0; j < v; j++)
        for (int i = 0; i < h; i++)
            if (x + i < w->luma_x || x + i >= w->luma_end_x || y + j < w->luma_y ||
                y + j >= w->luma_end_y)
                wanted &= ~(1U << (j * h + i));
    return w->n_eob > 0 ? wanted : all;
}

static bool put_flat(walk *w)
{
    if (!pen__jpeg_put_dc(&w->put, &w->head.dc[w->head.dc_of[0]], 0))
        return false;
    pen__jpeg_put_bits(&w->put, w->eob, w->n_eob);
    return true;
}

/* A block that cannot be copied as it is: from bit `start`, with its AC from bit `ac`, to
 * bit `end`. */
static bool put_changed(walk *w, int c, bool is_wanted, int32_t dc, int64_t start, int64_t ac,
                        int64_t end)
{
    pen__jpeg_put_copy(&w->put, w->scan.chunk, w->run_from, start);
    w->run_from = is_wanted ? ac : end;
    if (!is_wanted)
        return put_flat(w);
    return pen__jpeg_put_dc(&w->put, &w->head.dc[w->head.dc_of[c]], dc - w->dc[c]);
}

/* Parse the next MCU and have it copied, all of it or the wanted blocks. */
ALWAYS_INLINE bool copy_mcu(walk *w, unsigned wanted)
{
    pen__jpeg_scan *scan = &w->scan;
    pen__jpeg_bits in = scan->in; /* a copy, so that it lives in registers */
    bool is_bad = false;
    for (int b = 0; b < scan->n_blocks; b++, wanted >>= 1) {
        int c = scan->component_of[b];
        bool is_wanted = wanted & 1;
        refill(&in);
        int64_t start = bit_of(w, &in);
        int32_t before = scan->dc[c], dc = before + read_dc(&in, scan->dc_tables[c], &is_bad);
        int64_t ac = bit_of(w, &in);
        is_bad |= read_ac(&in, scan->ac_tables[c], NULL, false) == 0 || dc != (int16_t)dc;
        if (is_bad)
            return false;
        if (UNLIKELY(!is_wanted || w->dc[c] != before) &&
            !put_changed(w, c, is_wanted, dc, start, ac, bit_of(w, &in)))
            return false;
        scan->dc[c] = dc;
        if (is_wanted)
            w->dc[c] = dc;
    }
    scan->in = in;
    return true;
}

ALWAYS_INLINE bool copy_each(walk *w, int32_t strip, int32_t column, int32_t end)
{
    pen__jpeg_scan *scan = &w->scan;
    begin_run(w);
    for (; column < end; column++) {
        if (UNLIKELY(scan->restart_interval || scan->in.next > scan->safe)) {
            end_run(w); /* the chunk may move */
            if (!pen__jpeg_scan_prepare(scan))
                return false;
            begin_run(w);
        }
        if (!copy_mcu(w, wanted_blocks(w, strip, column)))
            return false;
    }
    end_run(w);
    return pen__jpeg_scan_is_sound(scan);
}

#if defined(__x86_64__)
__attribute__((target("bmi2"))) static bool copy_each_bmi2(walk *w, int32_t strip, int32_t column,
                                                           int32_t end)
{
    return copy_each(w, strip, column, end);
}
#endif

/* The MCUs of a strip from `column`, where the scan is, to `end`. */
static bool copy_mcus(walk *w, int32_t strip, int32_t column, int32_t end)
{
#if defined(__x86_64__)
    if (w->scan.has_bmi2)
        return copy_each_bmi2(w, strip, column, end);
#endif
    return copy_each(w, strip, column, end);
}

/* --- from mark to mark --- */

/* Bytes from `at` to `end`, `end` being the beginning of a byte that was not stuffing, without
 * stuffing, as many as the chunk takes.  Moves *at.  NULL if a marker is among them. */
static uint8_t *unstuff(walk *w, const uint8_t **at, const uint8_t *end)
{
    uint8_t *dst = w->scan.chunk, *dst_end = dst + PEN__JPEG_CHUNK_BYTES;
    const uint8_t *src = *at;
    while (src < end && dst < dst_end) {
        size_t n = (size_t)(end - src), room = (size_t)(dst_end - dst);
        n = n < room ? n : room;
        const uint8_t *ff = memchr(src, 0xFF, n);
        n = ff ? (size_t)(ff - src) + 1 : n;
        memcpy(dst, src, n);
        dst += n;
        src += n;
        if (ff && (src >= end || *src++ != 0))
            return NULL;
    }
    *at = src;
    return dst;
}

/* All bits between two marks of a strip, unseen. */
static bool copy_between(walk *w, const pen__jpeg_mark *from, const pen__jpeg_mark *to)
{
    const pen__jpeg_scan *scan = &w->scan;
    if (from->at > to->at || to->at >= scan->len)
        return false;
    const uint8_t *at = scan->src + from->at, *end = scan->src + to->at;
    int64_t first = from->n_bits;
    while (at < end) {
        uint8_t *chunk_end = unstuff(w, &at, end);
        if (!chunk_end)
            return false;
        memset(chunk_end, 0, 16); /* read, not used */
        pen__jpeg_put_copy(&w->put, scan->chunk, first, (chunk_end - scan->chunk) * 8);
        first = 0;
    }
    if (first > to->n_bits)
        return false;
    memset(w->scan.chunk, 0, 16);
    w->scan.chunk[0] = *end;
    pen__jpeg_put_copy(&w->put, scan->chunk, first, to->n_bits);
    memcpy(w->dc, to->dc, sizeof w->dc);
    return true;
}

static bool is_in_step(const walk *w)
{
    return memcmp(w->dc, w->scan.dc, sizeof w->dc) == 0;
}

static bool is_same_mark(const pen__jpeg_mark *a, const pen__jpeg_mark *b)
{
    return a->at == b->at && a->n_bits == b->n_bits && memcmp(a->dc, b->dc, sizeof a->dc) == 0;
}

static pen__jpeg_mark mark_at(const walk *w, int32_t strip, int32_t part)
{
    return pen__jpeg_marks_get(w->marks, strip * w->marks->grid.per_row + part);
}

/* Make the scan stand where part number `part` of a strip begins; MCUs up to the beginning of
 * part number `end` will be wanted. */
static bool seek_part(walk *w, int32_t strip, int32_t part, int32_t end)
{
    const pen__jpeg_mark from = mark_at(w, strip, part), to = mark_at(w, strip, end);
    size_t n_bytes = to.at >= from.at ? to.at - from.at + 1 : PEN__JPEG_CHUNK_BYTES;
    int64_t n_mcus = (int64_t)strip * w->need.n_columns + part * w->marks->grid.step;
    return pen__jpeg_scan_seek(&w->scan, &from, n_mcus, n_bytes);
}

/* All rows of the strip's luma are wanted. */
static bool is_inside(const walk *w, int32_t strip)
{
    int32_t y = strip * w->frame->mcu_v;
    return y >= w->luma_y && y + w->frame->mcu_v <= w->luma_end_y;
}

/* MCUs from `column`, where the scan is, to the window's end.  The next mark on the way must be
 * passed exactly. */
static bool copy_checked(walk *w, int32_t strip, int32_t column)
{
    int32_t step = w->marks->grid.step, next = column / step + 1, end = w->need.end_column;
    if (next * step < end) {
        pen__jpeg_mark due = mark_at(w, strip, next), here;
        if (!copy_mcus(w, strip, column, next * step) || !pen__jpeg_scan_tell(&w->scan, &here) ||
            !is_same_mark(&here, &due))
            return false;
        column = next * step;
    }
    return copy_mcus(w, strip, column, end);
}

/* From where the scan is to mark number `last` of the strip unseen, and from there to the window's
 * end. */
static bool copy_jumping(walk *w, int32_t strip, int32_t last, int32_t end_part)
{
    pen__jpeg_mark here;
    const pen__jpeg_mark to = mark_at(w, strip, last);
    return pen__jpeg_scan_tell(&w->scan, &here) && copy_between(w, &here, &to) &&
           seek_part(w, strip, last, end_part) &&
           copy_mcus(w, strip, last * w->marks->grid.step, w->need.end_column);
}

/* The window's part of a strip whose marks are known.  Two MCUs at each end may have flat
 * blocks, so these are parsed in any case. */
static bool cut_known_strip(walk *w, int32_t strip)
{
    const pen__jpeg_need *need = &w->need;
    int32_t step = w->marks->grid.step, start = need->first_column / step;
    int32_t last = need->end_column > 2 ? (need->end_column - 2) / step : 0;
    int32_t edge = smaller(need->first_column + 2, need->end_column);
    int32_t end_part = (need->end_column + step - 1) / step;
    bool may_jump = last * step > edge && is_inside(w, strip) && w->scan.restart_interval == 0;
    if (!seek_part(w, strip, start, may_jump ? (edge + step - 1) / step : end_part) ||
        !pen__jpeg_scan_skip(&w->scan, need->first_column - start * step) ||
        !copy_mcus(w, strip, need->first_column, may_jump ? edge : need->first_column))
        return false;
    if (may_jump && is_in_step(w))
        return copy_jumping(w, strip, last, end_part);
    return copy_checked(w, strip, may_jump ? edge : need->first_column);
}

/* --- the whole --- */

/* Strips from the first without marks on, as far as libjpeg would read. */
static bool cut_unknown_strips(walk *w, int32_t known)
{
    const pen__jpeg_need *need = &w->need;
    pen__jpeg_mark mark = pen__jpeg_marks_end(w->marks, w->frame);
    if (!pen__jpeg_scan_seek(&w->scan, &mark, (int64_t)known * need->n_columns,
                             PEN__JPEG_CHUNK_BYTES))
        return false;
    for (int32_t i = known; i < need->n_read; i++) {
        bool is_wanted = i >= need->first_strip && i < need->end_strip;
        int32_t first = is_wanted ? need->first_column : 0, end = is_wanted ? need->end_column : 0;
        if (!pen__jpeg_scan_skip(&w->scan, first) || !copy_mcus(w, i, first, end) ||
            !pen__jpeg_scan_skip(&w->scan, need->n_columns - end) ||
            !pen__jpeg_scan_is_sound(&w->scan))
            return false;
    }
    return true;
}

static bool cut_strips(walk *w, bool needs_end)
{
    const pen__jpeg_need *need = &w->need;
    int32_t known = w->marks->n_rows;
    needs_end &= !w->marks->is_complete;
    for (int32_t i = need->first_strip; i < need->end_strip && i < known; i++)
        if (!cut_known_strip(w, i))
            return false;
    if ((known < need->n_read || needs_end) && !cut_unknown_strips(w, known))
        return false;
    return !needs_end || pen__jpeg_scan_is_at_end(&w->scan);
}

static void set_luma(walk *w, pen__rect window)
{
    w->luma_x = window.x / 8;
    w->luma_end_x = (window.x + window.w - 1) / 8 + 1;
    w->luma_y = window.y / 8;
    w->luma_end_y = (window.y + window.h - 1) / 8 + 1;
    w->eob = pen__jpeg_ac_word(w->frame->components[0].ac, 0, &w->n_eob);
}

static pen__rect kept_rect(const walk *w)
{
    const pen__jpeg_need *need = &w->need;
    int32_t width = 8 * w->frame->mcu_h, height = 8 * w->frame->mcu_v;
    pen__rect r = {need->first_column * width, need->first_strip * height, 0, 0};
    r.w = smaller(need->end_column * width, w->frame->width) - r.x;
    r.h = smaller(need->end_strip * height, w->frame->height) - r.y;
    return r;
}

/* The head grew by what was appended to codes while bits were written. */
static int64_t finish(walk *w, pen__rect kept, uint8_t *dst, size_t n_head)
{
    pen__jpeg_put *put = &w->put;
    size_t n_now = pen__jpeg_cut_head_bytes(&w->head), n_more = n_now - n_head;
    pen__jpeg_put_end(put);
    if (put->is_full || (size_t)(put->end - put->at) < n_more + 2)
        return 0;
    size_t n_scan = (size_t)(put->at - dst) - n_head;
    if (n_more > 0)
        memmove(dst + n_now, dst + n_head, n_scan);
    pen__jpeg_cut_head_write(&w->head, kept, dst);
    memcpy(dst + n_now + n_scan, "\xFF\xD9", 2);
    return (int64_t)(n_now + n_scan + 2);
}

static int64_t cut_marked(pen__jpeg_cutter *cutter, pen__rect window, uint8_t *dst, size_t dst_cap,
                          pen__rect kept)
{
    walk *w = &cutter->walk;
    pen__jpeg_cut_head_begin(&w->head, &cutter->frame);
    size_t n_head = pen__jpeg_cut_head_bytes(&w->head);
    if (n_head > dst_cap)
        return 0;
    w->put = (pen__jpeg_put){.at = dst + n_head, .end = dst + dst_cap};
    memset(w->dc, 0, sizeof w->dc);
    bool needs_end = window.y + window.h == cutter->frame.height;
    return cut_strips(w, needs_end) ? finish(w, kept, dst, n_head) : 0;
}

static bool is_in_image(const pen__jpeg_frame *f, pen__rect r)
{
    return r.x >= 0 && r.y >= 0 && r.w > 0 && r.h > 0 && r.w <= f->width - r.x &&
           r.h <= f->height - r.y;
}

/* Header to need.  False: the file is declined. */
static bool begin(pen__jpeg_cutter *cutter, const uint8_t *src, size_t len, pen__rect window,
                  pen__rect *kept)
{
    walk *w = &cutter->walk;
    pen__jpeg_frame *frame = &cutter->frame;
    if (!pen__jpeg_frame_read(frame, src, len) || !is_in_image(frame, window) ||
        !pen__jpeg_scan_start(&w->scan, frame, &cutter->tables, src, len, cutter->chunk))
        return false;
    w->frame = frame;
    w->need = pen__jpeg_need_of(frame, window);
    set_luma(w, window);
    *kept = kept_rect(w);
    if (frame->mcu_h == 2 && kept->w <= 4) { /* at the right edge; the image itself is wider */
        w->need.first_column--;
        *kept = kept_rect(w);
    }
    return true;
}

/* With marks, if there are any, and without if they lead nowhere. */
static int64_t cut_begun(pen__jpeg_cutter *cutter, size_t len, pen__rect window,
                         const pen__jpeg_marks *marks, uint8_t *dst, size_t dst_cap, pen__rect kept)
{
    walk *w = &cutter->walk;
    if (marks) {
        w->marks = marks;
        int64_t n = cut_marked(cutter, window, dst, dst_cap, kept);
        if (n > 0 || w->put.is_full)
            return n;
    }
    pen__jpeg_marks_begin(&cutter->marks, &cutter->frame, len);
    w->marks = &cutter->marks;
    return cut_marked(cutter, window, dst, dst_cap, kept);
}

int64_t pen__jpeg_cut_known(pen__jpeg_cutter *cutter, const uint8_t *src, size_t len,
                            pen__rect window, const pen__jpeg_marks *marks, uint8_t *dst,
                            size_t dst_cap, pen__rect *kept)
{
    return begin(cutter, src, len, window, kept)
               ? cut_begun(cutter, len, window, marks, dst, dst_cap, *kept)
               : 0;
}

int64_t pen__jpeg_cut(pen__jpeg_cutter *cutter, const uint8_t *src, size_t len, pen__rect window,
                      const void *marks, size_t n_marks, uint8_t *dst, size_t dst_cap,
                      pen__rect *kept)
{
    if (!begin(cutter, src, len, window, kept))
        return 0;
    pen__jpeg_marks_begin(&cutter->marks, &cutter->frame, len);
    bool is_known = n_marks > 0 && pen__jpeg_marks_load(&cutter->marks, marks, n_marks, src, len);
    return cut_begun(cutter, len, window, is_known ? &cutter->marks : NULL, dst, dst_cap, *kept);
}
