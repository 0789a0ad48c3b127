/* describe.c - canonical JSON: fixed key order, every setting written, floats
 * with nine significant digits, doubles with seventeen, which name each uniquely.
 * A group has its members in "ops", as the pipeline has its operations.
 */
#include "engine/describe.h"

#include <penstock/version.h>

#include "base/text.h"

const char *const pen__filter_names[] = {"nearest", "lanczos", "bilinear", "bicubic",
                                         "box",     "hamming", NULL};
const char *const pen__padding_names[] = {"constant", "edge", "reflect", "symmetric", NULL};
const char *const pen__scaling_names[] = {"divide", "multiply", "none", NULL};
const char *const pen__dtype_names[] = {"auto", "uint8", "float32", "float16", "bfloat16", NULL};
const char *const pen__layout_names[] = {"NCHW", "NHWC", NULL};
const char *const pen__augment_policy_names[] = {"imagenet", "cifar10", "svhn", NULL};

static void add_floats(pen__text *out, const char *name, const float *values, int n)
{
    pen__text_add(out, ",\"%s\":[", name);
    for (int i = 0; i < n; i++)
        pen__text_add(out, "%s%.9g", i ? "," : "", (double)values[i]);
    pen__text_add(out, "]");
}

static void add_doubles(pen__text *out, const char *name, const double *values, int n)
{
    pen__text_add(out, ",\"%s\":[", name);
    for (int i = 0; i < n; i++)
        pen__text_add(out, "%s%.17g", i ? "," : "", values[i]);
    pen__text_add(out, "]");
}

/* How pixels between pixels and outside of the image are made. */
static void add_sampling(pen__text *out, pen_filter filter, const uint8_t fill[PEN_MAX_CHANNELS])
{
    pen__text_add(out, ",\"interpolation\":\"%s\",\"fill\":[%d,%d,%d]", pen__filter_names[filter],
                  fill[0], fill[1], fill[2]);
}

static void add_crop(pen__text *out, const pen_op *op)
{
    if (op->kind != PEN_OP_PAD)
        pen__text_add(out, ",\"size\":[%d,%d]", op->crop.h, op->crop.w);
    if (op->kind == PEN_OP_CENTER_CROP)
        return;
    pen__text_add(out, ",\"padding\":[%d,%d,%d,%d]", op->crop.pad[0], op->crop.pad[1],
                  op->crop.pad[2], op->crop.pad[3]);
    if (op->kind == PEN_OP_RANDOM_CROP)
        pen__text_add(out, ",\"pad_if_needed\":%s", op->crop.pad_if_needed ? "true" : "false");
    pen__text_add(out, ",\"padding_mode\":\"%s\",\"fill\":[%d,%d,%d]",
                  pen__padding_names[op->crop.padding_mode], op->crop.fill[0], op->crop.fill[1],
                  op->crop.fill[2]);
}

static void add_area(pen__text *out, const pen_op *op)
{
    const float scale[2] = {op->area.scale_min, op->area.scale_max};
    const float ratio[2] = {op->area.ratio_min, op->area.ratio_max};
    add_floats(out, "scale", scale, 2);
    add_floats(out, "ratio", ratio, 2);
    if (op->kind == PEN_OP_RANDOM_RESIZED_CROP) {
        pen__text_add(out, ",\"size\":[%d,%d],\"interpolation\":\"%s\"", op->area.h, op->area.w,
                      pen__filter_names[op->area.filter]);
        return;
    }
    pen__text_add(out, ",\"p\":%.9g", (double)op->area.p);
    if (op->area.fill_mode == PEN_FILL_RANDOM)
        pen__text_add(out, ",\"value\":\"random\"");
    else
        add_floats(out, "value", op->area.value, PEN_MAX_CHANNELS);
}

static void add_chance(pen__text *out, const pen_op *op)
{
    if (op->kind == PEN_OP_RANDOM_POSTERIZE)
        pen__text_add(out, ",\"bits\":%d", op->chance.bits);
    if (op->kind == PEN_OP_RANDOM_SOLARIZE)
        pen__text_add(out, ",\"threshold\":%.9g", (double)op->chance.threshold);
    if (op->kind == PEN_OP_RANDOM_SHARPNESS)
        pen__text_add(out, ",\"sharpness_factor\":%.9g", (double)op->chance.factor);
    pen__text_add(out, ",\"p\":%.9g", (double)op->chance.p);
}

static void add_warp(pen__text *out, const pen_op *op)
{
    if (op->kind == PEN_OP_RANDOM_PERSPECTIVE) {
        pen__text_add(out, ",\"distortion_scale\":%.17g,\"p\":%.17g", op->warp.distortion_scale,
                      op->warp.p);
    } else {
        add_floats(out, "degrees", op->warp.degrees, 2);
        if (op->warp.has_center)
            add_doubles(out, "center", op->warp.center, 2);
        else
            pen__text_add(out, ",\"center\":null");
    }
    if (op->kind == PEN_OP_RANDOM_ROTATION)
        pen__text_add(out, ",\"expand\":%s", op->warp.expand ? "true" : "false");
    if (op->kind == PEN_OP_RANDOM_AFFINE) {
        add_doubles(out, "translate", op->warp.translate, 2);
        add_floats(out, "scale", op->warp.scale, 2);
        add_floats(out, "shear", op->warp.shear, 4);
    }
    add_sampling(out, op->warp.filter, op->warp.fill);
}

static void add_augment(pen__text *out, const pen_op *op)
{
    if (op->kind == PEN_OP_AUTO_AUGMENT)
        pen__text_add(out, ",\"policy\":\"%s\"", pen__augment_policy_names[op->augment.policy]);
    if (op->kind == PEN_OP_RAND_AUGMENT)
        pen__text_add(out, ",\"num_ops\":%d,\"magnitude\":%d", op->augment.num_ops,
                      op->augment.magnitude);
    if (op->kind == PEN_OP_RAND_AUGMENT || op->kind == PEN_OP_TRIVIAL_AUGMENT)
        pen__text_add(out, ",\"num_magnitude_bins\":%d", op->augment.num_magnitude_bins);
    if (op->kind == PEN_OP_AUG_MIX)
        pen__text_add(out,
                      ",\"severity\":%d,\"mixture_width\":%d,\"chain_depth\":%d,\"alpha\":%.9g,"
                      "\"all_ops\":%s",
                      op->augment.severity, op->augment.mixture_width,
                      op->augment.chain_depth > 0 ? op->augment.chain_depth : -1,
                      (double)op->augment.alpha, op->augment.all_ops ? "true" : "false");
    add_sampling(out, op->augment.filter, op->augment.fill);
}

static void add_settings(pen__text *out, const pen_op *op)
{
    switch (op->kind) {
    case PEN_OP_DECODE:
        pen__text_add(out, ",\"channels\":%d,\"exif\":%s", op->decode.channels,
                      op->decode.use_exif ? "true" : "false");
        break;
    case PEN_OP_RESIZE:
        pen__text_add(out, ",\"size\":[%d,%d],\"max_size\":%d,\"interpolation\":\"%s\"",
                      op->resize.h, op->resize.w, op->resize.max_size,
                      pen__filter_names[op->resize.filter]);
        break;
    case PEN_OP_CENTER_CROP:
    case PEN_OP_RANDOM_CROP:
    case PEN_OP_PAD:
        add_crop(out, op);
        break;
    case PEN_OP_RANDOM_RESIZED_CROP:
    case PEN_OP_RANDOM_ERASING:
        add_area(out, op);
        break;
    case PEN_OP_HFLIP:
    case PEN_OP_VFLIP:
    case PEN_OP_RANDOM_GRAYSCALE:
    case PEN_OP_RANDOM_INVERT:
    case PEN_OP_RANDOM_POSTERIZE:
    case PEN_OP_RANDOM_SOLARIZE:
    case PEN_OP_RANDOM_SHARPNESS:
    case PEN_OP_RANDOM_AUTOCONTRAST:
    case PEN_OP_RANDOM_EQUALIZE:
        add_chance(out, op);
        break;
    case PEN_OP_RANDOM_ROTATION:
    case PEN_OP_RANDOM_AFFINE:
    case PEN_OP_RANDOM_PERSPECTIVE:
        add_warp(out, op);
        break;
    case PEN_OP_GAUSSIAN_BLUR:
        pen__text_add(out, ",\"kernel_size\":[%d,%d]", op->blur.kernel_w, op->blur.kernel_h);
        add_floats(out, "sigma", op->blur.sigma, 2);
        break;
    case PEN_OP_AUTO_AUGMENT:
    case PEN_OP_RAND_AUGMENT:
    case PEN_OP_TRIVIAL_AUGMENT:
    case PEN_OP_AUG_MIX:
        add_augment(out, op);
        break;
    case PEN_OP_RANDOM_APPLY:
        pen__text_add(out, ",\"p\":%.9g", (double)op->group.p);
        break;
    case PEN_OP_RANDOM_CHOICE:
        add_floats(out, "p", op->group.weights, op->group.n);
        break;
    case PEN_OP_COLOR_JITTER:
        add_floats(out, "brightness", op->jitter.brightness, 2);
        add_floats(out, "contrast", op->jitter.contrast, 2);
        add_floats(out, "saturation", op->jitter.saturation, 2);
        add_floats(out, "hue", op->jitter.hue, 2);
        break;
    case PEN_OP_GRAYSCALE:
        pen__text_add(out, ",\"channels\":%d", op->grayscale.channels);
        break;
    case PEN_OP_NORMALIZE:
        add_floats(out, "mean", op->normalize.mean, PEN_MAX_CHANNELS);
        add_floats(out, "std", op->normalize.std, PEN_MAX_CHANNELS);
        break;
    case PEN_OP_TO_TENSOR: /* the usual one is not written: hashes are older than the choice */
        if (op->to_tensor.scaling != PEN_SCALING_DIVIDE)
            pen__text_add(out, ",\"scaling\":\"%s\"", pen__scaling_names[op->to_tensor.scaling]);
        break;
    default: /* ToTensor, RandomOrder, Compose have none */
        break;
    }
}

/* The operations from `from` up to `to`, groups with their members inside. */
static void add_ops(pen__text *out, const pen_pipeline *pipe, size_t from, size_t to)
{
    pen__text_add(out, "\"ops\":[");
    for (size_t i = from; i < to; i = pipe->end[i]) {
        pen__text_add(out, "%s{\"op\":\"%s\"", i > from ? "," : "", pen_op_name(pipe->ops[i].kind));
        add_settings(out, &pipe->ops[i]);
        if (pen_op_is_group(pipe->ops[i].kind)) {
            pen__text_add(out, ",");
            add_ops(out, pipe, i + 1, pipe->end[i]);
        }
        pen__text_add(out, "}");
    }
    pen__text_add(out, "]");
}

char *pen__describe(const pen_pipeline *pipe)
{
    pen__text out = {0};
    pen__text_add(&out, "{\"numerics\":%d,\"dtype\":\"%s\",\"layout\":\"%s\",",
                  PEN_NUMERICS_VERSION, pen__dtype_names[pipe->shape.dtype],
                  pen__layout_names[pipe->shape.layout]);
    add_ops(&out, pipe, 0, pipe->n_ops);
    pen__text_add(&out, "}");
    if (out.failed) {
        pen__text_fini(&out);
        return NULL;
    }
    return out.data;
}
