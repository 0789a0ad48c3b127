/* pipeline.c - check a line of operations once, so that running it cannot fail
 * for reasons other than the sample.
 *
 * Checking walks the line with what is known before any image is seen: the
 * channels, whether the size is fixed yet, and whether ToTensor has been passed.
 */
#include "engine/pipeline.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "engine/describe.h"

/* What is known at a place in the line. */
typedef struct walk {
    int channels;
    int32_t w, h; /* 0: depends on the image */
    bool is_tensor;
} walk;

enum { MAX_SIDE = 16384 };

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

static const char *check_crop(const pen_op *op, walk *at)
{
    at->w = op->crop.w;
    at->h = op->crop.h;
    bool has_padding = false;
    for (int i = 0; i < 4; i++) {
        if (op->crop.pad[i] < 0 || op->crop.pad[i] > MAX_SIDE)
            return "padding must be 0 to 16384";
        has_padding |= op->crop.pad[i] > 0;
    }
    if ((unsigned)op->crop.padding_mode > PEN_PADDING_SYMMETRIC)
        return "unknown padding_mode";
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

/* Check one operation and step over it; NULL, or what is wrong. */
static const char *check_op(const pen_op *op, walk *at)
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
    case PEN_OP_HFLIP:
    case PEN_OP_VFLIP:
        return check_probability(op->flip.p);
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

static int check_line(pen_pipeline *pipe, walk *at, pen_error *err)
{
    const pen_op *decode = &pipe->ops[0];
    if (decode->decode.channels != 1 && decode->decode.channels != 3)
        return pen__fail(err, PEN_EINVAL, -1, "Decode: channels must be 1 or 3");
    at->channels = decode->decode.channels;
    pipe->n_image_ops = 1;
    for (size_t i = 1; i < pipe->n_ops; i++) {
        const char *wrong = check_op(&pipe->ops[i], at);
        if (wrong)
            return pen__fail(err, PEN_EINVAL, -1, "operation %zu, %s: %s", i,
                             pen_op_name(pipe->ops[i].kind), wrong);
        pipe->n_image_ops += !at->is_tensor;
    }
    if (at->w == 0)
        return pen__fail(err, PEN_EINVAL, -1,
                         "the output size depends on the image: add a crop or a Resize to (h, w)");
    return 0;
}

static const size_t dtype_bytes[] = {0, 1, 4, 2, 2};

static int set_shape(pen_pipeline *pipe, const walk *at, pen_dtype dtype, pen_layout layout,
                     pen_error *err)
{
    if ((unsigned)dtype > PEN_DTYPE_BFLOAT16 || (unsigned)layout > PEN_LAYOUT_NHWC)
        return pen__fail(err, PEN_EINVAL, -1, "unknown dtype or layout");
    if (dtype == PEN_DTYPE_AUTO)
        dtype = at->is_tensor ? PEN_DTYPE_FLOAT32 : PEN_DTYPE_UINT8;
    if (at->is_tensor != (dtype != PEN_DTYPE_UINT8))
        return pen__fail(err, PEN_EINVAL, -1,
                         at->is_tensor ? "uint8 output: leave out ToTensor and what follows it"
                                       : "floating-point output needs ToTensor");
    pipe->shape = (pen_shape){at->channels, at->h, at->w, dtype, layout, 0};
    pipe->shape.bytes = (size_t)at->channels * (size_t)at->h * (size_t)at->w * dtype_bytes[dtype];
    return 0;
}

int pen__pipeline_norms(const pen_pipeline *pipe, size_t index, pen_op out[PEN_PIPELINE_MAX_OPS])
{
    int n = 0;
    for (size_t i = index; i < pipe->n_ops; i++)
        if (pipe->ops[i].kind == PEN_OP_NORMALIZE)
            out[n++] = pipe->ops[i];
    return n;
}

static pen_scaling scaling_of(const pen_pipeline *pipe)
{
    for (size_t i = 0; i < pipe->n_ops; i++)
        if (pipe->ops[i].kind == PEN_OP_TO_TENSOR)
            return pipe->ops[i].to_tensor.scaling;
    return PEN_SCALING_DIVIDE;
}

bool pen__jitter_is_on(const pen_op *op, int component)
{
    const float *ranges[4] = {op->jitter.brightness, op->jitter.contrast, op->jitter.saturation,
                              op->jitter.hue};
    float neutral = component == 3 ? 0.0F : 1.0F;
    return ranges[component][0] != neutral || ranges[component][1] != neutral;
}

static int build(pen_pipeline *pipe, const pen_op *ops, size_t n_ops, pen_dtype dtype,
                 pen_layout layout, pen_error *err)
{
    bool has_decode = n_ops > 0 && ops[0].kind == PEN_OP_DECODE;
    pipe->n_ops = n_ops + !has_decode;
    if (pipe->n_ops > PEN_PIPELINE_MAX_OPS)
        return pen__fail(err, PEN_EINVAL, -1, "more than %d operations", PEN_PIPELINE_MAX_OPS);
    pipe->ops[0] = pen_op_decode();
    if (n_ops)
        memcpy(pipe->ops + !has_decode, ops, n_ops * sizeof *ops);

    walk at = {0};
    int rc = check_line(pipe, &at, err);
    if (rc == 0)
        rc = set_shape(pipe, &at, dtype, layout, err);
    if (rc)
        return rc;
    pen_op norms[PEN_PIPELINE_MAX_OPS];
    int n_norms = pen__pipeline_norms(pipe, 0, norms);
    pen__tensor_table_init(&pipe->table, pipe->shape.dtype, at.channels, scaling_of(pipe), norms,
                           n_norms);
    pipe->description = pen__describe(pipe);
    if (!pipe->description)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    pen__digest(pipe->description, strlen(pipe->description), pipe->hash);
    return 0;
}

int pen_pipeline_create(pen_pipeline **out, const pen_op *ops, size_t n_ops, pen_dtype dtype,
                        pen_layout layout, pen_error *err)
{
    *out = NULL;
    pen_pipeline *pipe = pen__calloc(1, sizeof *pipe);
    if (!pipe)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    atomic_init(&pipe->refs, 1);
    int rc = build(pipe, ops, n_ops, dtype, layout, err);
    if (rc) {
        pen_pipeline_unref(pipe);
        return rc;
    }
    *out = pipe;
    return 0;
}

pen_pipeline *pen_pipeline_ref(pen_pipeline *pipe)
{
    atomic_fetch_add(&pipe->refs, 1);
    return pipe;
}

void pen_pipeline_unref(pen_pipeline *pipe)
{
    if (!pipe || atomic_fetch_sub(&pipe->refs, 1) != 1)
        return;
    pen__free(pipe->description);
    pen__free(pipe);
}

size_t pen_pipeline_op_count(const pen_pipeline *pipe)
{
    return pipe->n_ops;
}

pen_op_kind pen_pipeline_op_kind(const pen_pipeline *pipe, size_t index)
{
    return index < pipe->n_ops ? pipe->ops[index].kind : PEN_OP_COUNT;
}

pen_shape pen_pipeline_shape(const pen_pipeline *pipe)
{
    return pipe->shape;
}

const char *pen_pipeline_describe(const pen_pipeline *pipe)
{
    return pipe->description;
}

const char *pen_pipeline_hash(const pen_pipeline *pipe)
{
    return pipe->hash;
}
