/* trial.c - every change is an experiment.
 *
 * What counts is what the training loop gets.  While it waits, that is what workers finish a
 * second, which is finer than counting batches; while it does not, it has all it wants.  A
 * change that asks for more must show a gain; one that gives back must show no loss.
 *
 * A loop inside a long step waits for nothing, whatever the knobs are: that is no proof that
 * giving back costs nothing.  So that is kept only after batches were taken, more of them than
 * lay ready before; a loss is believed at once.
 */
#include "policy/policies.h"

enum {
    LEAST_PERIODS = 4,
    MOST_PERIODS = 25,
    LEAST_SAMPLES = 16,
    LEAST_BATCHES = 3,
    LONGEST_TRIAL = 1200 /* periods that batches may take to be taken */
};

static const double loss = 0.98;      /* of the rate: that may be lost where it says anything */
static const double clear = 0.8;      /* of the rate: no chance */
static const double full = 0.92;      /* of the cores: there is no time left */
static const double mostly = 0.5;     /* of the time: of scheduling periods, cut short */
static const double less_wait = 0.02; /* of the time: a gain, or a loss */
static const double much_wait =
    0.2; /* of the time: then less of it comes from a higher rate alone */

void pen__measure_add(pen__measure *m, const pen_policy_state *state)
{
    m->periods += 1;
    m->seconds += state->period_s;
    m->made += state->made;
    m->batches += pen__or(state->batches, 0);
    m->waited_s += pen__or(state->wait_share, 0) * state->period_s;
    m->cpu_s += pen__or(state->process_cores, 0) * state->period_s;
    m->cut_s += pen__or(state->throttled_share, 0) * state->period_s;
}

void pen__measure_halve(pen__measure *m)
{
    *m = (pen__measure){
        .periods = m->periods / 2,
        .seconds = m->seconds / 2,
        .made = m->made / 2,
        .batches = m->batches / 2,
        .waited_s = m->waited_s / 2,
        .cpu_s = m->cpu_s / 2,
        .cut_s = m->cut_s / 2,
    };
}

bool pen__measure_is_enough(const pen__measure *m)
{
    return m->periods >= MOST_PERIODS || (m->periods >= LEAST_PERIODS && m->made >= LEAST_SAMPLES);
}

double pen__measure_rate(const pen__measure *m)
{
    return m->seconds > 0 ? m->made / m->seconds : 0;
}

double pen__measure_waits(const pen__measure *m)
{
    return m->seconds > 0 ? m->waited_s / m->seconds : 0;
}

bool pen__measure_is_full(const pen__measure *m, double cores)
{
    return m->cpu_s > full * cores * m->seconds || m->cut_s > mostly * m->seconds;
}

void pen__trial_begin(pen__trial *trial, const pen_knobs *before, const pen__measure *old,
                      double gain_or_gives_back, double settle)
{
    *trial = (pen__trial){
        .is_on = true,
        .gives_back = gain_or_gives_back == PEN__GIVES_BACK,
        .gain = gain_or_gives_back,
        .settle = settle,
        .batches = fmax(LEAST_BATCHES, before->value[PEN_KNOB_READY_BATCHES] + 1),
        .loss = loss,
        .before = *before,
        .old = *old,
    };
}

/* A rate over few samples says little. */
static double coarseness(const pen__trial *trial)
{
    return fmin(2 / fmax(fmin(trial->old.made, trial->now.made), 1), 0.1);
}

static bool pays(const pen__trial *trial)
{
    const double old = pen__measure_rate(&trial->old), now = pen__measure_rate(&trial->now);
    const double waited = pen__measure_waits(&trial->old), waits = pen__measure_waits(&trial->now);
    const bool is_as_fast = now >= old * (trial->loss - coarseness(trial));
    if (trial->gain == PEN__WAITS_LESS)
        return waits <= fmax(waited - less_wait, waited / 2);
    if (trial->gives_back)
        return waits < less_wait ||
               (is_as_fast && (waited > much_wait || waits <= waited + less_wait));
    const bool is_no_chance = waited > much_wait ? now > old : is_as_fast;
    return now >= old * (trial->gain + coarseness(trial)) ||
           (waits <= waited - fmax(less_wait, trial->gain - 1) && is_no_chance);
}

pen__trial_end pen__trial_step(pen__trial *trial, const pen_policy_state *state, pen_knobs *knobs)
{
    if (trial->settle > 0) {
        trial->settle -= 1;
        return PEN__TRIAL_GOES_ON;
    }
    pen__measure_add(&trial->now, state);
    if (!pen__measure_is_enough(&trial->now))
        return PEN__TRIAL_GOES_ON;
    const bool is_clear = pen__measure_rate(&trial->now) < clear * pen__measure_rate(&trial->old);
    if (trial->now.periods < trial->periods && !is_clear)
        return PEN__TRIAL_GOES_ON;
    const bool is_good = pays(trial);
    const bool is_proven = !trial->gives_back || trial->now.batches >= trial->batches;
    if (is_good && !is_proven && trial->now.periods < LONGEST_TRIAL)
        return PEN__TRIAL_GOES_ON;
    trial->is_on = false;
    if (is_good && is_proven)
        return PEN__TRIAL_KEPT;
    *knobs = trial->before;
    return PEN__TRIAL_REVERTED;
}
