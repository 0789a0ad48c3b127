/* pipeline.h (engine) - what a pipeline knows once it was checked. */
#ifndef PEN_ENGINE_PIPELINE_H
#define PEN_ENGINE_PIPELINE_H

#include <penstock/pipeline.h>

#include <stdatomic.h>

#include "base/digest.h"
#include "ops/tensor.h"

/* The line is always  Decode  image operations  [ToTensor (Normalize | RandomErasing)*]. */
struct pen_pipeline {
    atomic_int refs;
    size_t n_ops;
    size_t n_image_ops; /* Decode and what follows it before ToTensor */
    pen_op ops[PEN_PIPELINE_MAX_OPS];
    pen_shape shape;
    pen__tensor_table table; /* ToTensor, every Normalize and the dtype in one */
    char *description;
    char hash[PEN__DIGEST_TEXT];
};

/* Is this jitter component switched on?  0 brightness .. 3 hue, as pen_params.order. */
bool pen__jitter_is_on(const pen_op *op, int component);

/* The Normalizes at or after `index`, copied to out; returns how many. */
int pen__pipeline_norms(const pen_pipeline *pipe, size_t index, pen_op out[PEN_PIPELINE_MAX_OPS]);

#endif
