/* node_share.c - see node_share.h. */
#include "remote/node_share.h"

#include <math.h>

#include <penstock/error.h>

#include "base/mem.h"

enum { SPARE_JOBS = 64 };

static const double fading_s = 2;             /* until a second of work counts for 1/e */
static const double unproven_s = 0.005;       /* as if each job had worked so long for nothing */
static const double nearly = 0.8;             /* of the most that can be saved is as good */
static const int64_t active_ns = 2000000000;  /* after it was last seen, a job is still there */
static const int64_t saved_up_ns = 50000000;  /* that who was away may be behind others */
static const int64_t advance_ns = 5000000;    /* that a sample counts as while it is at work */
static const int64_t max_lead_ns = 100000000; /* of one kind of turns over the other */

int pen__share_init(pen__share *share, int max_requests)
{
    share->cap = max_requests + SPARE_JOBS;
    share->jobs = pen__calloc((size_t)share->cap, sizeof *share->jobs);
    return share->jobs ? 0 : PEN_ENOMEM;
}

void pen__share_fini(pen__share *share)
{
    pen__free(share->jobs);
    *share = (pen__share){0};
}

/* ---- jobs come and go ---- */

static pen__job *find(const pen__share *share, const pen__share_client *client, uint64_t key)
{
    for (int i = 0; i < share->n; i++)
        if (share->jobs[i].key == key && share->jobs[i].client == client)
            return &share->jobs[i];
    return NULL;
}

static pen__job *older(pen__job *a, pen__job *b)
{
    return a && a->seen_ns <= b->seen_ns ? a : b;
}

/* A place for a job that is not known: a free one, or that of the idle job not seen for longest.  A
 * client with too many takes one of its own, in use or not. */
static pen__job *make_room(pen__share *share, const pen__share_client *client)
{
    pen__job *idle = NULL, *own_idle = NULL, *own = NULL;
    int n_own = 0;
    for (int i = 0; i < share->n; i++) {
        pen__job *job = &share->jobs[i];
        const bool is_own = job->client == client;
        n_own += is_own;
        if (is_own)
            own = job;
        if (job->n_open == 0)
            idle = older(idle, job);
        if (job->n_open == 0 && is_own)
            own_idle = older(own_idle, job);
    }
    if (n_own >= PEN__SHARE_PER_CLIENT)
        return own_idle ? own_idle : own;
    if (share->n < share->cap)
        return &share->jobs[share->n++];
    if (idle)
        return idle;
    return own ? own : share->jobs; /* more requests than were said */
}

pen__job *pen__share_enter(pen__share *share, pen__share_client *client, uint64_t key,
                           int64_t now_ns)
{
    pen__job *job = find(share, client, key);
    if (!job) {
        job = make_room(share, client);
        if (job->n_open == 0) {
            *job = (pen__job){.client = client, .key = key, .faded_ns = now_ns};
            for (int i = 0; i < PEN__TURN_COUNT; i++)
                job->had_ns[i] = client->front_ns[i];
        }
    }
    job->n_open++;
    job->seen_ns = now_ns;
    return job;
}

void pen__share_leave(pen__job *job, int64_t now_ns)
{
    job->n_open--;
    job->seen_ns = now_ns;
}

/* ---- who is next ---- */

double pen__job_worth(const pen__job *job)
{
    return job->saved_bytes / (job->cpu_s + unproven_s);
}

/* Is work that saves `a` a second as good as work that saves `b`, or better? */
static bool is_as_good(double a, double b)
{
    return a >= b - (1 - nearly) * fabs(b);
}

pen__contest pen__share_contest(const pen__share *share)
{
    return (pen__contest){share->lead_ns <= 0 ? PEN__TURN_FAIR : PEN__TURN_WORTH, -INFINITY};
}

void pen__contest_enter(pen__contest *contest, const pen__job *job)
{
    contest->most = fmax(contest->most, pen__job_worth(job));
}

bool pen__contest_prefers(const pen__contest *contest, const pen__job *job, const pen__job *best)
{
    const pen__turn turn = contest->turn;
    if (turn == PEN__TURN_WORTH && !is_as_good(pen__job_worth(job), contest->most))
        return false;
    if (!best)
        return true;
    if (job->client != best->client)
        return job->client->had_ns[turn] < best->client->had_ns[turn];
    return job->had_ns[turn] < best->had_ns[turn];
}

/* Whoever is served was least ahead, so that is where all are who wait. */
static void keep_up(int64_t *own, int64_t *front)
{
    if (*own < *front - saved_up_ns)
        *own = *front - saved_up_ns;
    if (*front < *own)
        *front = *own;
}

void pen__share_take(pen__share *share, pen__job *job, pen__turn turn)
{
    keep_up(&job->client->had_ns[turn], &share->front_ns[turn]);
    keep_up(&job->had_ns[turn], &job->client->front_ns[turn]);
    /* Or else all threads would go to one, until its first sample is done. */
    job->client->had_ns[turn] += advance_ns;
    job->had_ns[turn] += advance_ns;
}

/* How much of what was is left. */
static double left_of(const pen__job *job, int64_t now_ns)
{
    const double elapsed_s = (double)(now_ns - job->faded_ns) * 1e-9;
    return elapsed_s > 0 ? exp(-elapsed_s / fading_s) : 1;
}

/* After a sample that took seconds, turns of the other kind do not go on for as long. */
static int64_t bounded(int64_t lead_ns)
{
    const int64_t most = lead_ns < max_lead_ns ? lead_ns : max_lead_ns;
    return most > -max_lead_ns ? most : -max_lead_ns;
}

void pen__share_used(pen__share *share, pen__job *job, pen__turn turn, int64_t cpu_ns,
                     int64_t saved_bytes, int64_t now_ns)
{
    const double left = left_of(job, now_ns);
    share->spent_ns[turn] += cpu_ns;
    share->lead_ns = bounded(share->lead_ns + (turn == PEN__TURN_FAIR ? cpu_ns : -cpu_ns));
    job->client->had_ns[turn] += cpu_ns - advance_ns;
    job->had_ns[turn] += cpu_ns - advance_ns;
    job->cpu_s = job->cpu_s * left + (double)cpu_ns * 1e-9;
    job->saved_bytes = job->saved_bytes * left + (double)saved_bytes;
    if (now_ns > job->faded_ns)
        job->faded_ns = now_ns;
    job->seen_ns = now_ns;
}

/* ---- what each may use ---- */

static bool is_active(const pen__job *job, int64_t now_ns)
{
    return job->n_open > 0 || now_ns - job->seen_ns < active_ns;
}

/* Set n_active of all clients that have such jobs, and count those. */
static int count_clients(pen__share *share, int64_t now_ns)
{
    int n = 0;
    for (int i = 0; i < share->n; i++)
        share->jobs[i].client->n_active = 0;
    for (int i = 0; i < share->n; i++)
        if (is_active(&share->jobs[i], now_ns))
            n += share->jobs[i].client->n_active++ == 0;
    return n;
}

/* One job's view of the others. */
typedef struct view {
    pen__share *share;
    const pen__job *job;
    double fair_cpus; /* of a client, for sure */
    int64_t now_ns;
} view;

static double least_of(const view *v, const pen__job *job)
{
    return v->fair_cpus / fmax(job->client->n_active, 1);
}

static double used_by(const view *v, const pen__job *job)
{
    return job->cpu_s * left_of(job, v->now_ns) / fading_s;
}

static bool is_other(const view *v, const pen__job *job)
{
    return job != v->job && is_active(job, v->now_ns);
}

/* Are both worth nearly the same? */
static bool is_equal(const view *v, const pen__job *job)
{
    const double a = pen__job_worth(job), b = pen__job_worth(v->job);
    return is_as_good(a, b) && is_as_good(b, a);
}

/* What jobs of other worth leave; *equals gets the fair parts of those of equal worth, its own
 * with them. */
static double left_by_others(const view *v, double cpus, double *equals)
{
    *equals = least_of(v, v->job);
    for (int i = 0; i < v->share->n; i++) {
        const pen__job *job = &v->share->jobs[i];
        if (!is_other(v, job))
            continue;
        if (is_equal(v, job))
            *equals += least_of(v, job);
        else if (pen__job_worth(job) > pen__job_worth(v->job))
            cpus -= used_by(v, job);
        else
            cpus -= fmin(used_by(v, job), least_of(v, job));
    }
    return fmax(cpus, 0);
}

/* Needs clients to be counted. */
static double cores_of(const view *v, const pen__share_limits *limits)
{
    double equals, cores = left_by_others(v, limits->cpus, &equals);
    const double all = cores;
    for (int i = 0; i < v->share->n; i++) { /* equals share, and who needs less leaves the rest */
        const pen__job *job = &v->share->jobs[i];
        if (is_other(v, job) && is_equal(v, job))
            cores -= fmin(used_by(v, job), all * least_of(v, job) / equals);
    }
    cores = fmax(cores, least_of(v, v->job));
    if (limits->client_cpus > 0)
        cores = fmin(cores, limits->client_cpus / fmax(v->job->client->n_active, 1));
    return cores;
}

double pen__share_cores(pen__share *share, const pen__job *job, const pen__share_limits *limits,
                        int64_t now_ns)
{
    const double n_clients = fmax(count_clients(share, now_ns), 1);
    const view v = {share, job, limits->cpus / 2 / n_clients, now_ns};
    return cores_of(&v, limits);
}

pen__share_sums pen__share_sum_up(pen__share *share, const pen__share_limits *limits,
                                  int64_t now_ns)
{
    pen__share_sums sums = {.clients = count_clients(share, now_ns)};
    int n_siblings = 0;
    for (int i = 0; i < share->n; i++) {
        const pen__job *job = &share->jobs[i];
        if (!is_active(job, now_ns))
            continue;
        sums.jobs++;
        if (job->client->n_active > n_siblings)
            n_siblings = job->client->n_active;
    }
    if (sums.jobs > 0)
        sums.fair_cores = limits->cpus / 2 / sums.clients / n_siblings;
    return sums;
}
