/* rules.c - thresholds, the simple heuristic.
 *
 *     the loop waits, workers are busy reading       read further ahead, with more readers
 *     the loop waits, workers are busy computing     one worker more, up to the cores
 *     the loop waits, batches are there now and then more ready batches
 *     the loop does not wait, and workers idle       one worker fewer
 *     the loop does not wait, and much is ready      fewer ready batches
 *
 * No trial, no memory of what did not help: what it has over a fixed setting is that it moves.
 */
#include "policy/policies.h"

enum { CALM = 5 }; /* periods between two changes */

static const double waits = 0.1, rests = 0.01;

typedef struct memory {
    double calm;
    double waited; /* smoothed */
} memory;

static void more(const pen_policy_state *s, const pen_knob_info *table, pen_knobs *k, char *reason)
{
    double *v = k->value;
    const double compute = pen__or(pen__compute_s(s), 0), read = pen__or(s->read_s, 0);
    if (read > compute && read > 1e-3 && pen__is_free(table, PEN_KNOB_READ_AHEAD)) {
        v[PEN_KNOB_READ_AHEAD] = fmax(4, v[PEN_KNOB_READ_AHEAD] * 2);
        v[PEN_KNOB_IO] = fmax(v[PEN_KNOB_IO], v[PEN_KNOB_READ_AHEAD]);
        pen__reason(reason, "the loop waits and reading takes longer than the rest: read ahead");
    } else if (v[PEN_KNOB_WORKERS] < ceil(s->cores) && pen__is_free(table, PEN_KNOB_WORKERS)) {
        v[PEN_KNOB_WORKERS] += 1;
        pen__reason(reason, "the loop waits and cores are free: a worker more");
    } else if (s->ready > 0 && pen__is_free(table, PEN_KNOB_READY_BATCHES)) {
        v[PEN_KNOB_READY_BATCHES] += 1;
        pen__reason(reason, "the loop waits now and then: a ready batch more");
    }
}

static void fewer(const pen_policy_state *s, const pen_knob_info *table, pen_knobs *k, char *reason)
{
    double *v = k->value;
    if (s->idle_share > 0.5 && v[PEN_KNOB_WORKERS] > 1 && pen__is_free(table, PEN_KNOB_WORKERS)) {
        v[PEN_KNOB_WORKERS] -= 1;
        pen__reason(reason, "the loop does not wait and workers are idle: one fewer");
    } else if (s->ready > 3 && v[PEN_KNOB_READY_BATCHES] > 3 &&
               pen__is_free(table, PEN_KNOB_READY_BATCHES)) {
        v[PEN_KNOB_READY_BATCHES] -= 1;
        pen__reason(reason, "the loop does not wait and much is ready: a batch fewer");
    }
}

static void decide(void *own, const pen_policy_state *s, const pen_knob_info *table,
                   pen_knobs *knobs, char *reason)
{
    memory *m = own;
    if (pen__is_away(s))
        return;
    m->waited += (pen__or(s->wait_share, 0) - m->waited) / CALM;
    if (++m->calm < CALM)
        return;
    if (m->waited > waits)
        more(s, table, knobs, reason);
    else if (m->waited < rests)
        fewer(s, table, knobs, reason);
    if (reason[0])
        m->calm = 0;
}

const pen_knob_policy pen__policy_rules = {
    .name = "rules",
    .text = "thresholds on waiting, reading and idleness",
    .memory_bytes = sizeof(memory),
    .decide = decide,
};
