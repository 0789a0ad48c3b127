/* remote_call.h - one sample, or a field of one, that somebody waits for.
 *
 * A call lives on its caller's stack.  From the moment it is handed to the courier until that says
 * it is done, the courier's thread alone touches it and what it points to; it leaves only when the
 * thread lets it go.  So data can be written straight to where it is wanted, without a lock.
 */
#ifndef PEN_REMOTE_REMOTE_CALL_H
#define PEN_REMOTE_REMOTE_CALL_H

#include <pthread.h>
#include <stdatomic.h>

#include <penstock/pipeline.h>

#include "source/source.h"

enum { PEN__CALL_REFUSALS = 400 };

typedef struct pen__call {
    /* what is wanted */
    int shard;
    uint32_t id;     /* within the shard */
    pen_field field; /* beside the image: then there is no pipeline, and the choice is of forms */
    const pen_pipeline *pipe;
    pen_key key;
    pen__choice choice;
    size_t raw_len;
    uint8_t *dst;
    size_t cap;
    uint8_t *head; /* not NULL: the parcel's head goes here, and only its payload to dst; a field's
                      always does (engine/field_parcel.h) */
    const atomic_bool *cancel;
    int (*waiting)(void *ctx); /* or NULL; asked now and then in the caller's thread: go on? */
    void *waiting_ctx;
    /* the thread's */
    struct pen__call *prev, *next;
    int64_t asked_ns, not_before_ns;
    int n_tries;                       /* that failed */
    int n_denied;                      /* of those, the ones that were answered by a no */
    const struct pen__server *blamed;  /* for the last of them, by err; or NULL */
    uint64_t refused_by;               /* 1 << number of each server that will not send it */
    char refusals[PEN__CALL_REFUSALS]; /* their reasons */
    /* the answer */
    int64_t result;
    int64_t node_ns; /* of the server's processor */
    pen_error err;   /* before it is done: why the last try failed */
    bool is_done;    /* guarded by the courier's lock */
    atomic_bool is_unwanted;
    pthread_cond_t done;
} pen__call;

/* A queue; zero-initialise. */
typedef struct pen__calls {
    pen__call *first, *last;
    int n;
} pen__calls;

/* Put `call` in front of `place`; NULL: at the end. */
static inline void pen__calls_put(pen__calls *calls, pen__call *call, pen__call *place)
{
    call->next = place;
    call->prev = place ? place->prev : calls->last;
    *(call->prev ? &call->prev->next : &calls->first) = call;
    *(place ? &place->prev : &calls->last) = call;
    calls->n++;
}

static inline void pen__calls_take(pen__calls *calls, pen__call *call)
{
    *(call->prev ? &call->prev->next : &calls->first) = call->next;
    *(call->next ? &call->next->prev : &calls->last) = call->prev;
    call->prev = call->next = NULL;
    calls->n--;
}

#endif
