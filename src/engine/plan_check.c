/* plan_check.c - are parameters that somebody else made possible?
 *
 * The walk is the one that draws, with the given parameters in place of random
 * ones: each operation must start where the one before it ended, and what it says
 * must be something its kernel can do.  What follows from the settings alone is
 * taken from a draw; values need not lie in the range they are drawn from.
 */
#include "engine/plan.h"

#include <math.h>

#include "base/fail.h"
#include "engine/draw.h"

static bool box_is_inside(const pen_params *p)
{
    return p->x >= 0 && p->y >= 0 && p->w >= 1 && p->h >= 1 && p->w <= p->in_w - p->x &&
           p->h <= p->in_h - p->y;
}

static bool is_same_box(const pen_params *a, const pen_params *b)
{
    return a->x == b->x && a->y == b->y && a->w == b->w && a->h == b->h;
}

/* A box may hang over as far as padding reaches, or lie in it as a whole. */
static bool crop_is_possible(const pen_op *op, const pen_params *p)
{
    enum { REACH = 1 << 16 }; /* padding and pad_if_needed together, and no overflow */
    bool is_near =
        p->x >= -REACH && p->y >= -REACH && p->x <= p->in_w + REACH && p->y <= p->in_h + REACH;
    return is_near && p->w == op->crop.w && p->h == op->crop.h && pen__overhang_is_legal(op, p);
}

/* Nothing may be erased as well. */
static bool erasing_is_possible(const pen_params *p)
{
    return p->x >= 0 && p->y >= 0 && p->w >= 0 && p->h >= 0 && p->w <= p->in_w - p->x &&
           p->h <= p->in_h - p->y;
}

static bool jitter_is_possible(const pen_params *p)
{
    unsigned seen = 0;
    for (int i = 0; i < 4; i++) {
        float factor = p->jitter.factor[i];
        bool is_sane = i == 3 ? factor >= -0.5F && factor <= 0.5F : factor >= 0 && factor < 1e30F;
        seen |= is_sane && p->jitter.order[i] < 4 ? 1U << p->jitter.order[i] : 0;
    }
    return seen == 0xF;
}

static bool is_within(float value, float limit)
{
    return fabsf(value) <= limit; /* not where it is NaN */
}

static bool affine_is_possible(const pen_params *p)
{
    for (int i = 0; i < 2; i++)
        if (p->warp.translate[i] < -PEN_IMAGE_MAX_SIDE || p->warp.translate[i] > PEN_IMAGE_MAX_SIDE)
            return false;
    return is_within(p->warp.angle, 36000) && p->warp.scale >= 1e-3F && p->warp.scale <= 1e3F &&
           is_within(p->warp.shear[0], 36000) && is_within(p->warp.shear[1], 36000);
}

static bool perspective_is_possible(const pen_params *p)
{
    const int32_t right = p->in_w - 1, bottom = p->in_h - 1;
    const int32_t corners[8] = {0, 0, right, 0, right, bottom, 0, bottom};
    for (int i = 0; i < 8; i++)
        if (p->perspective.points[i] < 0 || p->perspective.points[i] > (i % 2 ? bottom : right))
            return false;
    double unused[8];
    return pen__perspective_coeffs(unused, corners, p->perspective.points) == 0;
}

static bool primitive_is_possible(const pen_augment_step *step)
{
    if ((unsigned)step->kind >= PEN_AUGMENT_COUNT)
        return false;
    switch (step->kind) {
    case PEN_AUGMENT_TRANSLATE_X:
    case PEN_AUGMENT_TRANSLATE_Y:
        return is_within(step->magnitude, PEN_IMAGE_MAX_SIDE);
    case PEN_AUGMENT_ROTATE:
        return is_within(step->magnitude, 36000);
    case PEN_AUGMENT_POSTERIZE:
        return step->magnitude >= 0 && step->magnitude <= 8;
    case PEN_AUGMENT_SOLARIZE:
        return is_within(step->magnitude, 256);
    default:
        return is_within(step->magnitude, 1);
    }
}

static bool mixture_is_possible(const pen_op *op, const pen_params *p)
{
    int n = 0;
    double sum = 0;
    if (p->augment.n_chains != op->augment.mixture_width)
        return false;
    for (int i = 0; i <= p->augment.n_chains; i++) {
        if (!(p->augment.weights[i] >= 0))
            return false;
        sum += (double)p->augment.weights[i];
        n += i ? p->augment.depth[i - 1] : 0;
    }
    return sum <= 1.001 && n == p->augment.n_steps;
}

static bool augment_is_possible(const pen_op *op, const pen_params *p)
{
    int most = op->kind == PEN_OP_TRIVIAL_AUGMENT ? 1
               : op->kind == PEN_OP_AUTO_AUGMENT  ? 2
               : op->kind == PEN_OP_RAND_AUGMENT  ? op->augment.num_ops
                                                  : PEN_MAX_AUGMENTS;
    if (p->augment.n_steps > most)
        return false;
    for (int i = 0; i < p->augment.n_steps; i++)
        if (!primitive_is_possible(&p->augment.steps[i]))
            return false;
    return op->kind != PEN_OP_AUG_MIX || mixture_is_possible(op, p);
}

/* `drawn` has the sizes and boxes that follow from the settings. */
static bool leaf_is_possible(const pen_op *op, const pen_params *p, pen_params *drawn)
{
    switch (op->kind) {
    case PEN_OP_RANDOM_RESIZED_CROP:
        return box_is_inside(p);
    case PEN_OP_RANDOM_ERASING:
        return !p->applied || erasing_is_possible(p);
    case PEN_OP_CENTER_CROP:
    case PEN_OP_RANDOM_CROP:
        return crop_is_possible(op, p);
    case PEN_OP_COLOR_JITTER:
        return jitter_is_possible(p);
    case PEN_OP_RANDOM_ROTATION:
        drawn->warp.angle = p->warp.angle;
        return is_within(p->warp.angle, 36000) && pen__size_rotation(op, drawn, NULL) == 0;
    case PEN_OP_RANDOM_AFFINE:
        return affine_is_possible(p);
    case PEN_OP_RANDOM_PERSPECTIVE:
        return !p->applied || perspective_is_possible(p);
    case PEN_OP_GAUSSIAN_BLUR:
        return p->blur.sigma > 0 && p->blur.sigma <= 1e4F;
    case PEN_OP_AUTO_AUGMENT:
    case PEN_OP_RAND_AUGMENT:
    case PEN_OP_TRIVIAL_AUGMENT:
    case PEN_OP_AUG_MIX:
        return augment_is_possible(op, p);
    default:
        return is_same_box(p, drawn);
    }
}

static bool is_random(pen_op_kind kind)
{
    return kind == PEN_OP_RANDOM_PERSPECTIVE || kind == PEN_OP_RANDOM_ERASING ||
           kind == PEN_OP_HFLIP || kind == PEN_OP_VFLIP ||
           (kind >= PEN_OP_RANDOM_GRAYSCALE && kind <= PEN_OP_RANDOM_EQUALIZE);
}

static bool group_is_possible(const pen_op *op, const pen_params *p)
{
    int n = p->group.n_taken, most = op->group.n;
    uint32_t seen = 0;
    for (int i = 0; i < n && i < PEN_MAX_MEMBERS; i++)
        seen |= p->group.order[i] < most ? 1U << p->group.order[i] : 0;
    for (int i = 0; i < n && i < PEN_MAX_MEMBERS && op->kind != PEN_OP_RANDOM_ORDER; i++)
        if (op->kind != PEN_OP_RANDOM_CHOICE && p->group.order[i] != i)
            return false;
    if (op->kind == PEN_OP_RANDOM_CHOICE)
        return p->applied && n == 1 && seen;
    if (op->kind == PEN_OP_RANDOM_APPLY && !p->applied)
        return n == 0;
    return p->applied && n == most && seen == (uint32_t)((UINT64_C(1) << most) - 1);
}

typedef struct checking {
    const pen_pipeline *pipe;
    const pen_params *params;
    int32_t w, h; /* of the image so far */
} checking;

static bool leaf_fits(checking *at, size_t i)
{
    const pen_op *op = &at->pipe->ops[i];
    const pen_params *p = &at->params[i];
    pen_params drawn = {.kind = op->kind, .in_w = at->w, .in_h = at->h};
    pen_op settings = *op;
    if (op->kind == PEN_OP_RANDOM_CROP) /* how far its mirrors reach is asked of the given box */
        settings.crop.padding_mode = PEN_PADDING_CONSTANT;
    pen__rng rng;
    pen__rng_init(&rng, 0, PEN__RNG_OP, 0, 0, 0, (int)i);
    if (pen__draw_leaf(&settings, &rng, &drawn, NULL) || (!p->applied && !is_random(op->kind)))
        return false;
    return leaf_is_possible(op, p, &drawn) && p->out_w == drawn.out_w && p->out_h == drawn.out_h;
}

/* 0, or the place of the first operation at fault. */
static size_t fault_in_tree(checking *at, size_t i)
{
    const pen_pipeline *pipe = at->pipe;
    const pen_params *p = &at->params[i];
    for (size_t j = i; j < pipe->end[i]; j++)
        if (at->params[j].kind != pipe->ops[j].kind)
            return j;
    if (p->in_w != at->w || p->in_h != at->h)
        return i;
    if (!pen_op_is_group(pipe->ops[i].kind)) {
        if (!leaf_fits(at, i))
            return i;
    } else {
        if (!group_is_possible(&pipe->ops[i], p))
            return i;
        for (int k = 0; k < p->group.n_taken; k++) {
            size_t fault = fault_in_tree(at, pen__pipeline_member(pipe, i, p->group.order[k]));
            if (fault)
                return fault;
        }
        if (p->out_w != at->w || p->out_h != at->h)
            return i;
    }
    at->w = p->out_w;
    at->h = p->out_h;
    return 0;
}

int pen__params_check(const pen_pipeline *pipe, const pen_image_info *info,
                      const pen_params *params, size_t n, pen_error *err)
{
    if (n != pipe->n_ops)
        return pen__fail(err, PEN_EINVAL, -1, "%zu parameters for %zu operations (Decode counts)",
                         n, pipe->n_ops);
    bool is_turned = pipe->ops[0].decode.use_exif && info->orientation >= 5;
    checking at = {pipe, params, is_turned ? info->height : info->width,
                   is_turned ? info->width : info->height};
    size_t fault = 0;
    bool is_ok = params[0].kind == PEN_OP_DECODE && params[0].in_w == at.w &&
                 params[0].in_h == at.h && params[0].out_w == at.w && params[0].out_h == at.h;
    for (size_t i = 1; i < n && is_ok && !fault; i = pipe->end[i])
        fault = fault_in_tree(&at, i);
    if (is_ok && !fault)
        return 0;
    return pen__fail(err, PEN_EINVAL, -1, "parameters of operation %zu, %s, are not possible",
                     fault, pen_op_name(pipe->ops[fault].kind));
}
