/* batch.h - what a training step receives.
 *
 * A batch is a refcounted slab: tensor, labels, ids.  It is read-only to
 * everyone but its holder; dropping the last reference gives the memory back
 * to its loader, which may be gone by then.
 */
#ifndef PENSTOCK_BATCH_H
#define PENSTOCK_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/pipeline.h>

typedef struct pen_batch pen_batch;

PEN_API pen_batch *pen_batch_ref(pen_batch *batch);
/* NULL is legal. */
PEN_API void pen_batch_unref(pen_batch *batch);

/* Samples in it: the batch size, or fewer (tail `short`, skipped samples). */
PEN_API int64_t pen_batch_count(const pen_batch *batch);
PEN_API pen_shape pen_batch_shape(const pen_batch *batch);
/* count * shape.bytes bytes, 64-byte aligned. */
PEN_API void *pen_batch_data(const pen_batch *batch);
PEN_API const int64_t *pen_batch_labels(const pen_batch *batch);
/* (count, pen_batch_classes) labels after MixUp or CutMix (mix.h), or NULL. */
PEN_API const float *pen_batch_mixed_labels(const pen_batch *batch);
/* Columns of the mixed labels, 0 without. */
PEN_API int64_t pen_batch_classes(const pen_batch *batch);
/* Sample ids, for keys and extra fields (dataset.h). */
PEN_API const int64_t *pen_batch_ids(const pen_batch *batch);
/* 1 for a sample, 0 for a repeat that only fills the batch (tail `pad`). */
PEN_API const uint8_t *pen_batch_mask(const pen_batch *batch);
PEN_API int64_t pen_batch_epoch(const pen_batch *batch);
PEN_API int64_t pen_batch_index(const pen_batch *batch);

#endif
