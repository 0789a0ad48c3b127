/* remote_pick.h - which of the calls that wait go to which server, in one request.
 *
 * Calls stay in the queue; no clocks in here: the time is an argument.
 */
#ifndef PEN_REMOTE_REMOTE_PICK_H
#define PEN_REMOTE_REMOTE_PICK_H

#include "remote/remote_call.h"
#include "remote/remote_server.h"

/* Who may be asked for what. */
typedef struct pen__picker {
    const pen__calls *waiting; /* oldest first */
    pen__server *servers;
    int n_servers;
    int per_server; /* requests at once, at most */
} pen__picker;

/* Does the server work on it, or only send what is stored? */
bool pen__pick_has_pipeline(const pen__call *call, const pen__server *server);

/* The best server of a shard that has room and may be asked for something that waits, or NULL;
 * n_ready: for how much. */
pen__server *pen__pick_server(const pen__picker *picker, int shard, int64_t now_ns, int *n_ready);

/* Calls that go there in one request, oldest first: up to `cap` for images or, with what is small
 * and asked for together, up to `field_cap` for fields; one where the server has to show that it
 * works. */
int pen__pick_calls(const pen__picker *picker, const pen__server *server, int64_t now_ns,
                    pen__call **out, int cap, int field_cap);

/* Requests that the shard's servers have room for, and with those that are under way. */
int pen__pick_room(const pen__picker *picker, int shard, int64_t now_ns, int *n_all);

/* How many of the calls that are ready make the next request to a server with `n_busy` of them; 0:
 * wait for more.  A request has its price at a node, as high as that of a small file, so where
 * few samples are under way they share few: eight each, but two requests a server, so that it has
 * something to do while an answer is on its way. */
typedef struct pen__pick_counts {
    int n_ready, n_sent; /* calls */
    int n_room, n_all;   /* requests: that there is room for, and with those under way */
    int n_busy;          /* those of this server */
} pen__pick_counts;
int pen__pick_share(const pen__pick_counts *counts);

#endif
