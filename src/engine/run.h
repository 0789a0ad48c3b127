/* run.h - execute a plan: encoded bytes to a finished tensor. */
#ifndef PEN_ENGINE_RUN_H
#define PEN_ENGINE_RUN_H

#include "engine/plan.h"
#include "ops/decode.h"
#include "sched/shares.h"

/* Nanoseconds by stage, added to; and the permits that stages compete for. */
typedef struct pen__stage_ns {
    int64_t decode, augment, tensor;
    int64_t decode_at, augment_at, tensor_at; /* when each began; 0: it did not */
    int64_t wait;                             /* for a permit */
    pen__shares *shares;                      /* or NULL */
    int share;                                /* the stage whose permit is held; -1: none */
} pen__stage_ns;

/* The stages that shares are for; writing the batch is the first part of transfer. */
enum { PEN__SHARE_DECODE, PEN__SHARE_AUGMENT, PEN__SHARE_TOKENIZE, PEN__SHARE_TRANSFER };

/* What a plan begins with. */
typedef enum pen__input_kind {
    PEN__INPUT_FILE,   /* an encoded image at src: `window` of it is decoded */
    PEN__INPUT_PIXELS, /* the image at the cut where the plan begins */
    PEN__INPUT_CODED,  /* the same, coded by codec/pixel_code.h, at src */
} pen__input_kind;

typedef struct pen__input {
    pen__input_kind kind;
    const uint8_t *src;
    size_t len;
    const pen_image_info *info; /* what a probe said of src */
    pen__rect window;
    pen__image pixels; /* may be written to; of coded ones the size alone counts */
} pen__input;

/* The usual case: the whole of a plan, on the file it was made for. */
static inline pen__input pen__input_of_file(const pen__plan *plan, const pen_image_info *info,
                                            const uint8_t *src, size_t len)
{
    return (pen__input){
        .kind = PEN__INPUT_FILE, .src = src, .len = len, .info = info, .window = plan->window};
}

/* Run `plan` on what is given into dst (pipe->shape.bytes).  `scratch` has
 * plan->scratch_bytes, 64-byte aligned.  `times` may be NULL.
 * Fails only as pen__decode does. */
int pen__run(const pen_pipeline *pipe, const pen__plan *plan, const pen_params *params,
             const pen_key *key, pen__decoder *dec, const pen__input *in, void *scratch, void *dst,
             pen__stage_ns *times, pen_error *err);

/* Run `plan`, which ends at a cut, and stop at the image there: `out`, in the scratch memory. */
int pen__run_to_cut(const pen__plan *plan, pen__decoder *dec, const pen__input *in, void *scratch,
                    pen__image *out, pen_error *err);

#endif
