/* offload.h - how much storage nodes should do for a job.
 *
 * A sample takes the device T_G, the client's processors T_CC, the storage nodes' processors T_CS
 * and the network T_Net; they all work at once, so the largest sets the pace.  What nodes could do
 * (engine/estimate.h, "offers") is ordered by bytes saved a second of their processors.  Taken from
 * the best on, T_Net falls and T_CS grows; it ends where T_Net is no longer the largest, or
 * where nothing is left.  Samples differ, so a network that is busy all the time is late now and
 * then: once a job is I/O-bound, T_Net counts 1.15 times beside device and client.  A job whose
 * device or client is slower than the network with files as they are gets nothing.
 *
 * A small quota is given out in pieces: a node works for some milliseconds of every tenth of a
 * second, and for one sample it may need more than such a piece.  Network and node then wait for
 * each other some of the time wherever both are as slow on average.  What nodes are given on top of
 * that costs no time, but saves bytes: there T_CS may be the larger one, by `lean`.
 *
 * Pure, without a clock.  Times are seconds a sample.
 */
#ifndef PEN_POLICY_OFFLOAD_H
#define PEN_POLICY_OFFLOAD_H

#include <stdbool.h>

#include <penstock/policy.h>

enum { PEN__OFFLOAD_POINTS = PEN_OFFLOAD_SLICES + 1 };

/* What is known. */
typedef struct pen__offload_facts {
    double device_s, client_s; /* T_G, T_CC; NaN counts as 0 */
    bool is_slow;              /* the job was seen to wait for the network or the nodes */
    bool is_try;               /* figures are a little better than known, to be tried at once */
    double raw_bytes;          /* of a sample */
    double bytes_per_s;        /* that the network brings */
    double storage_cores;      /* that this job may have; INFINITY: no limit was met or told */
    double lean;               /* times the network's time that nodes may take; 0 counts as 1 */
    double saved_bytes[PEN__OFFLOAD_POINTS], cpu_s[PEN__OFFLOAD_POINTS]; /* a sample, by the best
                                   i of PEN_OFFLOAD_SLICES equal parts of all offers; at [0] nothing
                                   is saved, and files take what they take */
} pen__offload_facts;

/* What follows from a share. */
typedef struct pen__offload_times {
    double net_s, storage_s; /* T_Net, T_CS */
    double slowest_s;        /* of all four */
} pen__offload_times;
pen__offload_times pen__offload_times_at(const pen__offload_facts *facts, double share);

/* The share of all offers to take; NaN: too little is known. */
double pen__offload_plan(const pen__offload_facts *facts);

/* The same for somebody who has `now`: stays there unless it is worth going. */
double pen__offload_settle(const pen__offload_facts *facts, double now);

/* Some periods together. */
typedef struct pen__offload_span {
    double seconds, bytes, node_s, waited_s, busy_s;
    double cut_s;       /* in which this process was cut short by its quota */
    double least_rate;  /* bytes a second, of any period */
    double allowance;   /* the last one */
    double wanted_rate; /* bytes a second of a job that waits for nothing remote */
    double rate, used;  /* bytes a second, nodes' cores: the mean with what was before */
} pen__offload_span;

typedef enum pen__offload_try {
    PEN__TRIED_NOTHING = 0,
    PEN__TRIED_BYTES, /* less work for nodes, as if the network brought more */
    PEN__TRIED_CORES, /* more work for nodes, as if they had more time */
} pen__offload_try;

/* What periods tell of the network and the nodes.  Zero-initialise. */
typedef struct pen__offload_watch {
    double bytes_per_s, storage_cores; /* 0: not known */
    double device_s, client_s;         /* of a sample, when it was last told; 0: not yet */
    double rate, used; /* bytes a second, nodes' cores: means of some spans; 0: not known */
    double n_odd;      /* states one after another with a far longer step */
    double hope;       /* times the bytes that are planned with; 0 counts as 1 */
    double allowance;  /* that nodes told of when they were last blamed; INFINITY: they did not */
    double n_spans;
    double n_slow;   /* spans one after another in which the loop waited, not for its own machine */
    bool is_due;     /* a span was judged just now: it is time to plan */
    double n_doubts; /* spans one after another in which less came though nodes had time left */
    double blamed_rate, blamed_share; /* when the nodes were thought to be slow; 0: they are not */
    pen__offload_try tried;           /* in the present span */
    double tried_at;                  /* what it stood at before */
    double stride;                    /* times the bytes, of tries that pay one after another */
    double rest, rest_next;           /* spans until the next try */
    double share, settling_s;
    bool has_begun;
    pen__offload_span span; /* the present one */
} pen__offload_watch;

/* One more period; `share` is what was set in it. */
void pen__offload_look(pen__offload_watch *watch, const pen_policy_state *state, double share);

/* Is it time to plan?  Once for each span. */
static inline bool pen__offload_is_due(pen__offload_watch *watch)
{
    const bool is_due = watch->is_due;
    watch->is_due = false;
    return is_due;
}

/* What is known after that.  False: not enough to plan with. */
bool pen__offload_know(const pen__offload_watch *watch, const pen_policy_state *state,
                       pen__offload_facts *out);

#endif
