/* remote_server.c - trust, and how it is lost and won back. */
#include "remote/remote_server.h"

#include <stdio.h>

enum { FIRST_PAUSE_MS = 50, MAX_DOUBLINGS = 16 };

int64_t pen__pause_ns(int n_tries, int64_t max_pause_ns, uint32_t chance)
{
    int doublings = n_tries < 1 ? 0 : n_tries - 1;
    if (doublings > MAX_DOUBLINGS)
        doublings = MAX_DOUBLINGS;
    int64_t longest = ((int64_t)FIRST_PAUSE_MS * 1000000) << doublings;
    if (longest > max_pause_ns)
        longest = max_pause_ns;
    return (int64_t)((double)longest * ((double)chance / 4294967296.0));
}

void pen__server_failed(pen__server *server, int64_t now_ns, int64_t again_ns, int64_t max_pause_ns,
                        uint32_t chance, const char *cause)
{
    if (again_ns < 0) { /* it may come back with other data, or as another version */
        server->is_checked = false;
        server->has_put = false;
        server->refuses_pipeline = false;
    }
    server->n_faults++;
    server->aside_until_ns =
        now_ns + (again_ns >= 0 ? again_ns : pen__pause_ns(server->n_faults, max_pause_ns, chance));
    snprintf(server->cause, sizeof server->cause, "%s", cause);
}

void pen__server_did(pen__server *server)
{
    server->n_faults = 0;
    server->has_put = false;
    server->cause[0] = '\0';
}

int pen__server_room(const pen__server *server, int64_t now_ns, int cap)
{
    if (now_ns < server->aside_until_ns)
        return 0;
    if (!server->is_checked || server->wanted)
        cap = 1;
    return server->n_busy < cap ? cap - server->n_busy : 0;
}

pen__server *pen__server_choose(pen__server *servers, int n, int shard, int64_t now_ns, int cap)
{
    pen__server *best = NULL;
    for (int i = 0; i < n; i++) {
        pen__server *server = &servers[i];
        if (server->shard != shard || pen__server_room(server, now_ns, cap) == 0)
            continue;
        /* one that works before one that has to prove it, then the least busy */
        if (!best || server->is_checked > best->is_checked ||
            (server->is_checked == best->is_checked && server->n_busy < best->n_busy))
            best = server;
    }
    return best;
}
