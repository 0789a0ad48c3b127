/* node_request.h - what a client of a storage node asks for, taken apart.
 *
 * Everything here is text from a stranger.  Nothing is trusted, nothing is read past its end, and
 * nothing has an effect: what comes out are numbers within their ranges, and names of harmless
 * characters.  docs/protocol.md tells the rest.
 */
#ifndef PEN_REMOTE_NODE_REQUEST_H
#define PEN_REMOTE_NODE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/dataset.h>

#include "base/digest.h"

enum {
    PEN__NODE_NAME = 65, /* of a dataset, with its NUL */
    PEN__NODE_MAX_ITEMS = 256,
    PEN__NODE_MAX_BODY = 64 * 1024,
};

typedef enum pen__route_kind {
    PEN__ROUTE_NONE = 0,
    PEN__ROUTE_HEALTH,   /* /healthz */
    PEN__ROUTE_METRICS,  /* /metrics */
    PEN__ROUTE_ROOT,     /* /v1 */
    PEN__ROUTE_DATASET,  /* /v1/data/NAME */
    PEN__ROUTE_MANIFEST, /* /v1/data/NAME/manifest */
    PEN__ROUTE_SAMPLES,  /* /v1/data/NAME/samples */
    PEN__ROUTE_SAMPLE,   /* /v1/data/NAME/samples/ID, /v1/data/NAME/samples/ID/FIELD */
    PEN__ROUTE_PIPELINE, /* /v1/pipelines/HASH */
    PEN__ROUTE_COUNT
} pen__route_kind;

typedef struct pen__route {
    pen__route_kind kind;
    char name[PEN__NODE_NAME];
    char hash[PEN__DIGEST_TEXT];
    int64_t id;
    pen_field field; /* of the sample; without one, its image */
} pen__route;

/* Take a path apart, which has no query any more.  PEN__ROUTE_NONE: nothing of ours. */
pen__route_kind pen__route_parse(const char *path, pen__route *out);

/* 1 to 64 of A-Z a-z 0-9 . _ - and not "." or "..". */
bool pen__node_name_is_valid(const char *name);
/* 32 digits of 0-9 a-f. */
bool pen__hash_is_valid(const char *text);
/* A decimal number up to `max`, and nothing else around it; no sign, at most 20 digits. */
bool pen__decimal_parse(const char *text, uint64_t max, uint64_t *out);

typedef enum pen__range_kind {
    PEN__RANGE_WHOLE, /* none, several, or what is no range: as if it were not there */
    PEN__RANGE_PART,
    PEN__RANGE_OUTSIDE, /* nothing of it is there */
} pen__range_kind;

/* "bytes=0-99", "bytes=100-", "bytes=-100" of `length` bytes: [*from, *to).  `text` may be NULL. */
pen__range_kind pen__range_parse(const char *text, uint64_t length, uint64_t *from, uint64_t *to);

/* Does If-None-Match name this tag (which has its quotes), or "*"?  `header` may be NULL. */
bool pen__etag_is_in(const char *header, const char *etag);
/* Does Accept-Encoding name zstd, with a weight that is not 0?  `header` may be NULL. */
bool pen__accepts_zstd(const char *header);
/* Is an Authorization header "Bearer TOKEN" with this token?  Takes as long for any token of its
 * length.  `header` may be NULL. */
bool pen__token_is_right(const char *header, const char *token);

/* What is wanted of one sample: its image or, with `id` and `forms` alone, another field. */
typedef struct pen__node_item {
    pen_field field;
    int64_t id, epoch;
    int32_t occurrence;
    int32_t max_cut;
    uint32_t forms;
} pen__node_item;

/* The body of POST /v1/data/NAME/samples. */
typedef struct pen__node_order {
    char pipeline[PEN__DIGEST_TEXT]; /* "": none */
    char dataset[PEN__DIGEST_TEXT];  /* "": not told */
    uint64_t seed;
    uint64_t job; /* a number of the client's own for who asks; 0: not told */
    int64_t base; /* keys are of sample id + base, below 2^40: this node has a part of a dataset */
    int n_items;  /* 1 to PEN__NODE_MAX_ITEMS */
    pen__node_item items[PEN__NODE_MAX_ITEMS];
} pen__node_order;

/* PEN_EINVAL: no such body; PEN_ELIMIT: longer than PEN__NODE_MAX_BODY, or too many items. */
int pen__node_order_parse(pen__node_order *out, const char *text, size_t len, pen_error *err);

#endif
