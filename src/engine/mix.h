/* mix.h - MixUp and CutMix inside: drawing, and doing it to a batch in place. */
#ifndef PEN_ENGINE_MIX_H
#define PEN_ENGINE_MIX_H

#include <penstock/loader.h>

#include "base/digest.h"
#include "engine/slab.h"

/* The operations of a loader; n 0: none. */
typedef struct pen__mixer {
    pen_mix mixes[PEN_MIX_MAX];
    int32_t n, n_classes;
} pen__mixer;

/* Check the options against what is mixed: float32 images, labels below num_classes. */
int pen__mixer_init(pen__mixer *mixer, const pen_loader_opts *opts, const pen_shape *shape,
                    const pen_dataset *ds, pen_error *err);
/* Part of a stream's identity. */
void pen__mixer_digest(const pen__mixer *mixer, char out[PEN__DIGEST_TEXT]);

/* `batch` counts global batches. */
void pen__mix_draw(const pen__mixer *mixer, uint64_t seed, int64_t epoch, int64_t batch,
                   const pen_shape *shape, pen_mix_params *out);

/* Mix the `count` samples of a batch.  The row after the last slot is the sample before the
 * first one; with `is_closed` it is made here, from the last sample. */
void pen__mix_batch(pen_batch *batch, const pen_mix_params *params, bool is_closed);

#endif
