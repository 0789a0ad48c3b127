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
 * One thread uses a loader at a time; stats and knobs (stats.h, knobs.h) are for any thread.
 */
#ifndef PENSTOCK_LOADER_H
#define PENSTOCK_LOADER_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/batch.h>
#include <penstock/dataset.h>
#include <penstock/error.h>
#include <penstock/mix.h>
#include <penstock/offload.h>
#include <penstock/order.h>
#include <penstock/pipeline.h>

typedef struct pen_loader pen_loader;
typedef struct pen_knob_policy pen_knob_policy; /* policy.h */

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
    int32_t batch_size; /* of this rank; the global batch is batch_size * world_size.
                           With a fed order: the most that a batch may have */
    uint64_t seed;
    pen_order_kind order;
    int32_t order_block, order_window;
    int32_t rank, world_size;
    pen_tail tail;
    pen_on_error on_error;
    int64_t max_bad;         /* bad samples of this rank before PEN_EBAD; default 1000 */
    const char *ledger_path; /* JSONL of bad samples, appended; NULL: none */
    int32_t workers;         /* threads; 0 runs inline in pen_loader_next; -1: one a usable core,
                                or what the policy finds */
    int32_t ready_batches;   /* batches under way or waiting; 0: two, and more where a batch has
                                fewer than two samples a thread */
    int64_t memory_budget;   /* bytes; 0: a quarter of what the cgroup or the machine allows */
    const pen_mix *mixes;    /* one of them is done to each batch; copied */
    int32_t n_mixes;         /* default 0: none, and labels stay numbers */
    int32_t num_classes;     /* of mixed labels; every label must be below */
    int32_t use_index; /* default 1: keep in the cache directory where parts of JPEG files begin,
                          which makes later epochs quicker and changes no pixel; of remote
                          datasets, what was learned of their samples.  0: do not.
                          PENSTOCK_INDEX=off in the environment does the same */
    int64_t index_max_bytes;       /* of that file; 0: 4 % of the dataset, at most 4 GiB */
    const pen_knob_policy *policy; /* who turns the knobs; default NULL: nobody.  policy.h */
    int32_t period_ms;             /* how often it is asked, default 100 */
    uint64_t pinned_knobs;    /* 1 << PEN_KNOB_...: not the policy's; workers of 0 and more are */
    const char *decision_log; /* JSONL of what was decided each period, appended; NULL: none */
    const char *metrics;      /* answer HTTP at "127.0.0.1:9464" (metrics.h); NULL: what
                                 PENSTOCK_METRICS says; "off": nowhere, whatever that says */
    int32_t offload;          /* a pen_offload: what storage nodes do with samples of a remote
                                 dataset; means nothing for others */
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

/* Go to a batch of an epoch; what was prefetched for it is kept.  With a fed order
 * everything fed is forgotten, and the next batch fed is `batch` of `epoch`. */
PEN_API int pen_loader_seek(pen_loader *loader, int64_t epoch, int64_t batch, pen_error *err);
/* The batch that comes next. */
PEN_API void pen_loader_tell(const pen_loader *loader, int64_t *epoch, int64_t *batch);
/* Batches in an epoch, the same on every rank; PEN_EINVAL with a fed order. */
PEN_API int64_t pen_loader_batches(const pen_loader *loader);

/* Fed orders (PEN_ORDER_FED): the caller says what each batch of this rank is made of,
 * in any order, with repeats, in any size up to batch_size; an epoch may be endless.
 *
 *     pen_loader_feed(loader, ids, n, &err);      one batch, a few times ahead
 *     pen_loader_next(loader, -1, &batch, &err);  in the order they were fed
 *     pen_loader_feed_end(loader, &err);          PEN_END comes after the last one
 *
 * The stream is a function of (what was fed in this epoch, dataset, pipeline, seed,
 * epoch): a sample that comes again in an epoch gets other random parameters (their
 * sequence begins again after 32768 times).  Batches are made as far ahead as they are
 * fed and ready_batches allows; what waits takes 16 bytes a sample.  pen_loader_next
 * with nothing fed is PEN_EINVAL, and goes on once something is.
 *
 * To continue an epoch at batch b: seek to its batch 0 and pass the first b batches to
 * pen_loader_skip, so that repeats are counted; where samples do not repeat, seek to
 * batch b does.  pen_loader_state holds the position, not what was fed.
 *
 * Like all of a loader, these are for one thread at a time. */

/* Append a batch, copied.  PEN_EINVAL names an id that is not in the dataset. */
PEN_API int pen_loader_feed(pen_loader *loader, const int64_t *samples, int32_t n, pen_error *err);
/* Count a batch that was delivered before, without making it; only before the first
 * pen_loader_feed after a seek. */
PEN_API int pen_loader_skip(pen_loader *loader, const int64_t *samples, int32_t n, pen_error *err);
/* The epoch is complete; what is fed from now on belongs to the next one, which must not
 * be ended before pen_loader_next has said PEN_END for this one. */
PEN_API int pen_loader_feed_end(pen_loader *loader, pen_error *err);
/* Batches fed and not delivered yet. */
PEN_API int64_t pen_loader_fed(const pen_loader *loader);

/* Position and identity of the stream as one line of JSON. */
#define PEN_STATE_MAX 1024
PEN_API int64_t pen_loader_state(const pen_loader *loader, char *dst, size_t dst_cap);
/* Continue from a state, also on another number of ranks or workers.  PEN_ESTATE
 * names what differs; PEN_EINVAL for text that is no state. */
PEN_API int pen_loader_resume(pen_loader *loader, const char *state, pen_error *err);

/* Build any batch again, outside the stream (penstock replay). */
PEN_API int pen_loader_replay(pen_loader *loader, int64_t epoch, int64_t batch, pen_batch **out,
                              pen_error *err);

/* What mixes a batch (opts.mixes), without making it.  PEN_EINVAL if nothing does. */
PEN_API int pen_loader_draw_mix(const pen_loader *loader, int64_t epoch, int64_t batch,
                                pen_mix_params *out, pen_error *err);

/* What went wrong and training goes on without, such as a disk that is too full to keep what was
 * learned of a remote dataset, or a storage node that does not know the pipeline: a line in dst,
 * cut off where it does not fit, and each but once. Returns its length; 0: nothing. */
PEN_API int64_t pen_loader_warning(pen_loader *loader, char *dst, size_t dst_cap);

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
    /* JPEG decodes: by our own code with the index, without it, and by libjpeg */
    int64_t jpeg_indexed, jpeg_plain, jpeg_library;
    int64_t index_samples, index_bytes; /* samples with an entry, and what entries take on disk */
} pen_loader_stats;
PEN_API void pen_loader_get_stats(const pen_loader *loader, pen_loader_stats *out);

#endif
