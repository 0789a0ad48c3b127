/* knobs.h - settings of a loader that may change while it runs.
 *
 *     pen_knobs knobs;
 *     pen_knobs_init(&knobs);                          all NaN: leave as it is
 *     knobs.value[PEN_KNOB_WORKERS] = 4;
 *     pen_loader_set_knobs(loader, &knobs, &err);      at once, from any thread
 *
 * No knob changes a byte of the stream, and none makes memory go above the budget.
 *
 * A knob is a line of a table: name, kind, unit, range.  Policies and displays go through the
 * table, so that a knob added later needs no change to them.  What was set by hand, here or
 * among the options of the loader, is pinned: policies leave it alone until it is released.
 */
#ifndef PENSTOCK_KNOBS_H
#define PENSTOCK_KNOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>
#include <penstock/loader.h>

/* WHOLE: a whole number; FRACTION: any number of its range; SHARE: one of several that sum to 1,
 * or are all 0, and are only ever set together. */
typedef enum pen_knob_kind {
    PEN_KNOB_KIND_WHOLE,
    PEN_KNOB_KIND_FRACTION,
    PEN_KNOB_KIND_SHARE
} pen_knob_kind;

/* X(enum, name, kind, unit, what it is) */
#define PEN_KNOBS(X)                                                                        \
    X(WORKERS, "workers", WHOLE, "threads", "threads that carry samples")                   \
    X(READY_BATCHES, "ready_batches", WHOLE, "batches", "batches under way or waiting")     \
    X(READ_AHEAD, "read_ahead", WHOLE, "samples",                                           \
      "samples that are read before a worker asks; 0: workers read for themselves")         \
    X(IO, "io", WHOLE, "threads", "threads that read at once, and threads that read ahead") \
    X(OFFLOAD, "offload", FRACTION, "share",                                                \
      "of what storage nodes could do for samples, the part that saves most is done")       \
    X(CUT_WIRE, "cut_wire", WHOLE, "operations",                                            \
      "of the line, that storage nodes do at most; 0: they send no pixels")                 \
    X(CODEC, "codec", WHOLE, "level",                                                       \
      "what storage nodes may code: 0 nothing, 1 bytes, 2 pixels as well")                  \
    X(SHARE_DECODE, "share_decode", SHARE, "share", "of the processor's time for decoding") \
    X(SHARE_AUGMENT, "share_augment", SHARE, "share", "for what is done to pixels")         \
    X(SHARE_TOKENIZE, "share_tokenize", SHARE, "share", "for text")                         \
    X(SHARE_TRANSFER, "share_transfer", SHARE, "share",                                     \
      "for writing batches and copying to a device")

typedef enum pen_knob {
#define PEN_KNOB_ENUM(id, name, kind, unit, text) PEN_KNOB_##id,
    PEN_KNOBS(PEN_KNOB_ENUM)
#undef PEN_KNOB_ENUM
        PEN_KNOB_COUNT
} pen_knob;

#define PEN_KNOB_CAP 32 /* room for knobs of later versions */
#define PEN_MAX_IO   128

typedef struct pen_knobs {
    size_t struct_size;
    double value[PEN_KNOB_CAP]; /* by pen_knob; NaN: leave as it is */
} pen_knobs;

/* All NaN. */
PEN_API void pen_knobs_init(pen_knobs *knobs);

typedef struct pen_knob_info {
    const char *name, *unit, *text;
    double min, max; /* of this loader: its budget, its cores */
    bool is_integer;
    bool is_pinned;
    bool is_share; /* one of those that sum to 1: a turn of it alone is none */
} pen_knob_info;

/* The knob with a name, or -1. */
PEN_API int pen_knob_find(const char *name);
/* The line of a knob, 0 to PEN_KNOB_COUNT - 1; PEN_EINVAL for another. */
PEN_API int pen_loader_knob(const pen_loader *loader, int knob, pen_knob_info *out);

PEN_API int pen_loader_get_knobs(const pen_loader *loader, pen_knobs *out);
/* Set those that are not NaN, all or none, and pin them.  PEN_EINVAL names the one that is
 * out of range.  Shares are set together and sum to 1, or are all 0: not enforced.
 * From any thread.  PEN_ENOMEM: a thread could not be started; what could be done is. */
PEN_API int pen_loader_set_knobs(pen_loader *loader, const pen_knobs *knobs, pen_error *err);
/* Let policies have those knobs of a bit mask (1 << PEN_KNOB_...) again. */
PEN_API int pen_loader_release_knobs(pen_loader *loader, uint64_t mask);

#endif
