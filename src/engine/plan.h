/* plan.h - one sample's way through a pipeline, worked out before a pixel is touched.
 *
 * From the header and the drawn parameters follows everything else: which
 * window of the image must be decoded, what each step reads and writes, and how
 * much memory all of it takes.  The memory budget is asked with that number, so
 * a sample never finds out half-way that there is no room.
 *
 * Groups are gone here: a plan is the list of what really happens to the sample,
 * each step with all that its kernel asks for.
 *
 * A plan can be cut: between two operations of the line the sample is one image, of a known
 * size, and what comes before may run on another machine than what comes after.  A place
 * inside a group, or between a resize and the crop that is part of it, is no such place.
 */
#ifndef PEN_ENGINE_PLAN_H
#define PEN_ENGINE_PLAN_H

#include "engine/pipeline.h"
#include "ops/filter.h"
#include "ops/image.h"
#include "ops/resize.h"
#include "ops/warp.h"

typedef enum pen__action {
    PEN__ACT_ORIENT, /* EXIF turn of the decoded window */
    PEN__ACT_GREY,   /* three channels to one */
    PEN__ACT_SPREAD, /* one channel to three equal ones */
    PEN__ACT_RESIZE, /* reads rectangle `have` of the whole input */
    PEN__ACT_CROP,
    PEN__ACT_HFLIP,
    PEN__ACT_VFLIP,
    PEN__ACT_BRIGHTNESS, /* these take `value` */
    PEN__ACT_CONTRAST,
    PEN__ACT_SATURATION,
    PEN__ACT_HUE,
    PEN__ACT_SHARPNESS,
    PEN__ACT_POSTERIZE,
    PEN__ACT_SOLARIZE,
    PEN__ACT_INVERT,
    PEN__ACT_AUTOCONTRAST,
    PEN__ACT_EQUALIZE,
    PEN__ACT_WARP,
    PEN__ACT_ROTATE,
    PEN__ACT_BLUR,
    PEN__ACT_MIX_BEGIN,         /* keep the image, and begin a mixture with `value` of it */
    PEN__ACT_MIX_ADD,           /* add `value` of what became of it, and go back to what was kept */
    PEN__ACT_MIX_END,           /* the mixture is the image */
    PEN__ACT_TENSOR_BRIGHTNESS, /* as torchvision does it on tensors, for AugMix */
    PEN__ACT_TENSOR_CONTRAST,
    PEN__ACT_TENSOR_SATURATION,
    PEN__ACT_TENSOR_SHARPNESS,
    PEN__ACT_TENSOR_AUTOCONTRAST,
    PEN__ACT_TENSOR_AFFINE,
} pen__action;

typedef struct pen__step {
    pen__action action;
    bool is_rgb; /* one channel would stand for three */
    union {
        double value; /* factor, bits, threshold or weight */
        struct {
            pen__rect box;
            pen_padding mode;
            uint8_t fill[PEN_MAX_CHANNELS];
        } crop;
        struct {
            pen__resize_spec spec;
            pen__rect have;
        } resize;
        pen__warp_spec warp;
        struct {
            double angle, center[2];
            bool expand, has_center;
            pen_filter filter;
            uint8_t fill[PEN_MAX_CHANNELS];
        } rotate;
        pen__blur blur;
    };
} pen__step;

#define PEN__PLAN_MAX_STEPS 256

/* Memory that steps take. */
typedef struct pen__needs {
    size_t image_bytes;  /* the largest image between two steps; two such buffers are used */
    size_t kernel_bytes; /* the most scratch a step takes */
    size_t mix_bytes;    /* the largest image that is mixed: kept once, summed in floats */
} pen__needs;

/* A place where the line may be cut, and the image there. */
typedef struct pen__plan_cut {
    int n_ops;   /* operations of the line that are done, Decode and members of groups counted */
    int n_steps; /* steps that are done */
    int32_t w, h, ch; /* ch may be 1 where the pipeline means 3 equal channels */
    pen__needs needs; /* of the steps since the cut before, without what the first one reads */
} pen__plan_cut;

typedef struct pen__plan {
    pen__rect window;     /* of the stored image: what is decoded */
    int32_t window_ch;    /* channels that come out of the decoder */
    bool starts_in_flow;  /* the first step, a resize, takes rows as they are decoded */
    pen__needs needs;     /* of all that runs */
    size_t scratch_bytes; /* all of it, aligned: see pen__plan_buffers */
    size_t library_bytes; /* what the decoding library takes for itself */
    int first_step;       /* 0 unless the plan begins at a cut */
    int n_steps;          /* where it ends */
    int n_cuts;           /* cuts[0]: decoded and turned; the last: the image is finished */
    pen__plan_cut cuts[PEN_PIPELINE_MAX_OPS];
    pen__step steps[PEN__PLAN_MAX_STEPS];
} pen__plan;

/* The image at a place of the line while steps are added. */
typedef struct pen__cursor {
    pen__plan *plan;
    int32_t w, h, ch;
    int meant_ch;     /* channels the pipeline means; ch may still be 1 where this is 3 */
    pen__needs needs; /* since the last cut */
} pen__cursor;

/* `params` as pen_pipeline_draw gave them, or checked by pen__params_check. */
void pen__plan_build(pen__plan *plan, const pen_pipeline *pipe, const pen_image_info *info,
                     const pen_params *params);

/* The last cut with no more than n_ops operations done, as an index of plan->cuts; -1: none. */
int pen__plan_find_cut(const pen__plan *plan, int n_ops);
/* Run only a part of what was built: from the image at cut `from` on, which is given then (-1: from
 * the file), up to the image at cut `to`. */
void pen__plan_keep(pen__plan *plan, int from, int to);
/* Count scratch that something else takes before the first step, where kernels have theirs. */
void pen__plan_add_scratch(pen__plan *plan, size_t bytes);

/* Where in the scratch memory what begins. */
typedef struct pen__buffers {
    uint8_t *images[2];
    void *kernel;
    uint8_t *kept;
    float *mix;
    size_t bytes; /* of all of it */
} pen__buffers;

/* `scratch` may be NULL, to learn how much there is. */
pen__buffers pen__plan_buffers(const pen__plan *plan, void *scratch);

/* The most steps a sample can take through this pipeline. */
int pen__plan_bound(const pen_pipeline *pipe);

/* ---- for plan*.c ------------------------------------------------------------------ */

/* Add a step whose result has this size. */
pen__step *pen__plan_add(pen__cursor *at, pen__action action, int32_t w, int32_t h, int ch);
/* Add a step that acts in place and takes `value`. */
void pen__plan_add_tone(pen__cursor *at, pen__action action, double value);
/* Make the image wide before something fills it with a colour. */
void pen__plan_widen_for(pen__cursor *at, const uint8_t fill[PEN_MAX_CHANNELS]);
/* RandomRotation, RandomAffine, RandomPerspective. */
void pen__plan_add_warp(pen__cursor *at, const pen_op *op, const pen_params *p);
/* AutoAugment and its relatives. */
void pen__plan_add_augments(pen__cursor *at, const pen_op *op, const pen_params *p);

/* ---- plan_check.c ------------------------------------------------------------------ */

/* Are foreign parameters possible for this pipeline and image? */
int pen__params_check(const pen_pipeline *pipe, const pen_image_info *info,
                      const pen_params *params, size_t n, pen_error *err);

#endif
