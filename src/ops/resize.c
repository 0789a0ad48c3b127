/* resize.c - which passes a resize takes, in which order, on which rows.
 *
 * Pillow's rules, all functions of the whole sizes:
 *   - a side whose size does not change gets no pass, so equal sizes copy;
 *   - the vertical pass goes first when the height shrinks, and by more than
 *     twice what the width shrinks (in pixels; a width that grows counts
 *     negative); else the horizontal pass goes first.  The order shows, because
 *     the image in between is rounded to uint8;
 *   - nearest is no filter: it picks the pixel under each output's centre.
 *
 * Each pass computes only what the window needs.  With the horizontal pass first, rows
 * can come one after another and be forgotten: that is a flow, which a decoder
 * feeds (engine/run.c) and which pen__resize itself uses.  The kernels read up to
 * PEN__RESIZE_SLACK bytes past a row, so the last rows of a whole image, where that
 * would leave the buffer, are moved to scratch first.
 */
#include "ops/resize.h"

#include <stdbool.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/resize_kernels.h"

const pen__resize_kernels *pen__resize_kernels_pick(void)
{
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX512)
        return &pen__resize_kernels_avx512;
    if (pen__cpu_flags() & PEN__CPU_AVX2)
        return &pen__resize_kernels_avx2;
#endif
    return &pen__resize_kernels_c;
}

/* ---- what a spec asks for ------------------------------------------------ */

static pen__axis axis_x(const pen__resize_spec *spec)
{
    return (pen__axis){spec->in_w, spec->out_w, spec->filter};
}

static pen__axis axis_y(const pen__resize_spec *spec)
{
    return (pen__axis){spec->in_h, spec->out_h, spec->filter};
}

static bool is_identity(const pen__axis *axis)
{
    return axis->in_size == axis->out_size;
}

static bool is_vertical_first(const pen__resize_spec *spec)
{
    int64_t shrink_w = (int64_t)spec->in_w - spec->out_w;
    int64_t shrink_h = (int64_t)spec->in_h - spec->out_h;
    return shrink_h > 0 && shrink_h > 2 * shrink_w;
}

static size_t round_up_64(size_t n_bytes)
{
    return (n_bytes + 63) & ~(size_t)63;
}

/* ---- nearest ---------------------------------------------------------------- */

/* Walks along the outputs of an axis.  Pillow adds the step up instead of
 * multiplying, and the rounding of that sum decides where a centre falls on a
 * border, so a window walks from output 0 as well. */
typedef struct nearest_walk {
    double at, step;
    int32_t last; /* index of the last input */
} nearest_walk;

static nearest_walk nearest_start(const pen__axis *axis, int32_t first)
{
    double step = (double)axis->in_size / axis->out_size;
    nearest_walk walk = {step * 0.5, step, axis->in_size - 1};
    for (int32_t i = 0; i < first; i++)
        walk.at += walk.step;
    return walk;
}

static int32_t nearest_next(nearest_walk *walk)
{
    int32_t at = (int32_t)walk->at;
    walk->at += walk->step;
    return at < walk->last ? at : walk->last;
}

static void nearest_needs(const pen__axis *axis, int32_t first, int32_t count, int32_t *from,
                          int32_t *to)
{
    nearest_walk walk = nearest_start(axis, first);
    *from = *to = nearest_next(&walk);
    for (int32_t i = 1; i < count; i++)
        *to = nearest_next(&walk);
    *to += 1;
}

static void nearest_row_grey(const int32_t *column, int32_t count, const uint8_t *in, uint8_t *out)
{
    for (int32_t x = 0; x < count; x++)
        out[x] = in[column[x]];
}

/* The first n_wide pixels move as four bytes, one of which the next one overwrites. */
static void nearest_row_rgb(const int32_t *column, int32_t count, int32_t n_wide, const uint8_t *in,
                            uint8_t *out)
{
    int32_t x = 0;
    for (; x < n_wide; x++, out += 3)
        memcpy(out, in + (size_t)column[x] * 3, 4);
    for (; x < count; x++, out += 3)
        memcpy(out, in + (size_t)column[x] * 3, 3);
}

static void nearest_resize(const pen__resize_spec *spec, const pen__image *src, pen__rect have,
                           uint8_t *dst, void *scratch)
{
    pen__axis ax = axis_x(spec), ay = axis_y(spec);
    int32_t *column = scratch, count = spec->window.w; // (count)
    nearest_walk walk = nearest_start(&ax, spec->window.x);
    for (int32_t x = 0; x < count; x++)
        column[x] = nearest_next(&walk) - have.x;
    /* a fourth byte must be there, in the row read and in the row written */
    int32_t n_wide = 0;
    while (n_wide + 1 < count && column[n_wide] + 1 < src->w)
        n_wide++;
    walk = nearest_start(&ay, spec->window.y);
    size_t src_stride = (size_t)src->w * (size_t)src->ch;
    size_t dst_stride = (size_t)count * (size_t)src->ch;
    for (int32_t y = 0; y < spec->window.h; y++, dst += dst_stride) {
        const uint8_t *row = src->px + (size_t)(nearest_next(&walk) - have.y) * src_stride;
        if (src->ch == 3)
            nearest_row_rgb(column, count, n_wide, row, dst);
        else
            nearest_row_grey(column, count, row, dst);
    }
}

/* ---- filters --------------------------------------------------------------- */

static void side_needs(const pen__axis *axis, int32_t first, int32_t count, int32_t *from,
                       int32_t *size)
{
    int32_t to = first + count;
    *from = first;
    if (count > 0 && !is_identity(axis)) {
        if (axis->filter == PEN_FILTER_NEAREST)
            nearest_needs(axis, first, count, from, &to);
        else
            pen__axis_needs(axis, first, count, from, &to);
    }
    *size = to - *from;
}

pen__rect pen__resize_needs(const pen__resize_spec *spec)
{
    pen__axis ax = axis_x(spec), ay = axis_y(spec);
    pen__rect needs;
    side_needs(&ax, spec->window.x, spec->window.w, &needs.x, &needs.w);
    side_needs(&ay, spec->window.y, spec->window.h, &needs.y, &needs.h);
    return needs;
}

/* Bytes that the last rows take when they are moved: one row, or as many as lie
 * within the slack when rows are shorter than that. */
static size_t moved_rows_bytes(size_t row_bytes)
{
    size_t most = PEN__RESIZE_SLACK / row_bytes + 1;
    return round_up_64(most * row_bytes + PEN__RESIZE_SLACK);
}

/* The image between the passes: rows of the horizontal pass's output, or (vertical first) of
 * its input, with slack after the last. */
static size_t between_bytes(const pen__resize_spec *spec, pen__rect needs, size_t ch)
{
    size_t pixels = is_vertical_first(spec) ? (size_t)needs.w * (size_t)spec->window.h
                                            : (size_t)spec->window.w * (size_t)needs.h;
    return round_up_64(pixels * ch + PEN__RESIZE_SLACK);
}

size_t pen__resize_scratch(const pen__resize_spec *spec, int ch)
{
    pen__axis ax = axis_x(spec), ay = axis_y(spec);
    if (spec->window.w <= 0 || spec->window.h <= 0 || (is_identity(&ax) && is_identity(&ay)))
        return 0;
    if (spec->filter == PEN_FILTER_NEAREST)
        return round_up_64((size_t)spec->window.w * sizeof(int32_t));
    pen__rect needs = pen__resize_needs(spec);
    size_t total = 0;
    if (!is_identity(&ax))
        total +=
            pen__taps_bytes(&ax, spec->window.w) + moved_rows_bytes((size_t)needs.w * (size_t)ch);
    if (!is_identity(&ay))
        total += pen__taps_bytes(&ay, spec->window.h);
    if (!is_identity(&ax) && !is_identity(&ay))
        total += between_bytes(spec, needs, (size_t)ch);
    return total;
}

/* Part of an image: rows that are `stride` bytes apart. */
typedef struct plane {
    const uint8_t *px;
    size_t stride, row_bytes;
    int32_t n_rows;
    const uint8_t *end; /* of what may be read */
} plane;

static plane plane_of(const pen__image *src, pen__rect have, pen__rect part)
{
    size_t ch = (size_t)src->ch, stride = (size_t)src->w * ch;
    return (plane){.px = src->px + (size_t)(part.y - have.y) * stride +
                         (size_t)(part.x - have.x) * ch,
                   .stride = stride,
                   .row_bytes = (size_t)part.w * ch,
                   .n_rows = part.h,
                   .end = src->px + pen__image_bytes(src)};
}

/* Rows of `in` that keep their distance from its end. */
static int32_t rows_with_slack(const plane *in)
{
    int32_t n = in->n_rows;
    while (n > 0) {
        const uint8_t *row_end = in->px + (size_t)(n - 1) * in->stride + in->row_bytes;
        if (in->end - row_end >= PEN__RESIZE_SLACK)
            break;
        n--;
    }
    return n;
}

static void vertical_pass(pen__taps *taps, const uint8_t *px, size_t stride, size_t row_bytes,
                          uint8_t *dst)
{
    const pen__resize_kernels *kernels = pen__resize_kernels_pick();
    kernels->prepare_vertical(taps);
    for (int32_t y = 0; y < taps->count; y++)
        kernels->vertical(taps, y, px + (size_t)taps->start[y] * stride, stride, row_bytes,
                          dst + (size_t)y * row_bytes);
}

static void copy_rows(const plane *in, uint8_t *dst)
{
    for (int32_t y = 0; y < in->n_rows; y++)
        memcpy(dst + (size_t)y * in->row_bytes, in->px + (size_t)y * in->stride, in->row_bytes);
}

/* ---- a flow: across, then down ------------------------------------------------ */

bool pen__resize_can_flow(const pen__resize_spec *spec)
{
    pen__axis ax = axis_x(spec), ay = axis_y(spec);
    return spec->filter != PEN_FILTER_NEAREST && spec->window.w > 0 && spec->window.h > 0 &&
           !is_identity(&ax) && (is_identity(&ay) || !is_vertical_first(spec));
}

void pen__resize_flow_begin(pen__resize_flow *flow, const pen__resize_spec *spec, pen__rect have,
                            int ch, pen__image *dst, void *scratch)
{
    pen__axis ax = axis_x(spec), ay = axis_y(spec);
    pen__rect needs = pen__resize_needs(spec), window = spec->window;
    uint8_t *at = scratch;
    *dst = (pen__image){dst->px, window.w, window.h, ch};
    *flow = (pen__resize_flow){.ch = ch,
                               .left_bytes = (size_t)(needs.x - have.x) * (size_t)ch,
                               .first_row = needs.y - have.y,
                               .n_rows = needs.h,
                               .narrowed = dst->px,
                               .dst = dst};
    pen__taps_init(&flow->across, &ax, window.x, window.w, needs.x, needs.w, at);
    pen__resize_kernels_pick()->prepare_horizontal(&flow->across, ch);
    if (is_identity(&ay))
        return;
    at += pen__taps_bytes(&ax, window.w);
    pen__taps_init(&flow->down, &ay, window.y, window.h, needs.y, needs.h, at);
    pen__resize_kernels_pick()->prepare_vertical(&flow->down);
    flow->narrowed = at + pen__taps_bytes(&ay, window.h);
}

/* Rows [first, end) were narrowed: make all rows of the output that this allows.  Where rows came
 * again, from the first, because ends of what outputs need are not quite in order. */
static void finish_rows(pen__resize_flow *flow, int32_t first, int32_t end)
{
    const pen__taps *down = &flow->down;
    size_t row_bytes = (size_t)flow->across.count * (size_t)flow->ch;
    int32_t y = first < flow->n_narrowed ? 0 : flow->n_finished;
    for (; y < down->count && down->start[y] + down->used[y] <= end; y++)
        pen__resize_kernels_pick()->vertical(
            down, y, flow->narrowed + (size_t)down->start[y] * row_bytes, row_bytes, row_bytes,
            flow->dst->px + (size_t)y * row_bytes);
    flow->n_finished = y;
    flow->n_narrowed = end;
}

void pen__resize_flow_rows(pen__resize_flow *flow, int32_t y, const uint8_t *rows, size_t stride,
                           int32_t n_rows)
{
    size_t row_bytes = (size_t)flow->across.count * (size_t)flow->ch;
    int32_t first = y > flow->first_row ? y : flow->first_row;
    int32_t needed_end = flow->first_row + flow->n_rows;
    int32_t end = y + n_rows < needed_end ? y + n_rows : needed_end;
    if (first >= end)
        return;
    pen__resize_kernels_pick()->horizontal(
        &flow->across, rows + (size_t)(first - y) * stride + flow->left_bytes, stride, end - first,
        flow->ch, flow->narrowed + (size_t)(first - flow->first_row) * row_bytes, row_bytes);
    finish_rows(flow, first - flow->first_row, end - flow->first_row);
}

/* ---- the whole input at once --------------------------------------------------- */

/* Rows near the end of `src` have no slack behind them: copies of them do. */
static void flow_plane(pen__resize_flow *flow, const plane *in, uint8_t *moved)
{
    int32_t n = rows_with_slack(in), n_moved = in->n_rows - n;
    flow->left_bytes = 0;
    pen__resize_flow_rows(flow, flow->first_row, in->px, in->stride, n);
    for (int32_t y = 0; y < n_moved; y++)
        memcpy(moved + (size_t)y * in->row_bytes, in->px + (size_t)(n + y) * in->stride,
               in->row_bytes);
    pen__resize_flow_rows(flow, flow->first_row + n, moved, in->row_bytes, n_moved);
}

/* Down, then across; or down alone. */
static void resize_vertical_first(const pen__resize_spec *spec, const plane *in, pen__rect needs,
                                  pen__image *dst, uint8_t *scratch)
{
    pen__axis ay = axis_y(spec);
    pen__rect window = spec->window;
    pen__taps down;
    pen__taps_init(&down, &ay, window.y, window.h, needs.y, needs.h, scratch);
    scratch += pen__taps_bytes(&ay, window.h);
    if (spec->in_w == spec->out_w) {
        vertical_pass(&down, in->px, in->stride, in->row_bytes, dst->px);
        return;
    }
    vertical_pass(&down, in->px, in->stride, in->row_bytes, scratch);
    uint8_t *end = scratch + between_bytes(spec, needs, (size_t)dst->ch);
    plane lowered = {scratch, in->row_bytes, in->row_bytes, window.h, end};
    pen__resize_spec rest = *spec;
    rest.in_h = rest.out_h; /* as tall as it shall be */
    pen__resize_flow flow;
    pen__rect have = {needs.x, window.y, needs.w, window.h};
    pen__resize_flow_begin(&flow, &rest, have, dst->ch, dst, end);
    flow_plane(&flow, &lowered, NULL);
}

static void filter_resize(const pen__resize_spec *spec, const pen__image *src, pen__rect have,
                          pen__image *dst, uint8_t *scratch)
{
    pen__axis ax = axis_x(spec), ay = axis_y(spec);
    pen__rect needs = pen__resize_needs(spec);
    plane in = plane_of(src, have, needs);
    if (pen__resize_can_flow(spec)) {
        pen__resize_flow flow;
        size_t moved_bytes = moved_rows_bytes(in.row_bytes);
        pen__resize_flow_begin(&flow, spec, have, src->ch, dst, scratch + moved_bytes);
        flow_plane(&flow, &in, scratch);
    } else if (!is_identity(&ax) || !is_identity(&ay)) {
        resize_vertical_first(spec, &in, needs, dst, scratch);
    } else {
        copy_rows(&in, dst->px);
    }
}

void pen__resize(const pen__resize_spec *spec, const pen__image *src, pen__rect have,
                 pen__image *dst, void *scratch)
{
    dst->w = spec->window.w;
    dst->h = spec->window.h;
    dst->ch = src->ch;
    if (dst->w <= 0 || dst->h <= 0)
        return;
    bool same_size = spec->in_w == spec->out_w && spec->in_h == spec->out_h;
    if (spec->filter == PEN_FILTER_NEAREST && !same_size)
        nearest_resize(spec, src, have, dst->px, scratch);
    else
        filter_resize(spec, src, have, dst, scratch);
}
