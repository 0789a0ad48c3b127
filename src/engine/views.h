/* views.h - loaders as text for others: metrics.c (OpenMetrics), status.c (JSON), and the
 * server that hands both out (serve.c).
 */
#ifndef PEN_ENGINE_VIEWS_H
#define PEN_ENGINE_VIEWS_H

#include <penstock/error.h>
#include <penstock/loader.h>
#include <penstock/stats.h>

#include "base/text.h"
#include "engine/guest.h"

/* All that is counted, at one moment. */
typedef struct pen__snapshot {
    pen_loader_stats totals;
    pen_pipeline_stats pipe;
} pen__snapshot;

/* PEN_EFORK. */
int pen__snapshot_take(const pen_loader *loader, pen__snapshot *out);

/* OpenMetrics of n loaders: one document, a label `loader` on every line.  PEN_ENOMEM,
 * PEN_EFORK. */
int pen__metrics_write(const pen_loader *const *loaders, int n, pen__text *text);

/* One loader as a JSON object.  PEN_EFORK. */
int pen__status_write(const pen_loader *loader, pen__text *text);
/* What /status.json is: {"v", "pid", "version", "loaders": [...]}, guests after the others. */
int pen__status_write_all(const pen_loader *const *loaders, int n, const pen_guest *guests,
                          pen__text *text);

/* A number of JSON: null for what is not one. */
void pen__text_add_number(pen__text *text, double value);

/* Move a text into a caller's buffer, and end it.  Its length, PEN_ENOSPC or PEN_ENOMEM. */
int64_t pen__text_move(pen__text *text, char *dst, size_t dst_cap);

/* ---- serve_knobs.c ---- */

struct MHD_Connection;
/* Turn knobs of one of these loaders or guests as a request says: PEN_EINVAL or PEN_ENOTFOUND with
 * the reason, or what pen_loader_set_knobs and pen__guest_wish give. */
int pen__serve_turn(struct MHD_Connection *connection, const pen_loader *const *loaders, int n,
                    pen_guest *guests, pen_error *err);

/* ---- serve.c ---- */

/* Answer at an address: "HOST:PORT", NULL for what PENSTOCK_METRICS says, "off" for nowhere.
 * PEN_EINVAL for what is no address, PEN_EIO if the system refuses, PEN_ENOMEM; what the
 * environment says and cannot be had is no error. */
int pen__serve_begin(pen_loader *loader, const char *address, pen_error *err);
/* Answer on the process's local socket as well, for `penstock top PID`.  It is an extra: where
 * it cannot be had, nothing is said. */
void pen__serve_locally(pen_loader *loader);
/* Nobody sees the loader any more when this returns. */
void pen__serve_end(pen_loader *loader);

#endif
