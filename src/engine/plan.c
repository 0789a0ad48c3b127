/* plan.c - fold an operation line and its parameters into steps.
 *
 * Only the first geometric operation decides how much is decoded:
 *   a crop inside the image          its box
 *   RandomResizedCrop                its box, resized afterwards
 *   Resize, then a crop inside it    what the crop's window depends on
 *   anything else                    the whole image
 * Everything later works on whole, small images.  Where a resize is what comes first, it
 * takes rows as they are decoded, and the window is never in memory as a whole.  A group's
 * steps are those of the members it took, in the order it took them.
 */
#include "engine/plan.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "ops/decode.h"
#include "ops/geometry.h"

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

/* A Resize whose result is only looked at through the crop that follows.  Not in
 * groups, where neighbours need not follow each other. */
static bool is_resize_then_crop(const pen_pipeline *pipe, const pen_params *params, size_t i)
{
    return pipe->ops[i].kind == PEN_OP_RESIZE && pipe->depth[i] == 0 && i + 1 < pipe->n_image_ops &&
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

pen__step *pen__plan_add(pen__cursor *at, pen__action action, int32_t w, int32_t h, int ch)
{
    pen__plan *plan = at->plan;
    pen__step *step = &plan->steps[plan->n_steps++];
    memset(step, 0, sizeof *step);
    step->action = action;
    step->is_rgb = at->meant_ch == 3;
    size_t bytes = (size_t)w * (size_t)h * (size_t)ch;
    if (bytes > at->needs.image_bytes)
        at->needs.image_bytes = bytes;
    at->w = w;
    at->h = h;
    at->ch = ch;
    return step;
}

static void take_scratch(pen__cursor *at, size_t bytes)
{
    if (bytes > at->needs.kernel_bytes)
        at->needs.kernel_bytes = bytes;
}

void pen__plan_add_tone(pen__cursor *at, pen__action action, double value)
{
    if (action == PEN__ACT_SHARPNESS || action == PEN__ACT_TENSOR_SHARPNESS)
        take_scratch(at, pen__sharpness_scratch(at->w, at->h, at->ch));
    pen__plan_add(at, action, at->w, at->h, at->ch)->value = value;
}

void pen__plan_widen_for(pen__cursor *at, const uint8_t fill[PEN_MAX_CHANNELS])
{
    bool is_grey = fill[0] == fill[1] && fill[1] == fill[2];
    if (at->ch < at->meant_ch && !is_grey)
        pen__plan_add(at, PEN__ACT_SPREAD, at->w, at->h, 3);
}

static void add_resize(pen__cursor *at, const pen__resize_spec *spec, pen__rect have)
{
    take_scratch(at, pen__resize_scratch(spec, at->ch));
    pen__step *step = pen__plan_add(at, PEN__ACT_RESIZE, spec->window.w, spec->window.h, at->ch);
    step->resize.spec = *spec;
    step->resize.have = have;
}

/* `op` says what lies outside of the image; NULL where the box lies inside. */
static void add_crop(pen__cursor *at, pen__rect box, const pen_op *op)
{
    if (op)
        pen__plan_widen_for(at, op->crop.fill);
    pen__step *step = pen__plan_add(at, PEN__ACT_CROP, box.w, box.h, at->ch);
    step->crop.box = box;
    if (op) {
        step->crop.mode = op->crop.padding_mode;
        memcpy(step->crop.fill, op->crop.fill, sizeof step->crop.fill);
    }
}

static void add_jitter(pen__cursor *at, const pen_op *op, const pen_params *p)
{
    static const pen__action actions[4] = {PEN__ACT_BRIGHTNESS, PEN__ACT_CONTRAST,
                                           PEN__ACT_SATURATION, PEN__ACT_HUE};
    for (int i = 0; i < 4; i++) {
        int component = p->jitter.order[i];
        if (pen__jitter_is_on(op, component))
            pen__plan_add_tone(at, actions[component], (double)p->jitter.factor[component]);
    }
}

/* One channel stands for three equal ones until the tensor. */
static void add_grey(pen__cursor *at)
{
    if (at->ch == 3)
        pen__plan_add(at, PEN__ACT_GREY, at->w, at->h, 1);
}

static void add_blur(pen__cursor *at, const pen_op *op, const pen_params *p)
{
    pen__blur blur = {op->blur.kernel_w, op->blur.kernel_h, p->blur.sigma, p->blur.sigma};
    take_scratch(at, pen__gaussian_blur_scratch(&blur, at->w, at->h, at->ch));
    pen__plan_add(at, PEN__ACT_BLUR, at->w, at->h, at->ch)->blur = blur;
}

/* What happens or does not, by chance. */
static void add_chance(pen__cursor *at, const pen_op *op)
{
    switch (op->kind) {
    case PEN_OP_HFLIP:
        pen__plan_add_tone(at, PEN__ACT_HFLIP, 0);
        break;
    case PEN_OP_VFLIP:
        pen__plan_add_tone(at, PEN__ACT_VFLIP, 0);
        break;
    case PEN_OP_RANDOM_GRAYSCALE:
        add_grey(at);
        break;
    case PEN_OP_RANDOM_INVERT:
        pen__plan_add_tone(at, PEN__ACT_INVERT, 0);
        break;
    case PEN_OP_RANDOM_POSTERIZE:
        pen__plan_add_tone(at, PEN__ACT_POSTERIZE, op->chance.bits);
        break;
    case PEN_OP_RANDOM_SOLARIZE:
        pen__plan_add_tone(at, PEN__ACT_SOLARIZE, (double)op->chance.threshold);
        break;
    case PEN_OP_RANDOM_SHARPNESS:
        pen__plan_add_tone(at, PEN__ACT_SHARPNESS, (double)op->chance.factor);
        break;
    case PEN_OP_RANDOM_AUTOCONTRAST:
        pen__plan_add_tone(at, PEN__ACT_AUTOCONTRAST, 0);
        break;
    default:
        pen__plan_add_tone(at, PEN__ACT_EQUALIZE, 0);
        break;
    }
}

/* Add operation i, a resize of what is there or of a box in it; returns where the line goes on. */
static size_t add_resizing(pen__cursor *at, const pen_pipeline *pipe, const pen_params *params,
                           size_t i, pen__rect have)
{
    const pen_params *p = &params[i];
    const pen__resize_spec spec = resize_of(pipe, params, i);
    if (pipe->ops[i].kind == PEN_OP_RESIZE) {
        add_resize(at, &spec, have);
        return is_resize_then_crop(pipe, params, i) ? i + 2 : i + 1;
    }
    if (i > 1) /* as first operation, its box is what was decoded */
        add_crop(at, box_of(p), NULL);
    add_resize(at, &spec, whole(p->w, p->h));
    return i + 1;
}

/* Add the steps of operation i, which happens and is no group; returns where the line goes on. */
static size_t add_leaf(pen__cursor *at, const pen_pipeline *pipe, const pen_params *params,
                       size_t i, pen__rect have)
{
    const pen_op *op = &pipe->ops[i];
    const pen_params *p = &params[i];
    switch (op->kind) {
    case PEN_OP_RESIZE:
    case PEN_OP_RANDOM_RESIZED_CROP:
        return add_resizing(at, pipe, params, i, have);
    case PEN_OP_PAD:
    case PEN_OP_CENTER_CROP:
    case PEN_OP_RANDOM_CROP:
        if (i > 1 || !is_inside(box_of(p), p->in_w, p->in_h))
            add_crop(at, box_of(p), op);
        break;
    case PEN_OP_COLOR_JITTER:
        add_jitter(at, op, p);
        break;
    case PEN_OP_GRAYSCALE:
        add_grey(at);
        at->meant_ch = op->grayscale.channels;
        break;
    case PEN_OP_RANDOM_ROTATION:
    case PEN_OP_RANDOM_AFFINE:
    case PEN_OP_RANDOM_PERSPECTIVE:
        pen__plan_add_warp(at, op, p);
        break;
    case PEN_OP_GAUSSIAN_BLUR:
        add_blur(at, op, p);
        break;
    case PEN_OP_AUTO_AUGMENT:
    case PEN_OP_RAND_AUGMENT:
    case PEN_OP_TRIVIAL_AUGMENT:
    case PEN_OP_AUG_MIX:
        pen__plan_add_augments(at, op, p);
        break;
    default:
        add_chance(at, op);
        break;
    }
    return i + 1;
}

/* The same for any operation. */
static size_t add_tree(pen__cursor *at, const pen_pipeline *pipe, const pen_params *params,
                       size_t i, pen__rect have)
{
    const pen_params *p = &params[i];
    if (!p->applied)
        return pipe->end[i];
    if (!pen_op_is_group(pipe->ops[i].kind))
        return add_leaf(at, pipe, params, i, have);
    for (int k = 0; k < p->group.n_taken; k++)
        add_tree(at, pipe, params, pen__pipeline_member(pipe, i, p->group.order[k]),
                 whole(at->w, at->h));
    return pipe->end[i];
}

/* Here, where n_ops operations are done, the line may be cut. */
static void add_cut(pen__cursor *at, size_t n_ops)
{
    pen__plan *plan = at->plan;
    plan->cuts[plan->n_cuts++] =
        (pen__plan_cut){(int)n_ops, plan->n_steps, at->w, at->h, at->ch, at->needs};
    at->needs = (pen__needs){0};
}

static bool can_start_in_flow(const pen__plan *plan, const pen_image_info *info)
{
    const pen__step *first = &plan->steps[0];
    return plan->n_steps > 0 && first->action == PEN__ACT_RESIZE &&
           pen__resize_can_flow(&first->resize.spec) && pen__decode_has_rows(info);
}

void pen__plan_build(pen__plan *plan, const pen_pipeline *pipe, const pen_image_info *info,
                     const pen_params *params)
{
    plan->n_steps = plan->n_cuts = 0;
    pen__rect have = needed(pipe, params);
    int ch = pen__decode_channels(info);
    int orientation = pipe->ops[0].decode.use_exif ? info->orientation : 1;
    plan->window = pen__orient_rect(have, orientation, info->width, info->height);
    plan->window_ch = ch;
    plan->library_bytes = pen__decode_memory(info, plan->window);

    pen__cursor at = {plan, have.w, have.h, ch, pipe->ops[0].decode.channels, {0}};
    if (orientation != 1)
        pen__plan_add(&at, PEN__ACT_ORIENT, have.w, have.h, ch)->value = orientation;
    if (ch == 3 && pipe->ops[0].decode.channels == 1)
        add_grey(&at);
    add_cut(&at, 1);
    for (size_t i = 1; i < pipe->n_image_ops;) {
        i = add_tree(&at, pipe, params, i, i == 1 ? have : whole(at.w, at.h));
        add_cut(&at, i);
    }
    plan->starts_in_flow = can_start_in_flow(plan, info);
    pen__plan_keep(plan, -1, plan->n_cuts - 1);
}

int pen__plan_find_cut(const pen__plan *plan, int n_ops)
{
    int i = plan->n_cuts - 1;
    while (i >= 0 && plan->cuts[i].n_ops > n_ops)
        i--;
    return i;
}

static size_t bytes_of(int32_t w, int32_t h, int32_t ch)
{
    return (size_t)w * (size_t)h * (size_t)ch;
}

void pen__plan_keep(pen__plan *plan, int from, int to)
{
    const pen__plan_cut *first = from >= 0 ? &plan->cuts[from] : NULL;
    pen__needs sum = {0};
    for (int i = from + 1; i <= to; i++) {
        const pen__needs *needs = &plan->cuts[i].needs;
        sum.image_bytes = pen__max_bytes(sum.image_bytes, needs->image_bytes);
        sum.kernel_bytes = pen__max_bytes(sum.kernel_bytes, needs->kernel_bytes);
        sum.mix_bytes = pen__max_bytes(sum.mix_bytes, needs->mix_bytes);
    }
    plan->first_step = first ? first->n_steps : 0;
    plan->n_steps = plan->cuts[to].n_steps;
    plan->starts_in_flow = plan->starts_in_flow && !first && plan->n_steps > 0;
    if (first) {
        sum.image_bytes = pen__max_bytes(sum.image_bytes, bytes_of(first->w, first->h, first->ch));
        plan->library_bytes = 0;
    } else if (!plan->starts_in_flow) {
        size_t window_bytes = bytes_of(plan->window.w, plan->window.h, plan->window_ch);
        sum.image_bytes = pen__max_bytes(sum.image_bytes, window_bytes);
    }
    plan->needs = sum;
    plan->scratch_bytes = pen__plan_buffers(plan, NULL).bytes;
}

void pen__plan_add_scratch(pen__plan *plan, size_t bytes)
{
    plan->needs.kernel_bytes = pen__max_bytes(plan->needs.kernel_bytes, bytes);
    plan->scratch_bytes = pen__plan_buffers(plan, NULL).bytes;
}

pen__buffers pen__plan_buffers(const pen__plan *plan, void *scratch)
{
    const pen__needs *needs = &plan->needs;
    const size_t sizes[5] = {needs->image_bytes, needs->image_bytes, needs->kernel_bytes,
                             needs->mix_bytes, needs->mix_bytes * sizeof(float)};
    uint8_t *starts[5], *at = scratch;
    size_t bytes = 0;
    for (int i = 0; i < 5; i++) {
        starts[i] = at ? at + bytes : NULL;
        bytes += pen__align_up(sizes[i]);
    }
    return (pen__buffers){.images = {starts[0], starts[1]},
                          .kernel = starts[2],
                          .kept = starts[3],
                          .mix = (void *)starts[4],
                          .bytes = bytes};
}

int pen__plan_bound(const pen_pipeline *pipe)
{
    int n = 2; /* EXIF turn, grey */
    for (size_t i = 1; i < pipe->n_image_ops; i++) {
        const pen_op *op = &pipe->ops[i];
        if (op->kind == PEN_OP_RAND_AUGMENT)
            n += op->augment.num_ops + 1; /* the image is made wide at most once */
        else if (op->kind == PEN_OP_AUG_MIX)
            n += PEN_MAX_AUGMENTS + PEN_MAX_CHAINS + 2;
        else if (!pen_op_is_group(op->kind))
            n += op->kind == PEN_OP_COLOR_JITTER ? 4 : 3;
    }
    return n;
}
