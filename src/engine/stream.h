/* stream.h - which sample fills which slot of which batch: order, ranks, tails.
 *
 * Pure arithmetic.  Batch b takes positions [b*G, (b+1)*G) of the epoch's order,
 * G the global batch; rank r takes its own slice of them.  So the same G on
 * another number of ranks gives the same steps.
 */
#ifndef PEN_ENGINE_STREAM_H
#define PEN_ENGINE_STREAM_H

#include <penstock/loader.h>

typedef struct pen__stream {
    pen_order order;
    int32_t local_batch; /* slots of this rank */
    int32_t rank, world_size;
    pen_tail tail; /* never AUTO */
} pen__stream;

/* One slot of a batch. */
typedef struct pen__slot {
    int64_t position; /* in the epoch's order, before wrapping */
    int64_t sample;
    int32_t occurrence; /* how often the sample came before in this epoch */
    bool is_repeat;     /* only fills the batch (tail `pad`) */
} pen__slot;

int64_t pen__stream_batches(const pen__stream *stream);
/* Slots of this rank in `batch`: local_batch, or fewer in a short tail. */
int32_t pen__stream_slots(const pen__stream *stream, int64_t batch);
/* A slot's place among all slots of the epoch, over all ranks. */
int64_t pen__stream_position(const pen__stream *stream, int64_t batch, int32_t slot);
pen__slot pen__stream_slot(const pen__stream *stream, int64_t epoch, int64_t batch, int32_t slot);
/* The slot before this rank's first in the global batch, which goes round. */
pen__slot pen__stream_ghost(const pen__stream *stream, int64_t epoch, int64_t batch);
/* The sample that stands in for a bad one: f(seed, epoch, position, attempt). */
int64_t pen__stream_replacement(const pen__stream *stream, int64_t epoch, int64_t position,
                                int attempt);

#endif
