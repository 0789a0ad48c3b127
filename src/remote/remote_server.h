/* remote_server.h - what a client thinks of a server: may it be asked, and when again.
 *
 * A server that failed is put aside for a random part of a time that doubles with each failure in
 * a row (full jitter, so that many clients do not come back at the same moment), or for as long as
 * it asked for.  One that failed is then asked what it holds before it is trusted with samples: it
 * may have been started over other data.
 *
 * No clocks in here: the time is an argument.
 */
#ifndef PEN_REMOTE_REMOTE_SERVER_H
#define PEN_REMOTE_REMOTE_SERVER_H

#include <penstock/pipeline.h>

#include "remote/remote_url.h"

enum { PEN__SERVER_CAUSE = 352 };

typedef struct pen__server {
    char label[PEN__REMOTE_LABEL];
    int shard;
    bool is_checked;       /* it holds the right dataset */
    bool refuses_pipeline; /* another version: only stored files come from there */
    bool has_put;          /* a pipeline, and no samples came since */
    pen_pipeline *wanted;  /* the pipeline it lacks; referenced, or NULL */
    int n_busy;            /* requests under way */
    int n_faults;          /* in a row */
    int64_t aside_until_ns;
    char cause[PEN__SERVER_CAUSE]; /* of the last failure; "" if there was none */
} pen__server;

/* Put it aside.  again_ns: how long it asked for, -1 if it did not; `chance`: 32 random bits;
 * max_pause_ns: the longest pause that is not its own wish. */
void pen__server_failed(pen__server *server, int64_t now_ns, int64_t again_ns, int64_t max_pause_ns,
                        uint32_t chance, const char *cause);
/* It did what it was asked. */
void pen__server_did(pen__server *server);

/* A pause before try number `n_tries` (1: the first repetition): full jitter. */
int64_t pen__pause_ns(int n_tries, int64_t max_pause_ns, uint32_t chance);

/* How many more requests it may get now, of at most `cap` at once: one for a server that has to be
 * asked what it holds, or to be given a pipeline, first. */
int pen__server_room(const pen__server *server, int64_t now_ns, int cap);

/* Of those of a shard that have room, the one with the least to do; NULL if there is none. */
pen__server *pen__server_choose(pen__server *servers, int n, int shard, int64_t now_ns, int cap);

#endif
