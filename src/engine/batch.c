/* batch.c - what a batch says of itself. */
#include "engine/slab.h"

int64_t pen_batch_count(const pen_batch *batch)
{
    return batch->count;
}

pen_shape pen_batch_shape(const pen_batch *batch)
{
    return batch->shape;
}

void *pen_batch_data(const pen_batch *batch)
{
    return batch->data;
}

const int64_t *pen_batch_labels(const pen_batch *batch)
{
    return batch->labels;
}

const float *pen_batch_mixed_labels(const pen_batch *batch)
{
    return batch->mixed;
}

int64_t pen_batch_classes(const pen_batch *batch)
{
    return batch->n_classes;
}

const int64_t *pen_batch_ids(const pen_batch *batch)
{
    return batch->ids;
}

const uint8_t *pen_batch_mask(const pen_batch *batch)
{
    return batch->mask;
}

int64_t pen_batch_epoch(const pen_batch *batch)
{
    return batch->epoch;
}

int64_t pen_batch_index(const pen_batch *batch)
{
    return batch->index;
}
