/* observe.h - what is going on in a loader, at one moment and between two. */
#ifndef PEN_ENGINE_OBSERVE_H
#define PEN_ENGINE_OBSERVE_H

#include <sched.h>

#include <penstock/policy.h>
#include <penstock/stats.h>
#include <penstock/telemetry.h>

#include "sched/window.h"
#include "telemetry/meter.h"
#include "telemetry/visible.h"

/* Counters of all threads, added up; and some gauges. */
typedef struct pen__facts {
    int64_t time_ns;
    pen__times stages[PEN_STAGE_COUNT];
    int64_t batches, samples, made; /* delivered; finished by workers */
    int64_t bytes_in, bytes_out;
    int64_t stored_in; /* of the files that bytes_in were of: parts and parcels are less */
    int64_t wait_ns;   /* the caller's, the present wait included */
    bool is_away;      /* it is between two epochs */
    int64_t mix_ns, idle_ns, memory_wait_ns, shared_wait_ns;
    int64_t node_ns;                  /* processors of storage nodes */
    int64_t cache_hits, cache_misses; /* JPEG files decoded with an entry of the index; without */
    int workers, readers;
    pen__window_facts window;
    int64_t budget_bytes, budget_used, slab_bytes;
    int64_t ahead_samples, ahead_bytes; /* of those that come next; -1: not known */
} pen__facts;

/* PEN_EFORK. */
int pen__observe(const pen_loader *loader, pen__facts *out);

/* The state of the period between `before` and `now`; stage times are those since `base`.
 * `machine` and `rates` may be NULL.  Pure. */
void pen__observe_state(const pen__facts *base, const pen__facts *before, const pen__facts *now,
                        const pen_machine *machine, const pen_rates *rates, double cores,
                        double batch_samples, pen_policy_state *out);

/* observe_machine.c: what is known of the machine and our group; and of the visible GPUs, which
 * stay NaN where it is not certain which those are.  Pure. */
void pen__observe_machine(const pen_machine *machine, const pen_rates *rates, pen_policy_state *s);
/* After that: what others keep from us of the cores that we may run on (`own`; NULL: all). */
void pen__observe_rivals(const pen_rates *rates, const cpu_set_t *own, pen_policy_state *s);
void pen__observe_gpus(const pen_machine *machine, const pen_rates *rates,
                       const pen__visible *visible, pen_policy_state *s);

/* Leave a mark for the verdict, if it has been a second.  From the thread that takes batches. */
void pen__observe_mark(pen_loader *loader);

/* What a verdict rests on beside the counters. */
typedef struct pen__surroundings {
    double first_wait_s; /* for the first batch, which says nothing about the rest */
    double cores, max_workers;
    double ready_limit;  /* batches that may be under way or ready: the knob */
    double ready_max;    /* and what it may be: memory has room for no more; 0: not known */
    double least_read_s; /* of a sample, while fewest queued; 0: not known */
} pen__surroundings;

/* verdict.c: the line of pen_loader_verdict.  Pure.  `whole` is since the beginning, `recent` the
 * last seconds of it, which are judged where they have batches enough; it may be NULL. */
int64_t pen__verdict(const pen_pipeline_stats *whole, const pen_pipeline_stats *recent,
                     const pen__surroundings *around, char *dst, size_t dst_cap);

/* What is known of storage nodes, for the state. */
void pen__observe_offload(pen_loader *loader, const pen__facts *before, const pen__facts *now,
                          pen_policy_state *out);

#endif
