/* metrics.h - a running loader as seen from outside: OpenMetrics, JSON, an address.
 *
 *     opts.metrics = "127.0.0.1:9464";              GET /metrics, GET /status.json
 *
 * or, without a server, the same texts into a buffer:
 *
 *     static char text[PEN_METRICS_MAX];
 *     int64_t n = pen_loader_metrics(loader, text, sizeof text);
 *
 * docs/watching.md has every name and what `penstock top` makes of it.
 */
#ifndef PENSTOCK_METRICS_H
#define PENSTOCK_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>
#include <penstock/loader.h>

/* More than either text of one loader takes. */
#define PEN_METRICS_MAX 65536

/* All statistics as OpenMetrics text 1.0, which ends with "# EOF".  NUL-terminated; the length,
 * PEN_ENOSPC, PEN_ENOMEM or PEN_EFORK.  From any thread. */
PEN_API int64_t pen_loader_metrics(const pen_loader *loader, char *dst, size_t dst_cap);

/* Statistics, knobs with ranges, policy, reasons, verdict and recent decisions as one JSON
 * object.  The same results. */
PEN_API int64_t pen_loader_status(const pen_loader *loader, char *dst, size_t dst_cap);

/* Where the loader answers, "127.0.0.1:9464"; "" if it was not asked to.  Its length or
 * PEN_ENOSPC. */
PEN_API int64_t pen_loader_address(const pen_loader *loader, char *dst, size_t dst_cap);

#endif
