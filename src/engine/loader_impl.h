/* loader_impl.h - the loader's parts, shared by loader.c (life), fill.c (workers),
 * deliver.c (the consumer), turn.c (knobs), observe.c (what is measured) and control.c.
 *
 * Who touches what: the consumer's thread alone uses what stands under "consumer";
 * base_* are written only while the window is paused and read under its lock;
 * everything else is constant, atomic, or guards itself.
 */
#ifndef PEN_ENGINE_LOADER_IMPL_H
#define PEN_ENGINE_LOADER_IMPL_H

#include <penstock/knobs.h>
#include <penstock/loader.h>
#include <penstock/policy.h>

#include <sys/types.h>

#include "base/text.h"
#include "engine/carry.h"
#include "engine/feed.h"
#include "engine/lately.h"
#include "engine/ledger.h"
#include "engine/mix.h"
#include "engine/slab.h"
#include "engine/stream.h"
#include "engine/trace.h"
#include "engine/trail.h"
#include "sched/pool.h"
#include "sched/window.h"

/* The knobs: what they are set to, and what follows from it. */
typedef struct pen__board {
    pthread_mutex_t lock; /* guards all here, and is held while threads are started */
    double value[PEN_KNOB_COUNT];
    uint64_t pinned;
    bool is_running; /* the first batch was asked for: threads may be started */
} pen__board;

/* How the caller spends its time: inside pen_loader_next, waiting, or outside, at its own
 * work.  Its thread alone writes. */
typedef struct pen__consumer_times {
    pen__meter wait, step;         /* a batch: inside for it, outside before it */
    _Atomic int64_t wait_ns;       /* inside, all together */
    _Atomic int64_t inside_since;  /* 0: it is outside */
    atomic_bool is_away;           /* it has had the end of an epoch, and not begun another */
    int64_t outside_since;         /* 0: it has not had a batch of this epoch yet */
    int64_t waited_ns, stepped_ns; /* for the batch that comes */
    pen__trail trail;              /* waits, second by second */
} pen__consumer_times;

struct pen_loader {
    pen_dataset *ds;
    pen_pipeline *pipe;
    pen_loader_opts opts;
    pen__stream stream;
    int64_t n_batches; /* an epoch; 0 in a fed order, which does not know */
    pid_t pid;
    int64_t number;                 /* of this process's loaders, from 0: a name for displays */
    struct pen__server *servers[2]; /* who shows it: at an address, on the local socket */
    atomic_bool shall_show;         /* on the local socket, from the next batch on */
    int max_slabs;                  /* that the budget was made for */
    int max_workers;                /* the same */
    int64_t decoder_keep;
    pen__slab_plan slab;
    pen__mixer mixer;
    int32_t n_ghosts; /* 1: each batch has the sample before this rank's first, for mixing */

    atomic_bool cancel; /* work under way is unwanted */
    pen__budget *budget;
    pen__slab_pool *slabs;
    pen__feed *feed; /* NULL unless the order is fed */
    pen__window *window;
    pen__gate io;
    pen__shares shares;
    pen__pool *pool;        /* NULL until the first next, or inline */
    pen__pool *readers;     /* NULL until some are wanted */
    pen__pool *saver;       /* a thread that saves the index at an epoch's end, or has */
    atomic_bool is_saving;  /* it is still busy */
    _Atomic int n_carriers; /* one a worker there has been; without workers the caller's */
    _Atomic(pen__carrier *) carriers[PEN_MAX_WORKERS];
    _Atomic(pen__reading *) readings; // (PEN_MAX_IO), or NULL
    _Atomic int n_readings;           /* readers there have been */
    pen__sidecar *marks;              /* NULL: JPEG files are not indexed */
    pen__trace trace;
    pen__parts_mode parts;
    pen__allow allow; /* what storage nodes may do, where the dataset has parcels */
    pen__board board;
    struct pen__control *control; /* who asks the policy */
    _Atomic int64_t newest_batch; /* the last one begun, counted from epoch 0; -1: none */

    int64_t base_epoch, base_batch; /* what job 0 of the window is */
    pen__claim left;                /* without workers: claimed, and left; payload NULL: nothing */

    /* consumer */
    int64_t epoch, batch; /* comes next */
    bool end_pending;     /* PEN_END has still to be said */
    bool is_started;
    pen_error failure; /* code != 0: stays until the next seek */
    int64_t n_bad;
    pen__ledger ledger;
    _Atomic int64_t n_batches_out, n_samples_out, n_bad_seen, first_batch_ns;
    _Atomic int64_t bytes_out;
    pen__consumer_times times;
    pen__lately lately;
};

/* The next one of this process; guests have one, too. */
int64_t pen__loader_number(void);

/* 0, or PEN_EFORK in a child that inherited the loader: its threads are in the parent,
 * its locks may be held for ever.  Asked before anything that locks or waits. */
int pen__loader_check_owner(const pen_loader *loader, pen_error *err);

/* Batches in the reorder window at most.  One slab less than there may be, where that leaves
 * two: what the user drops is then taken up again instead of freed and, page by page, allocated. */
static inline int pen__loader_max_ready(const pen_loader *loader)
{
    return loader->max_slabs > 2 ? loader->max_slabs - 1 : loader->max_slabs;
}

pen__carry_env pen__loader_env(const pen_loader *loader);

/* What mixes a batch, of any place: workers are ahead of what a caller may ask for. */
void pen__loader_draw_mix(const pen_loader *loader, int64_t epoch, int64_t batch,
                          pen_mix_params *out);

/* fill.c: give a slab its place in the stream; its slots, the ghost included. */
int32_t pen__fill_begin(pen_loader *loader, pen_batch *batch, int64_t epoch, int64_t index,
                        int32_t n_slots);
/* Fill one slot; faults are noted in the batch.  Who fills the last one mixes.  `file` is what
 * was read of it before, or NULL.  False: a thread of the program's own was told to leave, and the
 * slot is not filled. */
bool pen__fill_slot(pen_loader *loader, pen__carrier *carrier, pen_batch *batch, int32_t slot,
                    int64_t rank, pen__block *file);
int pen__loader_open_job(void *ctx, int64_t seq, void **payload);
void pen__loader_work(void *ctx, int index);
/* Read samples ahead of the workers. */
void pen__loader_read(void *ctx, int index);
/* Claim and fill one slot in the caller's thread.  0, PEN_END if there was none, PEN_AGAIN: it was
 * told to leave, and goes on with the slot the next time. */
int pen__loader_work_once(pen_loader *loader, pen__carrier *carrier);
/* What it was told to leave is not wanted any more. */
void pen__loader_drop_left(pen_loader *loader);

/* turn.c: the board as the options say, before anything runs; its end. */
int pen__board_init(pen_loader *loader);
void pen__board_fini(pen_loader *loader);
/* Start the threads; PEN_ENOMEM if there is not even one. */
int pen__board_start(pen_loader *loader);
/* What a policy wants: what is not NaN and not pinned, clamped.  PEN_ENOMEM. */
int pen__board_turn(pen_loader *loader, const pen_knobs *knobs);
/* Carriers up to n of them.  PEN_ENOMEM. */
int pen__loader_make_carriers(pen_loader *loader, int n);

/* control.c: the thread that asks the policy; all with PEN_ENOMEM. */
int pen__control_create(pen_loader *loader, const char *log_path, pen_error *err);
int pen__control_start(pen_loader *loader);
/* Is there a policy that turns knobs? */
bool pen__control_decides(const pen_loader *loader);
/* Add the last decisions that changed something, or said something new, as a JSON array. */
void pen__control_write_recent(const pen_loader *loader, pen__text *text);
void pen__control_free(pen_loader *loader);

#endif
