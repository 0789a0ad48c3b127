/* remote_request.h - one HTTP request to one server: samples, a pipeline, or what it holds.
 *
 * Nothing an answer says is believed before it is checked: a frame must belong to an item that was
 * asked for and has no answer yet, fit in the caller's room, and have the right checksum.
 */
#ifndef PEN_REMOTE_REMOTE_REQUEST_H
#define PEN_REMOTE_REMOTE_REQUEST_H

#include "base/digest.h"
#include "remote/remote_call.h"
#include "remote/remote_frames.h"
#include "remote/remote_http.h"
#include "remote/remote_server.h"
#include "remote/remote_told.h"

enum { PEN__REQUEST_ITEMS = 64, PEN__REQUEST_URL = PEN__REMOTE_LABEL + PEN__REMOTE_NAME + 64 };

typedef enum pen__request_kind {
    PEN__REQUEST_CHECK,   /* what do you hold? */
    PEN__REQUEST_PUT,     /* know this pipeline */
    PEN__REQUEST_SAMPLES, /* send these */
} pen__request_kind;

typedef enum pen__outcome {
    PEN__OUTCOME_DID,
    PEN__OUTCOME_FAILED,         /* the server's or the network's fault: ask again, or elsewhere */
    PEN__OUTCOME_LACKS_PIPELINE, /* put it, then ask again */
    PEN__OUTCOME_REFUSES_PIPELINE,
    PEN__OUTCOME_REFUSED, /* asking again would not help */
} pen__outcome;

/* Who gets the calls back.  Both are called while the request is under way. */
typedef struct pen__request_owner {
    void (*answered)(void *ctx, pen__call *call); /* call->result is set */
    /* The server answered, and the answer is no good: call->err says why.  Ask again. */
    void (*returned)(void *ctx, pen__call *call);
    void *ctx;
} pen__request_owner;

typedef struct pen__item {
    pen__call *call; /* NULL: it has left, or has its answer */
    uint32_t id;
    bool is_answered;
} pen__item;

typedef struct pen__request {
    CURL *easy; /* made when it is first needed */
    pen__server *server;
    pen__request_kind kind;
    const pen__request_owner *owner;
    bool is_busy;
    bool has_pipeline;
    uint64_t job;        /* of the samples */
    double cores;        /* that the server says it may use; NaN: it did not say */
    int n_items, n_open; /* open: without an answer */
    pen__item items[PEN__REQUEST_ITEMS];
    int64_t moved_ns; /* when a byte came last */
    long status;
    pen__frames frames;
    pen_error fault;   /* of the answer's contents */
    pen__text body;    /* what is sent */
    pen__text answer;  /* what comes, unless it is frames */
    size_t answer_cap; /* the rest is dropped */
    char url[PEN__REQUEST_URL];
    char reason[CURL_ERROR_SIZE];
} pen__request;

void pen__request_fini(pen__request *request);

/* What all requests to a dataset's servers share. */
typedef struct pen__target {
    const pen__http *http;
    const char *scheme; /* "http", "https" */
    const char *name;   /* of the dataset */
    uint64_t owner;     /* a number for who asks, to tell its jobs by */
} pen__target;

/* Each prepares request->easy for the server.  PEN_ENOMEM: nothing has happened. */
int pen__request_check(pen__request *request, const pen__target *target, pen__server *server);
int pen__request_put(pen__request *request, const pen__target *target, pen__server *server);
/* The calls, 1 to PEN__REQUEST_ITEMS, must agree in whether they have a pipeline and, if so, in
 * pipeline and seed.  hash: of the dataset.  On success they are the request's. */
int pen__request_samples(pen__request *request, const pen__target *target, pen__server *server,
                         pen__call *const *calls, int n, bool has_pipeline, const char *hash);

/* Take the next bytes of an answer that is frames.  0, or PEN_ECORRUPT: it is no good any more. */
int pen__request_feed(pen__request *request, const uint8_t *bytes, size_t n);

/* The transfer ended with `code`.  What came of it; `cause` gets words, *again_ns when the server
 * wants to be asked again, or -1. */
pen__outcome pen__request_judge(pen__request *request, CURLcode code, const char *hash, char *cause,
                                size_t cause_cap, int64_t *again_ns);

/* The call leaves, whatever still comes for it. */
void pen__request_forget(pen__request *request, const pen__call *call);

#endif
