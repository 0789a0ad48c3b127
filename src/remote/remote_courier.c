/* remote_courier.c - a courier's life, and those who wait for what it brings; its thread is
 * remote_rounds.c. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "remote/remote_courier_impl.h"

enum {
    LOOK_UP_MS = 50, /* how often a caller that waits looks up */
    MAX_PAUSE_MS = 2000,
};

void pen__courier_free(pen__courier *c)
{
    if (!c || c->pid != getpid()) /* the thread, and who knows what locks, are the parent's */
        return;
    pthread_mutex_lock(&c->lock);
    c->is_closing = true;
    pthread_mutex_unlock(&c->lock);
    if (c->thread) {
        curl_multi_wakeup(c->multi);
        pen__pool_join(c->thread);
    }
    if (c->requests)
        pen__courier_end_requests(c);
    if (c->multi)
        curl_multi_cleanup(c->multi);
    pen__http_fini(&c->http);
    pthread_condattr_destroy(&c->monotonic);
    pthread_mutex_destroy(&c->lock);
    pen__free(c);
}

static void set_servers(pen__courier *c)
{
    const pen__remote_url *url = &c->route.url;
    for (int i = 0; i < url->n_servers; i++) {
        pen__server *server = &c->servers[i];
        memcpy(server->label, url->servers[i].label, sizeof server->label);
        server->shard = url->servers[i].shard;
        server->is_checked = c->route.is_checked[i];
        c->shards[server->shard].servers |= UINT64_C(1) << i;
    }
    for (int i = 0; i < url->n_shards; i++)
        c->shards[i].identity = &c->route.identities[i];
    c->picker = (pen__picker){&c->waiting, c->servers, url->n_servers, PEN__REQUESTS_PER_SERVER};
}

int pen__courier_create(pen__courier **out, const pen__remote_route *route, pen__http *http,
                        pen_error *err)
{
    pen__courier *c = pen__calloc(1, sizeof *c);
    *out = NULL;
    if (!c) {
        pen__http_fini(http);
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    }
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&c->monotonic);
    pthread_condattr_setclock(&c->monotonic, CLOCK_MONOTONIC);
    c->pid = getpid();
    c->http = *http;
    *http = (pen__http){0};
    c->route = *route;
    c->owner = pen__courier_owner(c);
    c->max_pause_ns = c->http.timeout_ns / 8;
    if (c->max_pause_ns > MAX_PAUSE_MS * PEN__MS_NS)
        c->max_pause_ns = MAX_PAUSE_MS * PEN__MS_NS;
    c->chance_key = (uint64_t)pen__now_ns() ^ (uint64_t)getpid() << 40 ^ (uint64_t)(uintptr_t)c;
    set_servers(c);
    c->target = (pen__target){&c->http, route->url.is_tls ? "https" : "http", c->route.url.name,
                              (uint64_t)pen__courier_chance(c) << 32 | pen__courier_chance(c)};
    c->n_requests = route->url.n_servers * PEN__REQUESTS_PER_SERVER;
    c->requests = pen__calloc((size_t)c->n_requests, sizeof *c->requests);
    c->multi = curl_multi_init();
    if (!c->requests || !c->multi) {
        pen__courier_free(c);
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    }
    for (int i = 0; i < c->n_requests; i++)
        c->requests[i].owner = &c->owner;
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)c->n_requests);
    *out = c;
    return 0;
}

size_t pen__courier_bytes(const pen__courier *c)
{
    return sizeof *c + (size_t)c->n_requests * sizeof *c->requests;
}

/* With the lock held. */
static int start(pen__courier *c, pen_error *err)
{
    if (c->thread)
        return 0;
    int rc = pen__pool_create(&c->thread, 1, "pen-remote", pen__courier_work, c);
    if (rc == 0 && pen__pool_grow(c->thread, 1) < 1) {
        pen__pool_join(c->thread);
        c->thread = NULL;
        rc = PEN_ENOMEM;
    }
    return rc ? pen__fail(err, rc, -1, "cannot start a thread for remote samples") : 0;
}

/* With the lock held, wait until the thread lets the call go; the caller may look up now and then.
 * False: it wants no more. */
static bool wait_for(pen__courier *c, pen__call *call)
{
    bool goes_on = true;
    while (!call->is_done) {
        if (!call->waiting || !goes_on) {
            pthread_cond_wait(&call->done, &c->lock);
            continue;
        }
        const int64_t ns = pen__now_ns() + LOOK_UP_MS * PEN__MS_NS;
        struct timespec until = {ns / 1000000000, ns % 1000000000};
        if (pthread_cond_timedwait(&call->done, &c->lock, &until) != ETIMEDOUT)
            continue;
        pthread_mutex_unlock(&c->lock);
        goes_on = call->waiting(call->waiting_ctx) == 0;
        atomic_store_explicit(&call->is_unwanted, !goes_on, memory_order_relaxed);
        pthread_mutex_lock(&c->lock);
    }
    return goes_on;
}

static void leave_out(pen__call *calls, int n)
{
    for (int i = 0; i < n; i++) {
        calls[i].waiting = NULL; /* this caller's own */
        atomic_store_explicit(&calls[i].is_unwanted, true, memory_order_relaxed);
    }
}

/* With the lock held: hand them over, and wait until the thread lets all of them go.  When one has
 * failed, nobody wants those behind it any more.  False: the caller is to leave. */
static bool hand_over(pen__courier *c, pen__call *calls, int n)
{
    const bool is_first = !c->incoming.first;
    bool goes_on = true, is_well = true;
    for (int i = 0; i < n; i++)
        pen__calls_put(&c->incoming, &calls[i], NULL);
    if (is_first)
        curl_multi_wakeup(c->multi);
    for (int i = 0; i < n; i++) {
        goes_on = wait_for(c, &calls[i]) && goes_on;
        if (is_well && (!goes_on || calls[i].result < 0)) {
            is_well = false;
            leave_out(calls + i + 1, n - i - 1);
        }
    }
    return goes_on;
}

int pen__courier_bring_all(pen__courier *c, pen__call *calls, int n, pen_error *err)
{
    if (c->pid != getpid())
        return pen__fail(err, PEN_EFORK, -1,
                         "this remote dataset was opened before a fork: its connections are the "
                         "parent's; open it again here");
    const int64_t now = pen__now_ns();
    for (int i = 0; i < n; i++) {
        calls[i].asked_ns = now;
        pthread_cond_init(&calls[i].done, &c->monotonic);
    }
    pthread_mutex_lock(&c->lock);
    int rc = start(c, err);
    const bool goes_on = rc || hand_over(c, calls, n);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < n; i++)
        pthread_cond_destroy(&calls[i].done);
    if (!goes_on) /* though they may have come */
        return pen__fail(err, PEN_ECANCELED, -1, "cancelled");
    for (int i = 0; i < n && rc == 0; i++)
        if (calls[i].result < 0) {
            rc = (int)calls[i].result;
            if (err)
                *err = calls[i].err;
        }
    return rc;
}

int64_t pen__courier_bring(pen__courier *c, pen__call *call, pen_error *err)
{
    const int rc = pen__courier_bring_all(c, call, 1, err);
    return rc ? rc : call->result;
}

double pen__courier_cores(pen__courier *c, const pen_pipeline *pipe)
{
    if (c->pid != getpid())
        return NAN;
    const uint64_t job = pen__told_job(c->target.owner, pipe);
    pthread_mutex_lock(&c->lock);
    const double cores = pen__told_sum(&c->told, job);
    pthread_mutex_unlock(&c->lock);
    return cores;
}

void pen__courier_warning(pen__courier *c, const pen_pipeline *pipe, char *dst, size_t dst_cap)
{
    dst[0] = '\0';
    if (c->pid != getpid())
        return;
    pthread_mutex_lock(&c->lock);
    if (strcmp(c->warning.pipeline, pen_pipeline_hash(pipe)) == 0) {
        snprintf(dst, dst_cap, "%s", c->warning.text);
        c->warning.text[0] = '\0';
    }
    pthread_mutex_unlock(&c->lock);
}
