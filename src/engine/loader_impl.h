/* loader_impl.h - the loader's parts, shared by loader.c (life), fill.c (workers)
 * and deliver.c (the consumer).
 *
 * Who touches what: the consumer's thread alone uses what stands under "consumer";
 * base_* are written only while the window is paused and read under its lock;
 * everything else is constant, atomic, or guards itself.
 */
#ifndef PEN_ENGINE_LOADER_IMPL_H
#define PEN_ENGINE_LOADER_IMPL_H

#include <penstock/loader.h>

#include <sys/types.h>

#include "engine/carry.h"
#include "engine/feed.h"
#include "engine/ledger.h"
#include "engine/mix.h"
#include "engine/slab.h"
#include "engine/stream.h"
#include "sched/pool.h"
#include "sched/window.h"

struct pen_loader {
    pen_dataset *ds;
    pen_pipeline *pipe;
    pen_loader_opts opts;
    pen__stream stream;
    int64_t n_batches; /* an epoch; 0 in a fed order, which does not know */
    pid_t pid;
    int n_carriers; /* one a worker; one for the caller when there are none */
    int max_slabs;
    pen__slab_plan slab;
    pen__mixer mixer;
    int32_t n_ghosts; /* 1: each batch has the sample before this rank's first, for mixing */

    atomic_bool cancel; /* work under way is unwanted */
    pen__budget *budget;
    pen__slab_pool *slabs;
    pen__feed *feed; /* NULL unless the order is fed */
    pen__window *window;
    pen__pool *pool;       /* NULL until the first next, or inline */
    pen__pool *saver;      /* a thread that saves the index at an epoch's end, or has */
    atomic_bool is_saving; /* it is still busy */
    pen__carrier *carriers;
    pen__sidecar *marks; /* NULL: JPEG files are not indexed */

    int64_t base_epoch, base_batch; /* what job 0 of the window is */

    /* consumer */
    int64_t epoch, batch; /* comes next */
    bool end_pending;     /* PEN_END has still to be said */
    bool is_started;
    pen_error failure; /* code != 0: stays until the next seek */
    int64_t n_bad;
    pen__ledger ledger;
    _Atomic int64_t n_batches_out, n_samples_out, n_bad_seen, wait_ns, first_batch_ns;
};

/* 0, or PEN_EFORK in a child that inherited the loader: its threads are in the parent,
 * its locks may be held for ever.  Asked before anything that locks or waits. */
int pen__loader_check_owner(const pen_loader *loader, pen_error *err);

pen__carry_env pen__loader_env(const pen_loader *loader);

/* What mixes a batch, of any place: workers are ahead of what a caller may ask for. */
void pen__loader_draw_mix(const pen_loader *loader, int64_t epoch, int64_t batch,
                          pen_mix_params *out);

/* fill.c: give a slab its place in the stream; its slots, the ghost included. */
int32_t pen__fill_begin(pen_loader *loader, pen_batch *batch, int64_t epoch, int64_t index,
                        int32_t n_slots);
/* Fill one slot; faults are noted in the batch.  Who fills the last one mixes. */
void pen__fill_slot(pen_loader *loader, pen__carrier *carrier, pen_batch *batch, int32_t slot,
                    int64_t rank);
int pen__loader_open_job(void *ctx, int64_t seq, void **payload);
void pen__loader_work(void *ctx, int index);
/* Claim and fill one slot in the caller's thread; false if there was none. */
bool pen__loader_work_once(pen_loader *loader, pen__carrier *carrier, bool wait);

#endif
