/* remote_open.h - learning what a remote dataset holds. */
#ifndef PEN_REMOTE_REMOTE_OPEN_H
#define PEN_REMOTE_REMOTE_OPEN_H

#include "remote/remote_courier.h"
#include "source/source.h"

/* Ask the servers of route->url for descriptions and manifests; fill ds->index and ds->classes, and
 * what route says of shards and servers.  Runs in the caller's thread.
 *
 * A shard needs one server that answers; those that do not are looked at again when they are
 * needed.  One that answers otherwise than the others is an error at once, and so is an answer that
 * waiting would not change.  Where nobody answers, or something fails later, it is tried again for
 * http->timeout_ns.  What is kept takes up to route->max_bytes, of several shards twice as much
 * while they are joined; beyond: PEN_ELIMIT. */
int pen__remote_fill(pen_dataset *ds, pen__remote_route *route, const pen__http *http,
                     const pen_dataset_opts *opts, pen_error *err);

#endif
