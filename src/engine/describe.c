/* describe.c - canonical JSON: fixed key order, every setting written, floats
 * with nine significant digits, which name each float32 uniquely.
 */
#include "engine/describe.h"

#include <penstock/version.h>

#include <locale.h>

#include "base/text.h"

static const char *const filter_names[] = {"nearest", "lanczos", "bilinear",
                                           "bicubic", "box",     "hamming"};
static const char *const padding_names[] = {"constant", "edge", "reflect", "symmetric"};
static const char *const scaling_names[] = {"divide", "multiply", "none"};
static const char *const dtype_names[] = {"auto", "uint8", "float32", "float16", "bfloat16"};

static void add_floats(pen__text *out, const char *name, const float *values, int n)
{
    pen__text_add(out, ",\"%s\":[", name);
    for (int i = 0; i < n; i++)
        pen__text_add(out, "%s%.9g", i ? "," : "", (double)values[i]);
    pen__text_add(out, "]");
}

static void add_crop(pen__text *out, const pen_op *op)
{
    pen__text_add(out, ",\"size\":[%d,%d]", op->crop.h, op->crop.w);
    if (op->kind == PEN_OP_CENTER_CROP)
        return;
    pen__text_add(out,
                  ",\"padding\":[%d,%d,%d,%d],\"pad_if_needed\":%s,\"padding_mode\":\"%s\","
                  "\"fill\":[%d,%d,%d]",
                  op->crop.pad[0], op->crop.pad[1], op->crop.pad[2], op->crop.pad[3],
                  op->crop.pad_if_needed ? "true" : "false", padding_names[op->crop.padding_mode],
                  op->crop.fill[0], op->crop.fill[1], op->crop.fill[2]);
}

static void add_area(pen__text *out, const pen_op *op)
{
    const float scale[2] = {op->area.scale_min, op->area.scale_max};
    const float ratio[2] = {op->area.ratio_min, op->area.ratio_max};
    add_floats(out, "scale", scale, 2);
    add_floats(out, "ratio", ratio, 2);
    if (op->kind == PEN_OP_RANDOM_RESIZED_CROP) {
        pen__text_add(out, ",\"size\":[%d,%d],\"interpolation\":\"%s\"", op->area.h, op->area.w,
                      filter_names[op->area.filter]);
        return;
    }
    pen__text_add(out, ",\"p\":%.9g", (double)op->area.p);
    if (op->area.fill_mode == PEN_FILL_RANDOM)
        pen__text_add(out, ",\"value\":\"random\"");
    else
        add_floats(out, "value", op->area.value, PEN_MAX_CHANNELS);
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
                      filter_names[op->resize.filter]);
        break;
    case PEN_OP_CENTER_CROP:
    case PEN_OP_RANDOM_CROP:
        add_crop(out, op);
        break;
    case PEN_OP_RANDOM_RESIZED_CROP:
    case PEN_OP_RANDOM_ERASING:
        add_area(out, op);
        break;
    case PEN_OP_HFLIP:
    case PEN_OP_VFLIP:
        pen__text_add(out, ",\"p\":%.9g", (double)op->flip.p);
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
            pen__text_add(out, ",\"scaling\":\"%s\"", scaling_names[op->to_tensor.scaling]);
        break;
    default:
        break;
    }
}

static char *describe(const pen_pipeline *pipe)
{
    pen__text out = {0};
    pen__text_add(&out, "{\"numerics\":%d,\"dtype\":\"%s\",\"layout\":\"%s\",\"ops\":[",
                  PEN_NUMERICS_VERSION, dtype_names[pipe->shape.dtype],
                  pipe->shape.layout == PEN_LAYOUT_NCHW ? "NCHW" : "NHWC");
    for (size_t i = 0; i < pipe->n_ops; i++) {
        pen__text_add(&out, "%s{\"op\":\"%s\"", i ? "," : "", pen_op_name(pipe->ops[i].kind));
        add_settings(&out, &pipe->ops[i]);
        pen__text_add(&out, "}");
    }
    pen__text_add(&out, "]}");
    if (out.failed) {
        pen__text_fini(&out);
        return NULL;
    }
    return out.data;
}

/* The program's locale may write 0,5 for 0.5: identity must not depend on it. */
char *pen__describe(const pen_pipeline *pipe)
{
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!plain)
        return NULL;
    locale_t before = uselocale(plain);
    char *text = describe(pipe);
    uselocale(before);
    freelocale(plain);
    return text;
}
