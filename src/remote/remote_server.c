/* remote_server.c - trust, and how it is lost and won back. */
#include "remote/remote_server.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    FIRST_PAUSE_MS = 50,
    FIRST_REST_MS = 1000,
    MAX_REST_MS = 300 * 1000,
    REST_FACTOR = 4, /* what a try cost, times this, is the next rest */
    MAX_DOUBLINGS = 16,
    ONE_MORE_MS = 10 * 1000,
    LAG = 8,
    MOST_REPEATS = 100,
};

static const int64_t ms_ns = 1000000;
static const double repeats_per_s = 10;
static const double repeats_per_success = 0.25;

static int64_t doubled(int64_t ns, int n_tries, int64_t longest_ns)
{
    int doublings = n_tries < 1 ? 0 : n_tries - 1;
    for (int i = 0; i < doublings && i < MAX_DOUBLINGS && ns < longest_ns; i++)
        ns *= 2;
    return ns < longest_ns ? ns : longest_ns;
}

/* Any part of it, each as likely. */
static int64_t part_of(int64_t ns, uint32_t chance)
{
    return (int64_t)((double)ns * ((double)chance / 4294967296.0));
}

int64_t pen__pause_ns(int n_tries, int64_t max_pause_ns, uint32_t chance)
{
    return part_of(doubled(FIRST_PAUSE_MS * ms_ns, n_tries, max_pause_ns), chance);
}

int64_t pen__patience_ns(int64_t asked_ns, uint32_t chance)
{
    return asked_ns + part_of(asked_ns, chance);
}

/* A server that dies fails all of its clients at one moment. */
static int64_t rest_ns(int n_faults, int64_t took_ns, uint32_t chance)
{
    int64_t first = REST_FACTOR * took_ns;
    if (first < FIRST_REST_MS * ms_ns)
        first = FIRST_REST_MS * ms_ns;
    return part_of(doubled(first, n_faults, MAX_REST_MS * ms_ns), chance);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What asks for time gets it, whatever else happens meanwhile. */
static void put_aside(pen__server *server, int64_t aside_until_ns, int64_t rest_until_ns)
{
    server->aside_until_ns = later(server->aside_until_ns, aside_until_ns);
    server->rest_until_ns = later(server->rest_until_ns, rest_until_ns);
}

void pen__server_failed(pen__server *server, const pen__fault *fault)
{
    const int64_t now = fault->now_ns, pause = pen__patience_ns(fault->again_ns, fault->chance);
    snprintf(server->cause, sizeof server->cause, "%s", fault->cause);
    if (fault->again_ns >= 0) {
        put_aside(server, now + pause, now + pause);
        server->n_places = server->n_busy > 0 ? server->n_busy : 1;
        server->full_ns = now;
        return;
    }
    server->is_checked = false; /* it may come back with other data, or as another version */
    server->n_noted = 0;
    /* All that was under way when it died fails with it, and is one fault. */
    if (server->n_faults > 0 && now - fault->took_ns < server->failed_ns)
        return;
    server->n_faults++;
    server->n_denied += fault->is_denial;
    server->failed_ns = now;
    put_aside(server, now + pen__pause_ns(server->n_faults, fault->max_pause_ns, fault->chance),
              now + rest_ns(server->n_faults, fault->took_ns, fault->chance));
}

/* ---- repeats ---- */

/* What still counts: each second and each success makes up for some. */
static double repeats_at(const pen__server *server, int64_t now_ns)
{
    const double elapsed_s = (double)(now_ns - server->repeats_ns) / 1e9;
    return fmax(server->repeats - repeats_per_s * fmax(elapsed_s, 0), 0);
}

bool pen__server_may_repeat(const pen__server *server, int64_t now_ns)
{
    return repeats_at(server, now_ns) <= MOST_REPEATS - 1;
}

void pen__server_repeats(pen__server *server, int64_t now_ns)
{
    server->repeats = repeats_at(server, now_ns) + 1;
    server->repeats_ns = now_ns;
}

/* ---- pipelines ---- */

static int find(const pen__server *server, const char *hash)
{
    int n = server->n_noted < PEN__SERVER_PIPELINES ? server->n_noted : PEN__SERVER_PIPELINES;
    for (int i = 0; i < n; i++)
        if (strcmp(server->pipelines[i].hash, hash) == 0)
            return i;
    return -1;
}

void pen__server_note(pen__server *server, const char *hash, bool is_put, bool is_refused)
{
    int at = find(server, hash);
    if (at < 0)
        at = server->n_noted++ % PEN__SERVER_PIPELINES;
    pen__server_pipeline *known = &server->pipelines[at];
    snprintf(known->hash, sizeof known->hash, "%s", hash);
    known->is_put = is_put;
    known->is_refused = is_refused;
}

bool pen__server_refuses(const pen__server *server, const char *hash)
{
    int at = find(server, hash);
    return at >= 0 && server->pipelines[at].is_refused;
}

bool pen__server_has_put(const pen__server *server, const char *hash)
{
    int at = find(server, hash);
    return at >= 0 && server->pipelines[at].is_put;
}

bool pen__server_forgets(pen__server *server, const char *hash)
{
    const bool has_before = strcmp(server->forgotten, hash) == 0;
    snprintf(server->forgotten, sizeof server->forgotten, "%s", hash);
    return has_before;
}

void pen__server_did(pen__server *server, const char *pipeline)
{
    int at = find(server, pipeline);
    if (*pipeline && strcmp(server->forgotten, pipeline) == 0)
        server->forgotten[0] = '\0';
    if (at >= 0)
        server->pipelines[at].is_put = false;
    server->n_faults = server->n_denied = 0;
    server->cause[0] = '\0';
    server->repeats = fmax(server->repeats - repeats_per_success, 0);
}

/* ---- choosing ---- */

/* How many requests it has room for, as far as is known. */
static int places(const pen__server *server, int64_t now_ns, int cap)
{
    const int64_t n = server->n_places + (now_ns - server->full_ns) / (ONE_MORE_MS * ms_ns);
    return server->n_places == 0 || n > cap ? cap : (int)n;
}

int pen__server_room(const pen__server *server, int64_t now_ns, int cap)
{
    cap = places(server, now_ns, cap);
    if (now_ns < server->aside_until_ns)
        return 0;
    if (server->n_faults > 0 && !pen__server_may_repeat(server, now_ns))
        return 0;
    if (!server->is_checked || server->wanted || server->n_faults > 0)
        cap = 1;
    return server->n_busy < cap ? cap - server->n_busy : 0;
}

static bool is_reliable(const pen__server *server)
{
    return server->is_checked && server->n_faults == 0;
}

static bool has_reliable(const pen__server *servers, int n, int shard, int64_t now_ns,
                         uint64_t left_out)
{
    for (int i = 0; i < n; i++)
        if (servers[i].shard == shard && !(left_out >> i & 1) && is_reliable(&servers[i]) &&
            now_ns >= servers[i].aside_until_ns)
            return true;
    return false;
}

static bool is_better(const pen__server *a, const pen__server *b)
{
    if (is_reliable(a) != is_reliable(b))
        return is_reliable(a);
    if (a->is_checked != b->is_checked)
        return a->is_checked;
    return a->n_busy < b->n_busy;
}

pen__server *pen__server_choose(pen__server *servers, int n, int shard, int64_t now_ns, int cap,
                                uint64_t left_out)
{
    pen__server *best = NULL;
    const bool may_rest = has_reliable(servers, n, shard, now_ns, left_out);
    for (int i = 0; i < n; i++) {
        pen__server *server = &servers[i];
        if (server->shard != shard || left_out >> i & 1 ||
            pen__server_room(server, now_ns, cap) == 0)
            continue;
        if (may_rest && server->n_faults > 0 && now_ns < server->rest_until_ns)
            continue;
        if (!best || is_better(server, best))
            best = server;
    }
    return best;
}

bool pen__server_lags(const pen__server *servers, int n, const pen__server *server,
                      pen__server_pace pace)
{
    for (int i = 0; i < n; i++) {
        const pen__server *other = &servers[i];
        if (other != server && other->shard == server->shard && is_reliable(other) &&
            other->pace.bytes > LAG * pace.bytes && other->pace.samples > LAG * pace.samples)
            return true;
    }
    return false;
}
