/* remote_courier.c - from waiting calls to requests, and back.
 *
 * The thread's round: take new calls in; let libcurl move bytes; see to requests that ended or
 * stalled; let go of calls that are cancelled or out of time; send what is waiting.  All of that
 * happens in the thread, so only the list of new calls, each call's is_done and what servers have
 * told need the lock.
 *
 * How many samples a request gets: what is waiting, shared out over the requests that servers have
 * room for, but not less than an equal share of all that is wanted as long as something is under
 * way.  So with little to do samples go out at once, and with much to do calls gather, requests
 * grow, and all connections have something to bring.
 *
 * Faults.  Of a server (no connection, a stall, 5xx, a broken stream): it is put aside
 * (remote_server.h), its unanswered samples go back to the head of the queue, and other servers of
 * the shard get them.  Of one sample (its checksum, an error of the server's disk): that sample
 * waits a little and is asked for again, the stored file the last times.  A sample that failed
 * several times travels alone, so that it cannot take others with it.
 */
#include "remote/remote_courier.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/parcel.h"
#include "sched/pool.h"

enum {
    REQUESTS_PER_SERVER = 4,
    LONELY_TRIES = 3, /* failed, then a sample travels alone */
    RAW_TRIES = 4,    /* failed, then only the stored file is asked for */
    TICK_MS = 20,     /* how soon a cancel flag is seen */
    IDLE_MS = 1000,
    MAX_PAUSE_MS = 2000,
};

static const int64_t ms_ns = 1000000;

typedef struct shard_state {
    const char *hash;
    int64_t progress_ns; /* when a sample came last */
    int n_sent;          /* calls in requests */
} shard_state;

struct pen__courier {
    pthread_mutex_t lock; /* guards what follows, and each call's is_done */
    pen__calls incoming;
    pen__told told;
    bool is_closing;
    pen__pool *thread; /* NULL until the first call */
    /* fixed */
    CURLM *multi;
    pen__http http;
    pen__route route;
    pen__target target;
    pid_t pid;
    pen__request_owner owner;
    int64_t max_pause_ns;
    /* the thread's alone */
    pen__calls waiting; /* oldest first */
    shard_state shards[PEN__REMOTE_MAX_SERVERS];
    pen__server servers[PEN__REMOTE_MAX_SERVERS];
    int n_requests;
    pen__request *requests; // (servers * REQUESTS_PER_SERVER)
    int64_t look_ns;        /* when to look for late and cancelled calls again */
    uint64_t chance_key;
    uint32_t n_chances;
};

/* Jitter must differ between clients, and is no part of any stream. */
static uint32_t chance(pen__courier *c)
{
    uint32_t counter[4] = {c->n_chances++}, out[4];
    pen__philox(counter, c->chance_key, out);
    return out[0];
}

/* ---- calls ---- */

static void let_go(pen__courier *c, pen__call *call)
{
    pthread_mutex_lock(&c->lock);
    call->is_done = true;
    pthread_cond_signal(&call->done);
    pthread_mutex_unlock(&c->lock);
}

static void on_answered(void *ctx, pen__call *call)
{
    pen__courier *c = ctx;
    shard_state *shard = &c->shards[call->shard];
    shard->n_sent--;
    shard->progress_ns = pen__now_ns();
    let_go(c, call);
}

/* Try the sample again, after a pause of its own. */
static void on_returned(void *ctx, pen__call *call)
{
    pen__courier *c = ctx;
    c->shards[call->shard].n_sent--;
    call->n_tries++;
    if (call->n_tries >= RAW_TRIES)
        call->choice = (pen__choice){.max_cut = 0, .forms = 1U << PEN__FORM_RAW};
    call->not_before_ns = pen__now_ns() + pen__pause_ns(call->n_tries, c->max_pause_ns, chance(c));
    pen__calls_put(&c->waiting, call, c->waiting.first);
}

/* Why a call that is out of time got nothing. */
static void give_up(pen__courier *c, pen__call *call, int64_t now)
{
    const pen__server *blamed = NULL;
    for (int i = 0; i < c->route.url.n_servers; i++) {
        const pen__server *server = &c->servers[i];
        if (server->shard == call->shard && (!blamed || (*server->cause && !*blamed->cause)))
            blamed = server;
    }
    char tried[64] = "";
    if (call->n_tries > 0)
        snprintf(tried, sizeof tried, ", %d failed tries", call->n_tries);
    char cause[321]; /* a copy: the call's own text is about to be written */
    snprintf(cause, sizeof cause, "%.320s", *blamed->cause ? blamed->cause : call->err.text);
    call->result =
        pen__fail(&call->err, PEN_EIO, -1, "no answer from %s in %.1f s%s: %s", blamed->label,
                  (double)(now - call->asked_ns) / 1e9, tried, *cause ? cause : "it is too slow");
}

/* A call that never failed is only late while others get their samples. */
static bool is_late(const pen__courier *c, const pen__call *call, int64_t now)
{
    int64_t since = call->asked_ns, progress = c->shards[call->shard].progress_ns;
    if (call->n_tries == 0 && progress > since)
        since = progress;
    return now - since > c->http.timeout_ns;
}

/* Is there no use in waiting?  Then the call has its result. */
static bool is_over(pen__courier *c, pen__call *call, int64_t now)
{
    if (call->cancel && atomic_load_explicit(call->cancel, memory_order_relaxed))
        call->result = pen__fail(&call->err, PEN_ECANCELED, -1, "cancelled");
    else if (is_late(c, call, now))
        give_up(c, call, now);
    else
        return false;
    return true;
}

static void drop_waiting(pen__courier *c, int64_t now)
{
    for (pen__call *call = c->waiting.first, *next; call; call = next) {
        next = call->next;
        if (!is_over(c, call, now))
            continue;
        pen__calls_take(&c->waiting, call);
        let_go(c, call);
    }
}

/* ---- requests ---- */

static void refuse(pen__courier *c, pen__call *call, const pen__server *server, const char *cause)
{
    call->result = pen__fail(&call->err, PEN_EIO, -1, "%s answers %s", server->label, cause);
    let_go(c, call);
}

/* What has no answer goes back to the head of the queue, in its order, or is refused for good. */
static void take_back(pen__courier *c, pen__request *request, bool is_tried, const char *refusal)
{
    for (int i = request->n_items; i-- > 0;) {
        pen__call *call = request->items[i].call;
        if (!call)
            continue;
        request->items[i].call = NULL;
        c->shards[call->shard].n_sent--;
        call->n_tries += is_tried;
        if (refusal)
            refuse(c, call, request->server, refusal);
        else
            pen__calls_put(&c->waiting, call, c->waiting.first);
    }
}

static void drop_wanted(pen__server *server)
{
    pen_pipeline_unref(server->wanted);
    server->wanted = NULL;
}

/* The pipeline of the request's first call that is still there. */
static void want_pipeline(pen__request *request)
{
    for (int i = 0; i < request->n_items && !request->server->wanted; i++)
        if (request->items[i].call)
            request->server->wanted =
                pen_pipeline_ref((pen_pipeline *)(uintptr_t)request->items[i].call->pipe);
}

/* What a server allows us, of which others ask. */
static void note_cores(pen__courier *c, const pen__request *request)
{
    pthread_mutex_lock(&c->lock);
    pen__told_note(&c->told, request->job, (int)(request->server - c->servers), request->cores);
    pthread_mutex_unlock(&c->lock);
}

static void forget_cores(pen__courier *c, const pen__server *server)
{
    pthread_mutex_lock(&c->lock);
    pen__told_forget(&c->told, (int)(server - c->servers));
    pthread_mutex_unlock(&c->lock);
}

static void on_did(pen__courier *c, pen__request *request)
{
    pen__server *server = request->server;
    switch (request->kind) {
    case PEN__REQUEST_CHECK:
        server->is_checked = true;
        break;
    case PEN__REQUEST_PUT:
        drop_wanted(server);
        server->has_put = true;
        break;
    case PEN__REQUEST_SAMPLES:
        pen__server_did(server);
        note_cores(c, request);
        break;
    }
}

static void release(pen__courier *c, pen__request *request)
{
    curl_multi_remove_handle(c->multi, request->easy);
    request->is_busy = false;
    request->server->n_busy--;
}

/* The request is over; `stall`: because nothing came any more. */
static void finish(pen__courier *c, pen__request *request, CURLcode code, const char *stall)
{
    char cause[PEN__SERVER_CAUSE];
    int64_t again_ns = -1;
    pen__server *server = request->server;
    pen__outcome outcome = PEN__OUTCOME_FAILED;
    if (stall)
        snprintf(cause, sizeof cause, "%s", stall);
    else
        outcome = pen__request_judge(request, code, c->shards[server->shard].hash, cause,
                                     sizeof cause, &again_ns);
    release(c, request);
    if (outcome == PEN__OUTCOME_DID)
        on_did(c, request);
    else if (outcome == PEN__OUTCOME_LACKS_PIPELINE)
        want_pipeline(request);
    else if (outcome == PEN__OUTCOME_REFUSES_PIPELINE)
        server->refuses_pipeline = true;
    else
        pen__server_failed(server, pen__now_ns(), again_ns, c->max_pause_ns, chance(c), cause);
    if (outcome == PEN__OUTCOME_REFUSES_PIPELINE || outcome == PEN__OUTCOME_FAILED)
        drop_wanted(server);
    if (outcome == PEN__OUTCOME_FAILED && again_ns < 0)
        forget_cores(c, server);
    /* a server that asks for time has not failed a sample */
    take_back(c, request, outcome == PEN__OUTCOME_FAILED && again_ns < 0,
              outcome == PEN__OUTCOME_REFUSED ? cause : NULL);
}

static void reap(pen__courier *c)
{
    int n_left;
    for (CURLMsg *msg; (msg = curl_multi_info_read(c->multi, &n_left));) {
        if (msg->msg != CURLMSG_DONE)
            continue;
        char *request = NULL;
        CURLcode code = msg->data.result;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &request);
        finish(c, (pen__request *)(void *)request, code, NULL);
    }
}

/* Calls that leave a request; true if somebody still waits for it. */
static bool drop_sent(pen__courier *c, pen__request *request, int64_t now)
{
    bool is_wanted = request->kind != PEN__REQUEST_SAMPLES;
    for (int i = 0; i < request->n_items; i++) {
        pen__call *call = request->items[i].call;
        if (call && is_over(c, call, now)) {
            pen__request_forget(request, call);
            c->shards[call->shard].n_sent--;
            let_go(c, call);
        } else if (call) {
            is_wanted = true;
        }
    }
    return is_wanted;
}

static void watch_requests(pen__courier *c, int64_t now)
{
    for (int i = 0; i < c->n_requests; i++) {
        pen__request *request = &c->requests[i];
        if (!request->is_busy)
            continue;
        if (!drop_sent(c, request, now)) {
            release(c, request);
        } else if (now - request->moved_ns > c->http.stall_ns) {
            char stall[64];
            snprintf(stall, sizeof stall, "no byte for %.1f s", (double)c->http.stall_ns / 1e9);
            finish(c, request, CURLE_OPERATION_TIMEDOUT, stall);
        }
    }
}

/* ---- sending ---- */

static bool uses_pipeline(const pen__call *call, const pen__server *server)
{
    return call->pipe && !server->refuses_pipeline && call->choice.forms != 1U << PEN__FORM_RAW;
}

/* May `call` travel in one request with `first`? */
static bool fits(const pen__call *call, const pen__call *first, const pen__server *server)
{
    bool has_pipeline = uses_pipeline(first, server);
    if (uses_pipeline(call, server) != has_pipeline)
        return false;
    if (!has_pipeline)
        return true;
    return call->key.seed == first->key.seed &&
           (call->pipe == first->pipe ||
            strcmp(pen_pipeline_hash(call->pipe), pen_pipeline_hash(first->pipe)) == 0);
}

static bool is_ready(const pen__call *call, int shard, int64_t now)
{
    return call->shard == shard && now >= call->not_before_ns;
}

/* Up to `cap` calls that go in one request, oldest first.  They stay in the queue. */
static int gather(const pen__courier *c, const pen__server *server, int64_t now, pen__call **out,
                  int cap)
{
    int n = 0;
    for (pen__call *call = c->waiting.first; call && n < cap; call = call->next) {
        if (!is_ready(call, server->shard, now) || (n > 0 && !fits(call, out[0], server)))
            continue;
        if (call->n_tries >= LONELY_TRIES && n > 0)
            continue;
        out[n++] = call;
        if (call->n_tries >= LONELY_TRIES)
            break;
    }
    return n;
}

static int count_ready(const pen__courier *c, int shard, int64_t now)
{
    int n = 0;
    for (const pen__call *call = c->waiting.first; call; call = call->next)
        n += is_ready(call, shard, now);
    return n;
}

/* Requests that the shard's servers have room for, and with those that are under way. */
static int count_room(const pen__courier *c, int shard, int64_t now, int *n_all)
{
    int n = 0;
    *n_all = 0;
    for (int i = 0; i < c->route.url.n_servers; i++) {
        const pen__server *server = &c->servers[i];
        if (server->shard != shard)
            continue;
        int room = pen__server_room(server, now, REQUESTS_PER_SERVER);
        n += room;
        *n_all += room + server->n_busy;
    }
    return n;
}

static pen__request *free_request(pen__courier *c)
{
    for (int i = 0; i < c->n_requests; i++)
        if (!c->requests[i].is_busy)
            return &c->requests[i];
    return NULL;
}

static int send_samples(pen__courier *c, pen__request *request, pen__server *server, int n_ready,
                        int n_room, int64_t now)
{
    pen__call *calls[PEN__REQUEST_ITEMS] = {NULL};
    int share = (n_ready + n_room - 1) / n_room;
    int n = gather(c, server, now, calls, share < PEN__REQUEST_ITEMS ? share : PEN__REQUEST_ITEMS);
    int rc = pen__request_samples(request, &c->target, server, calls, n,
                                  uses_pipeline(calls[0], server), c->shards[server->shard].hash);
    for (int i = 0; i < n && rc == 0; i++)
        pen__calls_take(&c->waiting, calls[i]);
    c->shards[server->shard].n_sent += rc == 0 ? n : 0;
    return rc;
}

/* One request for a shard with something to send; false if there is nothing more to do now. */
static bool send_one(pen__courier *c, int shard, int64_t now)
{
    int n_all, n_ready = count_ready(c, shard, now), n_room = count_room(c, shard, now, &n_all);
    int n_sent = c->shards[shard].n_sent;
    pen__server *server = n_ready > 0 ? pen__server_choose(c->servers, c->route.url.n_servers,
                                                           shard, now, REQUESTS_PER_SERVER)
                                      : NULL;
    pen__request *request = server ? free_request(c) : NULL;
    if (!request || (n_sent > 0 && n_ready < (n_ready + n_sent) / n_all))
        return false;
    int rc = !server->is_checked ? pen__request_check(request, &c->target, server)
             : server->wanted    ? pen__request_put(request, &c->target, server)
                                 : send_samples(c, request, server, n_ready, n_room, now);
    if (rc == 0 && curl_multi_add_handle(c->multi, request->easy) != CURLM_OK) {
        take_back(c, request, false, NULL);
        rc = PEN_ENOMEM;
    }
    if (rc)
        return false; /* no memory: perhaps at the next round */
    request->is_busy = true;
    server->n_busy++;
    return true;
}

/* ---- the thread ---- */

/* New calls into the queue; false: it is time to end. */
static bool take_in(pen__courier *c)
{
    pthread_mutex_lock(&c->lock);
    while (c->incoming.first) {
        pen__call *call = c->incoming.first;
        pen__calls_take(&c->incoming, call);
        pen__calls_put(&c->waiting, call, NULL);
    }
    bool goes_on = !c->is_closing;
    pthread_mutex_unlock(&c->lock);
    return goes_on;
}

static int count_sent(const pen__courier *c)
{
    int n = 0;
    for (int i = 0; i < c->route.url.n_shards; i++)
        n += c->shards[i].n_sent;
    return n;
}

static void work(void *ctx, int index)
{
    (void)index;
    pen__courier *c = ctx;
    while (take_in(c)) {
        int n_running;
        curl_multi_perform(c->multi, &n_running);
        reap(c);
        int64_t now = pen__now_ns();
        if (now >= c->look_ns) { /* not with every packet */
            watch_requests(c, now);
            drop_waiting(c, now);
            c->look_ns = now + TICK_MS * ms_ns / 2;
        }
        for (int shard = 0; shard < c->route.url.n_shards; shard++)
            while (send_one(c, shard, now))
                ;
        bool is_idle = c->waiting.n + count_sent(c) == 0;
        curl_multi_poll(c->multi, NULL, 0, is_idle ? IDLE_MS : TICK_MS, NULL);
    }
}

/* ---- for others ---- */

static void end_requests(pen__courier *c)
{
    for (int i = 0; i < c->n_requests; i++) {
        if (c->requests[i].is_busy)
            curl_multi_remove_handle(c->multi, c->requests[i].easy);
        pen__request_fini(&c->requests[i]);
    }
    pen__free(c->requests);
    for (int i = 0; i < c->route.url.n_servers; i++)
        drop_wanted(&c->servers[i]);
}

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
        end_requests(c);
    if (c->multi)
        curl_multi_cleanup(c->multi);
    pen__http_fini(&c->http);
    pthread_mutex_destroy(&c->lock);
    pen__free(c);
}

static void set_servers(pen__courier *c)
{
    const pen__remote_url *url = &c->route.url;
    for (int i = 0; i < url->n_servers; i++) {
        pen__server *server = &c->servers[i];
        snprintf(server->label, sizeof server->label, "%s", url->servers[i].label);
        server->shard = url->servers[i].shard;
        server->is_checked = c->route.is_checked[i];
    }
    for (int i = 0; i < url->n_shards; i++)
        c->shards[i].hash = c->route.hashes[i];
}

int pen__courier_create(pen__courier **out, const pen__route *route, pen__http *http,
                        pen_error *err)
{
    pen__courier *c = pen__calloc(1, sizeof *c);
    *out = NULL;
    if (!c) {
        pen__http_fini(http);
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    }
    pthread_mutex_init(&c->lock, NULL);
    c->pid = getpid();
    c->http = *http;
    *http = (pen__http){0};
    c->route = *route;
    c->owner = (pen__request_owner){on_answered, on_returned, c};
    c->max_pause_ns = c->http.timeout_ns / 8;
    if (c->max_pause_ns > MAX_PAUSE_MS * ms_ns)
        c->max_pause_ns = MAX_PAUSE_MS * ms_ns;
    c->chance_key = (uint64_t)pen__now_ns() ^ (uint64_t)getpid() << 40 ^ (uint64_t)(uintptr_t)c;
    set_servers(c);
    c->target = (pen__target){&c->http, route->url.is_tls ? "https" : "http", c->route.url.name,
                              (uint64_t)chance(c) << 32 | chance(c)};
    c->n_requests = route->url.n_servers * REQUESTS_PER_SERVER;
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
    int rc = pen__pool_create(&c->thread, 1, "pen-remote", work, c);
    if (rc == 0 && pen__pool_grow(c->thread, 1) < 1) {
        pen__pool_join(c->thread);
        c->thread = NULL;
        rc = PEN_ENOMEM;
    }
    return rc ? pen__fail(err, rc, -1, "cannot start a thread for remote samples") : 0;
}

int64_t pen__courier_bring(pen__courier *c, pen__call *call, pen_error *err)
{
    if (c->pid != getpid())
        return pen__fail(err, PEN_EFORK, -1,
                         "this remote dataset was opened before a fork: its connections are the "
                         "parent's; open it again here");
    call->asked_ns = pen__now_ns();
    pthread_cond_init(&call->done, NULL);
    pthread_mutex_lock(&c->lock);
    int rc = start(c, err);
    if (rc == 0) {
        bool is_first = !c->incoming.first;
        pen__calls_put(&c->incoming, call, NULL);
        if (is_first)
            curl_multi_wakeup(c->multi);
        while (!call->is_done)
            pthread_cond_wait(&call->done, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    pthread_cond_destroy(&call->done);
    if (rc)
        return rc;
    if (call->result < 0 && err)
        *err = call->err;
    return call->result;
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
