/* budget.c - blocks under one limit.
 *
 * Invariants, with the lock held:
 *   1. used <= limit: `used` counts blocks in use, their extras and kept blocks.
 *   2. Kept blocks are nobody's and may be freed at any moment.
 *   3. A get succeeds only if no waiter has a lower rank.
 */
#include "engine/budget.h"

#include <penstock/error.h>

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

enum {
    BLOCK_ALIGN = 64,
    BLOCK_ROUND = 1 << 16, /* sizes in 64 KiB steps, so that kept blocks fit again */
    MAX_KEPT = 32,
    MAX_KEPT_BYTES = 1 << 25, /* a huge image's block is not worth keeping */
};

typedef struct waiter {
    int64_t rank;
    struct waiter *next;
} waiter;

struct pen__budget {
    pthread_mutex_t lock; /* guards all below but limit and cancel */
    pthread_cond_t freed;
    const atomic_bool *cancel;
    int64_t limit, used, peak;
    waiter *waiters;
    int n_kept;
    pen__block kept[MAX_KEPT];
};

int pen__budget_create(pen__budget **out, int64_t limit_bytes, const atomic_bool *cancel)
{
    *out = NULL;
    pen__budget *b = pen__calloc(1, sizeof *b);
    if (!b)
        return PEN_ENOMEM;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->freed, NULL);
    b->limit = limit_bytes;
    b->cancel = cancel;
    *out = b;
    return 0;
}

void pen__budget_free(pen__budget *b)
{
    if (!b)
        return;
    for (int i = 0; i < b->n_kept; i++)
        pen__free(b->kept[i].data);
    pthread_cond_destroy(&b->freed);
    pthread_mutex_destroy(&b->lock);
    pen__free(b);
}

static void drop_kept(pen__budget *b, int i)
{
    b->used -= (int64_t)b->kept[i].cap;
    pen__free(b->kept[i].data);
    b->kept[i] = b->kept[--b->n_kept];
}

/* Take the smallest kept block that fits without wasting more than it holds. */
static bool reuse(pen__budget *b, size_t bytes, pen__block *out)
{
    int best = -1;
    for (int i = 0; i < b->n_kept; i++)
        if (b->kept[i].cap >= bytes && b->kept[i].cap / 4 <= bytes &&
            (best < 0 || b->kept[i].cap < b->kept[best].cap))
            best = i;
    if (best < 0)
        return false;
    *out = b->kept[best];
    b->kept[best] = b->kept[--b->n_kept];
    return true;
}

static bool is_next(const pen__budget *b, int64_t rank)
{
    for (const waiter *w = b->waiters; w; w = w->next)
        if (w->rank < rank)
            return false;
    return true;
}

/* Count `bytes` more, giving up kept blocks if that makes room. */
static bool count(pen__budget *b, size_t bytes)
{
    while (b->used + (int64_t)bytes > b->limit && b->n_kept > 0)
        drop_kept(b, b->n_kept - 1);
    if (b->used + (int64_t)bytes > b->limit)
        return false;
    b->used += (int64_t)bytes;
    b->peak = b->used > b->peak ? b->used : b->peak;
    return true;
}

/* Reserve room: a kept block, or the right to allocate one (out->data NULL). */
static bool reserve(pen__budget *b, size_t bytes, size_t extra, pen__block *out)
{
    if (reuse(b, bytes, out)) {
        out->extra = extra;
        if (count(b, extra))
            return true;
        b->used -= (int64_t)out->cap; /* larger than needed, and that is too much now */
        pen__free(out->data);
    }
    *out = (pen__block){.cap = bytes, .extra = extra};
    return count(b, bytes + extra);
}

static void leave_queue(pen__budget *b, const waiter *self)
{
    for (waiter **at = &b->waiters; *at; at = &(*at)->next)
        if (*at == self) {
            *at = self->next;
            return;
        }
}

static int reserve_or_wait(pen__budget *b, int64_t rank, size_t bytes, size_t extra, bool may_wait,
                           pen__block *out)
{
    waiter self = {rank, b->waiters};
    bool is_queued = false;
    int rc = 0;
    while (!(is_next(b, rank) && reserve(b, bytes, extra, out))) {
        if (b->cancel && atomic_load(b->cancel))
            rc = PEN_ECANCELED;
        else if (!may_wait)
            rc = PEN_AGAIN;
        if (rc)
            break;
        if (!is_queued) {
            self.next = b->waiters;
            b->waiters = &self;
            is_queued = true;
        }
        pthread_cond_wait(&b->freed, &b->lock);
    }
    if (is_queued) {
        leave_queue(b, &self);
        pthread_cond_broadcast(&b->freed); /* the next in rank may go now */
    }
    return rc;
}

size_t pen__budget_cost(size_t bytes)
{
    return (bytes / BLOCK_ROUND + 1) * BLOCK_ROUND; /* never 0, also for empty files */
}

int pen__budget_get(pen__budget *b, int64_t rank, size_t bytes, size_t extra, bool may_wait,
                    pen__block *out)
{
    memset(out, 0, sizeof *out);
    size_t rounded = pen__budget_cost(bytes);
    if ((int64_t)bytes > b->limit || (int64_t)(rounded + extra) > b->limit)
        return PEN_EBUDGET;
    pthread_mutex_lock(&b->lock);
    int rc = reserve_or_wait(b, rank, rounded, extra, may_wait, out);
    pthread_mutex_unlock(&b->lock);
    if (rc) {
        memset(out, 0, sizeof *out);
        return rc;
    }
    if (!out->data) {
        out->data = pen__aligned(BLOCK_ALIGN, out->cap);
        if (!out->data) {
            pen__budget_put(b, out);
            return PEN_ENOMEM;
        }
    }
    return 0;
}

void pen__budget_put(pen__budget *b, pen__block *block)
{
    if (block->cap == 0 && block->extra == 0)
        return;
    uint8_t *unwanted = NULL;
    pthread_mutex_lock(&b->lock);
    b->used -= (int64_t)block->extra;
    if (block->data && !b->waiters && b->n_kept < MAX_KEPT && block->cap <= MAX_KEPT_BYTES) {
        b->kept[b->n_kept++] = (pen__block){block->data, block->cap, 0};
    } else {
        b->used -= (int64_t)block->cap;
        unwanted = block->data;
    }
    if (b->waiters)
        pthread_cond_broadcast(&b->freed);
    pthread_mutex_unlock(&b->lock);
    pen__free(unwanted);
    memset(block, 0, sizeof *block);
}

void pen__budget_wake(pen__budget *b)
{
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->freed);
    pthread_mutex_unlock(&b->lock);
}

int64_t pen__budget_limit(const pen__budget *b)
{
    return b->limit;
}

void pen__budget_usage(pen__budget *b, int64_t *used, int64_t *peak)
{
    pthread_mutex_lock(&b->lock);
    *used = b->used;
    *peak = b->peak;
    pthread_mutex_unlock(&b->lock);
}
