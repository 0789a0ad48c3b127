/* mix.h - MixUp and CutMix: what a whole batch goes through after its samples.
 *
 * Each sample is mixed with the one before it in the global batch, the first one with the
 * last (torchvision's v2.MixUp and v2.CutMix, to the bit, given the same parameters).
 * Labels become float32 (count, num_classes).  One operation is picked for each batch.
 *
 * Parameters depend on (seed, epoch, global batch) alone, so every number of ranks gives
 * the same bytes: a rank decodes the sample in front of its slice as well.
 *
 *   the last batch    `short`: mixed among the samples it has; `pad`, `wrap`: repeats take
 *                     part like all others
 *   bad samples       `skip`: left out before mixing; `replace`: the stand-in is mixed
 *   fed orders        each rank mixes the batch it was fed, with parameters of its own
 */
#ifndef PENSTOCK_MIX_H
#define PENSTOCK_MIX_H

#include <stdint.h>

typedef enum pen_mix_kind {
    PEN_MIX_MIXUP = 0, /* before * (1 - lam) + sample * lam, in float32, in this order */
    PEN_MIX_CUTMIX,    /* a box comes from the sample before */
} pen_mix_kind;

typedef struct pen_mix {
    pen_mix_kind kind;
    double alpha;  /* lam is drawn from Beta(alpha, alpha); 1e-6 to 1e6 */
    double weight; /* how often it is picked, beside the weights of the others */
} pen_mix;

#define PEN_MIX_MAX 8

/* What happens to one batch. */
typedef struct pen_mix_params {
    pen_mix_kind kind;
    int32_t x1, y1, x2, y2; /* CutMix: the box, without x2 and y2; may be empty */
    double lam;             /* the sample's own share in pixels and label */
} pen_mix_params;

#endif
