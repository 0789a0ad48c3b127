/* stats.h - what a loader's own pipeline is doing: times by stage, queues, waits.
 *
 *     pen_pipeline_stats now = PEN_PIPELINE_STATS_INIT;
 *     pen_loader_get_pipeline_stats(loader, &now);
 *
 * Times of a stage are those of single samples (of whole batches, where it says so), from
 * histograms with four buckets a factor of two.  Counters run since creation.
 * Fields are only ever added at the end; struct_size says how much the caller knows.
 */
#ifndef PENSTOCK_STATS_H
#define PENSTOCK_STATS_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>
#include <penstock/loader.h>

/* X(enum, name) */
#define PEN_STAGES(X)                                                            \
    X(READ, "read")       /* a sample's bytes, retries included */               \
    X(DECODE, "decode")   /* and the resize that is fused with it */             \
    X(AUGMENT, "augment") /* all other steps on pixels */                        \
    X(TENSOR, "tensor")   /* table look-up into the batch */                     \
    X(BATCH, "batch")     /* a batch, from its first claim to its last sample */ \
    X(WAIT, "wait")       /* the caller, waiting for a batch */                  \
    X(STEP, "step")       /* the caller, between batches: its own work */

typedef enum pen_stage {
#define PEN_STAGE_ENUM(id, name) PEN_STAGE_##id,
    PEN_STAGES(PEN_STAGE_ENUM)
#undef PEN_STAGE_ENUM
        PEN_STAGE_COUNT
} pen_stage;
#define PEN_STAGE_CAP 16

PEN_API const char *pen_stage_name(int stage);

typedef struct pen_stage_stats {
    int64_t count;
    double total_s, mean_s, p50_s, p95_s, p99_s;
    double variation; /* deviation over mean */
} pen_stage_stats;

typedef struct pen_pipeline_stats {
    size_t struct_size;
    int64_t time_ns; /* monotonic, of this reading */
    int64_t batches, samples;
    int64_t bytes_in, bytes_out; /* encoded, read; of tensors, delivered */
    int64_t idle_ns;             /* workers waiting for room: in the window, in memory */
    int64_t memory_wait_ns;      /* of that, in memory */
    int64_t shared_wait_ns;      /* workers waiting for their stage's share, or to read */
    int32_t workers, readers;    /* threads that may claim */
    int32_t open_batches, ready_batches;
    int32_t samples_in_flight; /* in the hands of threads */
    int32_t samples_read;      /* read, and waiting for a worker */
    int64_t budget_bytes, budget_used, slab_bytes;
    /* The samples that come next, as far as the order is known; -1 where it is not. */
    int64_t ahead_samples, ahead_bytes;
    double ahead_cost_s; /* what they are expected to cost one worker, by their bytes */
    pen_stage_stats stages[PEN_STAGE_CAP];
    /* JPEG files decoded with an entry of their index, and without one; those that libjpeg
     * decodes have no use for one, and are neither. */
    int64_t cache_hits, cache_misses;
} pen_pipeline_stats;
#define PEN_PIPELINE_STATS_INIT                   \
    {                                             \
        .struct_size = sizeof(pen_pipeline_stats) \
    }

/* From any thread; no lock is held that a worker needs for long.  0, PEN_EINVAL for a
 * struct_size of another library, PEN_EFORK. */
PEN_API int pen_loader_get_pipeline_stats(const pen_loader *loader, pen_pipeline_stats *out);

/* One line for a person: who waits for whom, for what, and what would help.  Of the last ten
 * seconds or so, and how it was since the first batch where that differs.  Returns its length,
 * PEN_ENOSPC or PEN_EFORK. */
#define PEN_VERDICT_MAX 512
PEN_API int64_t pen_loader_verdict(const pen_loader *loader, char *dst, size_t dst_cap);

#endif
