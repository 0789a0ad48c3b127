/* plan.h - one sample's way through a pipeline, worked out before a pixel is touched.
 *
 * From the header and the drawn parameters follows everything else: which
 * window of the image must be decoded, what each step reads and writes, and how
 * much memory all of it takes.  The memory budget is asked with that number, so
 * a sample never finds out half-way that there is no room.
 */
#ifndef PEN_ENGINE_PLAN_H
#define PEN_ENGINE_PLAN_H

#include "engine/pipeline.h"
#include "ops/image.h"
#include "ops/resize.h"

typedef enum pen__action {
    PEN__ACT_ORIENT, /* EXIF turn of the decoded window */
    PEN__ACT_GREY,   /* three channels to one */
    PEN__ACT_SPREAD, /* one channel to three equal ones */
    PEN__ACT_RESIZE, /* reads rectangle `have` of the whole input */
    PEN__ACT_CROP,
    PEN__ACT_HFLIP,
    PEN__ACT_VFLIP,
    PEN__ACT_JITTER,
} pen__action;

typedef struct pen__step {
    pen__action action;
    uint8_t op; /* the operation it belongs to */
    pen__rect box;
    pen__rect have;
    pen__resize_spec resize;
} pen__step;

#define PEN__PLAN_MAX_STEPS (3 * PEN_PIPELINE_MAX_OPS + 2)

typedef struct pen__plan {
    pen__rect window;     /* of the stored image: what is decoded */
    bool starts_in_flow;  /* the first step, a resize, takes rows as they are decoded */
    size_t image_bytes;   /* the largest image between two steps; two such buffers are used */
    size_t resize_bytes;  /* scratch of the largest resize */
    size_t scratch_bytes; /* the buffers above, aligned */
    size_t library_bytes; /* what the decoding library takes for itself */
    int n_steps;
    pen__step steps[PEN__PLAN_MAX_STEPS];
} pen__plan;

/* `params` as pen_pipeline_draw gave them, or checked by pen__params_check. */
void pen__plan_build(pen__plan *plan, const pen_pipeline *pipe, const pen_image_info *info,
                     const pen_params *params);

/* Are foreign parameters possible for this pipeline and image? */
int pen__params_check(const pen_pipeline *pipe, const pen_image_info *info,
                      const pen_params *params, size_t n, pen_error *err);

#endif
