/* carry.h - bring one sample from the dataset to its slot: read, probe, draw,
 * plan, decode, augment, write, inside the memory budget. */
#ifndef PEN_ENGINE_CARRY_H
#define PEN_ENGINE_CARRY_H

#include <penstock/dataset.h>
#include <penstock/stats.h>

#include "engine/allow.h"
#include "engine/budget.h"
#include "engine/trace.h"
#include "engine/unpack.h"
#include "sched/gate.h"
#include "source/sidecar.h"
#include "telemetry/meter.h"

/* When parts of a file are read instead of all of it (parts.h). */
typedef enum pen__parts_mode {
    PEN__PARTS_AUTO = 0, /* where reading is slow */
    PEN__PARTS_NEVER,
    PEN__PARTS_ALWAYS,
} pen__parts_mode;

/* What every carrier of a loader shares. */
typedef struct pen__carry_env {
    pen_dataset *ds;
    pen_pipeline *pipe;
    const atomic_bool *cancel;
    pen__sidecar *marks; /* of JPEG files, or NULL */
    pen__gate *io;       /* who reads goes through it */
    pen__shares *shares; /* of stages */
    pen__trace *trace;   /* or NULL */
    pen__allow *allow;   /* where the dataset's samples come as parcels */
    pen__parts_mode parts;
    bool wants_files; /* and no other parcels: they could not be opened */
} pen__carry_env;

/* What reading takes.  One writer, any number of readers. */
typedef struct pen__reading {
    pen__meter times;
    _Atomic int64_t bytes, wait_ns;
    _Atomic int64_t stored;  /* bytes of the files that those were of, or came from */
    _Atomic int64_t node_ns; /* of storage nodes' processors, as they say or as is to be expected */
    int64_t usual_ns;        /* that a sample takes lately; its thread's own */
    bool is_callers;         /* by a thread of the program's own, which may be told to leave */
} pen__reading;

/* One thread's tools.  Counters have one writer and any number of readers. */
typedef struct pen__carrier {
    pen__decoder *dec;
    pen__budget *budget;
    pen__home file_home, scratch_home;
    pen__reading reading;
    pen__meter decode, augment, tensor; /* samples */
    pen__meter batch;                   /* batches whose last sample this one carried */
    _Atomic int64_t n_samples;
    _Atomic int64_t mix_ns, idle_ns, memory_wait_ns, share_wait_ns;
    _Atomic int64_t jpeg_indexed, jpeg_plain, jpeg_library;
    pen_image_info info;
    pen_params params[PEN_PIPELINE_MAX_OPS];
    pen__plan plan;
    uint8_t marks[PEN__DECODE_MARKS_MAX];
    pen__unpacking unpacking; /* where the dataset's samples come as parcels */
    pen__bytes_coder *coder;  /* for parcels that want one, or NULL */
    bool was_cheated;         /* the last parcel was not what was asked for */
} pen__carrier;

int pen__carrier_init(pen__carrier *carrier, pen__budget *budget, const atomic_bool *cancel);
void pen__carrier_fini(pen__carrier *carrier);

/* Bytes that a sample takes which was read: its file, of `len` bytes, or where the dataset's source
 * has parcels the largest there may be. */
size_t pen__carry_room(const pen__carry_env *env, size_t len);

/* Read sample key->sample, whose file has `len` bytes, or fetch its parcel, into dst, which has
 * room for it.  An input/output error is tried again a few times.  PEN_ECANCELED: env->cancel, or
 * the program's own thread was told to leave. */
int pen__carry_read(const pen__carry_env *env, pen__reading *reading, const pen_key *key,
                    uint8_t *dst, size_t len, pen_error *err);

/* Carry sample key->sample into dst (pipe->shape.bytes).  `rank` is its place in the
 * line for memory: lower goes first.  `file` holds what was read of it before, if it was, and
 * is given back; all zero if not.  A parcel that cannot be opened is asked for once more, as the
 * stored file.  The error's text names the sample. */
int pen__carry(const pen__carry_env *env, pen__carrier *carrier, const pen_key *key, int64_t rank,
               pen__block *file, void *dst, pen_error *err);

static inline void pen__counter_add(_Atomic int64_t *counter, int64_t value)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + value,
                          memory_order_relaxed);
}

#endif
