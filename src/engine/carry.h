/* carry.h - bring one sample from the dataset to its slot: read, probe, draw,
 * plan, decode, augment, write, inside the memory budget. */
#ifndef PEN_ENGINE_CARRY_H
#define PEN_ENGINE_CARRY_H

#include <penstock/dataset.h>

#include "engine/budget.h"
#include "engine/run.h"
#include "source/sidecar.h"

/* What every carrier of a loader shares. */
typedef struct pen__carry_env {
    pen_dataset *ds;
    pen_pipeline *pipe;
    const atomic_bool *cancel;
    pen__sidecar *marks; /* of JPEG files, or NULL */
} pen__carry_env;

/* One thread's tools.  Counters have one writer and any number of readers. */
typedef struct pen__carrier {
    pen__decoder *dec;
    pen__budget *budget;
    pen__home file_home, scratch_home;
    _Atomic int64_t bytes_read;
    _Atomic int64_t read_ns, decode_ns, augment_ns, tensor_ns, idle_ns;
    _Atomic int64_t jpeg_indexed, jpeg_plain, jpeg_library;
    pen_image_info info;
    pen_params params[PEN_PIPELINE_MAX_OPS];
    pen__plan plan;
    uint8_t marks[PEN__DECODE_MARKS_MAX];
} pen__carrier;

int pen__carrier_init(pen__carrier *carrier, pen__budget *budget, const atomic_bool *cancel);
void pen__carrier_fini(pen__carrier *carrier);

/* Carry sample key->sample into dst (pipe->shape.bytes).  `rank` is its place in the
 * line for memory: lower goes first.  An input/output error is tried again a few
 * times.  The error's text names the sample. */
int pen__carry(const pen__carry_env *env, pen__carrier *carrier, const pen_key *key, int64_t rank,
               void *dst, pen_error *err);

static inline void pen__counter_add(_Atomic int64_t *counter, int64_t value)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + value,
                          memory_order_relaxed);
}

#endif
