/* node_impl.h - a storage node inside.
 *
 *     node.c           life: options, datasets, start, stop
 *     node_http.c      libmicrohttpd's callbacks: a request comes in, an answer goes out
 *     node_peers.c     connections that are made and closed
 *     node_request.c   paths, headers and bodies, taken apart
 *     node_head.c      heads of requests that are refused for their form
 *     node_answer.c    what is answered at once: JSON, errors, headers
 *     node_work.c      threads that read and pack; which sample is next
 *     node_stream.c    bytes of an answer between those threads and the network
 *     node_watch.c     the thread that cuts off who is slow
 *     node_index.c     marks of JPEG files: which are made, how they are kept
 *     node_clients.c   what each client has used
 *     node_share.c     whose sample is next, and how much of the processors each job may use
 *     node_sending.c   what it takes to send a frame
 *     node_pipelines.c pipelines that clients have put
 *     node_manifest.c  pages of the manifest
 *     node_metrics.c   counters as text
 *
 * A request is an `exchange` from its first line to the last byte of its answer.  The network's
 * thread never waits: it suspends a connection that has nothing to send, and whoever has made
 * something for it resumes it.
 *
 * One lock, node->lock, guards all that follows but what says otherwise, and is held for moments
 * only.  No function of libmicrohttpd is called with it, for that has locks of its own.
 *
 * Rules of suspension:
 *  1. A connection is suspended by the network's thread alone, and `is_suspended` set after that.
 *  2. Who clears `is_suspended`, under the lock, must call MHD_resume_connection, without it.
 *  3. While a node is closing, nothing is suspended any more.
 */
#ifndef PEN_REMOTE_NODE_IMPL_H
#define PEN_REMOTE_NODE_IMPL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include <penstock/node.h>
#include <penstock/pipeline.h>

#include "base/little_endian.h"
#include "base/place.h"
#include "base/text.h"
#include "engine/pack.h"
#include "remote/node_request.h"
#include "remote/node_sending.h"
#include "remote/node_share.h"
#include "remote/remote_frames.h"
#include "sched/gate.h"
#include "sched/pool.h"
#include "source/sidecar.h"

enum {
    PEN__NODE_PAGE = 1024, /* samples of a page of the manifest */
    PEN__NODE_HEADER = 12, /* bytes of an image's header there */
    PEN__NODE_PIPELINES = 256,
    PEN__NODE_PIPELINES_EACH = 64, /* of one client */
    PEN__CHUNK_BYTES = 64 * 1024 - 64,
    PEN__ETAG_TEXT = PEN__DIGEST_TEXT + 2,
};

/* Headers of images in a page of the manifest. */
typedef enum pen__page_headers {
    PEN__PAGE_PLAIN = 0,
    PEN__PAGE_ALL,   /* files are read to find them out */
    PEN__PAGE_KNOWN, /* those that were found out already */
    PEN__PAGE_COUNT
} pen__page_headers;

/* A page of the manifest, as it is asked for. */
typedef struct pen__page_order {
    uint64_t number;
    pen__page_headers headers;
    bool has_fields; /* lengths of fields beside the image */
    bool as_zstd;
} pen__page_order;

typedef struct pen__served {
    char name[PEN__NODE_NAME];
    pen_dataset *ds;
    pen__text description;        /* what is answered to who asks for it */
    pen__sidecar *marks;          /* where parts of JPEG files begin, or NULL; has no lock */
    _Atomic uint64_t *hopeless;   /* a bit a sample: there are no marks to be had; or NULL */
    pthread_mutex_t *header_lock; /* the node's */
    uint8_t *headers; /* PEN__NODE_HEADER a sample, byte 7 is 1 once it is known; or NULL */
} pen__served;

/* ---- clients ---- */

typedef struct pen__client {
    uint8_t address[16];
    int n_peers;        /* connections */
    int n_open;         /* requests; threads may be at one whose connection is gone */
    int n_heavy;        /* of those, the ones that have a place among max_requests */
    int next;           /* in its chain, -1: last */
    double tokens;      /* requests it may make now */
    double visits;      /* connections it may make now */
    double cpu_s;       /* it may use now */
    double read_s;      /* the same for reading its orders, with a least rate of its own */
    int64_t filled_ns;  /* when these were right */
    int64_t held_bytes; /* of memory, by its answers */
    int64_t body_bytes; /* and by what it sends */
    pen__share_client share;
} pen__client;

typedef struct pen__clients {
    pen__client *all;
    int n, cap;
    int *heads, n_heads; /* chains by hash; a power of two */
} pen__clients;

int pen__clients_init(pen__clients *clients, int max_connections);
void pen__clients_fini(pen__clients *clients);
/* Has it fewer connections than a client may have, and not made too many just now?  Those cost a
 * handshake each, before it is known who asks. */
bool pen__clients_may_connect(pen__clients *clients, const struct sockaddr *address, int64_t now_ns,
                              const pen_node_opts *opts);
/* The account of an address, with one more connection and one visit less.  NULL: there are too
 * many. */
pen__client *pen__clients_enter(pen__clients *clients, const struct sockaddr *address,
                                int64_t now_ns, const pen_node_opts *opts);
void pen__clients_leave(pen__client *client);
/* May it make a request now?  Then one less is left. */
bool pen__client_may_ask(pen__client *client, int64_t now_ns, const pen_node_opts *opts);
/* May more be worked out for it? */
bool pen__client_may_pack(pen__client *client, int64_t now_ns, const pen_node_opts *opts);
/* The same of a block: a sample as it is stored, a page of the manifest. */
bool pen__client_may_have_block(pen__client *client, int64_t now_ns, const pen_node_opts *opts);
/* What that took.  It may leave a debt. */
void pen__client_used(pen__client *client, int64_t cpu_ns);
/* What was done for it in any case.  It leaves none: sending stored files for hours is to keep
 * nobody out for hours. */
void pen__client_took(pen__client *client, int64_t cpu_ns);
/* May an order or a pipeline of its be read?  That has books of its own: who has used all of its
 * time by packing still gets samples as they are stored, and must be able to ask for them. */
bool pen__client_may_be_read(pen__client *client, int64_t now_ns, const pen_node_opts *opts);
/* What that took.  It leaves a debt there, and a small one for packing. */
void pen__client_was_read(pen__client *client, int64_t cpu_ns, const pen_node_opts *opts);

/* ---- pipelines ---- */

typedef struct pen__pipelines {
    struct {
        pen_pipeline *pipe;
        uint64_t used;
        uint8_t owner[16]; /* the address that put it first */
    } all[PEN__NODE_PIPELINES];
    int n;
    uint64_t clock;
} pen__pipelines;

/* A new reference, or NULL. */
pen_pipeline *pen__pipelines_get(pen__pipelines *store, const char *hash);
/* Keep it (a reference of the store's own); where there is no place, the least recently used one
 * leaves: of the owner's where those are many, of all others otherwise.  True: new. */
bool pen__pipelines_put(pen__pipelines *store, pen_pipeline *pipe, const uint8_t owner[16]);
void pen__pipelines_fini(pen__pipelines *store);

/* ---- bytes on their way ---- */

typedef struct pen__chunk {
    struct pen__chunk *next;
    uint32_t from, to;
    uint8_t data[PEN__CHUNK_BYTES];
} pen__chunk;

/* Spare chunks: memory of answers is taken once and used again. */
typedef struct pen__chunks {
    pen__chunk *spare;
    int n_spare;
} pen__chunks;

typedef struct pen__queue {
    pen__chunk *first, *last;
    int64_t bytes;
} pen__queue;

/* Both guarded by node->lock.  Append all or nothing; PEN_ENOMEM. */
int pen__queue_put(pen__queue *queue, pen__chunks *chunks, const void *data, size_t len);
size_t pen__queue_take(pen__queue *queue, pen__chunks *chunks, void *dst, size_t cap);
void pen__queue_drop(pen__queue *queue, pen__chunks *chunks);
void pen__chunks_fini(pen__chunks *chunks); /* of those in queues, none */

/* Memory for files and what is made of them, in pages: what is large goes back to the system. */
typedef struct pen__room {
    uint8_t *data;
    size_t cap;
} pen__room;

/* Room for `len`; what was in it is lost.  PEN_ENOMEM. */
int pen__room_reserve(pen__room *room, size_t len);
/* Let go of what is larger than `keep`. */
void pen__room_trim(pen__room *room, size_t keep);
void pen__room_fini(pen__room *room);

/* `cpu_ns`: what it took to make the body. */
void pen__frame_write_head(uint8_t head[PEN__FRAME_HEAD], uint32_t index, int64_t id,
                           int32_t status, int64_t cpu_ns, const uint8_t *body, size_t len);

/* ---- how fast an answer is taken ---- */

/* Times in which there is nothing to send are rests, and do not count. */
typedef struct pen__pace {
    int64_t from_ns; /* when the stretch of time that is looked at began; rests put it off */
    int64_t bytes;   /* taken since then */
    int64_t rest_ns; /* since when it rests, or 0 */
} pen__pace;

void pen__pace_begin(pen__pace *pace, int64_t now_ns);
void pen__pace_rest(pen__pace *pace, int64_t now_ns);
void pen__pace_go_on(pen__pace *pace, int64_t now_ns);
/* Is a stretch of slow_s over in which less was taken than must be?  Then the next one begins, as
 * it does after one in which it was enough. */
bool pen__pace_is_slow(pen__pace *pace, int64_t now_ns, const pen_node_opts *opts);

/* ---- exchanges ---- */

typedef enum pen__phase {
    PEN__PHASE_RECEIVING, /* head and body of the request come in */
    PEN__PHASE_WAITING,   /* for a thread, suspended */
    PEN__PHASE_READY,     /* the thread is done, and the answer can be begun */
    PEN__PHASE_SENDING,
} pen__phase;

typedef struct pen__exchange {
    pen_node *node;
    struct pen__peer *peer; /* not once it is over */
    pen__client *client;
    struct MHD_Connection *connection;
    struct pen__exchange *next, *before; /* all of them */
    struct pen__exchange *next_job;      /* of those that wait for threads */
    bool is_queued, is_heavy, is_suspended;
    bool must_close; /* the connection, after the answer: nobody knows what follows on it */
    bool is_over;    /* the connection is gone: whoever holds it last frees it */
    int n_held;      /* threads at work on it */
    int64_t held_bytes;
    pen__phase phase;
    pen__route route;
    const char *refusal; /* decided early, told when the body is in: status and reason */
    unsigned refusal_status;
    uint32_t asked_sum; /* CRC-32C of the target and of as much of the body as is here */
    pen__served *served;
    /* the request's body */
    char *body; /* body_cap of it are held */
    size_t body_len, body_cap, n_discarded;
    /* one block as the answer: a sample, a page of the manifest */
    pen__room block;
    size_t block_len, block_from, block_to; /* of it, what is sent */
    char etag[PEN__ETAG_TEXT];
    pen__page_order page;
    int rc;
    pen_error err;
    /* or frames */
    pen__node_order *order;
    pen_pipeline *pipe;
    int next_item, n_framed;
    pen__job *job; /* whose it is; NULL until it is known */
    pen__queue queue;
    int64_t runnable_ns; /* since when a thread could have taken the next item */
    pen__pace pace;      /* of its client, while it is sent */
} pen__exchange;

/* Memory of answers, from before they are made until they are sent; guarded by node->lock.  Take
 * `bytes`, or give them back (less than 0). */
void pen__hold(pen__exchange *exchange, int64_t bytes);
/* Is there room for so many more?  All answers, with the bodies of requests, stay within the node's
 * memory, and those of one client within half of it: no more than that waits for somebody who does
 * not read.  Where nothing is held, there is always room, and nobody waits for ever. */
bool pen__may_hold(const pen__exchange *exchange, int64_t bytes);
/* The same of the body of a request.  They have a quarter of the memory at most, and those of one
 * client a sixteenth.  What the client's answers hold does not matter: who reads slowly may still
 * ask. */
void pen__hold_body(pen__exchange *exchange, int64_t bytes);
bool pen__may_hold_body(const pen__exchange *exchange, int64_t bytes);
/* The lock is held: let a thread look whether there is room by now. */
void pen__wake_short(pen_node *node);

/* A connection. */
typedef struct pen__peer {
    struct pen__peer *next, *before;
    pen__client *client;
    int fd;
    pen__exchange *exchange; /* the request that is under way, or NULL */
    int64_t touched_ns;      /* when it last came further */
    bool is_cut;
    bool has_many_arguments; /* the request that comes in */
    uint32_t target_sum;     /* of it */
} pen__peer;

/* What a thread is at. */
typedef struct pen__at_work {
    pen__exchange *exchange; /* or NULL */
    int64_t began_ns;
    pen__packer *packer;      /* this thread's alone */
    atomic_bool is_cancelled; /* nobody waits for it any more, or it takes too long; it is set with
                                 the lock, and looked at without */
} pen__at_work;

/* ---- counters ---- */

typedef struct pen__node_stats {
    int64_t requests[PEN__ROUTE_COUNT];
    int64_t responses[600];                          /* by status */
    int64_t items[PEN__FORM_COUNT], item_errors[16]; /* by -code */
    int64_t fields; /* of those items, the ones that are not images */
    int64_t frames; /* with samples, and blocks */
    int64_t raw_bytes, parcel_bytes, sent_bytes;
    int64_t pack_cpu_ns, block_cpu_ns, parse_cpu_ns, limited_items, late_items, cancelled_items;
    int64_t cut_connections, refused_connections, refused_tokens;
    int64_t index_made, index_hits; /* samples whose marks were found, or known */
} pen__node_stats;

struct pen_node {
    pen_node_opts opts;
    char *token, *tls_cert, *tls_key;
    pen__place place;
    char address[PEN__PLACE_TEXT];
    bool is_loopback;
    double quota_cpus;   /* that this process may use at all; may be less than one */
    pen__served *served; /* fixed once it runs */
    int n_served;

    int fd;
    struct MHD_Daemon *daemon;
    pen__pool *workers, *watcher, *saver;
    int64_t save_ns; /* from one writing of the index to the next */
    pen__gate cpu_gate;
    atomic_bool is_running;

    pthread_mutex_t header_lock; /* of all datasets' headers; others do not wait for it */
    pthread_mutex_t lock;
    pthread_cond_t work, quiet, tick; /* for threads; for who stops it; for watcher and saver */
    bool is_stopping;                 /* no new requests */
    bool is_closing;                  /* no more work; see the rules above */
    pen__exchange *exchanges, *jobs, **last_job;
    pen__peer *peers;
    pen__at_work *at_work; // (n_threads)
    int n_threads;
    int n_exchanges, n_heavy, n_peers, n_waiting_items;
    int64_t quiet_ns;    /* when the last heavy request ended, 0: that was seen to */
    int64_t held_bytes;  /* of memory, by all answers */
    int64_t body_bytes;  /* and by bodies of requests */
    bool is_short;       /* somebody waits for room */
    int64_t freed_bytes; /* since somebody was last woken for that */
    pen__clients clients;
    pen__share share;
    pen__sending sending;
    pen__pipelines pipelines;
    pen__chunks chunks;
    pen__node_stats stats;
};

/* ---- node_http.c ---- */

void pen__node_call_start(void *node);
void pen__node_call_quiesce(void *node);
void pen__node_call_stop(void *node);

/* Under the lock: may who suspended it be resumed?  Clears `is_suspended`; the caller resumes the
 * connection that comes back, if any, without the lock. */
struct MHD_Connection *pen__exchange_wake(pen__exchange *exchange);
/* The lock is held; frees it if it is over and nobody holds it. */
void pen__exchange_settle(pen__exchange *exchange);

/* ---- node_peers.c: called by libmicrohttpd ---- */

enum MHD_Result pen__peer_may_connect(void *node, const struct sockaddr *address, socklen_t len);
void pen__peer_came_or_went(void *node, struct MHD_Connection *connection, void **own,
                            enum MHD_ConnectionNotificationCode code);

/* ---- node_head.c ---- */

/* Why a request is none, going by its headers; NULL: it is one. */
const char *pen__head_fault(struct MHD_Connection *connection);
/* Called by libmicrohttpd before it reads the arguments.  The peer gets the checksum of the target;
 * if there are too many arguments, it is marked and they are gone.  Returns NULL. */
void *pen__head_see_target(void *ctx, const char *uri, struct MHD_Connection *connection);

/* ---- node_work.c ---- */

/* Under the lock: it is a request of a job. */
void pen__work_join(pen_node *node, pen__exchange *exchange);
/* What there is to share out: no more than the system lets us have. */
pen__share_limits pen__work_limits(const pen_node *node);
/* Under the lock: let threads work for it. */
void pen__work_enqueue(pen_node *node, pen__exchange *exchange);
void pen__work_dequeue(pen_node *node, pen__exchange *exchange);
/* Under the lock: answer every item that no thread has begun with an error. */
void pen__work_give_up(pen_node *node, pen__exchange *exchange, int code, const char *why);
/* Under the lock: what is under way for it, or for all (NULL), shall end soon. */
void pen__work_cancel(pen_node *node, const pen__exchange *exchange);
/* What threads work with, before there are any: one that finds no memory for it would be none.
 * PEN_ENOMEM.  The end takes what there is. */
int pen__work_init(pen_node *node, int n_threads);
void pen__work_fini(pen_node *node);
void pen__work_run(void *node, int index); /* a thread */

/* ---- node_watch.c ---- */

void pen__watch_run(void *node, int index); /* a thread */
/* The lock is held, and free meanwhile: wait for so long, or until the node is closing. */
void pen__watch_wait(pen_node *node, int64_t ns);

/* ---- node_index.c ---- */

/* Before the node runs.  Where there is no cache directory, or it is not wanted, there is no
 * index. */
void pen__index_open(pen__served *served);
void pen__index_close(pen__served *served);
/* Shall the marks of a sample's file be looked for?  Any thread. */
bool pen__index_wants(const pen__served *served, int64_t id);
/* A sample for which that is so was packed.  Any thread. */
void pen__index_keep(pen__served *served, int64_t id, const pen__jpeg_indexed *found);
int64_t pen__index_count(const pen_node *node); /* entries of all datasets */
/* Write what is new, if it is worth it.  The lock is not held; one thread at a time. */
void pen__index_save(pen_node *node);
void pen__index_run(void *node, int index); /* a thread */

/* ---- node_answer.c ---- */

enum MHD_Result pen__answer_error(pen__exchange *exchange, unsigned status, const char *why);
enum MHD_Result pen__answer_text(pen__exchange *exchange, unsigned status, const char *type,
                                 pen__text *text);
/* Begin an answer: count it, set what all answers have, let the response go. */
enum MHD_Result pen__answer_with(pen__exchange *exchange, unsigned status,
                                 struct MHD_Response *response, const char *type);
enum MHD_Result pen__answer_root(pen__exchange *exchange);
/* Write its description, once and for all; PEN_ENOMEM; PEN_ELIMIT: no client would take it. */
int pen__served_describe(pen__served *served, pen_error *err);
enum MHD_Result pen__answer_dataset(pen__exchange *exchange);
enum MHD_Result pen__answer_block(pen__exchange *exchange);
enum MHD_Result pen__answer_frames(pen__exchange *exchange);
pen__served *pen__node_find(const pen_node *node, const char *name);

/* ---- node_manifest.c ---- */

/* Read a sample's image, or another field, as it is stored; its length or a PEN_E*, with the
 * sample's key in the reason.  PEN_ENOTFOUND: it has no such field. */
int64_t pen__served_read(const pen_node *node, const pen__served *served, int64_t id,
                         pen_field field, pen__room *file, pen_error *err);
uint64_t pen__manifest_pages(const pen_dataset *ds);
/* One page; its length or a PEN_E*.  Once `cancel` is true no more files are read for it. */
int64_t pen__manifest_write(const pen_node *node, pen__served *served, const pen__page_order *page,
                            const atomic_bool *cancel, pen__room *file, pen__room *out,
                            pen_error *err);
/* A sample was packed: remember what the parcel's head says of the image. */
void pen__served_note(pen__served *served, int64_t id, const uint8_t *parcel, size_t len);

/* ---- node_metrics.c ---- */

/* Takes the lock. */
int pen__node_metrics_write(pen_node *node, pen__text *text);

#endif
