/* stream.c - positions to samples. */
#include "engine/stream.h"

#include "base/rng.h"

static int64_t global_batch(const pen__stream *stream)
{
    return (int64_t)stream->local_batch * stream->world_size;
}

int64_t pen__stream_batches(const pen__stream *stream)
{
    int64_t whole = stream->order.count / global_batch(stream);
    bool has_tail = stream->order.count % global_batch(stream) != 0;
    return whole + (has_tail && stream->tail != PEN_TAIL_DROP);
}

int32_t pen__stream_slots(const pen__stream *stream, int64_t batch)
{
    int64_t left = stream->order.count - batch * global_batch(stream);
    if (stream->tail == PEN_TAIL_SHORT && left < stream->local_batch)
        return (int32_t)left; /* one rank only, so local and global are the same */
    return stream->local_batch;
}

int64_t pen__stream_position(const pen__stream *stream, int64_t batch, int32_t slot)
{
    return batch * global_batch(stream) + (int64_t)stream->rank * stream->local_batch + slot;
}

static pen__slot slot_at(const pen__stream *stream, int64_t epoch, int64_t position)
{
    int64_t lap = position / stream->order.count; /* > 0: past the end, taken from the start */
    return (pen__slot){
        .position = position,
        .sample = pen_order_at(&stream->order, epoch, position % stream->order.count),
        .occurrence = (int32_t)lap,
        .is_repeat = lap > 0 && stream->tail == PEN_TAIL_PAD,
    };
}

pen__slot pen__stream_slot(const pen__stream *stream, int64_t epoch, int64_t batch, int32_t slot)
{
    return slot_at(stream, epoch, pen__stream_position(stream, batch, slot));
}

pen__slot pen__stream_ghost(const pen__stream *stream, int64_t epoch, int64_t batch)
{
    int64_t first = pen__stream_position(stream, batch, 0);
    return slot_at(stream, epoch, (stream->rank > 0 ? first : first + global_batch(stream)) - 1);
}

int64_t pen__stream_replacement(const pen__stream *stream, int64_t epoch, int64_t position,
                                int attempt)
{
    pen__rng rng;
    pen__rng_init(&rng, stream->order.seed, PEN__RNG_REPLACE, position, epoch, attempt, 0);
    return (int64_t)(pen__rng_u64(&rng) % (uint64_t)stream->order.count);
}
