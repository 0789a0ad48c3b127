/* remote_courier.h - the one thread that speaks with a dataset's servers.
 *
 * Any number of threads ask for a sample each and wait; the courier turns what is waiting into few
 * requests over a few connections to each server, and wakes each caller as its sample is
 * complete.  What fails is asked for again, elsewhere or later, until the caller's time is up.
 *
 * The thread begins with the first call and ends with the courier.
 */
#ifndef PEN_REMOTE_REMOTE_COURIER_H
#define PEN_REMOTE_REMOTE_COURIER_H

#include "remote/remote_request.h"

typedef struct pen__courier pen__courier;

/* Where samples come from. */
typedef struct pen__remote_route {
    pen__remote_url url;
    bool is_checked[PEN__REMOTE_MAX_SERVERS];          /* holds the right dataset, for sure */
    pen__identity identities[PEN__REMOTE_MAX_SERVERS]; /* of each shard */
    size_t max_description[PEN__REMOTE_MAX_SERVERS];   /* of each shard, in bytes */
    int64_t max_bytes; /* of memory, for all that is kept of descriptions and manifests */
} pen__remote_route;

/* `http` is taken over, also on failure.  PEN_ENOMEM. */
int pen__courier_create(pen__courier **out, const pen__remote_route *route, pen__http *http,
                        pen_error *err);
/* Memory that it takes while nobody is waiting. */
size_t pen__courier_bytes(const pen__courier *courier);
/* Nobody may be waiting.  NULL is legal; in a forked child, nothing happens. */
void pen__courier_free(pen__courier *courier);

/* Bring a sample: fill the first part of `call`, the rest zero.  Blocks.  Returns the length of the
 * parcel; PEN_ECANCELED, PEN_EFORK in a forked child, PEN_EIO when time was up or all servers said
 * no, whatever they said. */
int64_t pen__courier_bring(pen__courier *courier, pen__call *call, pen_error *err);

/* The same for many at once, which go out together; 0, or the error of the first that failed, after
 * which others may be left out.  Each call's `result` says what came of it. */
int pen__courier_bring_all(pen__courier *courier, pen__call *calls, int n, pen_error *err);

/* What users of this pipeline should know, each but once: a line in dst, or "".  Any thread. */
void pen__courier_warning(pen__courier *courier, const pen_pipeline *pipe, char *dst,
                          size_t dst_cap);

/* Cores that servers say samples for this pipeline may use there; NaN: not known.  Any thread. */
double pen__courier_cores(pen__courier *courier, const pen_pipeline *pipe);

#endif
