/* trace.h - spans of time, noted by all threads of a loader into one bounded list.
 *
 * Off, which is the rule, it costs a thread one load a span.  On, a place in the list is an
 * atomic increment; there is no lock, and nothing is allocated.  `n_writing` is how the end
 * waits until the last writer is out of the list: it is seen before `is_on` is looked at again.
 */
#ifndef PEN_ENGINE_TRACE_H
#define PEN_ENGINE_TRACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef enum pen__trace_name {
    PEN__TRACE_SAMPLE,
    PEN__TRACE_READ,
    PEN__TRACE_DECODE,
    PEN__TRACE_AUGMENT,
    PEN__TRACE_TENSOR,
    PEN__TRACE_MIX,
    PEN__TRACE_WAIT,
    PEN__TRACE_BATCH, /* not of one thread */
    PEN__TRACE_NAMES
} pen__trace_name;

typedef struct pen__span {
    int64_t from_ns, to_ns;
    int64_t what, epoch; /* the sample; or the batch and its epoch; -1: neither */
    pid_t thread;
    pen__trace_name name;
} pen__span;

typedef struct pen__trace {
    pthread_mutex_t lock; /* guards beginning and ending */
    atomic_bool is_on;
    _Atomic int n_writing;
    _Atomic int64_t n; /* asked for a place; those from `cap` on got none */
    int64_t cap;
    pen__span *spans;
} pen__trace;

void pen__trace_init(pen__trace *trace);
void pen__trace_fini(pen__trace *trace);

static inline bool pen__trace_is_on(const pen__trace *trace)
{
    return atomic_load_explicit(&trace->is_on, memory_order_relaxed);
}

/* Called only while it is on, or was a moment ago. */
void pen__trace_note(pen__trace *trace, pen__trace_name name, int64_t from_ns, int64_t to_ns,
                     int64_t what, int64_t epoch);

/* from_ns 0: it was off when the span began. */
static inline void pen__trace_add(pen__trace *trace, pen__trace_name name, int64_t from_ns,
                                  int64_t to_ns, int64_t what, int64_t epoch)
{
    if (trace && pen__trace_is_on(trace) && from_ns)
        pen__trace_note(trace, name, from_ns, to_ns, what, epoch);
}

#endif
