/* run.h - execute a plan: encoded bytes to a finished tensor. */
#ifndef PEN_ENGINE_RUN_H
#define PEN_ENGINE_RUN_H

#include "engine/plan.h"
#include "ops/decode.h"

/* Nanoseconds by stage, added to. */
typedef struct pen__stage_ns {
    int64_t decode, augment, tensor;
} pen__stage_ns;

/* Run `plan` on the sample at src into dst (pipe->shape.bytes).  `scratch` has
 * plan->scratch_bytes, 64-byte aligned.  `times` may be NULL.
 * Fails only as pen__decode does. */
int pen__run(const pen_pipeline *pipe, const pen__plan *plan, const pen_image_info *info,
             const pen_params *params, const pen_key *key, pen__decoder *dec, const uint8_t *src,
             size_t len, void *scratch, void *dst, pen__stage_ns *times, pen_error *err);

#endif
