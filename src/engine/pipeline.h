/* pipeline.h (engine) - what a pipeline knows once it was checked. */
#ifndef PEN_ENGINE_PIPELINE_H
#define PEN_ENGINE_PIPELINE_H

#include <penstock/pipeline.h>

#include <stdatomic.h>

#include "base/digest.h"
#include "ops/tensor.h"

/* The line is always  Decode  image operations  [ToTensor (Normalize | RandomErasing)*];
 * image operations may stand in groups, each followed by its members. */
struct pen_pipeline {
    atomic_int refs;
    size_t n_ops;
    size_t n_image_ops; /* Decode and what follows it before ToTensor */
    pen_op ops[PEN_PIPELINE_MAX_OPS];
    uint8_t end[PEN_PIPELINE_MAX_OPS];   /* one past an operation and, for a group, its members */
    uint8_t depth[PEN_PIPELINE_MAX_OPS]; /* how many groups it stands in */
    pen_shape shape;
    pen__tensor_table table; /* ToTensor, every Normalize and the dtype in one */
    char *description;
    char hash[PEN__DIGEST_TEXT];
};

/* What comes out of a line of operations. */
typedef struct pen__outcome {
    int channels;
    int32_t w, h; /* 0: depends on the image */
    bool is_tensor;
} pen__outcome;

/* Check every operation; sets end, depth and n_image_ops.  PEN_EINVAL names the one at fault. */
int pen__pipeline_check(pen_pipeline *pipe, pen__outcome *out, pen_error *err);

/* Is this jitter component switched on?  0 brightness .. 3 hue, as pen_params.jitter.order. */
bool pen__jitter_is_on(const pen_op *op, int component);

/* Where the m-th member of the group at `group` stands. */
size_t pen__pipeline_member(const pen_pipeline *pipe, size_t group, int m);

/* The Normalizes at or after `index`, copied to out; returns how many. */
int pen__pipeline_norms(const pen_pipeline *pipe, size_t index, pen_op out[PEN_PIPELINE_MAX_OPS]);

#endif
