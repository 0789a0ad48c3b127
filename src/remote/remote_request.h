/* remote_request.h - one HTTP request to one server: samples, a pipeline, or what it holds.
 *
 * Nothing an answer says is believed before it is checked: it must be the answer to what was asked
 * (remote_asked.h), and a frame must belong to an item that was asked for and has no answer yet,
 * fit in the caller's room, and have the right checksum.
 */
#ifndef PEN_REMOTE_REMOTE_REQUEST_H
#define PEN_REMOTE_REMOTE_REQUEST_H

#include "base/digest.h"
#include "remote/remote_asked.h"
#include "remote/remote_call.h"
#include "remote/remote_frames.h"
#include "remote/remote_http.h"
#include "remote/remote_part.h"
#include "remote/remote_server.h"
#include "remote/remote_told.h"

/* A request asks for up to 64 images, which are large, or for up to 256 fields. */
enum {
    PEN__REQUEST_IMAGES = 64,
    PEN__REQUEST_ITEMS = 256,
    PEN__REQUEST_URL = PEN__REMOTE_LABEL + PEN__REMOTE_NAME + 64,
};

typedef enum pen__request_kind {
    PEN__REQUEST_CHECK,   /* what do you hold? */
    PEN__REQUEST_PUT,     /* know this pipeline */
    PEN__REQUEST_SAMPLES, /* send these */
} pen__request_kind;

typedef enum pen__outcome {
    PEN__OUTCOME_DID,
    PEN__OUTCOME_FAILED,         /* the server's or the network's fault: ask again, or elsewhere */
    PEN__OUTCOME_LACKS_PIPELINE, /* put it, then ask again */
    PEN__OUTCOME_FORGETS_PIPELINE, /* it was put, and is not there */
    PEN__OUTCOME_REFUSES_PIPELINE,
    PEN__OUTCOME_DENIED,  /* a no that may come of damage on the way: ask again, a few times */
    PEN__OUTCOME_REFUSED, /* asking again would not help */
} pen__outcome;

/* Who gets the calls back.  Both are called while the request is under way. */
typedef struct pen__request_owner {
    void (*answered)(void *ctx, pen__call *call); /* call->result is set */
    /* The server answered, and the answer is no good: call->err says why.  Ask again, or, if
     * is_final, not this server. */
    void (*returned)(void *ctx, pen__call *call, const pen__server *server, bool is_final);
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
    uint64_t job;                    /* of the samples */
    double cores;                    /* that the server says it may use; NaN: it did not say */
    char pipeline[PEN__DIGEST_TEXT]; /* hash of the one it is about; "": none */
    bool is_fields;                  /* its items are, all of them */
    int n_items, n_open;             /* open: without an answer */
    pen__item items[PEN__REQUEST_ITEMS];
    int64_t began_ns, moved_ns; /* moved: when a byte came last */
    int64_t n_bytes;            /* that came */
    long status;
    pen__asked asked;
    pen__frames frames;
    pen_error fault;   /* of the answer's contents */
    pen__text body;    /* what is sent */
    pen__text answer;  /* what comes, unless it is frames */
    size_t answer_cap; /* where it is cut off, and the transfer with it */
    bool is_cut;
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

/* Each prepares request->easy for the server.  PEN_ENOMEM: nothing has happened.  max_bytes: how
 * long a description may be. */
int pen__request_check(pen__request *request, const pen__target *target, pen__server *server,
                       size_t max_bytes);
int pen__request_put(pen__request *request, const pen__target *target, pen__server *server);
/* The calls, 1 to PEN__REQUEST_ITEMS, must agree in whether they are fields and whether they have a
 * pipeline and, if so, in pipeline and seed.  hash: of the dataset.  On success they are the
 * request's. */
int pen__request_samples(pen__request *request, const pen__target *target, pen__server *server,
                         pen__call *const *calls, int n, bool has_pipeline, const char *hash);

/* Take the next bytes of an answer that is frames.  0, or PEN_ECORRUPT: it is no good any more. */
int pen__request_feed(pen__request *request, const uint8_t *bytes, size_t n);

/* The transfer ended with `code`.  What came of it; a server that was asked what it holds should
 * hold `identity`.  `cause` gets words, *again_ns when the server wants to be asked again, or -1.
 */
pen__outcome pen__request_judge(pen__request *request, CURLcode code, const pen__identity *identity,
                                char *cause, size_t cause_cap, int64_t *again_ns);

/* How fast it brings its samples, or brought them. */
pen__server_pace pen__request_pace(const pen__request *request, int64_t now_ns);

/* Is there no use in waiting for it, as too little came for too long?  Then `cause` says so. */
bool pen__request_is_stuck(const pen__request *request, const pen__http *http, int64_t now_ns,
                           char *cause, size_t cause_cap);

/* The call leaves, whatever still comes for it. */
void pen__request_forget(pen__request *request, const pen__call *call);

#endif
