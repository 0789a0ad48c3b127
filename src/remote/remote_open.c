/* remote_open.c - descriptions, then pages, then an index and its identity. */
#include "remote/remote_open.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "remote/remote_blame.h"
#include "remote/remote_part.h"
#include "telemetry/limits.h"

enum {
    MAX_PAUSE_MS = 1000,
    SLICE_MS = 10,
    MEMORY_PART = 4, /* of the memory there is, the most that manifests take */
    /* A server that comes back describes itself in about as many bytes as it, or another, did. */
    SPARE_DESCRIPTION = 4096,
};

static const int64_t ms_ns = 1000000;

typedef struct opening {
    pen__route *route;
    const pen__http *http;
    const pen_dataset_opts *opts;
    CURL *easy; /* one for all: its connections are used again */
    pen__text body;
    int64_t done, total; /* samples */
    int64_t left_bytes;  /* of memory, for manifests */
    pen__rng dice;       /* for pauses; no part of any stream */
} opening;

static int cancelled(pen_error *err)
{
    return pen__fail(err, PEN_ECANCELED, -1, "opening the dataset was cancelled");
}

/* One try at one server: "/v1/data/NAME" and `tail`. */
static int ask(opening *o, int server, const char *tail, size_t max_bytes, pen__http_answer *answer)
{
    const pen__remote_url *url = &o->route->url;
    char text[PEN__REQUEST_URL];
    snprintf(text, sizeof text, "%s://%s/v1/data/%s%s", url->is_tls ? "https" : "http",
             url->servers[server].label, url->name, tail);
    return pen__http_get(o->http, o->easy, text, max_bytes, o->opts, o->done, o->total, &o->body,
                         answer);
}

static int explain(const opening *o, int server, int rc, const pen__http_answer *answer,
                   pen_error *err)
{
    const pen__remote_url *url = &o->route->url;
    const char *label = url->servers[server].label;
    if (rc == PEN_ECANCELED)
        return cancelled(err);
    if (rc == PEN_ENOMEM)
        return pen__fail(err, rc, -1, "out of memory");
    if (answer->status == 404)
        return pen__fail(err, PEN_ENOTFOUND, -1, "%s has no dataset '%s'", label, url->name);
    if (answer->status)
        return pen__fail(err, PEN_EIO, -1, "%s answers %s", label, answer->why);
    return pen__fail(err, PEN_EIO, -1, "cannot ask %s for '%s': %s", label, url->name, answer->why);
}

/* Might the same question be answered later? */
static bool may_change(int rc, const pen__http_answer *answer)
{
    return rc == PEN_EIO && !answer->is_too_long &&
           (answer->status == 0 || answer->status == 429 || answer->status >= 500);
}

/* Wait in short pieces; somebody may want to cancel. */
static int wait_ms(const opening *o, int64_t ms, pen_error *err)
{
    for (; ms > 0; ms -= SLICE_MS) {
        if (pen__dataset_report(o->opts, o->done, o->total, NULL) != 0)
            return cancelled(err);
        nanosleep(&(struct timespec){0, SLICE_MS * 1000000}, NULL);
    }
    return 0;
}

/* How long to wait before try number n_tries + 1. */
static int64_t pause_of(opening *o, int n_tries, const pen__http_answer *answer)
{
    const uint32_t chance = pen__rng_u32(&o->dice);
    const int64_t ns = answer->again_ns >= 0 ? pen__patience_ns(answer->again_ns, chance)
                                             : pen__pause_ns(n_tries, MAX_PAUSE_MS * ms_ns, chance);
    return ns / ms_ns;
}

/* Ask until an answer comes or time is up; a server that asks for patience gets it even where
 * others are not waited for. */
static int ask_patiently(opening *o, int server, const char *tail, size_t max_bytes,
                         bool waits_for_all, pen_error *err)
{
    const int64_t began = pen__now_ns();
    for (int n_tries = 1;; n_tries++) {
        pen__http_answer answer;
        int rc = ask(o, server, tail, max_bytes, &answer);
        if (rc == 0)
            return 0;
        bool is_busy = answer.status == 429 || answer.status == 503;
        const int64_t ms = pause_of(o, n_tries, &answer);
        bool is_late = pen__now_ns() - began + ms * ms_ns > o->http->timeout_ns;
        if (!may_change(rc, &answer) || !(waits_for_all || is_busy) || is_late)
            return explain(o, server, rc, &answer, err);
        rc = wait_ms(o, ms, err);
        if (rc)
            return rc;
    }
}

static int describe(opening *o, int server, pen__part *part, pen_error *err)
{
    int rc = ask_patiently(o, server, "", PEN__PART_MAX_DESCRIPTION, false, err);
    if (rc)
        return rc;
    rc = pen__part_describe(part, o->body.data ? o->body.data : "", o->body.len, err);
    if (rc)
        pen__fail_prefix(err, "%s", o->route->url.servers[server].label);
    return rc;
}

/* Another server's word against the first one's. */
static int compare(const opening *o, const pen__part *part, int first, const pen__part *other,
                   int server, pen_error *err)
{
    const pen__address *servers = o->route->url.servers;
    if (strcmp(part->hash, other->hash) == 0 && part->count == other->count)
        return 0;
    return pen__fail(err, PEN_EINVAL, -1,
                     "%s and %s are given as replicas, but their datasets '%s' differ: hashes %s "
                     "and %s; a shard with other samples follows a '+'",
                     servers[first].label, servers[server].label, o->route->url.name, part->hash,
                     other->hash);
}

/* What a replica holds; *first is the one that is believed, -1 as long as there is none. */
static int meet(opening *o, int server, pen__part *part, int *first, pen_error *err)
{
    pen__part other = {0};
    int rc = describe(o, server, &other, err);
    if (rc == 0 && *first < 0) {
        *part = other;
        o->route->max_description[o->route->url.servers[server].shard] =
            2 * o->body.len + SPARE_DESCRIPTION;
        other = (pen__part){0};
        *first = server;
    } else if (rc == 0) {
        rc = compare(o, part, *first, &other, server, err);
    }
    o->route->is_checked[server] = rc == 0;
    pen__part_fini(&other);
    return rc;
}

/* Ask all replicas of a shard what they hold.  Returns one that answered, or an error. */
static int meet_replicas(opening *o, int shard, pen__part *part, pen_error *err)
{
    const pen__remote_url *url = &o->route->url;
    int first = -1, n_silent = 0, n_all = 0;
    for (int i = 0; i < url->n_servers; i++)
        n_all += url->servers[i].shard == shard;
    pen_error silence = {0}, reason = {0};
    for (int i = 0; i < url->n_servers; i++) {
        if (url->servers[i].shard != shard)
            continue;
        int rc = meet(o, i, part, &first, &reason);
        if (rc == PEN_EIO) { /* it may come back */
            pen__blame_add(silence.text, sizeof silence.text, n_all, reason.text);
            n_silent++;
        } else if (rc) {
            if (err)
                *err = reason;
            return rc;
        }
    }
    if (first >= 0)
        return first;
    pen__fail(err, PEN_EIO, -1, "%s", silence.text);
    if (n_silent > 1)
        pen__fail_prefix(err, "none of %d replicas answers", n_silent);
    return PEN_EIO;
}

/* A page, from `server` or, where that fails, from one replica after the other. */
static int ask_page(opening *o, int shard, int *server, int64_t page, pen_error *err)
{
    const pen__remote_url *url = &o->route->url;
    char tail[64];
    snprintf(tail, sizeof tail, "/manifest?page=%lld&headers=2", (long long)page);
    pen__http_answer answer;
    if (ask(o, *server, tail, PEN__PART_MAX_PAGE_BYTES, &answer) == 0)
        return 0;
    for (int i = 0; i < url->n_servers; i++)
        if (url->servers[i].shard == shard && i != *server && o->route->is_checked[i] &&
            ask(o, i, tail, PEN__PART_MAX_PAGE_BYTES, &answer) == 0) {
            *server = i;
            return 0;
        }
    return ask_patiently(o, *server, tail, PEN__PART_MAX_PAGE_BYTES, true, err);
}

static int fill_part(opening *o, int shard, int server, pen__part *part, pen_error *err)
{
    int rc = 0;
    int64_t before = o->done;
    part->max_bytes = o->left_bytes;
    for (int64_t page = 0; rc == 0 && (int64_t)part->index.n < part->count; page++) {
        rc = ask_page(o, shard, &server, page, err);
        if (rc)
            return rc;
        rc = pen__part_add_page(part, (const uint8_t *)o->body.data, o->body.len, err);
        o->done = before + (int64_t)part->index.n;
        if (rc == 0)
            rc = pen__dataset_report(o->opts, o->done, o->total, err);
    }
    o->left_bytes -= pen__part_bytes(part);
    if (rc == 0)
        rc = pen__part_finish(part, err);
    if (rc && rc != PEN_ECANCELED)
        pen__fail_prefix(err, "%s", o->route->url.servers[server].label);
    return rc;
}

static int fill_parts(opening *o, pen__part *parts, pen_error *err)
{
    int servers[PEN__REMOTE_MAX_SERVERS], n = o->route->url.n_shards;
    for (int i = 0; i < n; i++) {
        servers[i] = meet_replicas(o, i, &parts[i], err);
        if (servers[i] < 0)
            return servers[i];
        o->total += parts[i].count;
        memcpy(o->route->hashes[i], parts[i].hash, sizeof parts[i].hash);
    }
    for (int i = 0; i < n; i++) {
        int rc = fill_part(o, i, servers[i], &parts[i], err);
        if (rc)
            return rc;
    }
    return 0;
}

int pen__remote_fill(pen_dataset *ds, pen__route *route, const pen__http *http,
                     const pen_dataset_opts *opts, pen_error *err)
{
    int n = route->url.n_shards;
    opening o = {.route = route, .http = http, .opts = opts, .easy = curl_easy_init()};
    o.left_bytes = pen__limit_memory() / MEMORY_PART;
    pen__rng_init(&o.dice,
                  (uint64_t)pen__now_ns() ^ (uint64_t)getpid() << 40 ^ (uint64_t)(uintptr_t)&o,
                  PEN__RNG_OP, 0, 0, 0, 0);
    pen__part *parts = pen__calloc((size_t)n, sizeof *parts);
    int rc = o.easy && parts ? fill_parts(&o, parts, err)
                             : pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    if (rc == 0)
        rc = pen__parts_join(ds, parts, n, err);
    for (int i = 0; parts && i < n; i++)
        pen__part_fini(&parts[i]);
    pen__free(parts);
    pen__text_fini(&o.body);
    curl_easy_cleanup(o.easy);
    return rc;
}
