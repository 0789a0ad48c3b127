/* plan.c - fold an operation line and its parameters into steps.
 *
 * Only the first geometric operation decides how much is decoded:
 *   a crop inside the image          its box
 *   RandomResizedCrop                its box, resized afterwards
 *   Resize, then a crop inside it    what the crop's window depends on
 *   anything else                    the whole image
 * Everything later works on whole, small images.  Where a resize is what comes first, it
 * takes rows as they are decoded, and the window is never in memory as a whole.
 */
#include "engine/plan.h"

#include <string.h>

#include "base/fail.h"
#include "ops/decode.h"
#include "ops/geometry.h"

enum { ALIGN = 64 };

static size_t align_up(size_t n)
{
    return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static pen__rect whole(int32_t w, int32_t h)
{
    return (pen__rect){0, 0, w, h};
}

static bool is_inside(pen__rect r, int32_t w, int32_t h)
{
    return r.x >= 0 && r.y >= 0 && r.w >= 1 && r.h >= 1 && r.w <= w - r.x && r.h <= h - r.y;
}

static pen__rect box_of(const pen_params *p)
{
    return (pen__rect){p->x, p->y, p->w, p->h};
}

static bool is_crop(const pen_op *op)
{
    return op->kind == PEN_OP_CENTER_CROP || op->kind == PEN_OP_RANDOM_CROP;
}

/* A Resize whose result is only looked at through the crop that follows. */
static bool is_resize_then_crop(const pen_pipeline *pipe, const pen_params *params, size_t i)
{
    return pipe->ops[i].kind == PEN_OP_RESIZE && i + 1 < pipe->n_image_ops &&
           is_crop(&pipe->ops[i + 1]) &&
           is_inside(box_of(&params[i + 1]), params[i].out_w, params[i].out_h);
}

static pen__resize_spec resize_of(const pen_pipeline *pipe, const pen_params *params, size_t i)
{
    const pen_params *p = &params[i];
    pen__resize_spec spec = {.in_w = p->w,
                             .in_h = p->h,
                             .out_w = p->out_w,
                             .out_h = p->out_h,
                             .window = whole(p->out_w, p->out_h)};
    spec.filter =
        pipe->ops[i].kind == PEN_OP_RESIZE ? pipe->ops[i].resize.filter : pipe->ops[i].area.filter;
    if (is_resize_then_crop(pipe, params, i))
        spec.window = box_of(&params[i + 1]);
    return spec;
}

/* The part of the (turned) image that the first operation needs. */
static pen__rect needed(const pen_pipeline *pipe, const pen_params *params)
{
    const pen_params *first = &params[1];
    pen__rect all = whole(params[0].in_w, params[0].in_h);
    if (pipe->n_image_ops < 2)
        return all;
    const pen_op *op = &pipe->ops[1];
    if (op->kind == PEN_OP_RANDOM_RESIZED_CROP)
        return box_of(first);
    if (is_crop(op) && is_inside(box_of(first), all.w, all.h))
        return box_of(first);
    if (op->kind == PEN_OP_RESIZE) {
        pen__resize_spec spec = resize_of(pipe, params, 1);
        return pen__resize_needs(&spec);
    }
    return all;
}

/* The image at a place of the line while steps are added. */
typedef struct cursor {
    pen__plan *plan;
    int32_t w, h, ch;
    int meant_ch; /* channels the pipeline means; ch may still be 1 where this is 3 */
} cursor;

static pen__step *add_step(cursor *at, pen__action action, size_t op, int32_t w, int32_t h, int ch)
{
    pen__plan *plan = at->plan;
    pen__step *step = &plan->steps[plan->n_steps++];
    memset(step, 0, sizeof *step);
    step->action = action;
    step->op = (uint8_t)op;
    size_t bytes = (size_t)w * (size_t)h * (size_t)ch;
    if (bytes > plan->image_bytes)
        plan->image_bytes = bytes;
    at->w = w;
    at->h = h;
    at->ch = ch;
    return step;
}

static void add_resize(cursor *at, const pen__resize_spec *spec, size_t op, pen__rect have)
{
    size_t scratch = pen__resize_scratch(spec, at->ch);
    if (scratch > at->plan->resize_bytes)
        at->plan->resize_bytes = scratch;
    pen__step *step = add_step(at, PEN__ACT_RESIZE, op, spec->window.w, spec->window.h, at->ch);
    step->resize = *spec;
    step->have = have;
}

static void add_crop(cursor *at, size_t op, pen__rect box, const uint8_t *fill)
{
    bool is_grey_fill = !fill || (fill[0] == fill[1] && fill[1] == fill[2]);
    if (at->ch < at->meant_ch && !is_grey_fill)
        add_step(at, PEN__ACT_SPREAD, op, at->w, at->h, 3);
    add_step(at, PEN__ACT_CROP, op, box.w, box.h, at->ch)->box = box;
}

/* Jitter works on three channels; grey files are spread for it, and a pipeline
 * of one channel goes back to one. */
static void add_jitter(cursor *at, size_t op)
{
    int ch = at->ch;
    if (ch == 1)
        add_step(at, PEN__ACT_SPREAD, op, at->w, at->h, 3);
    add_step(at, PEN__ACT_JITTER, op, at->w, at->h, 3);
    if (ch == 1)
        add_step(at, PEN__ACT_GREY, op, at->w, at->h, 1);
}

/* Add the steps of operation i; returns how many operations they cover. */
static size_t add_op(cursor *at, const pen_pipeline *pipe, const pen_params *params, size_t i,
                     pen__rect have)
{
    const pen_params *p = &params[i];
    switch (pipe->ops[i].kind) {
    case PEN_OP_RESIZE: {
        pen__resize_spec spec = resize_of(pipe, params, i);
        add_resize(at, &spec, i, have);
        return is_resize_then_crop(pipe, params, i) ? 2 : 1;
    }
    case PEN_OP_RANDOM_RESIZED_CROP: {
        pen__resize_spec spec = resize_of(pipe, params, i);
        if (i > 1) /* as first operation, its box is what was decoded */
            add_crop(at, i, box_of(p), NULL);
        add_resize(at, &spec, i, whole(p->w, p->h));
        return 1;
    }
    case PEN_OP_CENTER_CROP:
    case PEN_OP_RANDOM_CROP:
        if (i > 1 || !is_inside(box_of(p), p->in_w, p->in_h))
            add_crop(at, i, box_of(p), pipe->ops[i].crop.fill);
        return 1;
    case PEN_OP_HFLIP:
    case PEN_OP_VFLIP:
        if (p->applied)
            add_step(at, pipe->ops[i].kind == PEN_OP_HFLIP ? PEN__ACT_HFLIP : PEN__ACT_VFLIP, i,
                     at->w, at->h, at->ch);
        return 1;
    case PEN_OP_COLOR_JITTER:
        add_jitter(at, i);
        return 1;
    case PEN_OP_GRAYSCALE: /* one channel stands for three equal ones until the tensor */
        if (at->ch == 3)
            add_step(at, PEN__ACT_GREY, i, at->w, at->h, 1);
        at->meant_ch = pipe->ops[i].grayscale.channels;
        return 1;
    default:
        return 1;
    }
}

static bool starts_in_flow(const pen__plan *plan, const pen_image_info *info)
{
    const pen__step *first = &plan->steps[0];
    return plan->n_steps > 0 && first->action == PEN__ACT_RESIZE &&
           pen__resize_can_flow(&first->resize) && pen__decode_has_rows(info);
}

void pen__plan_build(pen__plan *plan, const pen_pipeline *pipe, const pen_image_info *info,
                     const pen_params *params)
{
    plan->n_steps = 0;
    plan->resize_bytes = 0;
    pen__rect have = needed(pipe, params);
    int ch = pen__decode_channels(info);
    int orientation = pipe->ops[0].decode.use_exif ? info->orientation : 1;
    plan->window = pen__orient_rect(have, orientation, info->width, info->height);
    plan->image_bytes = 0;
    plan->library_bytes = pen__decode_memory(info, plan->window);

    cursor at = {plan, have.w, have.h, ch, pipe->ops[0].decode.channels};
    if (orientation != 1)
        add_step(&at, PEN__ACT_ORIENT, 0, have.w, have.h, ch);
    if (ch == 3 && pipe->ops[0].decode.channels == 1)
        add_step(&at, PEN__ACT_GREY, 0, have.w, have.h, 1);
    for (size_t i = 1; i < pipe->n_image_ops;)
        i += add_op(&at, pipe, params, i, i == 1 ? have : whole(at.w, at.h));
    plan->starts_in_flow = starts_in_flow(plan, info);
    size_t window_bytes = (size_t)have.w * (size_t)have.h * (size_t)ch;
    if (!plan->starts_in_flow && window_bytes > plan->image_bytes)
        plan->image_bytes = window_bytes;
    plan->scratch_bytes = 2 * align_up(plan->image_bytes) + align_up(plan->resize_bytes);
}

static int check_one(const pen_op *op, const pen_params *p, const pen_params *drawn)
{
    if (p->kind != op->kind || p->in_w != drawn->in_w || p->in_h != drawn->in_h ||
        p->out_w != drawn->out_w || p->out_h != drawn->out_h)
        return -1;
    if (op->kind == PEN_OP_RANDOM_RESIZED_CROP)
        return is_inside(box_of(p), p->in_w, p->in_h) ? 0 : -1;
    if (op->kind == PEN_OP_RANDOM_ERASING && p->applied)
        return p->w == 0 || p->h == 0 || is_inside(box_of(p), p->in_w, p->in_h) ? 0 : -1;
    if (is_crop(op)) {
        bool overlaps = p->x > -p->w && p->y > -p->h && p->x < p->in_w && p->y < p->in_h;
        bool may_mirror =
            op->crop.padding_mode < PEN_PADDING_REFLECT || is_inside(box_of(p), p->in_w, p->in_h);
        return p->w == op->crop.w && p->h == op->crop.h && overlaps && may_mirror ? 0 : -1;
    }
    if (op->kind == PEN_OP_COLOR_JITTER) {
        unsigned seen = 0;
        for (int i = 0; i < 4; i++) {
            bool is_sane = i == 3 ? p->factor[i] >= -0.5F && p->factor[i] <= 0.5F
                                  : p->factor[i] >= 0 && p->factor[i] < 1e6F;
            seen |= is_sane && p->order[i] < 4 ? 1U << p->order[i] : 0;
        }
        return seen == 0xF ? 0 : -1;
    }
    return p->w == drawn->w && p->h == drawn->h && p->x == drawn->x && p->y == drawn->y ? 0 : -1;
}

int pen__params_check(const pen_pipeline *pipe, const pen_image_info *info,
                      const pen_params *params, size_t n, pen_error *err)
{
    if (n != pipe->n_ops)
        return pen__fail(err, PEN_EINVAL, -1, "%zu parameters for %zu operations (Decode counts)",
                         n, pipe->n_ops);
    pen_params drawn[PEN_PIPELINE_MAX_OPS];
    int rc = pen_pipeline_draw(pipe, &(pen_key){0}, info, drawn, PEN_PIPELINE_MAX_OPS, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (check_one(&pipe->ops[i], &params[i], &drawn[i]))
            rc = pen__fail(err, PEN_EINVAL, -1, "parameters of operation %zu, %s, are not possible",
                           i, pen_op_name(pipe->ops[i].kind));
    return rc;
}
