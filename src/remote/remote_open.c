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
#include "remote/remote_page.h"
#include "remote/remote_part.h"

enum {
    MAX_PAUSE_MS = 1000,
    SLICE_MS = 10,
    /* A server that comes back describes itself in about as many bytes as it, or another, did. */
    SPARE_DESCRIPTION = 4096,
};

static const int64_t ms_ns = 1000000;

typedef struct opening {
    pen__remote_route *route;
    const pen__http *http;
    const pen_dataset_opts *opts;
    CURL *easy; /* one for all: its connections are used again */
    pen__text body;
    int64_t done, total; /* samples */
    int64_t left_bytes;  /* of memory, for descriptions and manifests */
    int64_t until_ns;    /* descriptions are waited for */
    uint64_t alike;      /* 1 << number of each server that has the pages of its shard's first */
    pen__rng dice;       /* for pauses; no part of any stream */
} opening;

static int cancelled(pen_error *err)
{
    return pen__fail(err, PEN_ECANCELED, -1, "opening the dataset was cancelled");
}

/* One try at one server: "/v1/data/NAME" and `tail`.  An answer may drip for so long. */
static int ask(opening *o, int server, const char *tail, size_t max_bytes, int64_t patience_ns,
               pen__http_answer *answer)
{
    const pen__remote_url *url = &o->route->url;
    char text[PEN__REQUEST_URL];
    snprintf(text, sizeof text, "%s://%s/v1/data/%s%s", url->is_tls ? "https" : "http",
             url->servers[server].label, url->name, tail);
    return pen__http_get(o->http, o->easy, text, max_bytes, pen__now_ns() + patience_ns, o->opts,
                         o->done, o->total, &o->body, answer);
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
    if (answer->status == 404 && answer->is_ours)
        return pen__fail(err, PEN_ENOTFOUND, -1, "%s has no dataset '%s'", label, url->name);
    if (answer->status)
        return pen__fail(err, PEN_EIO, -1, "%s answers %s", label, answer->why);
    return pen__fail(err, PEN_EIO, -1, "cannot ask %s for '%s': %s%s", label, url->name,
                     answer->why,
                     answer->is_empty && !url->is_tls ? "; does it want TLS (penstocks://)?" : "");
}

/* Might the same question be answered later? */
static bool may_change(int rc, const pen__http_answer *answer)
{
    return rc == PEN_EIO && !answer->is_too_long && !answer->is_for_good &&
           (answer->status == 0 || answer->status == 429 || answer->status >= 500);
}

/* Is it a no that may come of damage on the way?  Heads of requests have no checksum.  It is final
 * when it was heard PEN__SERVER_DENIALS times, all counted here. */
static bool is_doubted(int rc, const pen__http_answer *answer, int *n_denied)
{
    const long status = answer->status;
    const bool is_gone = status == 404 && answer->is_ours;
    return rc == PEN_EIO && status >= 400 && status < 500 && status != 401 && !is_gone &&
           ++*n_denied < PEN__SERVER_DENIALS;
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

/* Milliseconds to wait before try number n_tries + 1; a server that asks for time gets it. */
static int64_t pause_of(opening *o, int n_tries, int64_t again_ns)
{
    const uint32_t chance = pen__rng_u32(&o->dice);
    const int64_t ns = again_ns >= 0 ? pen__patience_ns(again_ns, chance)
                                     : pen__pause_ns(n_tries, MAX_PAUSE_MS * ms_ns, chance);
    return ns / ms_ns;
}

/* All replicas together have until then; the last of them at least as long as one may be silent. */
static int64_t patience_until(const opening *o, int64_t until_ns)
{
    const int64_t left_ns = until_ns - pen__now_ns();
    return left_ns > o->http->stall_ns ? left_ns : o->http->stall_ns;
}

/* What is left to a part: 0 would be without limit. */
static int64_t bounded(int64_t left_bytes)
{
    return left_bytes > 1 ? left_bytes : 1;
}

static int describe(opening *o, int server, int64_t patience_ns, pen__part *part,
                    pen__http_answer *answer, pen_error *err)
{
    int rc = ask(o, server, "", PEN__PART_MAX_DESCRIPTION, patience_ns, answer);
    if (rc)
        return explain(o, server, rc, answer, err);
    part->max_bytes = bounded(o->left_bytes);
    rc = pen__part_describe(part, o->body.data ? o->body.data : "", o->body.len, err);
    if (rc == PEN_EIO)
        answer->status = 0; /* damaged: as good as none */
    if (rc)
        pen__fail_prefix(err, "%s", o->route->url.servers[server].label);
    return rc;
}

/* Another server's word against the first one's. */
static int compare(const opening *o, const pen__part *part, int first, const pen__part *other,
                   int server, pen_error *err)
{
    const pen__address *servers = o->route->url.servers;
    const pen__identity *a = &part->identity, *b = &other->identity;
    const char *name = o->route->url.name;
    if (strcmp(a->samples, b->samples) != 0)
        return pen__fail(err, PEN_EINVAL, -1,
                         "%s and %s are given as replicas, but their datasets '%s' differ: hashes "
                         "%s and %s; a shard with other samples follows a '+'",
                         servers[first].label, servers[server].label, name, a->samples, b->samples);
    if (part->count != other->count) /* one of them lies */
        return pen__fail(err, PEN_EINVAL, -1,
                         "%s and %s are given as replicas, but their datasets '%s' differ: %lld "
                         "and %lld samples, though both have the hash %s",
                         servers[first].label, servers[server].label, name, (long long)part->count,
                         (long long)other->count, a->samples);
    if (strcmp(a->classes, b->classes) != 0)
        return pen__fail(err, PEN_EINVAL, -1,
                         "%s and %s are given as replicas, but in their datasets '%s' classes have "
                         "other names or another order, or one has no names of them",
                         servers[first].label, servers[server].label, name);
    return 0;
}

/* What a replica holds; *first is the one that is believed, -1 as long as there is none. */
static int meet(opening *o, int server, pen__part *part, int *first, pen__http_answer *answer,
                pen_error *err)
{
    pen__part other = {0};
    /* one answer is enough to begin with: others are there to be compared with it */
    const int64_t patience_ns = *first < 0 ? patience_until(o, o->until_ns) : o->http->stall_ns;
    int rc = describe(o, server, patience_ns, &other, answer, err);
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
    if (rc == 0 && (*first == server || other.page == part->page))
        o->alike |= UINT64_C(1) << server;
    pen__part_fini(&other);
    return rc;
}

/* A shard's replicas, while it is found out what they hold. */
typedef struct meeting {
    int n_all;
    int first;         /* the one that is believed, -1 as long as there is none */
    int n_awaited;     /* that may answer yet */
    int64_t again_ns;  /* what those ask for, -1: they do not */
    uint64_t has_said; /* 1 << number of those that will not say anything else */
    int verdict;       /* the code that all of those share, PEN_EIO if they do not */
    int n_denied[PEN__REMOTE_MAX_SERVERS];
    pen_error refusals, silence; /* of those; of them and of whom is waited for */
} meeting;

/* It did not tell what it holds, or nonsense. */
static void note_silence(meeting *m, int server, int rc, const pen__http_answer *answer,
                         const char *reason)
{
    pen__blame_add(m->silence.text, sizeof m->silence.text, m->n_all, reason);
    if (may_change(rc, answer) || is_doubted(rc, answer, &m->n_denied[server])) {
        m->n_awaited++;
        m->again_ns = answer->again_ns > m->again_ns ? answer->again_ns : m->again_ns;
    } else {
        m->verdict = !m->has_said || m->verdict == rc ? rc : PEN_EIO;
        m->has_said |= UINT64_C(1) << server;
        pen__blame_add(m->refusals.text, sizeof m->refusals.text, m->n_all, reason);
    }
}

/* One that answers stands in for a replica without the dataset, or with a page of something else in
 * its place; not for what is wrong with this end, or between replicas. */
static bool is_its_own(int rc)
{
    return rc == PEN_EIO || rc == PEN_ENOTFOUND || rc == PEN_ECORRUPT || rc == PEN_ELIMIT;
}

/* Ask all that may have something to say.  Returns what is an error whatever others say, or 0. */
static int ask_round(opening *o, int shard, pen__part *part, meeting *m, pen_error *err)
{
    const pen__remote_url *url = &o->route->url;
    m->silence = m->refusals;
    m->n_awaited = 0;
    m->again_ns = -1;
    for (int i = 0; i < url->n_servers; i++) {
        pen__http_answer answer;
        pen_error reason = {0};
        if (url->servers[i].shard != shard || m->has_said >> i & 1)
            continue;
        int rc = meet(o, i, part, &m->first, &answer, &reason);
        if (is_its_own(rc)) {
            note_silence(m, i, rc, &answer, reason.text);
        } else if (rc) {
            if (err)
                *err = reason;
            return rc;
        }
    }
    return 0;
}

/* Ask all replicas of a shard what they hold, again and again until one answers: nodes may be about
 * to start.  Returns one that answered, or an error. */
static int meet_replicas(opening *o, int shard, pen__part *part, pen_error *err)
{
    const pen__remote_url *url = &o->route->url;
    meeting m = {.first = -1};
    for (int i = 0; i < url->n_servers; i++)
        m.n_all += url->servers[i].shard == shard;
    for (int n_rounds = 1;; n_rounds++) {
        int rc = ask_round(o, shard, part, &m, err);
        if (rc || m.first >= 0)
            return rc ? rc : m.first;
        const int64_t ms = pause_of(o, n_rounds, m.again_ns);
        if (m.n_awaited == 0 || pen__now_ns() + ms * ms_ns > o->until_ns)
            break;
        rc = wait_ms(o, ms, err);
        if (rc)
            return rc;
    }
    int rc = pen__fail(err, m.n_awaited == 0 ? m.verdict : PEN_EIO, -1, "%s", m.silence.text);
    if (m.n_all > 1)
        pen__fail_prefix(err, "none of %d replicas serves it", m.n_all);
    return rc;
}

/* One try; a page that was damaged on its way counts as none. */
static int ask_page(opening *o, int server, const char *tail, int64_t until_ns,
                    pen__http_answer *answer)
{
    int rc = ask(o, server, tail, PEN__PART_MAX_PAGE_BYTES, patience_until(o, until_ns), answer);
    if (rc || pen__page_is_intact((const uint8_t *)o->body.data, o->body.len))
        return rc;
    *answer = (pen__http_answer){.again_ns = -1, .why = "the manifest's checksum differs"};
    return PEN_EIO;
}

/* One try at each replica with the same pages, until one answers, which becomes *server; else
 * *answer is what the first says. */
static int ask_replicas(opening *o, int shard, int *server, const char *tail, int64_t until_ns,
                        pen__http_answer *answer)
{
    const pen__remote_url *url = &o->route->url;
    const int first = *server;
    int rc = ask_page(o, first, tail, until_ns, answer);
    for (int i = 0; rc == PEN_EIO && i < url->n_servers; i++) {
        pen__http_answer other;
        if (i == first || url->servers[i].shard != shard || !(o->alike >> i & 1))
            continue;
        const int other_rc = ask_page(o, i, tail, until_ns, &other);
        if (other_rc == PEN_EIO)
            continue;
        *server = i;
        *answer = other;
        rc = other_rc;
    }
    return rc;
}

/* A page, from `server` if it can be had there: asked for until it comes or time is up. */
static int get_page(opening *o, int shard, int *server, int64_t page, pen_error *err)
{
    char tail[64];
    snprintf(tail, sizeof tail, "/manifest?page=%lld&headers=2&fields=1", (long long)page);
    const int64_t until_ns = pen__now_ns() + o->http->timeout_ns;
    int n_denied = 0;
    for (int n_tries = 1;; n_tries++) {
        pen__http_answer answer;
        int rc = ask_replicas(o, shard, server, tail, until_ns, &answer);
        if (rc == 0)
            return 0;
        const int64_t ms = pause_of(o, n_tries, answer.again_ns);
        const bool is_late = pen__now_ns() + ms * ms_ns > until_ns;
        const bool may_pass = may_change(rc, &answer) || is_doubted(rc, &answer, &n_denied);
        if (!may_pass || is_late)
            return explain(o, *server, rc, &answer, err);
        rc = wait_ms(o, ms, err);
        if (rc)
            return rc;
    }
}

static int fill_part(opening *o, int shard, int server, pen__part *part, pen_error *err)
{
    int rc = 0;
    const int64_t before = o->done, before_bytes = pen__part_bytes(part);
    part->max_bytes = bounded(o->left_bytes + before_bytes);
    for (int64_t page = 0; rc == 0 && (int64_t)part->index.n < part->count; page++) {
        rc = get_page(o, shard, &server, page, err);
        if (rc)
            return rc;
        rc = pen__part_add_page(part, (const uint8_t *)o->body.data, o->body.len, err);
        o->done = before + (int64_t)part->index.n;
        if (rc == 0)
            rc = pen__dataset_report(o->opts, o->done, o->total, err);
    }
    o->left_bytes -= pen__part_bytes(part) - before_bytes;
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
        o->route->identities[i] = parts[i].identity;
        o->left_bytes -= pen__part_bytes(&parts[i]);
    }
    for (int i = 0; i < n; i++) {
        int rc = fill_part(o, i, servers[i], &parts[i], err);
        if (rc)
            return rc;
    }
    return 0;
}

int pen__remote_fill(pen_dataset *ds, pen__remote_route *route, const pen__http *http,
                     const pen_dataset_opts *opts, pen_error *err)
{
    int n = route->url.n_shards;
    opening o = {.route = route, .http = http, .opts = opts, .easy = curl_easy_init()};
    o.left_bytes = route->max_bytes;
    o.until_ns = pen__now_ns() + http->timeout_ns;
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
