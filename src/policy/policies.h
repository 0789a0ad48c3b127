/* policies.h - the policies there are, and what they share. */
#ifndef PEN_POLICY_POLICIES_H
#define PEN_POLICY_POLICIES_H

#include <penstock/policy.h>

#include <math.h>
#include <stdbool.h>

extern const pen_knob_policy pen__policy_fixed, pen__policy_rules, pen__policy_hillclimb,
    pen__policy_model;

/* A reason, cut to PEN_REASON_CAP. */
void pen__reason(char *reason, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* NaN, "not told", becomes `otherwise`. */
static inline double pen__or(double value, double otherwise)
{
    return isnan(value) ? otherwise : value;
}

/* May a policy turn it, and is there anywhere to go? */
static inline bool pen__is_free(const pen_knob_info *table, int knob)
{
    return !table[knob].is_pinned && table[knob].max > table[knob].min;
}

static inline double pen__clamp(const pen_knob_info *table, int knob, double value)
{
    return fmin(fmax(value, table[knob].min), table[knob].max);
}

/* Does this period say nothing about loading?  The loop is not there. */
static inline bool pen__is_away(const pen_policy_state *s)
{
    return s->away > 0;
}

/* A worker's time for one sample's pixels, s; NaN before there was one. */
static inline double pen__compute_s(const pen_policy_state *s)
{
    return s->decode_s + pen__or(s->augment_s, 0) + pen__or(s->tensor_s, 0);
}

/* ---- trials: change, let it settle, measure, keep or take back ---- */

/* What is known of the time since a measurement began. */
typedef struct pen__measure {
    double periods, seconds, made, batches, waited_s;
    double cpu_s, cut_s; /* of this process, as far as it is told; its quota cut it short */
} pen__measure;

void pen__measure_add(pen__measure *m, const pen_policy_state *state);
void pen__measure_halve(pen__measure *m); /* what it says stays, and counts half */
/* Long enough to say anything?  Some periods, and samples if any come at all. */
bool pen__measure_is_enough(const pen__measure *m);
double pen__measure_rate(const pen__measure *m);  /* samples a second, finished by workers */
double pen__measure_waits(const pen__measure *m); /* share of the time */
/* Does this process use up its cores?  Then more threads have nothing to run on. */
bool pen__measure_is_full(const pen__measure *m, double cores);

typedef enum pen__trial_end {
    PEN__TRIAL_GOES_ON,
    PEN__TRIAL_KEPT,
    PEN__TRIAL_REVERTED
} pen__trial_end;

typedef struct pen__trial {
    bool is_on;
    bool gives_back;  /* fewer resources: to be kept if it costs nothing */
    double gain;      /* else: that it must bring, 1.03 is 3 % */
    double settle;    /* periods that do not count yet */
    double batches;   /* that the loop must have taken before giving back is kept */
    double loss;      /* of the rate, that is kept all the same: 0.98 is 2 % */
    double periods;   /* to measure, at least; a clear loss is believed sooner */
    pen_knobs before; /* to go back to */
    pen__measure old, now;
} pen__trial;

/* Begin: `old` is what was measured with `before`.  What gives back is kept once the loop has
 * taken all that was ready and one more, and at least 3 batches; one that does not come for
 * them within some minutes gets everything back. */
#define PEN__GIVES_BACK 0
#define PEN__WAITS_LESS -1 /* more room is filled, which says nothing: the loop must wait less */
void pen__trial_begin(pen__trial *trial, const pen_knobs *before, const pen__measure *old,
                      double gain_or_gives_back, double settle);
/* One more period.  At the end *knobs are set back if it did not pay. */
pen__trial_end pen__trial_step(pen__trial *trial, const pen_policy_state *state, pen_knobs *knobs);

#endif
