/* slab.h - batches and the pool their memory comes from.
 *
 * A slab is one allocation: tensor, labels, ids, mask, mixed labels.  The pool counts slabs that
 * are being filled, ready, or kept for reuse.  How many are filled at once is the
 * reorder window's business; a slab handed to the user leaves the count, and when
 * the user drops it, it is kept only while fewer than `max_kept` are counted.
 */
#ifndef PEN_ENGINE_SLAB_H
#define PEN_ENGINE_SLAB_H

#include <stdatomic.h>

#include <penstock/batch.h>
#include <penstock/dataset.h>

/* What a slab has room for. */
typedef struct pen__slab_plan {
    pen_shape shape;
    int32_t n_slots;
    int32_t n_classes; /* columns of mixed labels; 0: none */
    bool has_ghost;    /* one more sample behind the last slot, for mixing */
} pen__slab_plan;

typedef struct pen__slab_pool pen__slab_pool;

/* Why a slot has no good sample, for the ledger; a list, newest first. */
typedef struct pen__bad {
    struct pen__bad *next;
    int32_t slot, attempt;
    int64_t sample;
    pen_error error;
} pen__bad;

struct pen_batch {
    _Atomic int refs;
    pen__slab_pool *pool;
    pen_shape shape;
    int32_t n_slots; /* asked for; `count` is what remains after skipping */
    int32_t count;
    int64_t epoch, index;
    int64_t opened_ns;          /* when its filling began */
    struct pen__fed *fed;       /* what the slots are, in a fed order; else NULL */
    _Atomic int32_t n_unfilled; /* slots, and the ghost, that workers are still busy with */
    uint8_t *data;              // (n_slots, shape.bytes); this and the next three: and the ghost
    int64_t *labels;            // (n_slots)
    int64_t *ids;               // (n_slots)
    uint8_t *mask;              // (n_slots)
    float *mixed;               // (n_slots, n_classes), or NULL
    int32_t n_classes;
    bool is_new;               /* nothing has been written to it yet */
    bool is_handed_over;       /* to the user; guarded by the lock of the pool */
    pen__bad *bad;             /* guarded by the pool's lock while workers fill the slab */
    _Atomic bool lost_a_fault; /* there was no memory to note one */
    _Atomic bool has_failed;   /* a sample could not be had: the batch is an error */
};

/* Bytes of one slab. */
size_t pen__slab_bytes(const pen__slab_plan *plan);

int pen__slab_pool_create(pen__slab_pool **out, const pen__slab_plan *plan, int max_kept);
/* So many are filled or full at a time from now on.  Kept are those and, where the user often gives
 * one back too late for the next, that one; not above the number it was made with.  The others go.
 */
void pen__slab_pool_keep(pen__slab_pool *pool, int n_open);
/* The pool lives on until its last slab is dropped. */
void pen__slab_pool_release(pen__slab_pool *pool);

/* A slab to fill, NULL without memory. */
pen_batch *pen__slab_get(pen__slab_pool *pool);
/* In a new slab, have the pages of a slot mapped at once, before it is filled: quicker than
 * one page fault after another in the middle of its pixels. */
void pen__slab_map(const pen_batch *batch, int32_t slot);
/* The batch goes to the user: it no longer counts. */
void pen__slab_hand_over(pen_batch *batch);

/* Note that an attempt at a slot failed.  Thread-safe.  PEN_ENOMEM. */
int pen__slab_note_bad(pen_batch *batch, int32_t slot, int32_t attempt, int64_t sample,
                       const pen_error *error);
/* The slot will be filled anew, from its first attempt on. */
void pen__slab_forget_bad(pen_batch *batch, int32_t slot);
/* Put the list in order of slot and attempt. */
void pen__slab_sort_bad(pen_batch *batch);
void pen__slab_clear_bad(pen_batch *batch);
/* Move the samples whose mask is PEN__SLOT_BAD out; sets count. */
#define PEN__SLOT_BAD 2
void pen__slab_compact(pen_batch *batch);

/* Bytes that count now, and the most that ever did. */
int64_t pen__slab_pool_used(pen__slab_pool *pool);
int64_t pen__slab_pool_peak(pen__slab_pool *pool);

#endif
