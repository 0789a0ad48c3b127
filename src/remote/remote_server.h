/* remote_server.h - what a client thinks of a server: may it be asked, and when again.
 *
 * A server that failed is put aside for a random part of a time that doubles with each failure in
 * a row (full jitter, so that many clients do not come back at the same moment), or for as long as
 * it asked for and a random part of that again.  One that failed is then asked what it holds before
 * it is trusted with samples: it may have been started over other data.  After that it gets one
 * sample at a time until one came.
 *
 * One that asks for time has no place for so many requests at once: it gets no more of them than
 * were under way beside the one that it refused, and one more each ten seconds.
 *
 * Where others of the shard do their work, one that failed rests much longer than that: a random
 * part of four times what the failure cost, and of twice as much each time.  So a server that fails
 * at whatever it is asked, or brings bytes far too slowly, costs next to nothing, and is found out
 * to be well again.
 *
 * Repeats have a budget besides.  A request that asks a server for something that was asked for
 * before, and anything it is asked while it is not relied on, is a repeat: a server gets no more of
 * them than a quarter of the requests it has answered, some each second, and a hundred to begin
 * with. So clients of a server that is in trouble do not keep it there.  Who has none left waits;
 * the limit in time, after which a sample is an error, is another one.
 *
 * No clocks in here: the time is an argument.
 */
#ifndef PEN_REMOTE_REMOTE_SERVER_H
#define PEN_REMOTE_REMOTE_SERVER_H

#include <penstock/pipeline.h>

#include "base/digest.h"
#include "remote/remote_url.h"

/* PEN__SERVER_DENIALS: so often a no that may be damage is asked again, the last one counted. */
enum { PEN__SERVER_CAUSE = 352, PEN__SERVER_PIPELINES = 8, PEN__SERVER_DENIALS = 5 };

/* What is known of a pipeline at a server. */
typedef struct pen__server_pipeline {
    char hash[PEN__DIGEST_TEXT];
    bool is_refused; /* another version: only stored files come from there */
    bool is_put;     /* it was told, and no samples came since */
} pen__server_pipeline;

/* How fast a request brings what was asked for. */
typedef struct pen__server_pace {
    double bytes, samples; /* a second; 0: unknown */
} pen__server_pace;

typedef struct pen__server {
    char label[PEN__REMOTE_LABEL];
    int shard;
    bool is_checked;      /* it holds the right dataset */
    pen_pipeline *wanted; /* the pipeline it lacks; referenced, or NULL */
    int n_busy;           /* requests under way */
    int n_places;         /* for so many it had room when it last asked for time; 0: never */
    int64_t full_ns;      /* when that was */
    int n_faults;         /* in a row; with some it is not relied on */
    int n_denied;         /* of all its faults since it last did its work, denials */
    int64_t failed_ns;    /* when the last of them was counted */
    int64_t aside_until_ns;
    int64_t rest_until_ns;         /* while others of the shard do their work */
    double repeats;                /* that count against its budget, */
    int64_t repeats_ns;            /* at this time */
    char cause[PEN__SERVER_CAUSE]; /* of the last failure; "" if there was none */
    pen__server_pace pace;         /* of the last request */
    pen__server_pipeline pipelines[PEN__SERVER_PIPELINES];
    int n_noted;                   /* so far: the oldest gives way, and is simply found out again */
    char warned[PEN__DIGEST_TEXT]; /* the last pipeline whose refusal was told, or "" */
    char forgotten[PEN__DIGEST_TEXT]; /* the last one it had forgotten after it was told, or "" */
} pen__server;

typedef struct pen__fault {
    int64_t now_ns, took_ns;
    int64_t again_ns;     /* how long it asked for, -1 if it did not */
    int64_t max_pause_ns; /* the longest pause that is not its own wish */
    uint32_t chance;      /* 32 random bits */
    const char *cause;
    bool is_denial; /* it answered, and said no */
} pen__fault;

/* Put it aside.  What began before the last fault and fails after it is no other one. */
void pen__server_failed(pen__server *server, const pen__fault *fault);
/* It sent the samples it was asked for, made with this pipeline ("": as stored). */
void pen__server_did(pen__server *server, const char *pipeline);

void pen__server_note(pen__server *server, const char *pipeline, bool is_put, bool is_refused);
bool pen__server_refuses(const pen__server *server, const char *pipeline);
bool pen__server_has_put(const pen__server *server, const char *pipeline);

/* It does not know a pipeline that it was told, and nothing came between.  Was that so before? Then
 * it is no fault that goes away, and stored files are what is to be had. */
bool pen__server_forgets(pen__server *server, const char *pipeline);

/* May it be asked for something again?  And: it is. */
bool pen__server_may_repeat(const pen__server *server, int64_t now_ns);
void pen__server_repeats(pen__server *server, int64_t now_ns);

/* A pause before try number `n_tries` (1: the first repetition): full jitter. */
int64_t pen__pause_ns(int n_tries, int64_t max_pause_ns, uint32_t chance);
/* How long to stay away from a server that asked for so much time: never less, and up to twice as
 * long, or all whom it has refused would come back together. */
int64_t pen__patience_ns(int64_t asked_ns, uint32_t chance);

/* How many more requests it may get now, of at most `cap` at once: one for a server that has to be
 * asked what it holds, to be given a pipeline, or to show that it works, first; none where that
 * would be a repeat too many. */
int pen__server_room(const pen__server *server, int64_t now_ns, int cap);

/* Of those of a shard that have room, the best: one that works before one that has to prove it,
 * then the one with the least to do; NULL if there is none.  left_out: 1 << number of those that
 * are not asked. */
pen__server *pen__server_choose(pen__server *servers, int n, int shard, int64_t now_ns, int cap,
                                uint64_t left_out);

/* Does a request to `server` go so slowly that another of the shard, which works, would have done
 * it several times over? */
bool pen__server_lags(const pen__server *servers, int n, const pen__server *server,
                      pen__server_pace pace);

#endif
