/* verdict.c - one line that says who waits for whom, for what, and what would help.
 *
 * The loop's time is waiting plus its own work.  If it waits, the workers' time says why: the
 * stage that takes most of it names the bottleneck, and how many cores they kept busy says
 * whether more threads can help.  Speed-ups are bounds: no loader is faster than its consumer.
 * What counts is the recent past; how it was on the whole is said where it was different.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/observe.h"

enum { N_WORK = PEN_STAGE_TENSOR + 1, MIN_BATCHES = 3 };

static const double tells_apart = 0.03; /* of the time */
static const double queues = 2;         /* times its best that reading takes where many queue */
static const double are_many = 3;       /* at once */
static const double by_queueing = 1.5;  /* times as long for each that queues: more is slowness */

typedef struct line {
    char *dst;
    size_t cap, len; /* len grows also past cap, as snprintf's does */
} line;

static void say(line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(line *l, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    size_t left = l->len < l->cap ? l->cap - l->len : 0;
    int n = vsnprintf(left ? l->dst + l->len : NULL, left, fmt, args);
    l->len += n > 0 ? (size_t)n : 0;
    va_end(args);
}

/* What the verdict rests on. */
typedef struct basis {
    double wait_s, step_s, seconds;
    double busy_cores, reading, idle, memory;
    int top; /* the stage that computes longest */
} basis;

static basis weigh(const pen_pipeline_stats *now, double first_wait_s)
{
    basis b = {.top = PEN_STAGE_DECODE};
    b.wait_s = fmax(now->stages[PEN_STAGE_WAIT].total_s - first_wait_s, 0);
    b.step_s = now->stages[PEN_STAGE_STEP].total_s;
    b.seconds = fmax(b.wait_s + b.step_s, 1e-9);
    const double all = b.seconds + first_wait_s; /* workers had that time */
    for (int i = 0; i < N_WORK; i++) {
        const double spent = now->stages[i].total_s;
        if (i == PEN_STAGE_READ)
            continue;
        b.busy_cores += spent / all;
        if (spent > now->stages[b.top].total_s)
            b.top = i;
    }
    const double threads = now->workers > 0 ? now->workers : 1;
    b.reading = now->stages[PEN_STAGE_READ].total_s / all;
    b.idle = (double)now->idle_ns * 1e-9 / all / threads;
    b.memory = (double)now->memory_wait_ns * 1e-9 / all / threads;
    return b;
}

/* How much faster the loop would be with `factor` times the supply. */
static double speed_up(const basis *b, double factor)
{
    const double left = b->seconds / factor;
    return b->seconds / fmax(left, b->step_s);
}

static void say_gain(line *l, double gain)
{
    if (gain >= 1.05)
        say(l, ", at most %.1fx", gain);
}

static void advise_reading(line *l, const pen_pipeline_stats *now, const basis *b, double cores,
                           double least_read_s)
{
    const double read_s = now->stages[PEN_STAGE_READ].mean_s;
    const double rate = now->samples / b->seconds, wanted = rate * speed_up(b, 1e9);
    const double depth = fmin(ceil(wanted * read_s * 1.2) + 1, PEN_MAX_IO);
    /* Those that read can keep each other waiting, but only so long: beyond it the source itself
     * is slower than it was, as a disk is after the page cache. */
    const bool is_queue = b->reading > are_many && read_s > queues * least_read_s &&
                          read_s < by_queueing * b->reading * least_read_s;
    say(l, "reading, %.1f ms a sample, %d at once", read_s * 1e3, (int)lround(fmax(b->reading, 0)));
    if (is_queue) /* more of them would only wait longer */
        say(l, ", where it takes %.1f at best: the source is at its limit", least_read_s * 1e3);
    if (!is_queue && depth > now->readers + now->workers)
        say(l, "; next step: read_ahead=%d, io=%d", (int)(2 * depth), (int)depth);
    else
        say(l, "; next step: a faster source, or fewer bytes a sample");
    say_gain(l, speed_up(b, b->busy_cores > 0 ? cores / b->busy_cores : 1e9));
}

static void advise_computing(line *l, const pen_pipeline_stats *now, const basis *b,
                             const pen__surroundings *around)
{
    const double cores = around->cores, max_workers = around->max_workers;
    const double busy = fmin(b->busy_cores, cores);
    say(l, "%s-bound, %.1f of %g cores busy", pen_stage_name(b->top), busy, cores);
    if (busy < 0.8 * cores && now->workers < cores && now->workers < max_workers) {
        say(l, "; next step: workers=%d", (int)fmin(ceil(cores), max_workers));
        say_gain(l, speed_up(b, cores / fmax(busy, 0.1)));
    } else if (b->top == PEN_STAGE_DECODE) {
        say(l, "; next step: more cores, or smaller pictures on disk");
        say_gain(l, speed_up(b, 2));
    } else {
        say(l, "; next step: more cores, or fewer operations");
        say_gain(l, speed_up(b, 2));
    }
}

/* Workers wait for room, and the budget has no more. */
static void advise_memory(line *l, const pen_pipeline_stats *now, const basis *b, double ready_max)
{
    say(l, "workers are idle %.0f %% of the time, for %.0f MB have room for %g batch%s",
        100 * b->idle, (double)now->budget_bytes / 1e6, ready_max, ready_max > 1 ? "es" : "");
    say(l, "; next step: a larger memory_budget");
    say_gain(l, speed_up(b, 1 / (1 - fmin(b->idle, 0.9))));
}

static void advise(line *l, const pen_pipeline_stats *now, const basis *b,
                   const pen__surroundings *around)
{
    const double computing = b->busy_cores;
    const double most = around->ready_max > 0 ? around->ready_max : INFINITY;
    if (b->memory > 0.25) {
        say(l, "workers wait for memory %.0f %% of the time, %.0f of %.0f MB in use",
            100 * b->memory, (double)now->budget_used / 1e6, (double)now->budget_bytes / 1e6);
        say(l, "; next step: a larger memory_budget");
        say_gain(l, speed_up(b, 1 / (1 - fmin(b->memory, 0.9))));
    } else if (b->reading > computing && computing < 0.8 * fmin(around->cores, now->workers)) {
        advise_reading(l, now, b, around->cores, around->least_read_s);
    } else if (b->idle > 0.15 && around->ready_limit >= most) {
        advise_memory(l, now, b, most);
    } else if (b->idle > 0.4) {
        say(l, "batches are late though workers are idle %.0f %% of the time: the step varies; ",
            100 * b->idle);
        say(l, "next step: ready_batches=%d", (int)fmin(around->ready_limit + 4, most));
        say_gain(l, speed_up(b, 1e9));
    } else {
        advise_computing(l, now, b, around);
    }
}

/* How much the loop waits, and how much it did on the whole. */
static void say_waiting(line *l, double share, double share_whole)
{
    say(l, "training waits %.*f %% of the time", share < 0.02 ? 1 : 0, 100 * share);
    if (fabs(share - share_whole) >= tells_apart)
        say(l, " (%.0f %% since the beginning)", 100 * share_whole);
    say(l, ": ");
}

int64_t pen__verdict(const pen_pipeline_stats *whole, const pen_pipeline_stats *recent,
                     const pen__surroundings *around, char *dst, size_t dst_cap)
{
    line l = {dst, dst_cap, 0};
    const bool has_recent = recent && recent->batches >= MIN_BATCHES;
    const pen_pipeline_stats *now = has_recent ? recent : whole;
    const basis all = weigh(whole, around->first_wait_s), b = has_recent ? weigh(recent, 0) : all;
    const double waiting = b.wait_s / b.seconds;
    if (whole->batches < MIN_BATCHES) {
        say(&l, "too early to tell: %lld batches so far", (long long)whole->batches);
    } else {
        say_waiting(&l, waiting, all.wait_s / all.seconds);
        if (waiting < 0.02)
            say(&l, "it is the slower side; loading takes %.1f of %g cores",
                fmin(b.busy_cores, around->cores), around->cores);
        else
            advise(&l, now, &b, around);
    }
    return l.len < dst_cap ? (int64_t)l.len : PEN_ENOSPC;
}
