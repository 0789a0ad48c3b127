/* remote_courier_impl.h - a courier from inside: remote_courier.c is for those who ask,
 * remote_rounds.c is the thread. */
#ifndef PEN_REMOTE_REMOTE_COURIER_IMPL_H
#define PEN_REMOTE_REMOTE_COURIER_IMPL_H

#include <pthread.h>
#include <sys/types.h>

#include "remote/remote_courier.h"
#include "remote/remote_pick.h"
#include "sched/pool.h"

#define PEN__REQUESTS_PER_SERVER 4
#define PEN__MS_NS               INT64_C(1000000)

typedef struct shard_state {
    const pen__identity *identity;
    uint64_t servers;    /* 1 << number of each of them */
    int64_t progress_ns; /* when a sample came last */
    int n_sent;          /* calls in requests */
} shard_state;

struct pen__courier {
    pthread_mutex_t lock; /* guards what follows, and each call's is_done */
    pen__calls incoming;
    pen__told told;
    struct {
        char pipeline[PEN__DIGEST_TEXT]; /* that it is about */
        char text[PEN__SERVER_CAUSE + PEN__REMOTE_LABEL + 80];
    } warning; /* text: "" if there is none, or it was fetched */
    bool is_closing;
    pen__pool *thread; /* NULL until the first call */
    /* fixed */
    pthread_condattr_t monotonic;
    CURLM *multi;
    pen__http http;
    pen__remote_route route;
    pen__target target;
    pid_t pid;
    pen__request_owner owner;
    int64_t max_pause_ns;
    /* the thread's alone */
    pen__calls waiting; /* oldest first */
    pen__picker picker;
    shard_state shards[PEN__REMOTE_MAX_SERVERS];
    pen__server servers[PEN__REMOTE_MAX_SERVERS];
    int n_requests;
    pen__request *requests; /* servers * PEN__REQUESTS_PER_SERVER */
    int64_t look_ns;        /* when to look for late and cancelled calls again */
    uint64_t chance_key;
    uint32_t n_chances;
};

/* The thread, until is_closing. */
void pen__courier_work(void *courier, int index);
/* Whom requests tell what came. */
pen__request_owner pen__courier_owner(pen__courier *courier);
/* Give up what is under way, once the thread has ended. */
void pen__courier_end_requests(pen__courier *courier);
/* Jitter must differ between clients, and is no part of any stream. */
uint32_t pen__courier_chance(pen__courier *courier);

#endif
