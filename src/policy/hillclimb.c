/* hillclimb.c - one step of one knob at a time, kept if throughput grew: tf.data's way.
 *
 * Knows nothing of stages.  Goes through the knobs of the table in turn, first up, then down,
 * so a knob that is added later is climbed as well.  Steps are a quarter of the value, at
 * least 1; where values are no whole numbers, a tenth of the range.  Shares of the processor are
 * left alone: one of them cannot be turned without the others.
 */
#include "policy/policies.h"

enum { N_MOVES = 2 * PEN_KNOB_COUNT, REST = 10 };

typedef struct memory {
    pen__measure base;
    pen__trial trial;
    double rest;   /* periods to stand still, after a round in which nothing paid */
    int move;      /* knob * 2 + down */
    int n_useless; /* moves in a row */
} memory;

/* One step on from `old`, which may lead out of the range. */
static double step_from(const pen_knob_info *knob, double old, bool is_down)
{
    if (knob->is_integer)
        return old + (is_down ? -1 : 1) * fmax(1, floor(old / 4));
    const double step = (knob->max - knob->min) / 10; /* on a grid, so that the ends are met */
    return knob->min + step * (round((old - knob->min) / step) + (is_down ? -1 : 1));
}

/* The knobs after the present move; false if it leads nowhere. */
static bool try_move(const memory *m, const pen_knob_info *table, pen_knobs *knobs)
{
    const int knob = m->move / 2;
    const bool is_down = m->move % 2;
    if (!pen__is_free(table, knob) || table[knob].is_share)
        return false;
    double *value = &knobs->value[knob];
    const double old = *value;
    *value = pen__clamp(table, knob, step_from(&table[knob], old, is_down));
    return *value != old;
}

static void next_move(memory *m)
{
    m->move = (m->move + 1) % N_MOVES;
    if (++m->n_useless >= N_MOVES) {
        m->n_useless = 0;
        m->rest = REST;
    }
}

static void begin(memory *m, const pen_knob_info *table, pen_knobs *knobs, char *reason)
{
    const pen_knobs before = *knobs;
    for (int i = 0; i < N_MOVES; i++, next_move(m)) {
        if (m->rest > 0)
            return;
        if (!try_move(m, table, knobs))
            continue;
        pen__trial_begin(&m->trial, &before, &m->base, m->move % 2 ? PEN__GIVES_BACK : 1.03, 1);
        pen__reason(reason, "try %s %g", table[m->move / 2].name, knobs->value[m->move / 2]);
        return;
    }
}

static void decide(void *own, const pen_policy_state *s, const pen_knob_info *table,
                   pen_knobs *knobs, char *reason)
{
    memory *m = own;
    const char *name = table[m->move / 2].name;
    if (pen__is_away(s))
        return;
    if (!m->trial.is_on) {
        if (m->rest > 0) {
            m->rest -= 1;
            m->base = (pen__measure){0};
            return;
        }
        pen__measure_add(&m->base, s);
        if (pen__measure_is_enough(&m->base))
            begin(m, table, knobs, reason);
        return;
    }
    const pen__trial_end end = pen__trial_step(&m->trial, s, knobs);
    if (end == PEN__TRIAL_GOES_ON)
        return;
    pen__reason(reason, "%s %s: %.0f to %.0f samples/s", name,
                end == PEN__TRIAL_KEPT ? "stays" : "goes back", pen__measure_rate(&m->trial.old),
                pen__measure_rate(&m->trial.now));
    m->base = (pen__measure){0};
    if (end == PEN__TRIAL_KEPT)
        m->n_useless = 0; /* the same way again */
    else
        next_move(m);
}

const pen_knob_policy pen__policy_hillclimb = {
    .name = "hillclimb",
    .text = "one step of one knob at a time, on throughput",
    .memory_bytes = sizeof(memory),
    .decide = decide,
};
