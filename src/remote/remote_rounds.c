/* remote_rounds.c - from waiting calls to requests, and back.
 *
 * The thread's round: take new calls in; let libcurl move bytes; see to requests that ended or
 * stalled; let go of calls that are cancelled or out of time; send what is waiting.  All of that
 * happens in the thread, so only the list of new calls, each call's is_done and what servers have
 * told need the lock.
 *
 * How many samples a request gets (pen__pick_share): an equal share of all that is wanted, of two
 * requests a server where that is little, as a request has its price, and of more from eight
 * samples in each on.  With less waiting than that, calls gather until something comes; a server
 * that has nothing to do gets what there is.  Fields are small: all that wait go in one.
 *
 * Faults.  Of a server (no connection, a stall, far fewer bytes than others bring, 5xx, a broken
 * stream): it is put aside (remote_server.h), its unanswered samples go back to the head of the
 * queue, and other servers of the shard get them.  Of one sample (its checksum, an error of the
 * server's disk): that sample waits a little and is asked for again, the stored file the last
 * times.  A sample that failed several times travels alone, so that it cannot take others with it.
 *
 * Repeats of either kind have a budget a server (remote_server.h), so that one in trouble is not
 * kept there by those who ask it again.
 *
 * Refusals.  Where asking again would not help (a wrong token, a sample that it cannot send), a
 * server is not asked for that sample any more; when none is left to ask, that is an error.  Any
 * other no (400, 403, ...) may come of a bit that flipped in a request's head, so it is a fault
 * first.  It is a refusal when the server denied the same sample so often, or anything it was asked
 * since it last did its work (PEN__SERVER_DENIALS).
 *
 * Pipelines that a server does not do are refusals of another kind: it sends stored files, and a
 * warning says so.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/parcel.h"
#include "remote/remote_blame.h"
#include "remote/remote_courier_impl.h"

enum {
    RAW_TRIES = 4, /* failed, then only the stored file is asked for */
    TICK_MS = 20,  /* how soon a cancel flag is seen */
    IDLE_MS = 1000,
};

uint32_t pen__courier_chance(pen__courier *c)
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

static void refuse(pen__courier *c, pen__call *call, const pen__server *server, const char *verb,
                   const char *reason)
{
    const int number = (int)(server - c->servers);
    pen__blame_refusal(call, c->servers, c->route.url.n_servers, number, verb, reason);
}

/* Try the sample again: elsewhere, or after a pause of its own. */
static void on_returned(void *ctx, pen__call *call, const pen__server *server, bool is_final)
{
    pen__courier *c = ctx;
    c->shards[call->shard].n_sent--;
    call->blamed = server;
    if (is_final) {
        refuse(c, call, server, "cannot send it:", call->err.text);
    } else {
        call->n_tries++;
        if (call->n_tries >= RAW_TRIES)
            call->choice = (pen__choice){.max_cut = 0, .forms = 1U << PEN__FORM_RAW};
        call->not_before_ns =
            pen__now_ns() + pen__pause_ns(call->n_tries, c->max_pause_ns, pen__courier_chance(c));
    }
    pen__calls_put(&c->waiting, call, c->waiting.first);
}

/* A call that never failed is only late while others get their samples. */
static bool is_late(const pen__courier *c, const pen__call *call, int64_t now)
{
    int64_t since = call->asked_ns, progress = c->shards[call->shard].progress_ns;
    if (call->n_tries == 0 && progress > since)
        since = progress;
    return now - since > c->http.timeout_ns;
}

static bool is_cancelled(const pen__call *call)
{
    return atomic_load_explicit(&call->is_unwanted, memory_order_relaxed) ||
           (call->cancel && atomic_load_explicit(call->cancel, memory_order_relaxed));
}

/* Is there no use in waiting?  Then the call has its result. */
static bool is_over(pen__courier *c, pen__call *call, int64_t now)
{
    if (is_cancelled(call))
        call->result = pen__fail(&call->err, PEN_ECANCELED, -1, "cancelled");
    else if (call->refused_by == c->shards[call->shard].servers || is_late(c, call, now))
        pen__blame_all(call, c->servers, c->route.url.n_servers, now);
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

/* What has no answer goes back to the head of the queue, in its order. */
static void take_back(pen__courier *c, pen__request *request, bool is_tried)
{
    for (int i = request->n_items; i-- > 0;) {
        pen__call *call = request->items[i].call;
        if (!call)
            continue;
        request->items[i].call = NULL;
        c->shards[call->shard].n_sent--;
        call->n_tries += is_tried;
        pen__calls_put(&c->waiting, call, c->waiting.first);
    }
}

/* The server says no: to the request's samples, or to all that wait. */
static void refuse_all(pen__courier *c, const pen__request *request, bool is_to_all,
                       const char *cause)
{
    const char *verb = request->status == 200 ? "says:" : "answers"; /* words, or a number first */
    for (int i = 0; i < request->n_items; i++)
        if (request->items[i].call)
            refuse(c, request->items[i].call, request->server, verb, cause);
    for (pen__call *call = c->waiting.first; call && is_to_all; call = call->next)
        if (call->shard == request->server->shard)
            refuse(c, call, request->server, verb, cause);
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

static void release(pen__courier *c, pen__request *request)
{
    curl_multi_remove_handle(c->multi, request->easy);
    request->is_busy = false;
    request->server->n_busy--;
}

static void put_aside(pen__courier *c, const pen__request *request, int64_t again_ns,
                      bool is_denial, const char *cause)
{
    const int64_t now = pen__now_ns();
    const pen__fault fault = {
        now,      now - request->began_ns, again_ns, c->max_pause_ns, pen__courier_chance(c), cause,
        is_denial};
    pen__server_failed(request->server, &fault);
    if (again_ns < 0)
        forget_cores(c, request->server);
    drop_wanted(request->server);
}

/* A no to the request's calls, which are asked again later; after too many it is the server's last
 * word.  True: to all that wait, as it was to whatever it was asked. */
static bool note_denial(pen__courier *c, pen__request *request, const char *cause)
{
    const int64_t now = pen__now_ns();
    for (int i = 0; i < request->n_items; i++) {
        pen__call *call = request->items[i].call;
        if (!call)
            continue;
        if (++call->n_denied >= PEN__SERVER_DENIALS)
            refuse(c, call, request->server, "answers", cause);
        call->not_before_ns =
            now + pen__pause_ns(call->n_tries + 1, c->max_pause_ns, pen__courier_chance(c));
    }
    /* one that knows of no fields does its other work */
    return !request->is_fields && request->server->n_denied >= PEN__SERVER_DENIALS;
}

static void on_denied(pen__courier *c, pen__request *request, const char *cause)
{
    if (!request->is_fields)
        put_aside(c, request, -1, true, cause);
    if (!note_denial(c, request, cause))
        return;
    refuse_all(c, request, true, cause);
}

/* Others would have brought its samples long ago: nobody failed, but they go there. */
static bool is_slow(const pen__courier *c, const pen__request *request, int64_t now)
{
    return request->kind == PEN__REQUEST_SAMPLES &&
           now - request->began_ns > c->http.stall_ns / 2 &&
           pen__server_lags(c->servers, c->route.url.n_servers, request->server,
                            pen__request_pace(request, now));
}

static void put_slow_aside(pen__courier *c, pen__request *request, int64_t now)
{
    const pen__server_pace pace = pen__request_pace(request, now);
    char cause[96];
    snprintf(cause, sizeof cause, "it brings %.0f bytes a second, far fewer than others",
             pace.bytes);
    request->server->pace = pace;
    put_aside(c, request, -1, false, cause);
}

/* The request did what it was meant for. */
static void on_did(pen__courier *c, pen__request *request, int64_t now)
{
    pen__server *server = request->server;
    switch (request->kind) {
    case PEN__REQUEST_CHECK:
        server->is_checked = true;
        break;
    case PEN__REQUEST_PUT:
        drop_wanted(server);
        pen__server_note(server, request->pipeline, true, false);
        break;
    case PEN__REQUEST_SAMPLES:
        note_cores(c, request);
        if (!request->is_fields) /* those are too small to tell */
            server->pace = pen__request_pace(request, now);
        if (is_slow(c, request, now))
            put_slow_aside(c, request, now);
        else
            pen__server_did(server, request->pipeline);
        break;
    }
}

/* Stored files are what is to be had of it for this pipeline: who trains shall know. */
static void on_refused_pipeline(pen__courier *c, const pen__request *request, const char *cause)
{
    pen__server *server = request->server;
    pen__server_note(server, request->pipeline, false, true);
    if (strcmp(server->warned, request->pipeline) == 0)
        return;
    snprintf(server->warned, sizeof server->warned, "%s", request->pipeline);
    pthread_mutex_lock(&c->lock);
    snprintf(c->warning.pipeline, sizeof c->warning.pipeline, "%s", request->pipeline);
    snprintf(c->warning.text, sizeof c->warning.text,
             "%s does not do this pipeline and sends stored files: it answers %s", server->label,
             cause);
    pthread_mutex_unlock(&c->lock);
}

/* The transfer is over. */
static void finish(pen__courier *c, pen__request *request, CURLcode code)
{
    char cause[PEN__SERVER_CAUSE];
    int64_t again_ns = -1;
    pen__server *server = request->server;
    pen__outcome outcome = pen__request_judge(request, code, c->shards[server->shard].identity,
                                              cause, sizeof cause, &again_ns);
    release(c, request);
    switch (outcome) {
    case PEN__OUTCOME_DID:
        on_did(c, request, pen__now_ns());
        break;
    case PEN__OUTCOME_LACKS_PIPELINE:
        want_pipeline(request);
        break;
    case PEN__OUTCOME_FORGETS_PIPELINE:
        if (pen__server_forgets(server, request->pipeline))
            on_refused_pipeline(c, request, cause);
        else
            put_aside(c, request, -1, false, cause);
        break;
    case PEN__OUTCOME_REFUSES_PIPELINE:
        on_refused_pipeline(c, request, cause);
        drop_wanted(server);
        break;
    case PEN__OUTCOME_DENIED:
        on_denied(c, request, cause);
        break;
    case PEN__OUTCOME_REFUSED:
        /* it was a question before samples are asked for */
        refuse_all(c, request, request->kind != PEN__REQUEST_SAMPLES, cause);
        if (!request->is_fields) /* one that knows of none does its other work */
            put_aside(c, request, -1, false, cause);
        break;
    case PEN__OUTCOME_FAILED:
        put_aside(c, request, again_ns, false, cause);
        break;
    }
    /* a server that asks for time has not failed a sample */
    const bool has_failed = outcome == PEN__OUTCOME_FAILED || outcome == PEN__OUTCOME_DENIED;
    take_back(c, request, has_failed && again_ns < 0);
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
        finish(c, (pen__request *)(void *)request, code);
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
        char cause[64];
        if (!request->is_busy)
            continue;
        if (!drop_sent(c, request, now)) {
            release(c, request);
        } else if (pen__request_is_stuck(request, &c->http, now, cause, sizeof cause)) {
            release(c, request);
            put_aside(c, request, -1, false, cause);
            take_back(c, request, true);
        } else if (is_slow(c, request, now)) {
            release(c, request);
            put_slow_aside(c, request, now);
            take_back(c, request, false);
        }
    }
}

/* ---- sending ---- */

static pen__request *free_request(pen__courier *c)
{
    for (int i = 0; i < c->n_requests; i++)
        if (!c->requests[i].is_busy)
            return &c->requests[i];
    return NULL;
}

static int send_samples(pen__courier *c, pen__request *request, pen__server *server, int share,
                        int64_t now)
{
    pen__call *calls[PEN__REQUEST_ITEMS] = {NULL};
    int n = pen__pick_calls(&c->picker, server, now, calls,
                            share < PEN__REQUEST_IMAGES ? share : PEN__REQUEST_IMAGES,
                            PEN__REQUEST_ITEMS);
    int rc = pen__request_samples(request, &c->target, server, calls, n,
                                  pen__pick_has_pipeline(calls[0], server),
                                  c->shards[server->shard].identity->samples);
    for (int i = 0; i < n && rc == 0; i++)
        pen__calls_take(&c->waiting, calls[i]);
    c->shards[server->shard].n_sent += rc == 0 ? n : 0;
    return rc;
}

/* Is something asked of the server again? */
static bool is_repeat(const pen__request *request)
{
    for (int i = 0; i < request->n_items; i++)
        if (request->items[i].call->n_tries > 0)
            return true;
    return request->server->n_faults > 0;
}

/* One request for a shard with something to send; false if there is nothing more to do now. */
static bool send_one(pen__courier *c, int shard, int64_t now)
{
    pen__pick_counts counts = {.n_sent = c->shards[shard].n_sent};
    counts.n_room = pen__pick_room(&c->picker, shard, now, &counts.n_all);
    pen__server *server = pen__pick_server(&c->picker, shard, now, &counts.n_ready);
    pen__request *request = server ? free_request(c) : NULL;
    if (!request)
        return false;
    counts.n_busy = server->n_busy;
    const int share = pen__pick_share(&counts);
    if (share == 0)
        return false;
    int rc = !server->is_checked
                 ? pen__request_check(request, &c->target, server, c->route.max_description[shard])
             : server->wanted ? pen__request_put(request, &c->target, server)
                              : send_samples(c, request, server, share, now);
    if (rc == 0 && curl_multi_add_handle(c->multi, request->easy) != CURLM_OK) {
        take_back(c, request, false);
        rc = PEN_ENOMEM;
    }
    if (rc)
        return false; /* no memory: perhaps at the next round */
    if (is_repeat(request))
        pen__server_repeats(server, now);
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

static bool is_idle(const pen__courier *c)
{
    int n = c->waiting.n;
    for (int i = 0; i < c->route.url.n_shards; i++)
        n += c->shards[i].n_sent;
    return n == 0;
}

void pen__courier_work(void *ctx, int index)
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
            c->look_ns = now + TICK_MS * PEN__MS_NS / 2;
        }
        for (int shard = 0; shard < c->route.url.n_shards; shard++)
            while (send_one(c, shard, now))
                ;
        curl_multi_poll(c->multi, NULL, 0, is_idle(c) ? IDLE_MS : TICK_MS, NULL);
    }
}

pen__request_owner pen__courier_owner(pen__courier *c)
{
    return (pen__request_owner){on_answered, on_returned, c};
}

void pen__courier_end_requests(pen__courier *c)
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
