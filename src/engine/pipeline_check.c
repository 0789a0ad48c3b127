/* pipeline_check.c - is a line of operations possible, and what comes out of it?
 *
 * Checking walks the line with what is known before any image is seen: the
 * channels, whether the size is fixed yet, and whether ToTensor has been passed.
 * After a group the size is fixed where every way through it ends in the same.
 */
#include "engine/pipeline.h"

#include <math.h>

#include "base/fail.h"
#include "engine/plan.h"

typedef pen__outcome walk;

enum {
    MAX_SIDE = 16384,
    KEPT = -1, /* as a size: whatever it was before */
    MAX_KERNEL = 511,
    MAX_BINS = 1024,
    MAX_DEGREES = 36000,
    MAX_DEPTH = 8, /* of groups in groups */
};

static bool is_finite_range(float lo, float hi)
{
    return lo <= hi && hi < 1e30F && lo > -1e30F;
}

static const char *check_size(int32_t h, int32_t w)
{
    return h < 1 || w < 1 || h > MAX_SIDE || w > MAX_SIDE ? "size must be 1 to 16384" : NULL;
}

static const char *check_filter(pen_filter filter)
{
    return (unsigned)filter > PEN_FILTER_HAMMING ? "unknown interpolation" : NULL;
}

static const char *check_resize(const pen_op *op, walk *at)
{
    const char *wrong = check_size(op->resize.h, op->resize.w ? op->resize.w : 1);
    if (!wrong && op->resize.w == 0 && op->resize.max_size && op->resize.max_size <= op->resize.h)
        wrong = "max_size must be greater than size";
    if (!wrong && (op->resize.max_size < 0 || (op->resize.w && op->resize.max_size)))
        wrong = "max_size goes with a single size";
    at->w = op->resize.w;
    at->h = op->resize.w ? op->resize.h : 0;
    return wrong ? wrong : check_filter(op->resize.filter);
}

static const char *check_padding(const pen_op *op)
{
    for (int i = 0; i < 4; i++)
        if (op->crop.pad[i] < 0 || op->crop.pad[i] > MAX_SIDE)
            return "padding must be 0 to 16384";
    return (unsigned)op->crop.padding_mode > PEN_PADDING_SYMMETRIC ? "unknown padding_mode" : NULL;
}

static const char *check_pad(const pen_op *op, walk *at)
{
    const char *wrong = check_padding(op);
    if (wrong)
        return wrong;
    bool is_known = at->w > 0;
    at->w = is_known ? at->w + op->crop.pad[0] + op->crop.pad[2] : 0;
    at->h = is_known ? at->h + op->crop.pad[1] + op->crop.pad[3] : 0;
    return is_known ? check_size(at->h, at->w) : NULL;
}

static const char *check_crop(const pen_op *op, walk *at)
{
    at->w = op->crop.w;
    at->h = op->crop.h;
    const int32_t *pad = op->crop.pad;
    bool has_padding = pad[0] || pad[1] || pad[2] || pad[3];
    const char *wrong = check_padding(op);
    if (wrong)
        return wrong;
    /* What its description leaves out must not differ. */
    bool is_black = op->crop.fill[0] == 0 && op->crop.fill[1] == 0 && op->crop.fill[2] == 0;
    if (op->kind == PEN_OP_CENTER_CROP && (has_padding || op->crop.padding_mode || !is_black))
        return "has no padding to set: what is missing becomes black";
    /* Reflecting twice is not reflecting further: keep to what one pass can say. */
    if (has_padding && op->crop.pad_if_needed && op->crop.padding_mode >= PEN_PADDING_REFLECT)
        return "padding together with pad_if_needed works with padding_mode constant or edge";
    return check_size(op->crop.h, op->crop.w);
}

static const char *check_area(const pen_op *op)
{
    if (!is_finite_range(op->area.scale_min, op->area.scale_max) || op->area.scale_min < 0 ||
        op->area.scale_max <= 0)
        return "scale must be (min, max) with 0 <= min <= max";
    if (!is_finite_range(op->area.ratio_min, op->area.ratio_max) || !(op->area.ratio_min > 0))
        return "ratio must be (min, max) with 0 < min <= max";
    return NULL;
}

static const char *check_resized_crop(const pen_op *op, walk *at)
{
    at->w = op->area.w;
    at->h = op->area.h;
    const char *wrong = check_size(op->area.h, op->area.w);
    if (!wrong)
        wrong = check_area(op);
    return wrong ? wrong : check_filter(op->area.filter);
}

static const char *check_probability(float p)
{
    return p >= 0 && p <= 1 ? NULL : "p must be between 0 and 1";
}

static const char *check_jitter(const pen_op *op)
{
    const float *ranges[3] = {op->jitter.brightness, op->jitter.contrast, op->jitter.saturation};
    for (int i = 0; i < 3; i++)
        if (!is_finite_range(ranges[i][0], ranges[i][1]) || ranges[i][0] < 0)
            return "brightness, contrast and saturation factors must be (min, max) with 0 <= min";
    if (!is_finite_range(op->jitter.hue[0], op->jitter.hue[1]) || op->jitter.hue[0] < -0.5F ||
        op->jitter.hue[1] > 0.5F)
        return "hue must lie within [-0.5, 0.5]";
    return NULL;
}

static const char *check_normalize(const pen_op *op)
{
    for (int c = 0; c < PEN_MAX_CHANNELS; c++) {
        float mean = op->normalize.mean[c], std = op->normalize.std[c];
        if (!is_finite_range(mean, mean) || !is_finite_range(std, std) || std == 0)
            return "mean must be finite and std finite and not 0";
    }
    return NULL;
}

static const char *check_warp_filter(pen_filter filter)
{
    bool is_known = filter == PEN_FILTER_NEAREST || filter == PEN_FILTER_BILINEAR ||
                    filter == PEN_FILTER_BICUBIC;
    return is_known ? NULL : "interpolation must be nearest, bilinear or bicubic";
}

static bool is_angle_range(const float range[2])
{
    return is_finite_range(range[0], range[1]) && range[0] >= -MAX_DEGREES &&
           range[1] <= MAX_DEGREES;
}

static const char *check_warp(const pen_op *op, walk *at)
{
    if (!is_angle_range(op->warp.degrees))
        return "degrees must be (min, max) within [-36000, 36000]";
    if (op->warp.has_center && !(fabs(op->warp.center[0]) < 1e6 && fabs(op->warp.center[1]) < 1e6))
        return "center must be (x, y) in pixels";
    if (op->kind == PEN_OP_RANDOM_AFFINE) {
        for (int i = 0; i < 2; i++)
            if (!(op->warp.translate[i] >= 0 && op->warp.translate[i] <= 1))
                return "translate must be two numbers between 0 and 1";
        if (!is_finite_range(op->warp.scale[0], op->warp.scale[1]) || op->warp.scale[0] < 1e-3F ||
            op->warp.scale[1] > 1e3F)
            return "scale must be (min, max) within [0.001, 1000]";
        if (!is_angle_range(op->warp.shear) || !is_angle_range(op->warp.shear + 2))
            return "shear must be ranges within [-36000, 36000] degrees";
    } else if (op->warp.expand) {
        at->w = at->h = 0;
    }
    return check_warp_filter(op->warp.filter);
}

static const char *check_perspective(const pen_op *op)
{
    if (!(op->warp.distortion_scale >= 0 && op->warp.distortion_scale <= 1))
        return "distortion_scale must be between 0 and 1";
    const char *wrong = check_probability((float)op->warp.p);
    return wrong ? wrong : check_warp_filter(op->warp.filter);
}

static const char *check_blur(const pen_op *op)
{
    const int32_t sides[2] = {op->blur.kernel_w, op->blur.kernel_h};
    for (int i = 0; i < 2; i++)
        if (sides[i] < 1 || sides[i] > MAX_KERNEL || sides[i] % 2 == 0)
            return "kernel_size must be odd, 1 to 511";
    if (!is_finite_range(op->blur.sigma[0], op->blur.sigma[1]) || !(op->blur.sigma[0] > 0) ||
        op->blur.sigma[1] > 1e4F)
        return "sigma must be (min, max) with 0 < min <= max <= 10000";
    return NULL;
}

static const char *check_chance(const pen_op *op)
{
    if (op->kind == PEN_OP_RANDOM_POSTERIZE && (op->chance.bits < 0 || op->chance.bits > 8))
        return "bits must be 0 to 8";
    if (op->kind == PEN_OP_RANDOM_SOLARIZE &&
        !is_finite_range(op->chance.threshold, op->chance.threshold))
        return "threshold must be finite";
    if (op->kind == PEN_OP_RANDOM_SHARPNESS &&
        !(op->chance.factor >= 0 && op->chance.factor < 1e6F))
        return "sharpness_factor must be 0 or more";
    return check_probability(op->chance.p);
}

static const char *check_aug_mix(const pen_op *op)
{
    int32_t depth = op->augment.chain_depth > 0 ? op->augment.chain_depth : 3;
    if (op->augment.severity < 1 || op->augment.severity > 10)
        return "severity must be 1 to 10";
    if (op->augment.mixture_width < 1 || op->augment.mixture_width > PEN_MAX_CHAINS)
        return "mixture_width must be 1 to 8";
    if (depth > PEN_MAX_AUGMENTS / op->augment.mixture_width)
        return "mixture_width * chain_depth must be at most 32";
    if (op->augment.filter == PEN_FILTER_BICUBIC)
        return "interpolation must be nearest or bilinear";
    if (op->augment.fill[0] || op->augment.fill[1] || op->augment.fill[2])
        return "fill must be black";
    return op->augment.alpha >= 0.01F && op->augment.alpha <= 1e6F
               ? NULL
               : "alpha must be within [0.01, 1000000]";
}

static const char *check_augment(const pen_op *op)
{
    bool has_bins = op->kind == PEN_OP_RAND_AUGMENT || op->kind == PEN_OP_TRIVIAL_AUGMENT;
    if (has_bins &&
        (op->augment.num_magnitude_bins < 2 || op->augment.num_magnitude_bins > MAX_BINS))
        return "num_magnitude_bins must be 2 to 1024";
    if (op->kind == PEN_OP_AUTO_AUGMENT && (unsigned)op->augment.policy > PEN_POLICY_SVHN)
        return "unknown policy";
    if (op->kind == PEN_OP_RAND_AUGMENT) {
        if (op->augment.num_ops < 1 || op->augment.num_ops > PEN_MAX_AUGMENTS)
            return "num_ops must be 1 to 32";
        if (op->augment.magnitude < 0 || op->augment.magnitude >= op->augment.num_magnitude_bins)
            return "magnitude must be at least 0 and less than num_magnitude_bins";
    }
    const char *wrong = op->kind == PEN_OP_AUG_MIX ? check_aug_mix(op) : NULL;
    return wrong ? wrong : check_warp_filter(op->augment.filter);
}

/* Check one operation and step over it; NULL, or what is wrong. */
static const char *check_leaf(const pen_op *op, walk *at)
{
    bool wants_tensor = op->kind == PEN_OP_NORMALIZE || op->kind == PEN_OP_RANDOM_ERASING;
    if (wants_tensor && !at->is_tensor)
        return "needs ToTensor before it";
    if (!wants_tensor && at->is_tensor)
        return "must stand before ToTensor";
    switch (op->kind) {
    case PEN_OP_RESIZE:
        return check_resize(op, at);
    case PEN_OP_CENTER_CROP:
    case PEN_OP_RANDOM_CROP:
        return check_crop(op, at);
    case PEN_OP_RANDOM_RESIZED_CROP:
        return check_resized_crop(op, at);
    case PEN_OP_PAD:
        return check_pad(op, at);
    case PEN_OP_HFLIP:
    case PEN_OP_VFLIP:
    case PEN_OP_RANDOM_GRAYSCALE:
    case PEN_OP_RANDOM_INVERT:
    case PEN_OP_RANDOM_POSTERIZE:
    case PEN_OP_RANDOM_SOLARIZE:
    case PEN_OP_RANDOM_SHARPNESS:
    case PEN_OP_RANDOM_AUTOCONTRAST:
    case PEN_OP_RANDOM_EQUALIZE:
        return check_chance(op);
    case PEN_OP_RANDOM_ROTATION:
    case PEN_OP_RANDOM_AFFINE:
        return check_warp(op, at);
    case PEN_OP_RANDOM_PERSPECTIVE:
        return check_perspective(op);
    case PEN_OP_GAUSSIAN_BLUR:
        return check_blur(op);
    case PEN_OP_AUTO_AUGMENT:
    case PEN_OP_RAND_AUGMENT:
    case PEN_OP_TRIVIAL_AUGMENT:
    case PEN_OP_AUG_MIX:
        return check_augment(op);
    case PEN_OP_COLOR_JITTER:
        return check_jitter(op);
    case PEN_OP_GRAYSCALE:
        at->channels = op->grayscale.channels;
        return at->channels == 1 || at->channels == 3 ? NULL : "num_output_channels must be 1 or 3";
    case PEN_OP_TO_TENSOR:
        at->is_tensor = true;
        return (unsigned)op->to_tensor.scaling > PEN_SCALING_NONE ? "unknown scaling" : NULL;
    case PEN_OP_NORMALIZE:
        return check_normalize(op);
    case PEN_OP_RANDOM_ERASING: {
        const char *wrong = check_area(op);
        return wrong ? wrong : check_probability(op->area.p);
    }
    default:
        return op->kind == PEN_OP_DECODE ? "must stand first" : "unknown operation";
    }
}

/* ---- groups -------------------------------------------------------------------- */

static int fault(size_t i, const pen_op *op, const char *wrong, pen_error *err)
{
    return pen__fail(err, PEN_EINVAL, -1, "operation %zu, %s: %s", i, pen_op_name(op->kind), wrong);
}

static const char *check_group(const pen_op *op)
{
    if (op->group.n < (op->kind != PEN_OP_COMPOSE) || op->group.n > PEN_MAX_MEMBERS)
        return "must have 1 to 32 members";
    if (op->kind == PEN_OP_RANDOM_APPLY)
        return check_probability(op->group.p);
    if (op->kind != PEN_OP_RANDOM_CHOICE)
        return NULL;
    double sum = 0;
    for (int32_t i = 0; i < op->group.n; i++) {
        float weight = op->group.weights[i];
        if (!(weight >= 0 && weight < 1e30F))
            return "p must be weights that are finite and not negative";
        sum += (double)weight;
    }
    return sum > 0 ? NULL : "p must have a weight above 0";
}

/* What is known of the size where a sample may come out of either of two ways. */
static void join(walk *into, const walk *other)
{
    if (into->w != other->w || into->h != other->h)
        into->w = into->h = 0;
}

static int walk_tree(pen_pipeline *pipe, size_t i, int depth, walk *at, pen_error *err);

/* Walk over the members one after the other. */
static int walk_in_turn(pen_pipeline *pipe, size_t i, int depth, walk *at, pen_error *err)
{
    size_t next = i + 1;
    int rc = 0;
    for (int32_t m = 0; m < pipe->ops[i].group.n && rc == 0; m++) {
        rc = walk_tree(pipe, next, depth + 1, at, err);
        if (rc == 0)
            next = pipe->end[next];
    }
    pipe->end[i] = (uint8_t)next;
    return rc;
}

/* RandomChoice: one member is all that happens. */
static int walk_choice(pen_pipeline *pipe, size_t i, int depth, walk *at, pen_error *err)
{
    const walk before = *at;
    size_t next = i + 1;
    int rc = 0;
    for (int32_t m = 0; m < pipe->ops[i].group.n && rc == 0; m++) {
        walk way = before;
        rc = walk_tree(pipe, next, depth + 1, &way, err);
        if (m == 0)
            *at = way;
        join(at, &way);
        if (rc == 0 && way.channels != before.channels)
            rc = fault(i, &pipe->ops[i], "its members must not change the channels", err);
        if (rc == 0)
            next = pipe->end[next];
    }
    pipe->end[i] = (uint8_t)next;
    return rc;
}

/* RandomOrder: the last member that sets the size decides, whichever it is. */
static int walk_order(pen_pipeline *pipe, size_t i, int depth, walk *at, pen_error *err)
{
    const walk unsized = {.channels = at->channels, .w = KEPT, .h = KEPT};
    walk joined = unsized;
    int n_sizing = 0;
    size_t next = i + 1, sizing = 0;
    for (int32_t m = 0; m < pipe->ops[i].group.n; m++, next = pipe->end[next]) {
        walk alone = unsized;
        int rc = walk_tree(pipe, next, depth + 1, &alone, err);
        if (rc)
            return rc;
        if (alone.channels != at->channels)
            return fault(i, &pipe->ops[i], "its members must not change the channels", err);
        if (alone.w == KEPT)
            continue;
        if (n_sizing++ == 0)
            joined = alone;
        join(&joined, &alone);
        sizing = next;
    }
    pipe->end[i] = (uint8_t)next;
    if (n_sizing == 1) /* alone, it starts from what is known */
        return walk_tree(pipe, sizing, depth + 1, at, err);
    if (n_sizing > 1)
        *at = joined;
    return 0;
}

static int walk_group(pen_pipeline *pipe, size_t i, int depth, walk *at, pen_error *err)
{
    const pen_op *op = &pipe->ops[i];
    const char *wrong = depth < MAX_DEPTH ? check_group(op) : "groups stand at most 8 deep";
    if (wrong)
        return fault(i, op, wrong, err);
    if (op->kind == PEN_OP_RANDOM_CHOICE)
        return walk_choice(pipe, i, depth, at, err);
    if (op->kind == PEN_OP_RANDOM_ORDER)
        return walk_order(pipe, i, depth, at, err);
    const walk before = *at;
    int rc = walk_in_turn(pipe, i, depth, at, err);
    if (rc || op->kind == PEN_OP_COMPOSE)
        return rc;
    join(at, &before);
    return at->channels == before.channels
               ? 0
               : fault(i, op, "its members must not change the channels", err);
}

/* Check the operation at i, with its members if it is a group, and step over it. */
static int walk_tree(pen_pipeline *pipe, size_t i, int depth, walk *at, pen_error *err)
{
    if (i >= pipe->n_ops)
        return pen__fail(err, PEN_EINVAL, -1, "a group has fewer members than it says");
    const pen_op *op = &pipe->ops[i];
    pipe->end[i] = (uint8_t)(i + 1);
    pipe->depth[i] = (uint8_t)depth;
    if (pen_op_is_group(op->kind) && at->is_tensor)
        return fault(i, op, "must stand before ToTensor", err);
    if (pen_op_is_group(op->kind))
        return walk_group(pipe, i, depth, at, err);
    if (depth > 0 && (op->kind == PEN_OP_TO_TENSOR || op->kind == PEN_OP_NORMALIZE ||
                      op->kind == PEN_OP_RANDOM_ERASING))
        return fault(i, op, "cannot be in a group: groups hold operations on images", err);
    const char *wrong = check_leaf(op, at);
    return wrong ? fault(i, op, wrong, err) : 0;
}

int pen__pipeline_check(pen_pipeline *pipe, pen__outcome *at, pen_error *err)
{
    const pen_op *decode = &pipe->ops[0];
    if (decode->decode.channels != 1 && decode->decode.channels != 3)
        return pen__fail(err, PEN_EINVAL, -1, "Decode: channels must be 1 or 3");
    *at = (pen__outcome){.channels = decode->decode.channels};
    pipe->end[0] = 1;
    pipe->n_image_ops = pipe->n_ops;
    for (size_t i = 1; i < pipe->n_ops; i = pipe->end[i]) {
        bool was_tensor = at->is_tensor;
        int rc = walk_tree(pipe, i, 0, at, err);
        if (rc)
            return rc;
        if (at->is_tensor && !was_tensor)
            pipe->n_image_ops = i;
    }
    if (at->w == 0)
        return pen__fail(err, PEN_EINVAL, -1,
                         "the output size depends on the image: add a crop or a Resize to (h, w)");
    int n_steps = pen__plan_bound(pipe);
    if (n_steps > PEN__PLAN_MAX_STEPS)
        return pen__fail(err, PEN_EINVAL, -1,
                         "the operations can take %d steps, at most %d are possible", n_steps,
                         PEN__PLAN_MAX_STEPS);
    return 0;
}
