/* remote_blame.c - whose fault it was, in one line. */
#include "remote/remote_blame.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"

enum { LEAST_SHARE = 48, REASON = PEN__REMOTE_LABEL + PEN__SERVER_CAUSE + 32 };

void pen__blame_add(char *text, size_t cap, int n, const char *reason)
{
    size_t len = strlen(text), room = cap - len, share = cap / (size_t)n;
    share = (share > LEAST_SHARE ? share : LEAST_SHARE) - 2;
    snprintf(text + len, room, "%s%.*s", len ? "; " : "", (int)share, reason);
}

static int count_servers(const pen__server *servers, int n, int shard)
{
    int n_found = 0;
    for (int i = 0; i < n; i++)
        n_found += servers[i].shard == shard;
    return n_found;
}

void pen__blame_refusal(pen__call *call, const pen__server *servers, int n, int number,
                        const char *verb, const char *reason)
{
    char text[REASON];
    if (call->refused_by >> number & 1)
        return;
    call->refused_by |= UINT64_C(1) << number;
    snprintf(text, sizeof text, "%s %s %s", servers[number].label, verb, reason);
    pen__blame_add(call->refusals, sizeof call->refusals, count_servers(servers, n, call->shard),
                   text);
}

/* What a server that did not refuse did instead of answering. */
static const char *reason_of(const pen__call *call, const pen__server *server)
{
    if (*server->cause)
        return server->cause;
    return call->blamed == server && *call->err.text ? call->err.text : "it is too slow";
}

void pen__blame_all(pen__call *call, const pen__server *servers, int n, int64_t now_ns)
{
    const int n_servers = count_servers(servers, n, call->shard);
    char reasons[PEN__CALL_REFUSALS], tried[64] = "";
    int n_silent = 0;
    memcpy(reasons, call->refusals, sizeof reasons);
    for (int i = 0; i < n; i++) {
        const pen__server *server = &servers[i];
        char text[REASON];
        if (server->shard != call->shard || call->refused_by >> i & 1)
            continue;
        n_silent++;
        snprintf(text, sizeof text, "%s: %s", server->label, reason_of(call, server));
        pen__blame_add(reasons, sizeof reasons, n_servers, text);
    }
    if (call->n_tries > 0)
        snprintf(tried, sizeof tried, ", %d failed tr%s", call->n_tries,
                 call->n_tries == 1 ? "y" : "ies");
    if (n_silent == 0)
        call->result = pen__fail(&call->err, PEN_EIO, -1, "%s", reasons);
    else
        call->result = pen__fail(&call->err, PEN_EIO, -1, "could not be had in %.1f s%s: %s",
                                 (double)(now_ns - call->asked_ns) / 1e9, tried, reasons);
}
