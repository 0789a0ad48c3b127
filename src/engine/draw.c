/* draw.c - the parameters of every operation, from a key and an image header.
 *
 * Distributions are torchvision's.  Each operation has its own random stream
 * (its place in the line is in the counter), so an operation added at the end
 * never changes what those before it draw.  No pixel is looked at, so any site can do this
 * before decoding.
 */
#include "engine/draw.h"

#include <string.h>

#include "base/fail.h"
#include "base/fmath.h"
#include "ops/warp.h"

enum { ATTEMPTS = 10 }; /* as torchvision's get_params */

static int32_t clamp_side(double side)
{
    return side > 0x1p30 ? 1 << 30 : (int32_t)pen__round_even(side);
}

static double draw_log_uniform(pen__rng *rng, double lo, double hi)
{
    return pen__exp(pen__rng_range(rng, pen__log(lo), pen__log(hi)));
}

/* A box that fits the image; false after ten attempts that did not. */
static bool draw_area(const pen_op *op, pen__rng *rng, pen_params *out)
{
    bool is_erasing = op->kind == PEN_OP_RANDOM_ERASING;
    double area = (double)out->in_w * out->in_h;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        double target = area * pen__rng_range(rng, op->area.scale_min, op->area.scale_max);
        double ratio = draw_log_uniform(rng, op->area.ratio_min, op->area.ratio_max);
        int32_t wide = clamp_side(pen__sqrt(target * ratio));
        int32_t narrow = clamp_side(pen__sqrt(target / ratio));
        /* torchvision: a crop's ratio is w/h, an erasing's is h/w, and an
         * erasing must be smaller than the image where a crop may be as large. */
        int32_t w = is_erasing ? narrow : wide, h = is_erasing ? wide : narrow;
        if (w > out->in_w - is_erasing || h > out->in_h - is_erasing)
            continue;
        if (!is_erasing && (w <= 0 || h <= 0))
            continue;
        out->w = w;
        out->h = h;
        out->y = (int32_t)pen__rng_below(rng, (uint32_t)(out->in_h - h + 1));
        out->x = (int32_t)pen__rng_below(rng, (uint32_t)(out->in_w - w + 1));
        return true;
    }
    return false;
}

static void draw_resized_crop(const pen_op *op, pen__rng *rng, pen_params *out)
{
    out->out_w = op->area.w;
    out->out_h = op->area.h;
    if (draw_area(op, rng, out))
        return;
    double ratio = (double)out->in_w / out->in_h; /* the largest centred box of a legal shape */
    out->w = out->in_w;
    out->h = out->in_h;
    if (ratio < op->area.ratio_min)
        out->h = clamp_side(out->in_w / (double)op->area.ratio_min);
    else if (ratio > op->area.ratio_max)
        out->w = clamp_side(out->in_h * (double)op->area.ratio_max);
    out->w = out->w < 1 ? 1 : out->w > out->in_w ? out->in_w : out->w;
    out->h = out->h < 1 ? 1 : out->h > out->in_h ? out->in_h : out->h;
    out->x = (out->in_w - out->w) / 2;
    out->y = (out->in_h - out->h) / 2;
}

static int size_resize(const pen_op *op, pen_params *out, pen_error *err)
{
    out->w = out->in_w;
    out->h = out->in_h;
    if (op->resize.w) {
        out->out_w = op->resize.w;
        out->out_h = op->resize.h;
        return 0;
    }
    bool is_tall = out->in_w <= out->in_h;
    int64_t shorter = is_tall ? out->in_w : out->in_h, longer = is_tall ? out->in_h : out->in_w;
    int64_t new_shorter = op->resize.h, new_longer = op->resize.h * longer / shorter;
    if (op->resize.max_size && new_longer > op->resize.max_size) {
        new_shorter = op->resize.max_size * new_shorter / new_longer;
        new_longer = op->resize.max_size;
    }
    if (new_shorter < 1 || new_shorter * new_longer > PEN_IMAGE_MAX_PIXELS)
        return pen__fail(err, PEN_ELIMIT, -1, "Resize of a %dx%d image would give %lldx%lld",
                         out->in_w, out->in_h, (long long)(is_tall ? new_shorter : new_longer),
                         (long long)(is_tall ? new_longer : new_shorter));
    out->out_w = (int32_t)(is_tall ? new_shorter : new_longer);
    out->out_h = (int32_t)(is_tall ? new_longer : new_shorter);
    return 0;
}

/* One axis of CenterCrop: where the box begins; negative where it hangs over. */
static int32_t center(int32_t size, int32_t crop)
{
    if (crop >= size)
        return -((crop - size) / 2);
    return (int32_t)pen__round_even((size - crop) / 2.0);
}

static void size_crop(const pen_op *op, pen_params *out)
{
    out->w = out->out_w = op->crop.w;
    out->h = out->out_h = op->crop.h;
}

/* One axis of RandomCrop on an image padded by before and after; -1 if it does not fit. */
static int draw_crop_axis(pen__rng *rng, int32_t size, int32_t crop, int32_t before, int32_t after,
                          bool pad_if_needed, int32_t *at)
{
    int64_t padded = (int64_t)size + before + after;
    int64_t shift = before;
    if (padded < crop && pad_if_needed) { /* torchvision pads by the lack on both sides */
        shift += crop - padded;
        padded += 2 * (crop - padded);
    }
    if (padded < crop)
        return -1;
    *at = (int32_t)((int64_t)pen__rng_below(rng, (uint32_t)(padded - crop + 1)) - shift);
    return 0;
}

/* Mirrors see no further than the image: torchvision's arrays would wrap around. */
bool pen__overhang_is_legal(const pen_op *op, const pen_params *p)
{
    int32_t most = op->crop.padding_mode == PEN_PADDING_REFLECT ? 1 : 0;
    if (op->crop.padding_mode < PEN_PADDING_REFLECT)
        return true;
    return -p->x <= p->in_w - most && p->x + p->w - p->in_w <= p->in_w - most &&
           -p->y <= p->in_h - most && p->y + p->h - p->in_h <= p->in_h - most;
}

static int draw_random_crop(const pen_op *op, pen__rng *rng, pen_params *out, pen_error *err)
{
    size_crop(op, out);
    int rc = draw_crop_axis(rng, out->in_h, op->crop.h, op->crop.pad[1], op->crop.pad[3],
                            op->crop.pad_if_needed, &out->y);
    rc |= draw_crop_axis(rng, out->in_w, op->crop.w, op->crop.pad[0], op->crop.pad[2],
                         op->crop.pad_if_needed, &out->x);
    if (rc)
        return pen__fail(err, PEN_ELIMIT, -1,
                         "image of %dx%d is smaller than RandomCrop's %dx%d (see pad_if_needed)",
                         out->in_w, out->in_h, op->crop.w, op->crop.h);
    if (!pen__overhang_is_legal(op, out))
        return pen__fail(err, PEN_ELIMIT, -1, "image of %dx%d is too small for its mirror padding",
                         out->in_w, out->in_h);
    return 0;
}

/* Fisher and Yates. */
static void draw_permutation(pen__rng *rng, uint8_t *order, int n)
{
    for (int i = 0; i < n; i++)
        order[i] = (uint8_t)i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)pen__rng_below(rng, (uint32_t)i + 1);
        uint8_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

static void draw_jitter(const pen_op *op, pen__rng *rng, pen_params *out)
{
    const float *ranges[4] = {op->jitter.brightness, op->jitter.contrast, op->jitter.saturation,
                              op->jitter.hue};
    draw_permutation(rng, out->jitter.order, 4);
    for (int i = 0; i < 4; i++)
        out->jitter.factor[i] = (float)pen__rng_range(rng, ranges[i][0], ranges[i][1]);
}

static int draw_pad(const pen_op *op, pen_params *out, pen_error *err)
{
    const int32_t *pad = op->crop.pad;
    out->x = -pad[0];
    out->y = -pad[1];
    out->w = out->out_w = out->in_w + pad[0] + pad[2];
    out->h = out->out_h = out->in_h + pad[1] + pad[3];
    if ((int64_t)out->w * out->h > PEN_IMAGE_MAX_PIXELS)
        return pen__fail(err, PEN_ELIMIT, -1, "Pad of a %dx%d image would give %dx%d", out->in_w,
                         out->in_h, out->w, out->h);
    if (!pen__overhang_is_legal(op, out))
        return pen__fail(err, PEN_ELIMIT, -1, "image of %dx%d is too small for its mirror padding",
                         out->in_w, out->in_h);
    return 0;
}

/* ---- warps and blur --------------------------------------------------------------- */

static float draw_float(pen__rng *rng, const float range[2])
{
    return (float)pen__rng_range(rng, (double)range[0], (double)range[1]);
}

int pen__size_rotation(const pen_op *op, pen_params *out, pen_error *err)
{
    enum { FAR = 32767 }; /* Pillow changes its arithmetic behind it */
    pen__rotate_size(out->in_w, out->in_h, (double)out->warp.angle, op->warp.expand,
                     op->warp.has_center ? op->warp.center : NULL, &out->out_w, &out->out_h);
    bool is_far = out->in_w <= FAR && out->in_h <= FAR && (out->out_w > FAR || out->out_h > FAR);
    if (is_far || (int64_t)out->out_w * out->out_h > PEN_IMAGE_MAX_PIXELS)
        return pen__fail(err, PEN_ELIMIT, -1, "RandomRotation of a %dx%d image would give %dx%d",
                         out->in_w, out->in_h, out->out_w, out->out_h);
    return 0;
}

static void draw_affine(const pen_op *op, pen__rng *rng, pen_params *out)
{
    const double most[2] = {op->warp.translate[0] * out->in_w, op->warp.translate[1] * out->in_h};
    out->warp.angle = draw_float(rng, op->warp.degrees);
    for (int i = 0; i < 2; i++)
        out->warp.translate[i] = (int32_t)pen__round_even(pen__rng_range(rng, -most[i], most[i]));
    out->warp.scale = draw_float(rng, op->warp.scale);
    out->warp.shear[0] = draw_float(rng, op->warp.shear);
    out->warp.shear[1] = draw_float(rng, op->warp.shear + 2);
}

/* Each corner moves inwards by up to a share of half the image. */
static void draw_perspective(const pen_op *op, pen__rng *rng, pen_params *out)
{
    const int32_t w = out->in_w, h = out->in_h;
    const uint32_t by_x = (uint32_t)(op->warp.distortion_scale * (w / 2)) + 1;
    const uint32_t by_y = (uint32_t)(op->warp.distortion_scale * (h / 2)) + 1;
    out->applied = pen__rng_unit(rng) < op->warp.p;
    if (!out->applied)
        return;
    int32_t *points = out->perspective.points;
    for (int corner = 0; corner < 4; corner++) { /* from the top left, clockwise */
        bool is_right = corner == 1 || corner == 2, is_bottom = corner >= 2;
        int32_t x = (int32_t)pen__rng_below(rng, by_x), y = (int32_t)pen__rng_below(rng, by_y);
        points[2 * corner] = is_right ? w - (int32_t)by_x + x : x;
        points[2 * corner + 1] = is_bottom ? h - (int32_t)by_y + y : y;
    }
    /* On a few pixels corners can fall together, which no perspective does. */
    const int32_t corners[8] = {0, 0, w - 1, 0, w - 1, h - 1, 0, h - 1};
    double unused[8];
    if (pen__perspective_coeffs(unused, corners, points)) {
        memset(points, 0, sizeof out->perspective.points);
        out->applied = false;
    }
}

static int draw_blur(const pen_op *op, pen__rng *rng, pen_params *out, pen_error *err)
{
    out->blur.sigma = draw_float(rng, op->blur.sigma);
    if (op->blur.kernel_w / 2 >= out->in_w || op->blur.kernel_h / 2 >= out->in_h)
        return pen__fail(err, PEN_ELIMIT, -1,
                         "image of %dx%d is too small for GaussianBlur's kernel of %dx%d",
                         out->in_w, out->in_h, op->blur.kernel_w, op->blur.kernel_h);
    return 0;
}

/* ---- all of them ------------------------------------------------------------------ */

int pen__draw_leaf(const pen_op *op, pen__rng *rng, pen_params *out, pen_error *err)
{
    out->out_w = out->w = out->in_w;
    out->out_h = out->h = out->in_h;
    out->applied = true;
    switch (op->kind) {
    case PEN_OP_RESIZE:
        return size_resize(op, out, err);
    case PEN_OP_CENTER_CROP:
        size_crop(op, out);
        out->x = center(out->in_w, op->crop.w);
        out->y = center(out->in_h, op->crop.h);
        return 0;
    case PEN_OP_RANDOM_CROP:
        return draw_random_crop(op, rng, out, err);
    case PEN_OP_RANDOM_RESIZED_CROP:
        draw_resized_crop(op, rng, out);
        return 0;
    case PEN_OP_PAD:
        return draw_pad(op, out, err);
    case PEN_OP_HFLIP:
    case PEN_OP_VFLIP:
    case PEN_OP_RANDOM_GRAYSCALE:
    case PEN_OP_RANDOM_INVERT:
    case PEN_OP_RANDOM_POSTERIZE:
    case PEN_OP_RANDOM_SOLARIZE:
    case PEN_OP_RANDOM_SHARPNESS:
    case PEN_OP_RANDOM_AUTOCONTRAST:
    case PEN_OP_RANDOM_EQUALIZE:
        out->applied = pen__rng_unit(rng) < (double)op->chance.p;
        return 0;
    case PEN_OP_COLOR_JITTER:
        draw_jitter(op, rng, out);
        return 0;
    case PEN_OP_RANDOM_ROTATION:
        out->warp.angle = draw_float(rng, op->warp.degrees);
        out->warp.scale = 1.0F;
        return pen__size_rotation(op, out, err);
    case PEN_OP_RANDOM_AFFINE:
        draw_affine(op, rng, out);
        return 0;
    case PEN_OP_RANDOM_PERSPECTIVE:
        draw_perspective(op, rng, out);
        return 0;
    case PEN_OP_GAUSSIAN_BLUR:
        return draw_blur(op, rng, out, err);
    case PEN_OP_AUTO_AUGMENT:
    case PEN_OP_RAND_AUGMENT:
    case PEN_OP_TRIVIAL_AUGMENT:
    case PEN_OP_AUG_MIX:
        pen__draw_augment(op, rng, out);
        return 0;
    case PEN_OP_RANDOM_ERASING:
        out->applied = pen__rng_unit(rng) < (double)op->area.p && draw_area(op, rng, out);
        return 0;
    default: /* nothing to draw */
        return 0;
    }
}

/* ---- groups ---------------------------------------------------------------------- */

static uint8_t draw_choice(const pen_op *op, pen__rng *rng)
{
    double sum = 0;
    for (int32_t i = 0; i < op->group.n; i++)
        sum += (double)op->group.weights[i];
    double at = pen__rng_unit(rng) * sum, before = 0;
    int32_t chosen = 0;
    for (int32_t i = 0; i < op->group.n; i++) {
        if (op->group.weights[i] > 0 && at >= before)
            chosen = i; /* the last one that begins at or before it */
        before += (double)op->group.weights[i];
    }
    return (uint8_t)chosen;
}

/* Which members are taken, and in which order. */
static void draw_group(const pen_op *op, pen__rng *rng, pen_params *out)
{
    int n = op->group.n;
    for (int i = 0; i < n; i++)
        out->group.order[i] = (uint8_t)i;
    out->applied = true;
    if (op->kind == PEN_OP_RANDOM_APPLY) {
        out->applied = pen__rng_unit(rng) < (double)op->group.p;
        n = out->applied ? n : 0;
    } else if (op->kind == PEN_OP_RANDOM_CHOICE) {
        out->group.order[0] = draw_choice(op, rng);
        n = 1;
    } else if (op->kind == PEN_OP_RANDOM_ORDER) {
        draw_permutation(rng, out->group.order, n);
    }
    memset(out->group.order + n, 0, sizeof out->group.order - (size_t)n);
    out->group.n_taken = (uint8_t)n;
}

typedef struct drawing {
    const pen_pipeline *pipe;
    const pen_key *key;
    pen_params *out;
    int32_t w, h; /* of the image so far */
} drawing;

/* Nothing happens, until something is drawn. */
static void leave_out(const drawing *at, size_t i)
{
    pen_params *out = &at->out[i];
    memset(out, 0, sizeof *out);
    out->kind = at->pipe->ops[i].kind;
    out->in_w = out->out_w = out->w = at->w;
    out->in_h = out->out_h = out->h = at->h;
}

/* Draw for the operation at i and the members it takes. */
static int draw_tree(drawing *at, size_t i, pen_error *err)
{
    const pen_pipeline *pipe = at->pipe;
    const pen_key *key = at->key;
    pen_params *out = &at->out[i];
    pen__rng rng;
    pen__rng_init(&rng, key->seed, PEN__RNG_OP, key->sample, key->epoch, key->occurrence, (int)i);
    for (size_t j = i; j < pipe->end[i]; j++)
        leave_out(at, j);
    int rc = 0;
    if (pen_op_is_group(pipe->ops[i].kind)) {
        draw_group(&pipe->ops[i], &rng, out);
        for (int k = 0; k < out->group.n_taken && rc == 0; k++)
            rc = draw_tree(at, pen__pipeline_member(pipe, i, out->group.order[k]), err);
        out->out_w = at->w;
        out->out_h = at->h;
    } else {
        rc = pen__draw_leaf(&pipe->ops[i], &rng, out, err);
    }
    at->w = out->out_w;
    at->h = out->out_h;
    return rc;
}

int pen_pipeline_draw(const pen_pipeline *pipe, const pen_key *key, const pen_image_info *info,
                      pen_params *out, size_t out_cap, pen_error *err)
{
    if (out_cap < pipe->n_ops)
        return pen__fail(err, PEN_ENOSPC, -1, "room for %zu parameters, %zu needed", out_cap,
                         pipe->n_ops);
    bool is_turned = pipe->ops[0].decode.use_exif && info->orientation >= 5;
    drawing at = {pipe, key, out, is_turned ? info->height : info->width,
                  is_turned ? info->width : info->height};
    int rc = 0;
    for (size_t i = 0; i < pipe->n_ops && rc == 0; i = pipe->end[i])
        rc = draw_tree(&at, i, err);
    return rc;
}
