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
 * become slower, and that is its best from now on.
 */
#include "policy/offload.h"
#include "policy/policies.h"
#include "policy/sizes.h"

#include <string.h>

typedef enum change {
    MORE_THREADS,
    FEWER_THREADS,
    FEWER_READERS, /* multiplicative decrease */
    MORE_READY,
    FEWER_READY,
    MORE_THAN_CORES, /* against other programs, more threads get more turns */
    BACK_TO_CORES,   /* they are gone, or so are cores */
    N_CHANGES
} change;

static const char *const change_names[N_CHANGES] = {
    "more threads",        "fewer threads",           "half as many readers", "more ready batches",
    "fewer ready batches", "more workers than cores", "a worker a core",
};

enum {
    SETTLE = 1,
    MOST_SETTLE = 5,
    FIRST_HOLD = 20,
    LONGEST_HOLD = 640,
    FIRST_REST = 200,
    LONGEST_REST = 10240,
    SOON = 200,      /* periods: undone within them, it should not have been done */
    LEAST_STEPS = 8, /* in a mean */
    SMOOTH = 8,      /* periods */
    IS_A_JUMP = 3,   /* periods in a row, of a rate that has changed much */
    STAYS_NEW = 8,   /* periods in a row: then it is no chance */
    MOST_STEP = 4,
    RECENT = 12,
    FIRST_READERS = 32,
    BUSY_READERS = 4 /* keep a wire busy, however long somebody is away from it between two reads */
};

static const double waits = 0.03;       /* of the time: worth doing something about */
static const double rests = 0.015;      /* the loop is the slower side */
static const double margin = 1.15;      /* above the wanted rate */
static const double spare = 1.3;        /* the margin when giving back: hysteresis */
static const double worth_it = 1.25;    /* times as many readers: less is not worth a trial */
static const double still_there = 0.15; /* cores that other programs use */
static const double idles = 0.02;       /* of the workers' time, waiting for room */
static const double enough = 0.8;       /* of what was expected */
static const double jump = 1.5;         /* times as much, or as little */
static const double forget = 1.005;     /* a period, of what the source gives */

typedef struct memory {
    pen__measure base; /* with the present knobs */
    pen__trial trial;
    change subject;
    double hold[N_CHANGES], hold_next[N_CHANGES]; /* periods */
    double rest[N_CHANGES], rest_next[N_CHANGES]; /* periods, of what was undone */
    double off_next[N_CHANGES];                   /* periods, of what was called off */
    double stands[N_CHANGES];                     /* periods since it was kept; 0: it is not */
    double mean_compute_s, mean_step_s, n_steps;  /* of late; 0: not known */
    double n_new;                                 /* periods in a row */
    double compute_s, read_s, step_s;             /* when something was last held */
    double first_io;                              /* as it was set */
    double best_read_s;                           /* while nobody queues; forgotten slowly */
    double tried_read_s;                          /* when half as many readers were tried */
    double expected_rate; /* of the trial under way, if the source gives it; 0: none */
    double source_rate;   /* that more readers did not exceed; forgotten slowly; 0: not known */
    double n_off;    /* periods in a row that far more or far less was made than before; signed */
    double cores;    /* of the last period; 0: not known */
    double n_other;  /* periods in a row that rivals were there and had not been, or the reverse */
    bool has_rivals; /* other programs want the cores */
    bool has_begun;  /* a batch was delivered: what the loop waits says something */
    pen__offload_watch watch; /* of storage nodes */
} memory;

static pen__sizes make_plan(const memory *m, const pen_policy_state *s, double factor)
{
    const pen__source_now source = {.best_read_s = m->best_read_s, .rate = m->source_rate};
    return pen__size(s, &source, factor);
}

/* ---- holding back what did not pay ---- */

static bool differs(double a, double b, double factor)
{
    return a > factor * b || b > factor * a;
}

static void note_conditions(memory *m)
{
    m->compute_s = m->mean_compute_s;
    m->read_s = m->best_read_s;
    m->step_s = m->mean_step_s;
}

static bool is_new(memory *m)
{
    /* Beside others a worker's time holds its waiting for turns, which trials change themselves. */
    const double by_chance = m->has_rivals ? 2.5 : 1.25;
    const bool is_other =
        differs(m->mean_compute_s, m->compute_s, by_chance) ||
        differs(m->mean_step_s, m->step_s, 1.25) ||
        differs(fmax(m->best_read_s, PEN__LEAST_READ_S), fmax(m->read_s, PEN__LEAST_READ_S), 1.25);
    m->n_new = is_other ? m->n_new + 1 : 0;
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
        note_conditions(m);
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
    note_conditions(m);
}

/* What was given back was missed. */
static void rest(memory *m, change what)
{
    m->rest[what] = longer(&m->rest_next[what], FIRST_REST, LONGEST_REST);
    m->stands[what] = 0;
}

/* ---- changes ---- */

static void begin(memory *m, change what, const pen_knobs *before, double gain)
{
    m->subject = what;
    pen__trial_begin(&m->trial, before, &m->base, gain, SETTLE);
}

/* What the readers before had asked for still comes: that much longer until it can be judged. */
static void begin_with_readers(memory *m, change what, const pen_knobs *before, double gain,
                               const pen_policy_state *s)
{
    begin(m, what, before, gain);
    m->trial.settle += fmin(floor(pen__or(s->read_s, 0) / s->period_s), MOST_SETTLE);
}

/* Set a knob, if policies may and it goes the way it should. */
static bool move(const pen_knob_info *table, pen_knobs *knobs, int knob, double to, bool is_up)
{
    double *value = &knobs->value[knob];
    to = pen__clamp(table, knob, to);
    if (!pen__is_free(table, knob) || (is_up ? to <= *value : to >= *value))
        return false;
    *value = to;
    return true;
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
    const pen__sizes p = make_plan(m, s, margin);
    const double io_now = fmin(knobs->value[PEN_KNOB_READ_AHEAD], knobs->value[PEN_KNOB_IO]);
    const double io = fmin(p.io, fmax(io_now * MOST_STEP, FIRST_READERS));
    bool is_any = move(table, knobs, PEN_KNOB_WORKERS, p.workers, true);
    m->expected_rate = 0;
    if (io > io_now * worth_it) {
        m->expected_rate = rate_with(s, io);
        is_any |= move(table, knobs, PEN_KNOB_READ_AHEAD, 2 * io, true);
        if (pen__is_free(table, PEN_KNOB_IO))
            is_any |= io != knobs->value[PEN_KNOB_IO];
        move(table, knobs, PEN_KNOB_IO, io, io > knobs->value[PEN_KNOB_IO]);
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
    const pen__sizes p = make_plan(m, s, 1);
    const bool can_keep_up = s->batch_samples * pen__compute_s(s) / p.workers < s->step_s;
    const double twice = 2 * knobs->value[PEN_KNOB_READY_BATCHES]; /* batches are large: by steps */
    /* Room helps where threads wait for it, or where the mean is enough; not a source that is slow.
     */
    const bool has_use = pen__or(s->idle_share, 1) > idles ||
                         pen__measure_rate(&m->base) * s->step_s > enough * s->batch_samples;
    if (isnan(p.ready) || !can_keep_up || !has_use || pen__or(s->budget_share, 0) > 0.9 ||
        !move(table, knobs, PEN_KNOB_READY_BATCHES, fmin(p.ready, twice), true))
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
    if (io < 2 * BUSY_READERS || !(s->read_s > 2 * m->best_read_s) ||
        !move(table, knobs, PEN_KNOB_IO, floor(io / 2), false))
        return false;
    move(table, knobs, PEN_KNOB_READ_AHEAD, 2 * floor(io / 2), false);
    begin_with_readers(m, FEWER_READERS, &before, PEN__GIVES_BACK, s);
    m->tried_read_s = s->read_s;
    pen__reason(reason, "try %g readers: reading takes %.1f ms, at best it took %.1f",
                floor(io / 2), s->read_s * 1e3, m->best_read_s * 1e3);
    return true;
}

static bool outnumber_others(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                             pen_knobs *knobs, char *reason)
{
    const pen_knobs before = *knobs;
    const bool has_siblings = pen__or(s->ranks, 1) > 1;   /* ranks would outnumber each other */
    const double busy = pen__or(s->busy_cores, INFINITY); /* less: bytes are missing, not turns */
    /* What a hypervisor takes, it takes from any number of threads. */
    const bool are_here = pen__or(s->other_cores, 0) > still_there;
    /* All at once: of n rivals' turns the last steps gain too little to be told from chance. */
    if (!m->has_rivals || !are_here || has_siblings ||
        knobs->value[PEN_KNOB_WORKERS] < floor(s->cores) ||
        busy < 0.6 * knobs->value[PEN_KNOB_WORKERS] ||
        !move(table, knobs, PEN_KNOB_WORKERS, 2 * ceil(s->cores), true))
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
    if (m->has_rivals || !move(table, knobs, PEN_KNOB_WORKERS, ceil(s->cores), false))
        return false;
    begin(m, BACK_TO_CORES, &before, PEN__GIVES_BACK);
    pen__reason(reason, "try %g workers: no others want the cores", knobs->value[PEN_KNOB_WORKERS]);
    return true;
}

static bool give_back_threads(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                              pen_knobs *knobs, char *reason)
{
    const pen_knobs before = *knobs;
    const pen__sizes p = make_plan(m, s, spare);
    bool is_any = move(table, knobs, PEN_KNOB_WORKERS, p.workers, false);
    is_any |= move(table, knobs, PEN_KNOB_READ_AHEAD, p.read_ahead, false);
    if (p.io > 0)
        move(table, knobs, PEN_KNOB_IO, p.io, false);
    else if (knobs->value[PEN_KNOB_READ_AHEAD] == 0) /* no readers: it was theirs to lower */
        move(table, knobs, PEN_KNOB_IO, m->first_io, true);
    if (!is_any)
        return false;
    begin(m, FEWER_THREADS, &before, PEN__GIVES_BACK);
    pen__reason(reason, "the loop is the slower side: try %g workers and %g readers",
                knobs->value[PEN_KNOB_WORKERS], p.io);
    return true;
}

static bool give_back_ready(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                            pen_knobs *knobs, char *reason)
{
    const pen_knobs before = *knobs;
    const pen__sizes p = make_plan(m, s, 1);
    if (isnan(p.least_ready) || !move(table, knobs, PEN_KNOB_READY_BATCHES, p.least_ready, false))
        return false;
    begin(m, FEWER_READY, &before, PEN__GIVES_BACK);
    pen__reason(reason, "the loop is the slower side: try %g ready batches",
                knobs->value[PEN_KNOB_READY_BATCHES]);
    return true;
}

typedef bool (*changer)(memory *, const pen_policy_state *, const pen_knob_info *, pen_knobs *,
                        char *);
static const changer changers[N_CHANGES] = {
    [MORE_THREADS] = ask_for_threads, [FEWER_THREADS] = give_back_threads,
    [FEWER_READERS] = halve_readers,  [MORE_READY] = ask_for_ready,
    [FEWER_READY] = give_back_ready,  [MORE_THAN_CORES] = outnumber_others,
    [BACK_TO_CORES] = back_to_cores,
};

static bool attempt(memory *m, change what, const pen_policy_state *s, const pen_knob_info *table,
                    pen_knobs *knobs, char *reason)
{
    return m->hold[what] == 0 && m->rest[what] == 0 && changers[what](m, s, table, knobs, reason);
}

/* The first change that makes sense now, if any. */
static void choose(memory *m, const pen_policy_state *s, const pen_knob_info *table,
                   pen_knobs *knobs, char *reason)
{
    static const change when_waiting[] = {MORE_THREADS, MORE_READY, FEWER_READERS, MORE_THAN_CORES,
                                          BACK_TO_CORES};
    static const change when_not[] = {FEWER_THREADS, FEWER_READY};
    const double waiting = pen__measure_waits(&m->base);
    if (!m->has_begun) { /* the first batch is always waited for; slow reading is clear by now */
        if (make_plan(m, s, margin).io > 0)
            attempt(m, MORE_THREADS, s, table, knobs, reason);
        return;
    }
    if (waiting > waits)
        for (size_t i = 0; i < sizeof when_waiting / sizeof *when_waiting; i++)
            if (attempt(m, when_waiting[i], s, table, knobs, reason))
                return;
    if (waiting < rests)
        for (size_t i = 0; i < sizeof when_not / sizeof *when_not; i++)
            if (attempt(m, when_not[i], s, table, knobs, reason))
                return;
}

/* Giving back rests if its trial showed a loss, or if what was given is taken again soon. */
static void note_given_back(memory *m, bool is_kept)
{
    const bool is_ready = m->subject == MORE_READY || m->subject == FEWER_READY;
    const change gives = is_ready ? FEWER_READY : FEWER_THREADS;
    if (m->subject == FEWER_READERS || m->subject == BACK_TO_CORES)
        return; /* those answer the source and other programs, not the loop */
    if (m->subject == gives && is_kept)
        m->stands[gives] = 1;
    else if (m->subject == gives || (is_kept && m->stands[gives] > 0 && m->stands[gives] <= SOON))
        rest(m, gives);
    else if (is_kept)
        m->stands[gives] = 0;
}

/* More readers were tried: if that brought far less than it should, and not because workers had
 * no time, the source gives no more. */
static void note_source(memory *m, const pen_policy_state *s, double workers)
{
    const double rate = pen__measure_rate(&m->trial.now);
    const bool has_time = rate * pen__compute_s(s) < enough * fmin(workers, s->cores);
    if (m->subject != MORE_THREADS || m->expected_rate == 0)
        return;
    m->source_rate = rate < enough * m->expected_rate && has_time
                         ? fmax(rate, pen__measure_rate(&m->trial.old))
                         : 0;
}

/* Many readers brought no more than none, because the source is at its limit.  Then a few are
 * right: workers that read for themselves leave it idle while they compute, for some hundredths of
 * the time, which is less than a trial can tell. */
static bool keep_source_busy(const memory *m, const pen_knob_info *table, pen_knobs *knobs)
{
    /* Many workers keep it busy themselves, and all go through the same gate. */
    if (m->subject != MORE_THREADS || !(m->expected_rate > 0) || !(m->source_rate > 0) ||
        knobs->value[PEN_KNOB_WORKERS] > BUSY_READERS ||
        !move(table, knobs, PEN_KNOB_READ_AHEAD, 2 * BUSY_READERS, true))
        return false;
    move(table, knobs, PEN_KNOB_IO, BUSY_READERS, false);
    return true;
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
    const bool keeps_some = !is_kept && keep_source_busy(m, table, knobs);
    pen__reason(reason, "%s %s: %.0f to %.0f samples/s, waiting %.0f to %.0f %%",
                change_names[m->subject],
                is_kept      ? "stay"
                : keeps_some ? "go back, but for a few readers"
                             : "go back",
                pen__measure_rate(&m->trial.old), pen__measure_rate(&m->trial.now),
                100 * pen__measure_waits(&m->trial.old), 100 * pen__measure_waits(&m->trial.now));
    m->base = is_kept ? m->trial.now : m->trial.old;
    if (is_kept)
        m->hold_next[m->subject] = 0;
    else
        hold(m, m->subject);
    note_given_back(m, is_kept);
    const bool takes_as_long = s->read_s > 0.75 * m->tried_read_s;
    if (m->subject == FEWER_READERS && !is_kept && takes_as_long) /* nobody queued: it is slower */
        m->best_read_s = m->tried_read_s;
    if (m->subject == FEWER_READERS && is_kept) /* the source is at its limit */
        hold(m, MORE_THREADS);
    if (m->subject == MORE_THREADS && is_kept) {
        /* Giving back at once would undo it, and what batches took is of before for a while. */
        m->hold[FEWER_THREADS] = fmax(m->hold[FEWER_THREADS], FIRST_HOLD);
        m->hold[MORE_READY] = fmax(m->hold[MORE_READY], SMOOTH);
    }
}

/* Without readers nobody queues but workers, who are few: that is what reading takes. */
static void note_reading(memory *m, const pen_policy_state *s, const pen_knobs *knobs)
{
    const bool has_readers = knobs->value[PEN_KNOB_READ_AHEAD] > 0;
    if (!(s->read_s > 0))
        return;
    if (!has_readers || m->best_read_s == 0 || s->read_s < m->best_read_s)
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

/* Do other programs want the cores?  Coming is believed soon, going only when it lasts. */
static bool rivals_changed(memory *m, const pen_policy_state *s)
{
    const double others = pen__or(s->other_cores, 0), steal = pen__or(s->steal, 0);
    const bool is_there = others > (m->has_rivals ? still_there : 0.3) || steal > 0.1;
    m->n_other = is_there != m->has_rivals ? m->n_other + 1 : 0;
    if (m->n_other < (is_there ? 2 : STAYS_NEW))
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
    m->hold[MORE_THAN_CORES] = m->hold_next[MORE_THAN_CORES] = 0;
    m->hold[BACK_TO_CORES] = m->hold_next[BACK_TO_CORES] = 0;
    if (has_other_cores)
        m->hold[MORE_THREADS] = m->hold_next[MORE_THREADS] = 0;
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
        m->base = (pen__measure){m->base.periods / 2, m->base.seconds / 2, m->base.made / 2,
                                 m->base.batches / 2, m->base.waited_s / 2};
    pen__measure_add(&m->base, s);
    if (!pen__measure_is_enough(&m->base))
        return;
    if (m->source_rate > 0)
        m->source_rate = fmax(m->source_rate * forget, pen__measure_rate(&m->base));
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
}

const pen_knob_policy pen__policy_model = {
    .name = "model",
    .text = "closed form from service times, each change tried and taken back if it does not pay",
    .memory_bytes = sizeof(memory),
    .decide = decide,
};
