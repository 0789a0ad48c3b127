/* trace.h - what each thread of a loader did when, as a Chrome or Perfetto trace.
 *
 *     pen_loader_trace_start(loader, 0, &err);
 *     ... some seconds later, from any thread:
 *     pen_loader_trace_stop(loader, "loader.json", &err);      for ui.perfetto.dev
 *
 * Spans of a sample (and in it reading, decoding, augmenting, writing), of mixing, and of the
 * caller's waits, on the thread they happened; batches from their first claim to their last
 * sample beside them.  docs/watching.md has the names.
 */
#ifndef PENSTOCK_TRACE_H
#define PENSTOCK_TRACE_H

#include <stdint.h>

#include <penstock/error.h>
#include <penstock/loader.h>

#define PEN_TRACE_SPANS     200000   /* the default; a sample takes 5 */
#define PEN_TRACE_MAX_SPANS 10000000 /* 48 bytes each, beside the memory budget */

/* Begin to note spans, `max_spans` of them (0: the default) and then no more.  PEN_EINVAL if
 * that is going on already, PEN_ENOMEM, PEN_EFORK. */
PEN_API int pen_loader_trace_start(pen_loader *loader, int64_t max_spans, pen_error *err);
/* End it and write the file, or no file (NULL).  The number of spans; PEN_EINVAL if none was
 * begun, PEN_EIO, PEN_ENOMEM, PEN_EFORK.  The spans are gone also after an error. */
PEN_API int64_t pen_loader_trace_stop(pen_loader *loader, const char *path, pen_error *err);

#endif
