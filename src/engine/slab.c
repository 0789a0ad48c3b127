/* slab.c - refcounted batches from a bounded pool. */
#include "engine/slab.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

enum {
    ALWAYS = 256, /* of lateness */
    RECENT = 8,   /* returns that it is a mean of */
};

struct pen__slab_pool {
    pthread_mutex_t lock; /* guards all below but the constants */
    int n_refs;           /* the loader's and one a living slab */
    int n_counted;        /* slabs that are not the user's */
    int n_peak;           /* the most that were */
    int max_kept;
    int n_open;   /* slabs that are filled or full at a time, the user's not counted */
    int lateness; /* how often the user gives one back when its successor was made already */
    int n_free;
    bool is_closed;
    /* constants */
    pid_t pid;
    pen__slab_plan plan;
    int cap;
    pen_batch *free_list[];
};

/* Where the parts of a slab begin, and its end. */
typedef struct offsets {
    size_t labels, ids, mask, mixed, end;
} offsets;

static offsets place_parts(const pen__slab_plan *plan)
{
    size_t rows = (size_t)plan->n_slots + plan->has_ghost;
    offsets at;
    at.labels = pen__align_up(plan->shape.bytes * rows);
    at.ids = at.labels + pen__align_up(sizeof(int64_t) * rows);
    at.mask = at.ids + pen__align_up(sizeof(int64_t) * rows);
    at.mixed = at.mask + pen__align_up(rows);
    at.end =
        at.mixed + pen__align_up(sizeof(float) * (size_t)plan->n_slots * (size_t)plan->n_classes);
    return at;
}

size_t pen__slab_bytes(const pen__slab_plan *plan)
{
    return place_parts(plan).end;
}

int pen__slab_pool_create(pen__slab_pool **out, const pen__slab_plan *plan, int max_kept)
{
    *out = NULL;
    pen__slab_pool *pool = pen__calloc(1, sizeof *pool + (size_t)max_kept * sizeof(pen_batch *));
    if (!pool)
        return PEN_ENOMEM;
    pthread_mutex_init(&pool->lock, NULL);
    pool->n_refs = 1;
    pool->pid = getpid();
    pool->plan = *plan;
    pool->max_kept = pool->n_open = pool->cap = max_kept;
    *out = pool;
    return 0;
}

/* Drop one reference; called with the lock held, releases it. */
static void unref_and_unlock(pen__slab_pool *pool)
{
    bool is_last = --pool->n_refs == 0;
    pthread_mutex_unlock(&pool->lock);
    if (is_last) {
        pthread_mutex_destroy(&pool->lock);
        pen__free(pool);
    }
}

/* Let go of all that came with this filling. */
static void slab_clear(pen_batch *batch)
{
    pen__slab_clear_bad(batch);
    pen__free(batch->fed);
    batch->fed = NULL;
}

static void slab_free(pen_batch *batch)
{
    slab_clear(batch);
    pen__pages_free(batch->data, place_parts(&batch->pool->plan).end);
    pen__free(batch);
}

void pen__slab_pool_release(pen__slab_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->is_closed = true;
    while (pool->n_free > 0) {
        slab_free(pool->free_list[--pool->n_free]);
        pool->n_refs--;
    }
    unref_and_unlock(pool);
}

static pen_batch *slab_create(pen__slab_pool *pool)
{
    offsets at = place_parts(&pool->plan);
    pen_batch *batch = pen__calloc(1, sizeof *batch);
    if (!batch)
        return NULL;
    /* No huge pages: a virtual machine often gives those that are free back to its host, and having
     * them again can take longer than filling the slab (docs/decode.md). */
    batch->data = pen__pages(at.end);
    if (!batch->data) {
        pen__free(batch);
        return NULL;
    }
    batch->labels = (int64_t *)(void *)(batch->data + at.labels);
    batch->ids = (int64_t *)(void *)(batch->data + at.ids);
    batch->mask = batch->data + at.mask;
    batch->n_classes = pool->plan.n_classes;
    batch->mixed = batch->n_classes ? (float *)(void *)(batch->data + at.mixed) : NULL;
    batch->pool = pool;
    batch->is_new = true;
    batch->shape = pool->plan.shape;
    return batch;
}

void pen__slab_pool_keep(pen__slab_pool *pool, int n_open)
{
    pthread_mutex_lock(&pool->lock);
    pool->n_open = n_open;
    pool->max_kept = n_open < pool->cap ? n_open + 1 : pool->cap;
    while (pool->n_free > 0 && pool->n_counted > pool->max_kept) {
        slab_free(pool->free_list[--pool->n_free]);
        pool->n_counted--;
        pool->n_refs--; /* never the last: the caller has one */
    }
    pthread_mutex_unlock(&pool->lock);
}

/* One more that is not the user's.  The lock is held. */
static void count_one(pen__slab_pool *pool)
{
    pool->n_counted++;
    pool->n_peak = pool->n_counted > pool->n_peak ? pool->n_counted : pool->n_peak;
}

void pen__slab_map(const pen_batch *batch, int32_t slot)
{
#if defined(MADV_POPULATE_WRITE)
    enum { WORTH_A_CALL = 1 << 16 };
    const size_t n_bytes = batch->shape.bytes;
    if (!batch->is_new || n_bytes < WORTH_A_CALL)
        return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)batch->data + (size_t)slot * n_bytes;
    const uintptr_t first = begin & ~(page - 1);
    /* An older kernel refuses: then pages come one by one, as ever. */
    madvise((void *)first, begin + n_bytes - first, MADV_POPULATE_WRITE);
#else
    (void)batch, (void)slot;
#endif
}

pen_batch *pen__slab_get(pen__slab_pool *pool)
{
    pen_batch *batch = NULL;
    pthread_mutex_lock(&pool->lock);
    if (pool->n_free > 0) {
        batch = pool->free_list[--pool->n_free];
        batch->is_new = false;
    } else if ((batch = slab_create(pool))) {
        count_one(pool);
        pool->n_refs++;
    }
    pthread_mutex_unlock(&pool->lock);
    if (batch) {
        atomic_store(&batch->refs, 1);
        atomic_store(&batch->lost_a_fault, false);
        atomic_store(&batch->has_failed, false);
        batch->n_slots = batch->count = pool->plan.n_slots;
    }
    return batch;
}

void pen__slab_hand_over(pen_batch *batch)
{
    pthread_mutex_lock(&batch->pool->lock);
    batch->pool->n_counted--;
    batch->is_handed_over = true;
    pthread_mutex_unlock(&batch->pool->lock);
}

/* Is a slab that the user gives back worth keeping?  Usually he drops a batch the moment he has the
 * next one, and it becomes the batch that is opened then.  Where a worker was quicker a new slab
 * was made, and this one is too many: to be kept if that happens all the time, as where training is
 * the slower side, but not for having happened once.  The lock is held. */
static bool is_worth_keeping(pen__slab_pool *pool)
{
    const bool is_late = pool->n_counted - pool->n_free >= pool->n_open;
    pool->lateness += ((is_late ? ALWAYS : 0) - pool->lateness) / RECENT;
    return !is_late || pool->lateness > ALWAYS / 2;
}

/* The last reference is gone: keep the slab, or free it. */
static void slab_return(pen_batch *batch)
{
    pen__slab_pool *pool = batch->pool;
    if (pool->pid != getpid()) { /* in a forked child the lock may be held for ever */
        slab_free(batch);
        return;
    }
    slab_clear(batch);
    pthread_mutex_lock(&pool->lock);
    if (!batch->is_handed_over)
        pool->n_counted--;
    const bool is_wanted = !batch->is_handed_over || is_worth_keeping(pool);
    batch->is_handed_over = false;
    if (!pool->is_closed && pool->n_counted < pool->max_kept && is_wanted) {
        count_one(pool);
        pool->free_list[pool->n_free++] = batch;
        pthread_mutex_unlock(&pool->lock);
        return;
    }
    pthread_mutex_unlock(&pool->lock);
    slab_free(batch); /* takes a while, and others open batches meanwhile */
    pthread_mutex_lock(&pool->lock);
    unref_and_unlock(pool);
}

pen_batch *pen_batch_ref(pen_batch *batch)
{
    atomic_fetch_add(&batch->refs, 1);
    return batch;
}

void pen_batch_unref(pen_batch *batch)
{
    if (batch && atomic_fetch_sub(&batch->refs, 1) == 1)
        slab_return(batch);
}

int pen__slab_note_bad(pen_batch *batch, int32_t slot, int32_t attempt, int64_t sample,
                       const pen_error *error)
{
    pen__bad *bad = pen__malloc(sizeof *bad);
    if (!bad)
        return PEN_ENOMEM;
    *bad = (pen__bad){NULL, slot, attempt, sample, *error};
    pthread_mutex_lock(&batch->pool->lock);
    bad->next = batch->bad;
    batch->bad = bad;
    pthread_mutex_unlock(&batch->pool->lock);
    return 0;
}

void pen__slab_forget_bad(pen_batch *batch, int32_t slot)
{
    pthread_mutex_lock(&batch->pool->lock);
    for (pen__bad **at = &batch->bad; *at;) {
        pen__bad *bad = *at;
        if (bad->slot == slot) {
            *at = bad->next;
            pen__free(bad);
        } else {
            at = &bad->next;
        }
    }
    pthread_mutex_unlock(&batch->pool->lock);
}

static bool comes_before(const pen__bad *a, const pen__bad *b)
{
    return a->slot != b->slot ? a->slot < b->slot : a->attempt < b->attempt;
}

void pen__slab_sort_bad(pen_batch *batch)
{
    pen__bad *sorted = NULL; /* by insertion: the list is short, or the dataset hopeless */
    while (batch->bad) {
        pen__bad *moving = batch->bad;
        batch->bad = moving->next;
        pen__bad **at = &sorted;
        while (*at && comes_before(*at, moving))
            at = &(*at)->next;
        moving->next = *at;
        *at = moving;
    }
    batch->bad = sorted;
}

void pen__slab_clear_bad(pen_batch *batch)
{
    while (batch->bad) {
        pen__bad *next = batch->bad->next;
        pen__free(batch->bad);
        batch->bad = next;
    }
}

void pen__slab_compact(pen_batch *batch)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < batch->n_slots; i++) {
        if (batch->mask[i] == PEN__SLOT_BAD)
            continue;
        if (kept != i) {
            memcpy(batch->data + (size_t)kept * batch->shape.bytes,
                   batch->data + (size_t)i * batch->shape.bytes, batch->shape.bytes);
            batch->labels[kept] = batch->labels[i];
            batch->ids[kept] = batch->ids[i];
            batch->mask[kept] = batch->mask[i];
        }
        kept++;
    }
    batch->count = kept;
}

int64_t pen__slab_pool_used(pen__slab_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    int64_t used = (int64_t)pool->n_counted * (int64_t)pen__slab_bytes(&pool->plan);
    pthread_mutex_unlock(&pool->lock);
    return used;
}

int64_t pen__slab_pool_peak(pen__slab_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    int64_t peak = (int64_t)pool->n_peak * (int64_t)pen__slab_bytes(&pool->plan);
    pthread_mutex_unlock(&pool->lock);
    return peak;
}
