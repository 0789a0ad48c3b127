/* sizes.c - see sizes.h. */
#include "policy/sizes.h"

enum { MOST_READY = 16 };

static const double queueing = 1.5;   /* times its best that reading may take and still count */
static const double reads_long = 0.2; /* of c: less is read on the side */
static const double full = 0.99;      /* of the cores */

/* Costs of a sample that comes, by its bytes; small differences are chance. */
static double cost_ratio(const pen_policy_state *s)
{
    const double ratio = fmin(fmax(pen__or(s->ahead_ratio, 1), 0.5), 2);
    return fabs(ratio - 1) < 0.2 ? 1 : ratio;
}

/* Batches that keep the probability of running empty below 1 %, beyond those under way. */
static double ready_for_jitter(const pen_policy_state *s, double compute_s, double workers)
{
    const double step = s->step_s, B = s->batch_samples;
    const double make = B * compute_s / workers;
    const double dev_make = fmax(sqrt(B) * pen__or(s->decode_cv, 0) * compute_s / workers,
                                 (s->batch_p95_s - pen__or(s->batch_s, 0)) / 1.645);
    const double dev_step = pen__or(s->step_cv, 0) * step;
    const double slack = fmax(step - make, 0.05 * step);
    const double jitter =
        log(100) * (dev_make * dev_make + dev_step * dev_step) / (2 * slack * step);
    return ceil(fmin(jitter, MOST_READY));
}

/* `batch_s` is what a batch takes from its first sample to its last. */
static double ready_needed(const pen_policy_state *s, double batch_s, double for_jitter)
{
    const double under_way = ceil(fmin(batch_s / s->step_s, MOST_READY));
    return fmin(1 + under_way + for_jitter, MOST_READY);
}

static void size_ready(pen__sizes *sizes, const pen_policy_state *s, double c, double r)
{
    const double B = s->batch_samples;
    /* Alone: a batch that is in no hurry takes longer, and the more so the more are under way. */
    const double running = fmin(sizes->workers, s->cores);
    const double alone = sizes->io > 0 ? ceil(B / sizes->io) * r + B * c / running
                                       : fmax(B * (c + r) / sizes->workers, B * c / running);
    sizes->ready = sizes->least_ready = NAN;
    if (!(s->step_s > 0) || isnan(s->batch_p95_s))
        return;
    const double for_jitter = ready_for_jitter(s, c, running);
    sizes->ready = ready_needed(s, s->batch_p95_s, for_jitter);
    sizes->least_ready = ready_needed(s, fmin(alone, s->batch_p95_s), for_jitter);
}

static double whole(double workers)
{
    return fmax(ceil(workers - 0.05), 1);
}

/* Some read while others compute; where cores are the limit, one more, that none ever idles; at
 * most two a core. */
static double workers_that_read(double rate, double compute_s, double read_s, double cores)
{
    const bool are_full = rate * compute_s > full * cores;
    const double busy = fmin(rate * compute_s, cores) + PEN__MORE_READ * rate * read_s;
    return fmin(whole(busy) + are_full, fmax(floor(2 * cores), 1));
}

pen__sizes pen__size(const pen_policy_state *s, const pen__source_now *source, double factor)
{
    const double c = fmax(pen__compute_s(s) * cost_ratio(s), 1e-9);
    const double r = fmin(pen__or(s->read_s, 0), queueing * source->best_read_s) * cost_ratio(s);
    const double wanted = s->step_s > 0 ? s->batch_samples / s->step_s * factor : INFINITY;
    const double x = fmin(wanted, s->cores / c);
    const double from_source = source->rate > 0 ? fmin(x, source->rate) : x;
    const bool is_long = r > reads_long * c && r > PEN__LEAST_READ_S;
    pen__sizes sizes = {0};
    if (!is_long) {
        sizes.workers = whole(fmin(x * (c + r), s->cores));
    } else if (r < source->by_workers * c) {
        sizes.workers = workers_that_read(x, c, r, s->cores);
    } else {
        sizes.workers = whole(fmin(x * c, s->cores));
        sizes.io = fmax(pen__readers_for(from_source * r), pen__least_readers(s, 0));
    }
    sizes.read_ahead = 2 * sizes.io;
    size_ready(&sizes, s, c, r);
    return sizes;
}
