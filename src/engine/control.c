/* control.c - the thread that measures once a period and asks the policy.
 *
 * It runs only while there is a policy that decides, or a log to write, and from the first
 * batch on.  It has one way to end: `is_ending` under the lock, and a join.
 *
 * Stage times are taken over the last 4 to 8 periods: two older observations stand by, and
 * every 4 periods the younger becomes the base.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "engine/decisions.h"
#include "engine/loader_impl.h"
#include "engine/observe.h"
#include "engine/recent.h"
#include "source/fileio.h"
#include "telemetry/limits.h"

enum { GENERATION = 4 };
/* How old the number of cores may be: asking opens files of every control group above us, which
 * takes two thirds of what a reading of the whole machine does. */
static const int64_t cores_ns = 400000000;

struct pen__control {
    pthread_mutex_t lock; /* guards all up to the blank line */
    pthread_cond_t changed;
    bool is_ending, is_running; /* running: batches were asked for */
    pen__pool *thread;
    const pen_knob_policy *policy; /* NULL: fixed */
    void *memory;                  /* the policy's */
    bool is_fresh;                 /* it has not been asked yet */
    char reason[PEN_REASON_CAP];
    char log_fault[PEN_REASON_CAP]; /* why there is no log any more, "" if there is */
    pen__recent recent;

    /* the thread's own */
    pen__ledger log;
    int64_t period;
    pen_sampler *sampler;
    pen_machine *machine; // (2), the newest is machine[period % 2]
    pen_rates *rates;
    bool has_machine; /* an older reading is there */
    pen__visible gpus;
    int cores;     /* that this process may use, */
    cpu_set_t own; /* and those that it may run on */
    bool knows_own;
    int64_t cores_read_ns; /* when that was asked; 0: never */
    pen__facts base, middle, before, now;
};

int pen__control_create(pen_loader *loader, const char *log_path, pen_error *err)
{
    struct pen__control *c = pen__calloc(1, sizeof *c);
    if (!c)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    loader->control = c;
    /* now, in the caller's thread: later ones may write to the environment */
    pen__visible_parse(&c->gpus, getenv("CUDA_VISIBLE_DEVICES"), getenv("CUDA_DEVICE_ORDER"));
    int rc = pen__ledger_open(&c->log, log_path, err);
    if (rc)
        pen__fail_prefix(err, "decision log");
    return rc ? rc : pen_loader_set_policy(loader, loader->opts.policy, err);
}

void pen__control_free(pen_loader *loader)
{
    struct pen__control *c = loader->control;
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->is_ending = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pen__pool_join(c->thread);
    pen_sampler_free(c->sampler);
    pen__free(c->machine);
    pen__free(c->rates);
    pen__ledger_close(&c->log);
    pen__free(c->memory);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    pen__free(c);
    loader->control = NULL;
}

/* Is there anything to do each period?  The lock is held. */
static bool is_wanted(const struct pen__control *c)
{
    return (c->policy && c->policy->decide) || c->log.fd >= 0;
}

/* ---- the thread ---- */

/* The machine's side is an extra: without it fields are NaN. */
static void read_machine(struct pen__control *c)
{
    if (!c->machine) {
        pen_machine *machine = pen__calloc(2, sizeof *machine);
        pen_rates *rates = pen__calloc(1, sizeof *rates);
        pen_sampler_opts opts;
        pen_sampler_opts_init(&opts);
        opts.use_gpus = c->log.fd >= 0; /* no policy asks for them, and asking them is not free */
        if (!machine || !rates || pen_sampler_create(&c->sampler, &opts, NULL) != 0) {
            pen__free(machine);
            pen__free(rates);
            return;
        }
        c->machine = machine;
        c->rates = rates;
    }
    pen_machine *now = &c->machine[c->period % 2], *before = &c->machine[!(c->period % 2)];
    now->struct_size = sizeof *now;
    c->rates->struct_size = sizeof *c->rates;
    bool is_good = pen_sampler_read(c->sampler, now) == 0;
    if (is_good && c->has_machine)
        is_good = pen_machine_rates(before, now, c->rates) == 0;
    else
        memset(c->rates, 0, sizeof *c->rates);
    c->has_machine = is_good;
}

static void get_table(const pen_loader *loader, pen_knob_info table[PEN_KNOB_COUNT])
{
    for (int i = 0; i < PEN_KNOB_COUNT; i++)
        pen_loader_knob(loader, i, &table[i]);
}

/* A log that cannot be written is given up, and every reason from then on begins with that. */
static void write_log(struct pen__control *c, const pen__decision *decision)
{
    pen__text line = {0};
    if (c->log.fd < 0)
        return;
    pen__decision_write(decision, &line);
    int rc = line.failed ? -ENOMEM : pen__write_full(c->log.fd, line.data, line.len);
    pen__text_fini(&line);
    if (rc == 0)
        return;
    pthread_mutex_lock(&c->lock);
    pen__ledger_close(&c->log); /* others look whether there is one */
    snprintf(c->log_fault, sizeof c->log_fault, PEN_LOG_FAULT ": %s", strerror(-rc));
    pthread_mutex_unlock(&c->lock);
}

/* Ask the policy, turn the knobs, write it down. */
static void decide(pen_loader *loader, struct pen__control *c, const pen_policy_state *state)
{
    pen_knob_info table[PEN_KNOB_COUNT];
    pen_knobs before, wanted, after;
    char reason[PEN_REASON_CAP] = "";
    get_table(loader, table);
    pen_loader_get_knobs(loader, &before);
    wanted = before;
    pen__decision decision = {
        .pid = getpid(),
        .loader = loader->number,
        .period = c->period,
        .time_ns = c->now.time_ns,
        .state = state,
        .table = table,
        .before = &before,
        .wanted = &wanted,
        .after = &after,
        .reason = reason,
    };
    pthread_mutex_lock(&c->lock);
    const pen_knob_policy *policy = c->policy;
    decision.policy = policy ? policy->name : "fixed";
    decision.is_fresh = c->is_fresh;
    c->is_fresh = false;
    if (policy && policy->decide)
        policy->decide(c->memory, state, table, &wanted, reason);
    memcpy(c->reason, reason, sizeof reason);
    /* Under the lock, so that a policy that was replaced turns nothing any more; the board's is
     * taken within it, never the other way round. */
    pen__board_turn(loader, &wanted); /* fewer threads than wanted: seen in the next state */
    pen_loader_get_knobs(loader, &after);
    pen__recent_add(&c->recent, &decision);
    pthread_mutex_unlock(&c->lock);
    write_log(c, &decision);
}

/* Affinity and quota may change at any time, and permits with them. */
static void look_at_cores(pen_loader *loader, struct pen__control *c)
{
    if (c->cores_read_ns && c->now.time_ns - c->cores_read_ns < cores_ns)
        return;
    c->cores_read_ns = c->now.time_ns;
    c->cores = pen__limit_cores();
    c->knows_own = sched_getaffinity(0, sizeof c->own, &c->own) == 0;
    if (atomic_load(&loader->shares.is_on))
        pen__shares_limit(&loader->shares, c->cores);
}

/* One period is over. */
static void tick(pen_loader *loader, struct pen__control *c)
{
    c->period++;
    const bool had_machine = c->has_machine;
    read_machine(c);
    pen__observe(loader, &c->now);
    pen_policy_state state;
    look_at_cores(loader, c);
    const bool has_rates = had_machine && c->has_machine;
    pen__observe_state(&c->base, &c->before, &c->now, has_rates ? &c->machine[c->period % 2] : NULL,
                       has_rates ? c->rates : NULL, c->cores, loader->opts.batch_size, &state);
    if (has_rates)
        pen__observe_rivals(c->rates, c->knows_own ? &c->own : NULL, &state);
    if (has_rates)
        pen__observe_gpus(&c->machine[c->period % 2], c->rates, &c->gpus, &state);
    state.ranks = loader->opts.world_size;
    pen__observe_offload(loader, &c->before, &c->now, &state);
    decide(loader, c, &state);
    if (c->period % GENERATION == 0) {
        c->base = c->middle;
        c->middle = c->now;
    }
    c->before = c->now;
}

/* What was before says nothing about now. */
static void start_over(pen_loader *loader, struct pen__control *c)
{
    pen__observe(loader, &c->now);
    c->base = c->middle = c->before = c->now;
    c->has_machine = false;
}

typedef enum waited { PERIOD_IS_OVER, WAS_UNWANTED, IS_ENDING } waited;

/* Wait for the end of the period, or until there is something to do again. */
static waited wait_period(struct pen__control *c, int64_t deadline_ns)
{
    const struct timespec until = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    bool was_unwanted = false;
    int rc = 0;
    pthread_mutex_lock(&c->lock);
    while (!c->is_ending && !is_wanted(c)) {
        was_unwanted = true;
        pthread_cond_wait(&c->changed, &c->lock);
    }
    while (!c->is_ending && is_wanted(c) && !was_unwanted && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&c->changed, &c->lock, &until);
    const waited how = c->is_ending ? IS_ENDING : rc == ETIMEDOUT ? PERIOD_IS_OVER : WAS_UNWANTED;
    pthread_mutex_unlock(&c->lock);
    return how;
}

static void run(void *ctx, int index)
{
    (void)index;
    pen_loader *loader = ctx;
    struct pen__control *c = loader->control;
    const int64_t period_ns = (int64_t)loader->opts.period_ms * 1000000;
    start_over(loader, c);
    for (;;) {
        const waited how = wait_period(c, pen__now_ns() + period_ns);
        if (how == IS_ENDING)
            return;
        if (how == WAS_UNWANTED)
            start_over(loader, c);
        else
            tick(loader, c);
    }
}

/* Start the thread if there is work for it.  The lock is held. */
static int start_if_wanted(pen_loader *loader, struct pen__control *c)
{
    if (!c->is_running || c->thread || !is_wanted(c))
        return 0;
    int rc = pen__pool_create(&c->thread, 1, "penstock-ctl", run, loader);
    if (rc == 0 && pen__pool_grow(c->thread, 1) == 0) {
        pen__free(c->thread);
        c->thread = NULL;
        rc = PEN_ENOMEM;
    }
    return rc;
}

/* ---- from other threads ---- */

int pen__control_start(pen_loader *loader)
{
    struct pen__control *c = loader->control;
    pthread_mutex_lock(&c->lock);
    c->is_running = true;
    int rc = start_if_wanted(loader, c);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

int pen_loader_set_policy(pen_loader *loader, const pen_knob_policy *policy, pen_error *err)
{
    int rc = pen__loader_check_owner(loader, err);
    if (rc)
        return rc;
    struct pen__control *c = loader->control;
    void *memory = policy && policy->memory_bytes ? pen__calloc(1, policy->memory_bytes) : NULL;
    if (policy && policy->memory_bytes && !memory)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    pthread_mutex_lock(&c->lock);
    const pen_knob_policy *old_policy = c->policy;
    void *old = c->memory;
    c->policy = policy;
    c->memory = memory;
    rc = start_if_wanted(loader, c);
    if (rc) { /* as if nobody had asked */
        c->policy = old_policy;
        c->memory = old;
        old = memory;
    } else {
        c->is_fresh = true;
        atomic_store(&loader->shall_show, policy && policy->decide);
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    pen__free(old);
    return rc ? pen__fail(err, rc, -1, "cannot start a thread") : 0;
}

const char *pen_loader_policy(const pen_loader *loader)
{
    if (pen__loader_check_owner(loader, NULL) != 0)
        return "fixed"; /* in a child, nobody turns knobs */
    struct pen__control *c = loader->control;
    pthread_mutex_lock(&c->lock);
    const char *name = c->policy ? c->policy->name : "fixed";
    pthread_mutex_unlock(&c->lock);
    return name;
}

int64_t pen_loader_reason(const pen_loader *loader, char *dst, size_t dst_cap)
{
    int rc = pen__loader_check_owner(loader, NULL);
    if (rc)
        return rc;
    struct pen__control *c = loader->control;
    char text[sizeof c->log_fault + sizeof c->reason + 2];
    pthread_mutex_lock(&c->lock);
    snprintf(text, sizeof text, "%s%s%s", c->log_fault, c->log_fault[0] && c->reason[0] ? "; " : "",
             c->reason);
    pthread_mutex_unlock(&c->lock);
    text[PEN_REASON_CAP - 1] = '\0'; /* what is cut off is the policy's */
    int n = snprintf(dst, dst_cap, "%s", text);
    return (size_t)n < dst_cap ? n : PEN_ENOSPC;
}

bool pen__control_decides(const pen_loader *loader)
{
    struct pen__control *c = loader->control;
    pthread_mutex_lock(&c->lock);
    const bool decides = c->policy && c->policy->decide;
    pthread_mutex_unlock(&c->lock);
    return decides;
}

void pen__control_write_recent(const pen_loader *loader, pen__text *text)
{
    struct pen__control *c = loader->control;
    pthread_mutex_lock(&c->lock);
    pen__recent_write(&c->recent, text);
    pthread_mutex_unlock(&c->lock);
}
