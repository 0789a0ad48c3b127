/* loader.h - threads that turn a dataset and a pipeline into batches.
 *
 *     pen_loader_opts opts;
 *     pen_loader_opts_init(&opts);
 *     opts.batch_size = 64;
 *     opts.order = PEN_ORDER_SHUFFLE;
 *     pen_loader *loader;
 *     int rc = pen_loader_create(&loader, dataset, pipeline, &opts, &err);
 *     while ((rc = pen_loader_next(loader, -1, &batch, &err)) == 0) { ...; pen_batch_unref(batch);
 * }
 *
 * The stream is a pure function of (dataset, pipeline, seed, epoch, global
 * batch): no thread count, rank count, budget or restart changes a byte.
 * After the last batch of an epoch pen_loader_next answers PEN_END once, and
 * the next call begins the next epoch, which has been prefetched meanwhile.
 *
 * One thread uses a loader at a time; stats may be read from any thread.
 */
#ifndef PENSTOCK_LOADER_H
#define PENSTOCK_LOADER_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/batch.h>
#include <penstock/dataset.h>
#include <penstock/error.h>
#include <penstock/order.h>
#include <penstock/pipeline.h>

typedef struct pen_loader pen_loader;

/* What happens to the last, incomplete global batch. */
typedef enum pen_tail {
    PEN_TAIL_AUTO = 0, /* short with one rank, wrap with several */
    PEN_TAIL_SHORT,    /* fewer samples; one rank only */
    PEN_TAIL_DROP,     /* left out */
    PEN_TAIL_PAD,      /* filled with repeats that the mask marks 0 */
    PEN_TAIL_WRAP,     /* filled with the epoch's first samples */
} pen_tail;

typedef enum pen_on_error {
    PEN_ON_ERROR_RAISE = 0,
    PEN_ON_ERROR_SKIP,    /* the batch gets shorter, or is left out; one rank only */
    PEN_ON_ERROR_REPLACE, /* another sample, f(seed, epoch, position, attempt) */
} pen_on_error;

#define PEN_MAX_WORKERS 256

typedef struct pen_loader_opts {
    size_t struct_size; /* set by pen_loader_opts_init */
    int32_t batch_size; /* of this rank; the global batch is batch_size * world_size */
    uint64_t seed;
    pen_order_kind order;
    int32_t order_block, order_window;
    int32_t rank, world_size;
    pen_tail tail;
    pen_on_error on_error;
    int64_t max_bad;         /* bad samples of this rank before PEN_EBAD; default 1000 */
    const char *ledger_path; /* JSONL of bad samples, appended; NULL: none */
    int32_t workers;         /* threads; 0 runs inline in pen_loader_next; -1: one a usable core */
    int32_t ready_batches;   /* batches under way or waiting, default 3 */
    int64_t memory_budget;   /* bytes; 0: a quarter of what the cgroup or the machine allows */
} pen_loader_opts;

PEN_API void pen_loader_opts_init(pen_loader_opts *opts);

/* References dataset and pipeline; `opts` may be NULL.  Threads start with the first
 * pen_loader_next. */
PEN_API int pen_loader_create(pen_loader **out, pen_dataset *ds, pen_pipeline *pipe,
                              const pen_loader_opts *opts, pen_error *err);
/* Ends the threads (each finishes or abandons its sample) and frees.  Batches
 * still held stay valid.  NULL is legal. */
PEN_API void pen_loader_free(pen_loader *loader);

/* The next batch in order.  Waits at most timeout_ns (-1: for ever).
 * Returns 0 (the caller owns *out), PEN_END, PEN_AGAIN, or an error.  An error
 * stays: the position does not move past it until pen_loader_seek. */
PEN_API int pen_loader_next(pen_loader *loader, int64_t timeout_ns, pen_batch **out,
                            pen_error *err);

/* Go to a batch of an epoch; what was prefetched for it is kept. */
PEN_API int pen_loader_seek(pen_loader *loader, int64_t epoch, int64_t batch, pen_error *err);
/* The batch that comes next. */
PEN_API void pen_loader_tell(const pen_loader *loader, int64_t *epoch, int64_t *batch);
/* Batches in an epoch, the same on every rank. */
PEN_API int64_t pen_loader_batches(const pen_loader *loader);

/* Position and identity of the stream as one line of JSON. */
#define PEN_STATE_MAX 1024
PEN_API int64_t pen_loader_state(const pen_loader *loader, char *dst, size_t dst_cap);
/* Continue from a state, also on another number of ranks or workers.  PEN_ESTATE
 * names what differs; PEN_EINVAL for text that is no state. */
PEN_API int pen_loader_resume(pen_loader *loader, const char *state, pen_error *err);

/* Build any batch again, outside the stream (penstock replay). */
PEN_API int pen_loader_replay(pen_loader *loader, int64_t epoch, int64_t batch, pen_batch **out,
                              pen_error *err);

/* Where the time went, summed over threads since creation. */
typedef struct pen_loader_stats {
    int64_t batches, samples, bad_samples;
    int64_t bytes_read;
    int64_t read_ns, decode_ns, augment_ns, tensor_ns; /* workers' busy time by stage */
    int64_t idle_ns;        /* workers waiting for room: in the window, in memory */
    int64_t wait_ns;        /* the caller waiting in pen_loader_next */
    int64_t first_batch_ns; /* how long the caller waited for its first batch */
    int64_t budget_bytes, budget_used, budget_peak;
    int32_t workers, ready;
} pen_loader_stats;
PEN_API void pen_loader_get_stats(const pen_loader *loader, pen_loader_stats *out);

#endif
