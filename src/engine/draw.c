/* draw.c - the parameters of every operation, from a key and an image header.
 *
 * Distributions are torchvision's.  Each operation has its own random stream
 * (its place in the line is in the counter), so an operation added at the end
 * never changes what those before it draw.  No pixel is looked at, so any site can do this
 * before decoding.
 */
#include "engine/pipeline.h"

#include <string.h>

#include "base/fail.h"
#include "base/fmath.h"
#include "base/rng.h"

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
static bool overhang_is_legal(const pen_op *op, const pen_params *p)
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
    if (!overhang_is_legal(op, out))
        return pen__fail(err, PEN_ELIMIT, -1, "image of %dx%d is too small for its mirror padding",
                         out->in_w, out->in_h);
    return 0;
}

static void draw_jitter(const pen_op *op, pen__rng *rng, pen_params *out)
{
    const float *ranges[4] = {op->jitter.brightness, op->jitter.contrast, op->jitter.saturation,
                              op->jitter.hue};
    for (int i = 0; i < 4; i++)
        out->order[i] = (uint8_t)i;
    for (int i = 3; i > 0; i--) { /* Fisher and Yates */
        int j = (int)pen__rng_below(rng, (uint32_t)i + 1);
        uint8_t swap = out->order[i];
        out->order[i] = out->order[j];
        out->order[j] = swap;
    }
    for (int i = 0; i < 4; i++)
        out->factor[i] = (float)pen__rng_range(rng, ranges[i][0], ranges[i][1]);
    out->applied = true;
}

static int draw_op(const pen_op *op, pen__rng *rng, pen_params *out, pen_error *err)
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
    case PEN_OP_HFLIP:
    case PEN_OP_VFLIP:
        out->applied = pen__rng_unit(rng) < (double)op->flip.p;
        return 0;
    case PEN_OP_COLOR_JITTER:
        draw_jitter(op, rng, out);
        return 0;
    case PEN_OP_RANDOM_ERASING:
        out->applied = pen__rng_unit(rng) < (double)op->area.p && draw_area(op, rng, out);
        return 0;
    default: /* nothing to draw */
        return 0;
    }
}

int pen_pipeline_draw(const pen_pipeline *pipe, const pen_key *key, const pen_image_info *info,
                      pen_params *out, size_t out_cap, pen_error *err)
{
    if (out_cap < pipe->n_ops)
        return pen__fail(err, PEN_ENOSPC, -1, "room for %zu parameters, %zu needed", out_cap,
                         pipe->n_ops);
    bool is_turned = pipe->ops[0].decode.use_exif && info->orientation >= 5;
    int32_t w = is_turned ? info->height : info->width;
    int32_t h = is_turned ? info->width : info->height;
    for (size_t i = 0; i < pipe->n_ops; i++) {
        pen__rng rng;
        pen__rng_init(&rng, key->seed, PEN__RNG_OP, key->sample, key->epoch, key->occurrence,
                      (int)i);
        memset(&out[i], 0, sizeof out[i]);
        out[i].kind = pipe->ops[i].kind;
        out[i].in_w = w;
        out[i].in_h = h;
        int rc = draw_op(&pipe->ops[i], &rng, &out[i], err);
        if (rc)
            return rc;
        w = out[i].out_w;
        h = out[i].out_h;
    }
    return 0;
}
