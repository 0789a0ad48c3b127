/* node.h - a storage node: serves datasets to loaders elsewhere, each sample in its smallest form.
 *
 *     pen_node_opts opts;
 *     pen_node_opts_init(&opts);
 *     opts.listen = "127.0.0.1:7470";
 *     pen_node_create(&node, &opts, &err);
 *     pen_node_add(node, NULL, "photos/", NULL, &err);
 *     pen_node_start(node, &err);
 *     ...
 *     pen_node_free(node);
 *
 * `penstock serve` is this and little else; docs/protocol.md has what it speaks.
 */
#ifndef PENSTOCK_NODE_H
#define PENSTOCK_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/dataset.h>
#include <penstock/error.h>

#define PEN_NODE_PORT 7470

typedef struct pen_node pen_node;

/* Limits keep one client from taking what others need.  A client is an address (of IPv6 the first
 * 64 bits). */
typedef struct pen_node_opts {
    size_t struct_size;    /* set by pen_node_opts_init */
    const char *listen;    /* "127.0.0.1:7470", "[::]:7470"; port 0: any that is free */
    int cpus;              /* threads that decode and pack at once; 0: as many as there are cores */
    const char *token;     /* what clients must know; NULL: nothing */
    const char *tls_cert;  /* certificate chain and key, as PEM text; NULL: no TLS */
    const char *tls_key;   /* never without the other */
    int64_t memory_bytes;  /* answers that are made or wait for their clients, at most; half of it
                              for one client */
    int64_t buffer_bytes;  /* of that, for one request */
    int max_connections;   /* in all */
    int max_per_client;    /* connections of one client; 0: a quarter of all */
    int max_requests;      /* that are worked on or answered at once; more are told 503.  Who has a
                              quarter of them gets more only while a quarter is free */
    int max_header_bytes;  /* of a request, all lines together */
    double requests_per_s; /* of one client, ten seconds' worth at once; more are told 429.
                              Not those for /healthz */
    double cpus_per_client; /* what packing for one client may take while it lasts, in cores; its
                               further samples go out as they are stored, and single samples and
                               pages of the manifest are told 503.  0: no limit */
    double idle_s;          /* a connection may be without a request, or take to send one */
    double slow_s;          /* a client may take to accept the next piece of an answer */
    double item_s;          /* a sample may wait for a thread: then it is an error, to try again;
                               and take it: then the smallest form found by then goes out.
                               Clients take 10 s without a byte for a fault: stay below half */
    int32_t use_index;      /* default 1: keep in the cache directory where parts of JPEG files
                               begin, which makes cutting them quicker and changes no byte.  0: do
                               not.  PENSTOCK_INDEX=off in the environment does the same */
    int64_t slowest_bytes_per_s; /* that a client may take an answer at, on average over slow_s in
                                    which there was something to take */
} pen_node_opts;

PEN_API void pen_node_opts_init(pen_node_opts *opts);

/* Nothing listens yet.  PEN_EINVAL: an option out of range; or an address beyond loopback without
 * token or TLS.  What `opts` points to may go afterwards.  On success the caller owns *out. */
PEN_API int pen_node_create(pen_node **out, const pen_node_opts *opts, pen_error *err);
/* Serve what pen_dataset_open opens, before the node is started; but not what another node serves,
 * which is PEN_EINVAL and not even asked for.  Nothing outside of it is ever read: links that lead
 * out of a directory are left out, those that become such later are refused.  name: 1 to 64 of
 * A-Z a-z 0-9 . _ -, or NULL: the last part of the path, without .tar or .pen.  `opts` may be NULL.
 * PEN_ELIMIT: names of classes of more bytes than clients take. */
PEN_API int pen_node_add(pen_node *node, const char *name, const char *spec,
                         const pen_dataset_opts *opts, pen_error *err);
/* How many links were left out of what was added. */
PEN_API int64_t pen_node_left_out(const pen_node *node);
PEN_API int pen_node_start(pen_node *node, pen_error *err);
/* Where it listens, as text in `dst`; its length (0 before the start), or PEN_ENOSPC. */
PEN_API int64_t pen_node_address(const pen_node *node, char *dst, size_t dst_cap);
/* False once it was stopped, or cannot go on: then stop it and look for another. */
PEN_API bool pen_node_is_running(const pen_node *node);
/* Accept nothing more, let what is under way go on for up to grace_s, cut off the rest, wait for
 * all threads to end, and write the index if much of it is new.  Does nothing where nothing was
 * started. */
PEN_API void pen_node_stop(pen_node *node, double grace_s);
/* Stops without grace where that was not done.  NULL is legal. */
PEN_API void pen_node_free(pen_node *node);

#endif
