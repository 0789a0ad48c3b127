/* model_moves.c - the changes that the model tries, each with its condition; see model.h. */
#include "policy/model.h"
#include "policy/sizes.h"

enum {
    SETTLE = 1,
    MOST_SETTLE = 5,
    MOST_STEP = 4,
    FIRST_READERS = 32,
    BEFORE_OTHERS = 5, /* periods: turns beside others vary from one to the next */
    BESIDE_THEM = 8,   /* and so do those that a quota leaves */
};

static const double margin = 1.15;   /* above the wanted rate */
static const double spare = 1.3;     /* the margin when giving back: hysteresis */
static const double worth_it = 1.25; /* times as many readers: less is not worth a trial */
static const double hardly = 1.03;   /* times as many workers: a trial cannot tell */
static const double idles = 0.02;    /* of the workers' time, waiting for room */
static const double enough = 0.8;    /* of what was expected */
static const double lasts = 0.03;    /* of the time waited: worth memory */
static const double chance = 0.94;   /* of the rate, what turns beside others differ by anyway */
static const double turns = 0.9;     /* of the rate: fewer threads had fewer turns */

/* Workers read what takes them less than half of their computing, if there may be more of them than
 * cores; once there are, until it takes twice as long: they have made it longer themselves. Readers
 * that are there stay.  Others that want the cores, ranks among them, would be outnumbered; and by
 * what a sample takes workers it is planned what storage nodes do, so they must not wait for turns.
 */
static double read_by_workers(const memory *m, const pen_policy_state *s,
                              const pen_knob_info *table, const pen_knobs *knobs)
{
    const bool are_more = knobs->value[PEN_KNOB_WORKERS] > ceil(s->cores);
    const bool may_be =
        pen__is_free(table, PEN_KNOB_WORKERS) && table[PEN_KNOB_WORKERS].max >= floor(2 * s->cores);
    if (knobs->value[PEN_KNOB_READ_AHEAD] > 0 || !may_be || pen__or(s->ranks, 1) > 1 ||
        !isnan(s->stored_bytes) || (m->has_rivals && !are_more))
        return 0;
    return are_more ? 2 : 0.5;
}

static pen__sizes make_plan(const memory *m, const pen_policy_state *s, const pen_knob_info *table,
                            const pen_knobs *knobs, double factor)
{
    const pen__source_now source = {.best_read_s = m->best_read_s,
                                    .rate = m->source_rate,
                                    .by_workers = read_by_workers(m, s, table, knobs)};
    return pen__size(s, &source, factor);
}

static void begin(memory *m, change what, const pen_knobs *before, double gain)
{
    m->subject = what;
    pen__model_note_conditions(m);
    pen__trial_begin(&m->trial, before, &m->base, gain, SETTLE);
}

/* Fewer threads for fewer turns: what that brings varies, and so does what was before. */
static void begin_with_turns(memory *m, change what, const pen_knobs *before)
{
    begin(m, what, before, PEN__GIVES_BACK);
    m->trial.loss = chance;
    m->trial.periods = BESIDE_THEM;
}

/* What the readers before had asked for still comes: that much longer until it can be judged. */
static void begin_with_readers(memory *m, change what, const pen_knobs *before, double gain,
                               const pen_policy_state *s)
{
    begin(m, what, before, gain);
    m->trial.settle += fmin(floor(pen__or(s->read_s, 0) / s->period_s), MOST_SETTLE);
}

bool pen__model_turn(const pen_knob_info *table, pen_knobs *knobs, int knob, double to, bool is_up)
{
    double *value = &knobs->value[knob];
    to = pen__clamp(table, knob, to);
    if (!pen__is_free(table, knob) || (is_up ? to <= *value : to >= *value))
        return false;
    *value = to;
    return true;
}

/* Down to so many readers; where there are none, back to what it was: theirs was the limit. */
static void turn_io(const memory *m, const pen_knob_info *table, pen_knobs *knobs, double readers)
{
    const bool has_readers = knobs->value[PEN_KNOB_READ_AHEAD] > 0;
    if (!has_readers)
        pen__model_turn(table, knobs, PEN_KNOB_IO, m->first_io, true);
    else if (readers > 0)
        pen__model_turn(table, knobs, PEN_KNOB_IO, readers, false);
}

/* Samples a second if so many readers take no longer than those of now. */
static double rate_with(const pen_policy_state *s, double readers)
{
    const double wanted = s->step_s > 0 ? s->batch_samples / s->step_s : INFINITY;
    const double computed = s->cores / fmax(pen__compute_s(s), 1e-9);
    return fmin(fmin(wanted, computed), readers / fmax(pen__or(s->read_s, 0), 1e-9));
}

static bool ask_for_threads(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                            pen_knobs *knobs, char *reason)
{
    const pen_knobs before = *knobs;
    const pen__sizes p = make_plan(m, s, table, knobs, margin);
    const double io_now = fmin(knobs->value[PEN_KNOB_READ_AHEAD], knobs->value[PEN_KNOB_IO]);
    /* Without readers as many read at once as there are workers. */
    const double at_once = io_now > 0 ? io_now : knobs->value[PEN_KNOB_WORKERS];
    const double io = fmin(p.io, fmax(at_once * MOST_STEP, FIRST_READERS));
    bool is_any = p.workers > knobs->value[PEN_KNOB_WORKERS] * hardly &&
                  pen__model_turn(table, knobs, PEN_KNOB_WORKERS, p.workers, true);
    m->expected_rate = 0;
    /* Readers fill the time in which workers wait for bytes, and none is left where cores are. */
    if (io > io_now * worth_it && !pen__measure_is_full(&m->base, s->cores)) {
        m->expected_rate = rate_with(s, io);
        is_any |= pen__model_turn(table, knobs, PEN_KNOB_READ_AHEAD, 2 * io, true);
        if (pen__is_free(table, PEN_KNOB_IO))
            is_any |= io != knobs->value[PEN_KNOB_IO];
        pen__model_turn(table, knobs, PEN_KNOB_IO, io, io > knobs->value[PEN_KNOB_IO]);
    }
    if (!is_any)
        return false;
    begin_with_readers(m, MORE_THREADS, &before, 1.03, s);
    pen__reason(reason, "try %g workers and %g readers: a sample takes %.2f ms and %.2f ms to read",
                knobs->value[PEN_KNOB_WORKERS],
                fmin(knobs->value[PEN_KNOB_READ_AHEAD], knobs->value[PEN_KNOB_IO]),
                pen__compute_s(s) * 1e3, pen__or(s->read_s, 0) * 1e3);
    return true;
}

static bool ask_for_ready(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                          pen_knobs *knobs, char *reason)
{
    const pen_knobs before = *knobs;
    const pen__sizes p = make_plan(m, s, table, knobs, 1);
    const bool can_keep_up =
        s->batch_samples * pen__compute_s(s) / fmin(p.workers, s->cores) < s->step_s;
    const double twice = 2 * knobs->value[PEN_KNOB_READY_BATCHES]; /* batches are large: by steps */
    /* Room helps where threads wait for it, or where the mean is enough; not a source that is slow.
     */
    const bool has_use = pen__or(s->idle_share, 1) > idles ||
                         pen__measure_rate(&m->base) * s->step_s > enough * s->batch_samples;
    /* A batch is large, and one late batch among many is no reason for another. */
    if (m->lasting_waits < lasts || isnan(p.ready) || !can_keep_up || !has_use ||
        pen__or(s->budget_share, 0) > 0.9 ||
        !pen__model_turn(table, knobs, PEN_KNOB_READY_BATCHES, fmin(p.ready, twice), true))
        return false;
    begin(m, MORE_READY, &before, PEN__WAITS_LESS);
    pen__reason(reason, "try %g ready batches: a batch takes up to %.0f ms, a step %.0f ms",
                knobs->value[PEN_KNOB_READY_BATCHES], s->batch_p95_s * 1e3, s->step_s * 1e3);
    return true;
}

static bool halve_readers(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                          pen_knobs *knobs, char *reason)
{
    const pen_knobs before = *knobs;
    const double io = fmin(knobs->value[PEN_KNOB_READ_AHEAD], knobs->value[PEN_KNOB_IO]);
    const double least = pen__model_few_readers(m, s);
    if (io < 2 * least || !(s->read_s > 2 * m->best_read_s) ||
        !pen__model_turn(table, knobs, PEN_KNOB_IO, floor(io / 2), false))
        return false;
    pen__model_turn(table, knobs, PEN_KNOB_READ_AHEAD, 2 * floor(io / 2), false);
    begin_with_readers(m, FEWER_READERS, &before, PEN__GIVES_BACK, s);
    m->tried_read_s = s->read_s;
    pen__reason(reason, "try %g readers: reading takes %.1f ms, at best it took %.1f",
                floor(io / 2), s->read_s * 1e3, m->best_read_s * 1e3);
    return true;
}

/* Plans are made of what reading took at first.  Where it turns out to be quick and workers have
 * their hands full, some of the readers have nothing to do, or all. */
static bool let_readers_go(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                           pen_knobs *knobs, char *reason)
{
    const pen_knobs before = *knobs;
    const double rate = pen__measure_rate(&m->base), busy = rate * pen__or(s->read_s, 0);
    const double workers = fmin(knobs->value[PEN_KNOB_WORKERS], s->cores);
    const double io = fmin(knobs->value[PEN_KNOB_READ_AHEAD], knobs->value[PEN_KNOB_IO]);
    const double planned = make_plan(m, s, table, knobs, margin).io;
    const double needed = planned > 0 ? fmax(pen__readers_for(busy), planned) : 0;
    if (io <= needed || rate * pen__compute_s(s) < enough * workers ||
        !pen__model_turn(table, knobs, PEN_KNOB_READ_AHEAD, 2 * needed, false))
        return false;
    turn_io(m, table, knobs, needed);
    begin_with_readers(m, SPARE_READERS, &before, PEN__GIVES_BACK, s);
    pen__reason(reason, "try %g readers: %.1f of %g are busy", needed, busy, io);
    return true;
}

/* Other programs want the cores, and how many workers there are decides who gets them. */
static bool is_crowded(const memory *m, const pen_policy_state *s, double workers)
{
    const bool has_siblings = pen__or(s->ranks, 1) > 1;   /* ranks would outnumber each other */
    const double busy = pen__or(s->busy_cores, INFINITY); /* less: bytes are missing, not turns */
    /* What a hypervisor takes, it takes from any number of threads. */
    const bool are_here = pen__or(s->other_cores, 0) > PEN__STILL_THERE;
    return m->has_rivals && are_here && !has_siblings && busy >= 0.6 * workers &&
           m->base.periods >= BEFORE_OTHERS;
}

/* Tried before more workers than cores: where this costs nothing, that gains nothing. */
static bool leave_to_others(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                            pen_knobs *knobs, char *reason)
{
    const pen_knobs before = *knobs;
    const double workers = knobs->value[PEN_KNOB_WORKERS];
    const double left = fmax(ceil(s->cores) - round(pen__or(s->other_cores, 0)), 1);
    if (!is_crowded(m, s, workers) || workers > ceil(s->cores) ||
        !pen__model_turn(table, knobs, PEN_KNOB_WORKERS, left, false))
        return false;
    begin_with_turns(m, BESIDE_OTHERS, &before);
    pen__reason(reason, "try %g workers: other programs take %.1f cores",
                knobs->value[PEN_KNOB_WORKERS], pen__or(s->other_cores, 0));
    return true;
}

static bool outnumber_others(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                             pen_knobs *knobs, char *reason)
{
    const pen_knobs before = *knobs;
    const double workers = knobs->value[PEN_KNOB_WORKERS];
    /* All at once: of n rivals' turns the last steps gain too little to be told from chance. */
    if (!is_crowded(m, s, workers) || workers < floor(s->cores) || m->beside > turns ||
        !pen__model_turn(table, knobs, PEN_KNOB_WORKERS, 2 * ceil(s->cores), true))
        return false;
    begin(m, MORE_THAN_CORES, &before, 1.08);
    pen__reason(reason, "try %g workers: other programs take %.1f cores",
                knobs->value[PEN_KNOB_WORKERS], pen__or(s->other_cores, 0));
    return true;
}

static bool back_to_cores(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                          pen_knobs *knobs, char *reason)
{
    const pen_knobs before = *knobs;
    const pen__sizes p = make_plan(m, s, table, knobs, margin);
    const double needed = fmax(ceil(s->cores), p.workers);
    if (m->has_rivals || needed * hardly > knobs->value[PEN_KNOB_WORKERS] ||
        !pen__model_turn(table, knobs, PEN_KNOB_WORKERS, needed, false))
        return false;
    if (p.io > 0 || needed > ceil(s->cores)) /* they may be there to read: nothing may be lost */
        begin(m, BACK_TO_CORES, &before, PEN__GIVES_BACK);
    else
        begin_with_turns(m, BACK_TO_CORES, &before);
    pen__reason(reason, "try %g workers: no others want the cores, and reading takes %.2f ms",
                knobs->value[PEN_KNOB_WORKERS], pen__or(s->read_s, 0) * 1e3);
    return true;
}

static bool give_back_threads(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                              pen_knobs *knobs, char *reason)
{
    const pen_knobs before = *knobs;
    const pen__sizes p = make_plan(m, s, table, knobs, spare);
    bool is_any = pen__model_turn(table, knobs, PEN_KNOB_WORKERS, p.workers, false);
    is_any |= pen__model_turn(table, knobs, PEN_KNOB_READ_AHEAD, p.read_ahead, false);
    if (!is_any)
        return false;
    turn_io(m, table, knobs, p.io);
    begin(m, FEWER_THREADS, &before, PEN__GIVES_BACK);
    pen__reason(reason, "the loop is the slower side: try %g workers and %g readers",
                knobs->value[PEN_KNOB_WORKERS], p.io);
    return true;
}

static bool give_back_ready(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                            pen_knobs *knobs, char *reason)
{
    const pen_knobs before = *knobs;
    const pen__sizes p = make_plan(m, s, table, knobs, 1);
    if (isnan(p.least_ready) ||
        !pen__model_turn(table, knobs, PEN_KNOB_READY_BATCHES, p.least_ready, false))
        return false;
    begin(m, FEWER_READY, &before, PEN__GIVES_BACK);
    pen__reason(reason, "the loop is the slower side: try %g ready batches",
                knobs->value[PEN_KNOB_READY_BATCHES]);
    return true;
}

typedef bool (*changer)(memory *, const pen_policy_state *, const pen_knob_info *, pen_knobs *,
                        char *);
static const changer changers[N_CHANGES] = {
    [MORE_THREADS] = ask_for_threads,  [FEWER_THREADS] = give_back_threads,
    [FEWER_READERS] = halve_readers,   [SPARE_READERS] = let_readers_go,
    [MORE_READY] = ask_for_ready,      [FEWER_READY] = give_back_ready,
    [BESIDE_OTHERS] = leave_to_others, [MORE_THAN_CORES] = outnumber_others,
    [BACK_TO_CORES] = back_to_cores,
};

bool pen__model_try(memory *m, change what, const pen_policy_state *s, const pen_knob_info *table,
                    pen_knobs *knobs, char *reason)
{
    return m->hold[what] == 0 && m->rest[what] == 0 && changers[what](m, s, table, knobs, reason);
}

bool pen__model_wants_readers(const memory *m, const pen_policy_state *s,
                              const pen_knob_info *table, const pen_knobs *knobs)
{
    return make_plan(m, s, table, knobs, margin).io > 0;
}
