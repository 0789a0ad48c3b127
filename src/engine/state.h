/* state.h - a position in a stream and the stream's identity, as JSON. */
#ifndef PEN_ENGINE_STATE_H
#define PEN_ENGINE_STATE_H

#include <penstock/loader.h>

typedef struct pen__state {
    int64_t epoch, batch; /* the batch that comes next */
    int64_t n_bad;
    uint64_t seed;
    int64_t global_batch;
    pen_order_kind order;
    int32_t block, window; /* of the block order, else 0 */
    pen_tail tail;         /* what happens to the tail, never AUTO */
    bool is_tail_auto;     /* left to the number of ranks, which a resume may change */
    pen_on_error on_error; /* raise may become either of the others, these not each other */
    int numerics;
    char dataset[33], pipeline[33];
    char mix[33]; /* what mixes batches; empty, and not written: nothing */
} pen__state;

/* One line of JSON, NUL-terminated; its length, or PEN_ENOSPC. */
int64_t pen__state_write(const pen__state *state, char *dst, size_t dst_cap);
/* PEN_EINVAL for anything that is not such a line. */
int pen__state_parse(pen__state *state, const char *text, pen_error *err);
/* PEN_ESTATE, naming the first difference in identity (position aside). */
int pen__state_match(const pen__state *saved, const pen__state *here, pen_error *err);

#endif
