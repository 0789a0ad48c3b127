/* worlds.h - a loader that is arithmetic, for policies to turn the knobs of: no threads, no clock.
 */
#ifndef PEN_TESTS_WORLDS_H
#define PEN_TESTS_WORLDS_H

#include "testing.h"

#include <math.h>

#include "policy/policies.h"

/* A machine, a source and a loop; times in seconds, of one sample but for the step. */
typedef struct world {
    double cores, compute_s, read_s, step_s, batch;
    bool is_remote;  /* the source is storage nodes */
    double io_rate;  /* samples a second that the source gives at most; INFINITY */
    double hand_s;   /* of a core, to hand a sample from a reader to a worker */
    double get_s;    /* of a core, to receive a sample: nobody's stage */
    double wire_s;   /* of a wire that all readers share, for a sample; 0: there is none */
    double ranks;    /* 0: not told */
    double rivals;   /* cores' worth of other programs that want to run */
    bool by_program; /* the system shares cores by program, whatever threads each has */
    double noise;    /* relative, of what is measured */
    uint64_t random;
    double max_ready;
} world;

typedef struct driver {
    const pen_knob_policy *policy;
    char memory[4096];
    pen_knob_info table[PEN_KNOB_COUNT];
    pen_knobs knobs;
    int n_changes;
    char reason[PEN_REASON_CAP];
} driver;

static inline double draw(world *w)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(w->random >> 11) * 0x1p-52 - 1; /* -1 to 1 */
}

static inline world usual(void)
{
    return (world){.cores = 2,
                   .compute_s = 2e-3,
                   .read_s = 5e-5,
                   .step_s = 0.01,
                   .batch = 64,
                   .io_rate = INFINITY,
                   .random = 1,
                   .max_ready = 16};
}

static inline void start(driver *d, const char *policy, const world *w)
{
    memset(d, 0, sizeof *d);
    d->policy = pen_policy_find(policy);
    assert_non_null(d->policy);
    assert_true(d->policy->memory_bytes <= sizeof d->memory);
#define WORLD_KNOB(id, name_, kind, unit_, text_)               \
    {.name = name_,                                             \
     .max = PEN_KNOB_KIND_##kind == PEN_KNOB_KIND_SHARE,        \
     .is_integer = PEN_KNOB_KIND_##kind == PEN_KNOB_KIND_WHOLE, \
     .is_share = PEN_KNOB_KIND_##kind == PEN_KNOB_KIND_SHARE},
    static const pen_knob_info table[PEN_KNOB_COUNT] = {PEN_KNOBS(WORLD_KNOB)}; /* no offload */
    memcpy(d->table, table, sizeof table);
    d->table[PEN_KNOB_READ_AHEAD].max = 1024;
    d->table[PEN_KNOB_IO].max = 128;
    d->table[PEN_KNOB_WORKERS].min = d->table[PEN_KNOB_READY_BATCHES].min =
        d->table[PEN_KNOB_IO].min = 1;
    d->table[PEN_KNOB_WORKERS].max = 2 * w->cores;
    d->table[PEN_KNOB_READY_BATCHES].max = w->max_ready;
    pen_knobs_init(&d->knobs);
    for (int i = 0; i < PEN_KNOB_COUNT; i++)
        d->knobs.value[i] = 0;
    d->knobs.value[PEN_KNOB_WORKERS] = w->cores;
    d->knobs.value[PEN_KNOB_READY_BATCHES] = 3;
    d->knobs.value[PEN_KNOB_IO] = 16;
}

static inline double readers(const pen_knobs *k)
{
    return fmin(k->value[PEN_KNOB_READ_AHEAD], k->value[PEN_KNOB_IO]);
}

/* `n` threads that read over a wire, each `think_s` away from it between two reads: mean value
 * analysis. */
static inline double over_wire(const world *w, double n, double think_s, double *read_s)
{
    double waiting = 0, rate = 0;
    *read_s = w->read_s;
    for (double i = 1; i <= n; i++) {
        const double at_wire_s = w->wire_s * (1 + waiting);
        *read_s = w->read_s + at_wire_s;
        rate = i / (*read_s + think_s);
        waiting = rate * at_wire_s;
    }
    return rate;
}

/* What a sample takes of this process's cores. */
static inline double on_a_core(const world *w, double n_readers)
{
    return w->compute_s + w->get_s + (n_readers > 0 ? w->hand_s : 0);
}

/* Samples a second that these knobs give, and what reading takes with them. */
static inline double supply(const world *w, const pen_knobs *k, double *read_s)
{
    const double workers = k->value[PEN_KNOB_WORKERS], n_readers = readers(k);
    /* threads take turns with those of other programs */
    const double turns = w->by_program ? fmax(w->cores - w->rivals, w->cores / 2)
                                       : w->cores * workers / (workers + w->rivals);
    const double cores = workers <= w->cores && w->rivals == 0 ? workers : fmin(workers, turns);
    const double computing = cores / on_a_core(w, n_readers);
    const double n_reading = n_readers > 0 ? n_readers : workers;
    if (w->wire_s > 0)
        return fmin(computing, over_wire(w, n_reading, n_readers > 0 ? 0 : w->compute_s, read_s));
    double rate = n_readers > 0 ? fmin(computing, n_readers / w->read_s)
                                : fmin(computing, workers / (w->compute_s + w->read_s));
    rate = fmin(rate, w->io_rate);
    *read_s = w->read_s;
    if (n_readers / w->read_s > w->io_rate) /* they queue at the source */
        *read_s = n_reading / w->io_rate;
    return rate;
}

/* The best that any setting gives. */
static inline double oracle(const world *w)
{
    pen_knobs k;
    double best = 0, read_s;
    for (double n = 1; n <= 2 * w->cores; n++)
        for (double io = 0; io <= 128; io++) {
            k.value[PEN_KNOB_WORKERS] = n;
            k.value[PEN_KNOB_READ_AHEAD] = 2 * io;
            k.value[PEN_KNOB_IO] = fmax(io, 1);
            best = fmax(best, supply(w, &k, &read_s));
        }
    return fmin(best, w->batch / w->step_s);
}

static inline double delivered(const world *w, const pen_knobs *k)
{
    double read_s;
    return fmin(supply(w, k, &read_s), w->batch / w->step_s);
}

/* Threads that wait for turns seem to take longer: with two a core that are all busy, measured,
 * half as long again. */
static inline double waiting_for_turns(const world *w, double workers, double rate)
{
    const bool are_full = rate * w->compute_s > 0.95 * w->cores;
    return are_full && workers > w->cores ? 1 + 0.5 * (workers / w->cores - 1) : 1;
}

static inline pen_policy_state look(world *w, const driver *d)
{
    pen_policy_state s;
    memset(&s, 0xff, sizeof s); /* NaN */
    if (w->is_remote)
        s.node_cores = 0.01;
    double read_s;
    const double period = 0.1, can = supply(w, &d->knobs, &read_s) * (1 + w->noise * draw(w));
    const double asked = w->batch / w->step_s, rate = fmin(can, asked);
    s.period_s = period;
    s.made = s.samples = rate * period;
    s.batches = s.made / w->batch;
    s.wait_share = 1 - rate / asked;
    s.batch_samples = w->batch;
    s.step_s = w->step_s;
    s.step_cv = s.decode_cv = s.read_cv = 0.1;
    const double longer = waiting_for_turns(w, d->knobs.value[PEN_KNOB_WORKERS], rate);
    s.decode_s = w->compute_s * 0.8 * (1 + w->noise * draw(w)) * longer;
    s.augment_s = w->compute_s * 0.2 * longer;
    s.tensor_s = 0;
    s.read_s = s.read_p50_s = s.read_p95_s = read_s * longer;
    s.batch_s = w->batch / can;
    s.batch_p95_s = s.batch_s * 1.2;
    s.ready = rate < asked ? 0 : d->knobs.value[PEN_KNOB_READY_BATCHES];
    s.idle_share = 1 - rate / can;
    s.cores = w->cores;
    s.process_cores = rate * on_a_core(w, readers(&d->knobs));
    s.other_cores = w->rivals == 0 ? 0 : w->by_program ? w->rivals : w->cores * 0.4;
    s.budget_share = 0.3;
    s.ahead_ratio = 1;
    s.away = 0;
    if (w->ranks > 0)
        s.ranks = w->ranks;
    return s;
}

/* Ask once, and turn the knobs. */
static inline void ask(driver *d, const pen_policy_state *s)
{
    pen_knobs wanted = d->knobs;
    memset(d->reason, 0, sizeof d->reason);
    if (d->policy->decide)
        d->policy->decide(d->memory, s, d->table, &wanted, d->reason);
    for (int k = 0; k < PEN_KNOB_COUNT; k++) {
        assert_false(isnan(wanted.value[k]));
        if (d->table[k].is_pinned)
            wanted.value[k] = d->knobs.value[k];
        const double to = d->table[k].is_integer ? round(wanted.value[k]) : wanted.value[k];
        wanted.value[k] = fmin(fmax(to, d->table[k].min), d->table[k].max);
        d->n_changes += wanted.value[k] != d->knobs.value[k];
    }
    d->knobs = wanted;
}

/* Let it go on for some periods. */
static inline void run(driver *d, world *w, int periods)
{
    for (int i = 0; i < periods; i++) {
        const pen_policy_state s = look(w, d);
        ask(d, &s);
    }
}

static inline void assert_reaches(driver *d, world *w, double share)
{
    if (delivered(w, &d->knobs) < share * oracle(w))
        fail_msg("%.0f of %.0f samples/s with %g workers, %g readers: %s", delivered(w, &d->knobs),
                 oracle(w), d->knobs.value[PEN_KNOB_WORKERS], readers(&d->knobs), d->reason);
}

#endif
