/* model.c - what is needed follows from service times; what is done is tried.
 *
 * The plan, in closed form, is in sizes.h.
 *
 * If the loop waits and the plan is above the present knobs, they go there at once; if it does
 * not, and the plan (with a larger margin) is below, they go down.  Either way that is a trial:
 * some periods later it stays or is taken back, and what was taken back is not tried again for
 * a while, twice as long each time, unless service times change by a quarter and stay so.
 *
 * A loop may be slow and fast by turns.  So a step is taken as the mean of at least 8, or that of
 * the last periods if it is shorter; and giving back that is undone soon after rests, twice as
 * long each time, whatever changes meanwhile.
 *
 * I/O: a source that is at its limit answers later instead of faster, and a plan that followed
 * that would ask for more and more.  So the plan takes r as it was at its best; readers grow by
 * trials that must pay; where one brings far less than readers that wait for nobody would, that
 * is what the source gives, and no more are asked for than that needs.  They are halved when
 * reading takes twice its best time and half as many do as well.  If they do not, the source has
 * become slower, and that is its best from now on.  Where workers are what is slow, those readers
 * go that reading, once it is known better, does not keep busy.
 */
#include "policy/model.h"
#include "policy/sizes.h"

#include <string.h>

static const char *const change_names[N_CHANGES] = {
    "more threads",
    "fewer threads",
    "half as many readers",
    "fewer readers",
    "more ready batches",
    "fewer ready batches",
    "fewer workers beside others",
    "more workers than cores",
    "fewer workers",
};

enum {
    FIRST_HOLD = 20,
    LONGEST_HOLD = 640,
    FIRST_REST = 200,
    LONGEST_REST = 10240,
    SOON = 200,      /* periods: undone within them, it should not have been done */
    LEAST_STEPS = 8, /* in a mean */
    SMOOTH = 8,      /* periods */
    IS_A_JUMP = 3,   /* periods in a row, of a rate that has changed much */
    STAYS_NEW = 8,   /* periods in a row: then it is no chance */
    RECENT = 12,
    MIXED = 2 /* periods, after others or cores came or went */
};

static const double waits = 0.03;        /* of the time: worth doing something about */
static const double rests = 0.015;       /* the loop is the slower side */
static const double enough = 0.8;        /* of what was expected */
static const double hardly_reads = 2e-4; /* s: what differs below is no news */
static const double many_more = 1.25;    /* times as many readers of nodes */
static const double jump = 1.5;          /* times as much, or as little */
static const double forget = 1.005;      /* a period, of what the source gives */
static const double lasting = 1 / 30.0;  /* of what is waited, a period: a mean of 3 s */

/* ---- holding back what did not pay ---- */

static bool differs(double a, double b, double factor)
{
    return a > factor * b || b > factor * a;
}

void pen__model_note_conditions(memory *m)
{
    m->compute_s = m->mean_compute_s;
    m->read_s = m->best_read_s;
    m->step_s = m->mean_step_s;
}

/* During a trial times may differ because of it. */
static bool is_new(memory *m)
{
    /* Beside others a worker's time holds its waiting for turns, which trials change themselves. */
    const double by_chance = m->has_rivals ? 2.5 : 1.25;
    const bool is_other =
        differs(m->mean_compute_s, m->compute_s, by_chance) ||
        differs(m->mean_step_s, m->step_s, 1.25) ||
        differs(fmax(m->best_read_s, hardly_reads), fmax(m->read_s, hardly_reads), by_chance);
    m->n_new = is_other && !m->trial.is_on ? m->n_new + 1 : 0;
    return m->n_new >= STAYS_NEW;
}

/* Holds end with time, or when the world has changed; rests only with time. */
static void age_holds(memory *m)
{
    const bool ends = is_new(m);
    for (int i = 0; i < N_CHANGES; i++) {
        m->hold[i] = ends ? 0 : fmax(m->hold[i] - 1, 0);
        m->hold_next[i] = ends ? 0 : m->hold_next[i];
        m->rest[i] = fmax(m->rest[i] - 1, 0);
        m->stands[i] += m->stands[i] > 0;
        if (m->stands[i] > SOON)
            m->rest_next[i] = 0;
    }
    if (ends) {
        m->n_new = 0;
        pen__model_note_conditions(m);
        m->base = (pen__measure){0};
    }
}

static double longer(double *next, double first, double longest)
{
    *next = *next > 0 ? fmin(*next * 2, longest) : first;
    return *next;
}

static void hold(memory *m, change what)
{
    m->hold[what] = longer(&m->hold_next[what], FIRST_HOLD, LONGEST_HOLD);
}

/* What was given back was missed. */
static void rest(memory *m, change what)
{
    m->rest[what] = longer(&m->rest_next[what], FIRST_REST, LONGEST_REST);
    m->stands[what] = 0;
}

/* It is taken again: if soon, giving it back rests. */
static void note_missed(memory *m, change gives)
{
    if (m->stands[gives] > 0 && m->stands[gives] <= SOON)
        rest(m, gives);
    m->stands[gives] = 0;
}

/* The first change that makes sense now, if any. */
static void choose(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                   pen_knobs *knobs, char *reason)
{
    static const change when_waiting[] = {MORE_THREADS,  MORE_READY,      FEWER_READERS,
                                          BESIDE_OTHERS, MORE_THAN_CORES, BACK_TO_CORES,
                                          SPARE_READERS};
    static const change when_not[] = {FEWER_THREADS, FEWER_READY};
    const double waiting = pen__measure_waits(&m->base);
    if (!m->has_begun) { /* the first batch is always waited for; slow reading is clear by now */
        if (pen__model_wants_readers(m, s, table, knobs))
            pen__model_try(m, MORE_THREADS, s, table, knobs, reason);
        return;
    }
    if (waiting > waits)
        for (size_t i = 0; i < sizeof when_waiting / sizeof *when_waiting; i++)
            if (pen__model_try(m, when_waiting[i], s, table, knobs, reason))
                return;
    if (waiting < rests)
        for (size_t i = 0; i < sizeof when_not / sizeof *when_not; i++)
            if (pen__model_try(m, when_not[i], s, table, knobs, reason))
                return;
}

/* Giving back rests if its trial showed a loss, or if what was given is taken again soon. */
static void note_given_back(memory *m, bool is_kept)
{
    const bool is_ready = m->subject == MORE_READY || m->subject == FEWER_READY;
    const change gives = is_ready ? FEWER_READY : FEWER_THREADS;
    if (m->subject == FEWER_READERS || m->subject == SPARE_READERS || m->subject == BACK_TO_CORES ||
        m->subject == BESIDE_OTHERS)
        return; /* those answer the source and other programs, not the loop */
    if (m->subject == gives && is_kept)
        m->stands[gives] = 1;
    else if (m->subject == gives)
        rest(m, gives);
    else if (is_kept)
        note_missed(m, gives);
}

/* More readers were tried: if that brought far less than it should, and not because workers had
 * no time, or this process no more of its cores, the source gives no more. */
static void note_source(memory *m, const pen_policy_state *s, double workers)
{
    const double rate = pen__measure_rate(&m->trial.now);
    const bool has_time = rate * pen__compute_s(s) < enough * fmin(workers, s->cores) &&
                          !pen__measure_is_full(&m->trial.now, s->cores);
    if (m->subject != MORE_THREADS || m->expected_rate == 0)
        return;
    m->source_rate = rate < enough * m->expected_rate && has_time
                         ? fmax(rate, pen__measure_rate(&m->trial.old))
                         : 0;
}

double pen__model_few_readers(const memory *m, const pen_policy_state *s)
{
    return fmax(PEN__BUSY_READERS, pen__least_readers(s, pen__measure_rate(&m->base)));
}

/* Where more samples come than when readers were planned, as nodes do more with them, too few are
 * under way to keep both node and network busy.  That is some percent of the time, which no trial
 * tells; and as many readers more cost next to nothing. */
static bool keep_nodes_busy(const memory *m, const pen_policy_state *s, const pen_knob_info *table,
                            pen_knobs *knobs, char *reason)
{
    const double least = pen__least_readers(s, pen__measure_rate(&m->base));
    const double now = fmin(knobs->value[PEN_KNOB_READ_AHEAD], knobs->value[PEN_KNOB_IO]);
    if (now == 0 || least < many_more * now || pen__measure_waits(&m->base) < waits ||
        pen__measure_is_full(&m->base, s->cores))
        return false;
    bool is_any = pen__model_turn(table, knobs, PEN_KNOB_READ_AHEAD, 2 * least, true);
    is_any |= pen__model_turn(table, knobs, PEN_KNOB_IO, least, true);
    if (is_any)
        pen__reason(reason, "%g readers: %.0f samples come a second", least,
                    pen__measure_rate(&m->base));
    return is_any;
}

/* Many readers brought no more than none, because the source is at its limit.  Then a few are
 * right: workers that read for themselves leave it idle while they compute, for some hundredths of
 * the time, which is less than a trial can tell. */
static bool keep_source_busy(const memory *m, const pen_policy_state *s, const pen_knob_info *table,
                             pen_knobs *knobs)
{
    const double few = pen__model_few_readers(m, s);
    /* Many workers keep it busy themselves, and all go through the same gate. */
    if (m->subject != MORE_THREADS || !(m->expected_rate > 0) || !(m->source_rate > 0) ||
        knobs->value[PEN_KNOB_WORKERS] > few ||
        !pen__model_turn(table, knobs, PEN_KNOB_READ_AHEAD, 2 * few, true))
        return false;
    pen__model_turn(table, knobs, PEN_KNOB_IO, few, knobs->value[PEN_KNOB_IO] < few);
    return true;
}

/* What a trial's end says of other changes than its own. */
static void note_end(memory *m, const pen_policy_state *s, bool is_kept)
{
    const bool takes_as_long = s->read_s > 0.75 * m->tried_read_s;
    if (m->subject == FEWER_READERS && !is_kept && takes_as_long) /* nobody queued: it is slower */
        m->best_read_s = m->tried_read_s;
    if (m->subject == FEWER_READERS && is_kept) /* the source is at its limit */
        hold(m, MORE_THREADS);
    if (m->subject == SPARE_READERS && is_kept)
        m->stands[SPARE_READERS] = 1;
    if (m->subject == MORE_THREADS && is_kept && m->expected_rate > 0)
        note_missed(m, SPARE_READERS);
    if (m->subject == BESIDE_OTHERS && is_kept) {
        m->has_yielded = true;
        m->hold[MORE_THREADS] = LONGEST_HOLD; /* until they are gone */
    }
    if (m->subject == BESIDE_OTHERS)
        m->beside = pen__measure_rate(&m->trial.now) / pen__measure_rate(&m->trial.old);
    if (m->subject == BESIDE_OTHERS && m->beside < enough) /* turns go by threads here */
        rest(m, BESIDE_OTHERS);
    if (m->subject == MORE_THREADS && is_kept) {
        /* Giving back at once would undo it, and what batches took is of before for a while. */
        m->hold[FEWER_THREADS] = fmax(m->hold[FEWER_THREADS], FIRST_HOLD);
        m->hold[MORE_READY] = fmax(m->hold[MORE_READY], SMOOTH);
    }
}

static void finish_trial(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                         pen_knobs *knobs, char *reason)
{
    const double workers = knobs->value[PEN_KNOB_WORKERS];
    const pen__trial_end end = pen__trial_step(&m->trial, s, knobs);
    if (end == PEN__TRIAL_GOES_ON)
        return;
    const bool is_kept = end == PEN__TRIAL_KEPT;
    m->off_next[m->subject] = 0;
    note_source(m, s, workers);
    const bool keeps_some = !is_kept && keep_source_busy(m, s, table, knobs);
    pen__reason(reason, "%s %s: %.0f to %.0f samples/s, waiting %.0f to %.0f %%",
                change_names[m->subject],
                is_kept      ? "stay"
                : keeps_some ? "go back, but for a few readers"
                             : "go back",
                pen__measure_rate(&m->trial.old), pen__measure_rate(&m->trial.now),
                100 * pen__measure_waits(&m->trial.old), 100 * pen__measure_waits(&m->trial.now));
    m->base = is_kept ? m->trial.now : m->trial.old;
    if (is_kept)
        m->hold_next[m->subject] = m->lasting_waits = 0;
    else
        hold(m, m->subject);
    note_given_back(m, is_kept);
    note_end(m, s, is_kept);
}

/* Without readers nobody queues but workers, who are few, and a few readers do not: that is what
 * reading takes. */
static void note_reading(memory *m, const pen_policy_state *s, const pen_knobs *knobs)
{
    const double readers = fmin(knobs->value[PEN_KNOB_READ_AHEAD], knobs->value[PEN_KNOB_IO]);
    if (!(s->read_s > 0))
        return;
    if (readers < PEN__BUSY_READERS || m->best_read_s == 0 || s->read_s < m->best_read_s)
        m->best_read_s = s->read_s;
    else
        m->best_read_s *= 1.002; /* the best of the last minute or so */
}

/* What was measured so far is forgotten when much more or less is made, and stays so. */
static void note_jump(memory *m, const pen_policy_state *s)
{
    const double before = pen__measure_rate(&m->base), now = s->made / s->period_s;
    const double way = now > jump * before ? 1 : now * jump < before ? -1 : 0;
    m->n_off = way != 0 && way * m->n_off >= 0 ? m->n_off + way : way;
    if (fabs(m->n_off) < IS_A_JUMP || m->base.periods < IS_A_JUMP)
        return;
    m->n_off = 0;
    m->base = (pen__measure){0};
}

/* Do other programs want the cores?  Coming is believed soon, going only when it lasts, unless
 * what they left lies idle. */
static bool rivals_changed(memory *m, const pen_policy_state *s)
{
    const double others = pen__or(s->other_cores, 0), steal = pen__or(s->steal, 0);
    const bool is_there = others > (m->has_rivals ? PEN__STILL_THERE : 0.3) || steal > 0.1;
    m->n_other = is_there != m->has_rivals ? m->n_other + 1 : 0;
    if (m->n_other < (is_there || m->has_yielded ? 2 : STAYS_NEW))
        return false;
    m->has_rivals = is_there;
    m->n_other = 0;
    return true;
}

/* The trial cannot be judged any more.  Others that come and go would call off each of its kind,
 * and knobs would swing for ever: so it rests, longer each time until one comes to its end. */
static void call_off(memory *m, bool has_other_cores, pen_knobs *knobs, char *reason)
{
    const change what = m->subject;
    m->trial.is_on = false;
    *knobs = m->trial.before;
    if (!has_other_cores)
        m->rest[what] = fmax(m->rest[what], longer(&m->off_next[what], FIRST_HOLD, LONGEST_HOLD));
    pen__reason(reason, "%s called off: %s", change_names[what],
                has_other_cores ? "there are other cores" : "other programs came or went");
}

/* Where others come or go, or cores do, what was measured before says nothing any more, nor does
 * a trial that began before. */
static void note_machine(memory *m, const pen_policy_state *s, pen_knobs *knobs, char *reason)
{
    const bool has_other_cores = m->cores > 0 && m->cores != s->cores;
    m->cores = s->cores;
    if (!rivals_changed(m, s) && !has_other_cores)
        return;
    m->base = (pen__measure){0};
    m->n_mixed = MIXED;
    m->lasting_waits = m->beside = 0;
    for (change what = BESIDE_OTHERS; what <= BACK_TO_CORES; what++)
        m->hold[what] = m->hold_next[what] = 0;
    if (has_other_cores || m->has_yielded)
        m->hold[MORE_THREADS] = m->hold_next[MORE_THREADS] = 0;
    m->has_yielded = false;
    if (m->trial.is_on)
        call_off(m, has_other_cores, knobs, reason);
}

/* Means that one odd period, or one odd step, does not turn. */
static void note_means(memory *m, const pen_policy_state *s)
{
    const double compute = pen__compute_s(s), n = pen__or(s->batches, 0);
    if (m->mean_compute_s == 0)
        m->mean_compute_s = compute;
    m->mean_compute_s += (compute - m->mean_compute_s) / SMOOTH;
    if (!(s->step_s > 0) || n <= 0)
        return;
    m->n_steps = fmin(m->n_steps + n, fmax(LEAST_STEPS, n));
    m->mean_step_s += (s->step_s - m->mean_step_s) * n / m->n_steps;
}

/* The step to plan for: of those of late the mean, but a loop that became faster counts at once. */
static double step_to_plan(const memory *m, const pen_policy_state *s)
{
    if (m->n_steps == 0)
        return s->step_s;
    return fmin(pen__or(s->step_s, INFINITY), m->mean_step_s);
}

/* What storage nodes do.  It needs no trials: what it changes is measured as it works. */
static double plan_offload(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                           double now, char *reason)
{
    pen__offload_facts facts;
    if (!pen__is_free(table, PEN_KNOB_OFFLOAD))
        return now;
    pen__offload_look(&m->watch, s, now);
    if (m->watch.n_spans == 0)
        return 0; /* files as they are: is the network what is slow? */
    if (!pen__offload_is_due(&m->watch) || !pen__offload_know(&m->watch, s, &facts))
        return now;
    const double share = pen__offload_settle(&facts, now);
    if (share != now)
        pen__reason(reason, "offload %.2f: %.1f MB/s, %.2f storage cores", share,
                    facts.bytes_per_s * 1e-6, facts.storage_cores);
    return share;
}

/* What a node does with a sample, and how it codes it, is chosen sample by sample, by the bytes
 * that a second of its processor saves (engine/allow.h).  A bound for all of them could only take
 * away from that: wherever others left them, they are open. */
static void open_bounds(const pen_knob_info *table, pen_knobs *knobs)
{
    static const int bounds[] = {PEN_KNOB_CUT_WIRE, PEN_KNOB_CODEC};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (pen__is_free(table, bounds[i]))
            knobs->value[bounds[i]] = table[bounds[i]].max;
}

static void decide_threads(memory *m, const pen_policy_state *state, const pen_knob_info *table,
                           pen_knobs *knobs, char *reason)
{
    pen_policy_state planned = *state, *s = &planned;
    if (isnan(pen__compute_s(s)) || isnan(s->wait_share) || pen__is_away(s))
        return; /* nothing was made, or nobody wants it now */
    if (m->first_io == 0)
        m->first_io = knobs->value[PEN_KNOB_IO];
    note_means(m, s);
    planned.step_s = step_to_plan(m, state);
    note_reading(m, s, knobs);
    note_machine(m, s, knobs, reason);
    age_holds(m);
    if (m->n_mixed > 0) { /* a quota, for one, lets threads run on for a while */
        m->n_mixed--;
        return;
    }
    if (m->trial.is_on) {
        finish_trial(m, s, table, knobs, reason);
        return;
    }
    if (!m->has_begun && s->batches > 0) {
        m->has_begun = true;
        m->base = (pen__measure){0};
        return;
    }
    note_jump(m, s);
    if (m->base.periods > RECENT) /* what is long ago counts half */
        pen__measure_halve(&m->base);
    pen__measure_add(&m->base, s);
    m->lasting_waits += (pen__or(s->wait_share, 0) - m->lasting_waits) * lasting;
    if (!pen__measure_is_enough(&m->base))
        return;
    if (m->source_rate > 0)
        m->source_rate = fmax(m->source_rate * forget, pen__measure_rate(&m->base));
    if (!keep_nodes_busy(m, s, table, knobs, reason))
        choose(m, s, table, knobs, reason);
    if (m->trial.is_on)
        m->base = (pen__measure){0};
}

static void decide(void *own, const pen_policy_state *state, const pen_knob_info *table,
                   pen_knobs *knobs, char *reason)
{
    memory *m = own;
    const double share = plan_offload(m, state, table, knobs->value[PEN_KNOB_OFFLOAD], reason);
    decide_threads(m, state, table, knobs, reason);
    knobs->value[PEN_KNOB_OFFLOAD] = share; /* whatever a trial took back */
    open_bounds(table, knobs);
}

const pen_knob_policy pen__policy_model = {
    .name = "model",
    .text = "closed form from service times, each change tried and taken back if it does not pay",
    .memory_bytes = sizeof(memory),
    .decide = decide,
    .begins_with_files = true,
};
