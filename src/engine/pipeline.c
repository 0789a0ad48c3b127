/* pipeline.c - a line of operations, checked once, so that running it cannot fail
 * for reasons other than the sample; its shape, its description and its hash.
 */
#include "engine/pipeline.h"

#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "engine/describe.h"

static const size_t dtype_bytes[] = {0, 1, 4, 2, 2};

static int set_shape(pen_pipeline *pipe, const pen__outcome *at, pen_dtype dtype, pen_layout layout,
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

size_t pen__pipeline_member(const pen_pipeline *pipe, size_t group, int m)
{
    size_t at = group + 1;
    for (; m > 0; m--)
        at = pipe->end[at];
    return at;
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

    pen__outcome at;
    int rc = pen__pipeline_check(pipe, &at, err);
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
