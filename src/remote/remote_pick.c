/* remote_pick.c - calls that agree with each other and with a server. */
#include "remote/remote_pick.h"

#include <string.h>

#include "engine/parcel.h"

enum {
    LONELY_TRIES = 3,    /* failed, then a sample travels alone */
    CALLS_A_REQUEST = 8, /* where so many are under way */
    LEAST_BUSY = 2,      /* requests of a server: one on its way, one in work */
};

bool pen__pick_has_pipeline(const pen__call *call, const pen__server *server)
{
    return call->pipe && call->choice.forms != 1U << PEN__FORM_RAW &&
           !pen__server_refuses(server, pen_pipeline_hash(call->pipe));
}

static bool is_field(const pen__call *call)
{
    return call->field != PEN_FIELD_IMAGE;
}

/* May `call` travel in one request with `first`? */
static bool fits(const pen__call *call, const pen__call *first, const pen__server *server)
{
    bool has_pipeline = pen__pick_has_pipeline(first, server);
    if (is_field(call) != is_field(first))
        return false;
    if (pen__pick_has_pipeline(call, server) != has_pipeline)
        return false;
    if (!has_pipeline)
        return true;
    return call->key.seed == first->key.seed &&
           (call->pipe == first->pipe ||
            strcmp(pen_pipeline_hash(call->pipe), pen_pipeline_hash(first->pipe)) == 0);
}

/* May the server be asked for it now? */
static bool is_ready(const pen__picker *p, const pen__call *call, const pen__server *server,
                     int64_t now)
{
    return call->shard == server->shard && now >= call->not_before_ns &&
           !(call->refused_by >> (server - p->servers) & 1) &&
           (call->n_tries == 0 || pen__server_may_repeat(server, now));
}

static int count_ready(const pen__picker *p, const pen__server *server, int64_t now)
{
    int n = 0;
    for (const pen__call *call = p->waiting->first; call; call = call->next)
        n += is_ready(p, call, server, now);
    return n;
}

pen__server *pen__pick_server(const pen__picker *p, int shard, int64_t now, int *n_ready)
{
    for (uint64_t idle = 0;;) {
        pen__server *server =
            pen__server_choose(p->servers, p->n_servers, shard, now, p->per_server, idle);
        *n_ready = server ? count_ready(p, server, now) : 0;
        if (!server || *n_ready > 0)
            return server;
        idle |= UINT64_C(1) << (server - p->servers);
    }
}

/* What a server that failed is tried with: the sample with the fewest failures and, of those, the
 * one that is needed last. */
static pen__call *pick_probe(const pen__picker *p, const pen__server *server, int64_t now)
{
    pen__call *best = NULL;
    for (pen__call *call = p->waiting->first; call; call = call->next)
        if (is_ready(p, call, server, now) && (!best || call->n_tries <= best->n_tries))
            best = call;
    return best;
}

int pen__pick_calls(const pen__picker *p, const pen__server *server, int64_t now, pen__call **out,
                    int cap, int field_cap)
{
    int n = 0;
    if (server->n_faults > 0) {
        out[0] = pick_probe(p, server, now);
        return out[0] != NULL;
    }
    for (pen__call *call = p->waiting->first; call; call = call->next) {
        if (n > 0 && n >= (is_field(out[0]) ? field_cap : cap))
            break;
        if (!is_ready(p, call, server, now) || (n > 0 && !fits(call, out[0], server)))
            continue;
        if (call->n_tries >= LONELY_TRIES && n > 0)
            continue;
        out[n++] = call;
        if (call->n_tries >= LONELY_TRIES)
            break;
    }
    return n;
}

int pen__pick_room(const pen__picker *p, int shard, int64_t now, int *n_all)
{
    int n = 0;
    *n_all = 0;
    for (int i = 0; i < p->n_servers; i++) {
        const pen__server *server = &p->servers[i];
        if (server->shard != shard)
            continue;
        int room = pen__server_room(server, now, p->per_server);
        n += room;
        *n_all += room + server->n_busy;
    }
    return n;
}

int pen__pick_share(const pen__pick_counts *c)
{
    const int n_calls = c->n_ready + c->n_sent, n_least = (c->n_all + 1) / 2;
    const int n_busy = c->n_all - c->n_room; /* of all servers */
    int n_parts = n_calls / CALLS_A_REQUEST;
    n_parts = n_parts < n_least ? n_least : n_parts > c->n_all ? c->n_all : n_parts;
    if (c->n_busy > 0 && c->n_ready < n_calls / n_parts) /* more will come, and it has work */
        return 0;
    if (c->n_sent > 0 && c->n_busy >= LEAST_BUSY && n_busy >= n_parts)
        return 0;
    const int n_left = n_parts > n_busy ? n_parts - n_busy : 1;
    return c->n_ready > n_left ? (c->n_ready + n_left - 1) / n_left : 1;
}
