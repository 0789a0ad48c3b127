/* budget.c - blocks under one limit.
 *
 * Invariants:
 *   1. used <= limit: `used` counts blocks in use, their extras, and kept blocks, also at home.
 *   2. Kept blocks are nobody's and may be freed at any moment by who holds the lock; so may
 *      what `reclaim` gives.
 *   3. While somebody waits, no block is got or kept without the lock, and a get succeeds
 *      only if no waiter has a lower rank.
 *
 * Why no wake-up is lost though blocks go home without the lock: who wants to wait first says so in
 * n_waiters and then looks for blocks at home; who brings one home first leaves it and
 * then looks at n_waiters.  One of the two sees the other.  The same holds for what is put
 * where it can be reclaimed, and pen__budget_nudge.
 */
#include "engine/budget.h"

#include <penstock/error.h>

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

enum {
    BLOCK_ROUND = 1 << 16, /* sizes in 64 KiB steps, so that kept blocks fit again */
    MAX_KEPT = 32,
    MAX_KEPT_BYTES = 1 << 25, /* a huge image's block is not worth keeping */
};

/* A home's state.  Its thread and, with the lock, others move it from FULL to BUSY; whoever did
 * may look at the block. */
enum { HOME_EMPTY, HOME_FULL, HOME_BUSY };

typedef struct waiter {
    int64_t rank;
    struct waiter *next;
} waiter;

struct pen__budget {
    pthread_mutex_t lock; /* guards all below but constants and what is atomic */
    pthread_cond_t freed;
    const atomic_bool *cancel;
    int64_t limit;
    pen__budget_reclaim reclaim; /* or NULL */
    void *reclaim_ctx;
    _Atomic int64_t used, peak;
    atomic_int n_waiters;
    waiter *waiters;
    pen__home *homes;
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
        pen__pages_free(b->kept[i].data, b->kept[i].cap);
    pthread_cond_destroy(&b->freed);
    pthread_mutex_destroy(&b->lock);
    pen__free(b);
}

void pen__budget_add_home(pen__budget *b, pen__home *home)
{
    pthread_mutex_lock(&b->lock);
    home->next = b->homes;
    b->homes = home;
    pthread_mutex_unlock(&b->lock);
}

/* What is at home, if nobody was faster. */
static bool empty_home(pen__home *home, pen__block *out)
{
    int full = HOME_FULL;
    if (!atomic_compare_exchange_strong(&home->state, &full, HOME_BUSY))
        return false;
    *out = home->block;
    home->block = (pen__block){0};
    atomic_store(&home->state, HOME_EMPTY);
    return true;
}

static bool reclaim_one(pen__budget *b, pen__block *out)
{
    void *data = NULL;
    size_t n = b->reclaim ? b->reclaim(b->reclaim_ctx, &data) : 0;
    *out = (pen__block){data, n, 0};
    return n > 0;
}

/* Free a block that nobody uses; false if there is none. */
static bool drop_one(pen__budget *b)
{
    pen__block dropped = {0};
    if (b->n_kept > 0)
        dropped = b->kept[--b->n_kept];
    for (pen__home *home = b->homes; home && !dropped.data; home = home->next)
        empty_home(home, &dropped);
    if (!dropped.data)
        reclaim_one(b, &dropped);
    if (!dropped.data)
        return false;
    b->used -= (int64_t)dropped.cap;
    pen__pages_free(dropped.data, dropped.cap);
    return true;
}

/* Is a block good for so many bytes, without wasting more than it holds? */
static bool suits(const pen__block *block, size_t bytes)
{
    return block->cap >= bytes && block->cap / 4 <= bytes;
}

/* Take the smallest kept block that suits. */
static bool reuse(pen__budget *b, size_t bytes, pen__block *out)
{
    int best = -1;
    for (int i = 0; i < b->n_kept; i++)
        if (suits(&b->kept[i], bytes) && (best < 0 || b->kept[i].cap < b->kept[best].cap))
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

/* Count `bytes` more if they fit below `limit`.  Needs no lock. */
static bool try_count_below(pen__budget *b, size_t bytes, int64_t limit)
{
    int64_t used = atomic_load(&b->used), wanted;
    do {
        wanted = used + (int64_t)bytes;
        if (wanted > limit)
            return false;
    } while (!atomic_compare_exchange_weak(&b->used, &used, wanted));
    int64_t peak = atomic_load(&b->peak);
    while (wanted > peak && !atomic_compare_exchange_weak(&b->peak, &peak, wanted)) {
    }
    return true;
}

static bool try_count(pen__budget *b, size_t bytes)
{
    return try_count_below(b, bytes, b->limit);
}

/* Count `bytes` more, giving up kept blocks if that makes room. */
static bool count(pen__budget *b, size_t bytes)
{
    while (!try_count(b, bytes))
        if (!drop_one(b))
            return false;
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
        pen__pages_free(out->data, out->cap);
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
        if (is_queued) {
            pthread_cond_wait(&b->freed, &b->lock);
            continue;
        }
        self.next = b->waiters;
        b->waiters = &self;
        b->n_waiters++;
        is_queued = true; /* and once more: something may just have come home */
    }
    if (is_queued) {
        leave_queue(b, &self);
        b->n_waiters--;
        pthread_cond_broadcast(&b->freed); /* the next in rank may go now */
    }
    return rc;
}

size_t pen__budget_cost(size_t bytes)
{
    return (bytes / BLOCK_ROUND + 1) * BLOCK_ROUND; /* never 0, also for empty files */
}

/* A block becomes nobody's.  Called with the lock held; returns what is to be freed without it. */
static pen__block keep(pen__budget *b, const pen__block *block)
{
    pen__block unwanted = {0};
    b->used -= (int64_t)block->extra;
    if (block->data && !b->waiters && b->n_kept < MAX_KEPT && block->cap <= MAX_KEPT_BYTES) {
        b->kept[b->n_kept++] = (pen__block){block->data, block->cap, 0};
    } else {
        b->used -= (int64_t)block->cap;
        unwanted = *block;
    }
    if (b->waiters)
        pthread_cond_broadcast(&b->freed);
    return unwanted;
}

static void put_for_all(pen__budget *b, pen__block *block)
{
    pthread_mutex_lock(&b->lock);
    pen__block unwanted = keep(b, block);
    pthread_mutex_unlock(&b->lock);
    pen__pages_free(unwanted.data, unwanted.cap);
    memset(block, 0, sizeof *block);
}

/* The block from last time, if it will do.  Takes no lock. */
static bool get_from_home(pen__budget *b, pen__home *home, size_t bytes, size_t extra,
                          pen__block *out)
{
    if (!home || b->n_waiters > 0 || !empty_home(home, out))
        return false;
    if (suits(out, bytes) && try_count(b, extra)) {
        out->extra = extra;
        return true;
    }
    put_for_all(b, out);
    return false;
}

/* Leave the block for next time.  Takes no lock. */
static bool put_at_home(pen__budget *b, pen__home *home, pen__block *block)
{
    if (!home || !block->data || b->n_waiters > 0 || block->cap > MAX_KEPT_BYTES ||
        home->state != HOME_EMPTY)
        return false;
    b->used -= (int64_t)block->extra;
    home->block = (pen__block){block->data, block->cap, 0};
    atomic_store(&home->state, HOME_FULL);
    memset(block, 0, sizeof *block);
    if (b->n_waiters > 0)
        pen__budget_wake(b); /* they may not have seen it */
    return true;
}

/* The memory of a block whose room was reserved, unless it is an old one. */
static int allocate(pen__budget *b, pen__block *block)
{
    if (!block->data && !(block->data = pen__pages(block->cap))) {
        put_for_all(b, block);
        return PEN_ENOMEM;
    }
    return 0;
}

int pen__budget_get(pen__budget *b, pen__home *home, int64_t rank, size_t bytes, size_t extra,
                    bool may_wait, pen__block *out)
{
    memset(out, 0, sizeof *out);
    size_t rounded = pen__budget_cost(bytes);
    if ((int64_t)bytes > b->limit || (int64_t)(rounded + extra) > b->limit)
        return PEN_EBUDGET;
    if (get_from_home(b, home, rounded, extra, out))
        return 0;
    pthread_mutex_lock(&b->lock);
    int rc = reserve_or_wait(b, rank, rounded, extra, may_wait, out);
    pthread_mutex_unlock(&b->lock);
    if (rc) {
        memset(out, 0, sizeof *out);
        return rc;
    }
    return allocate(b, out);
}

int pen__budget_get_spare(pen__budget *b, size_t bytes, pen__block *out)
{
    memset(out, 0, sizeof *out);
    const size_t rounded = pen__budget_cost(bytes);
    bool is_found = false;
    pthread_mutex_lock(&b->lock);
    if (!b->waiters && bytes < (size_t)b->limit)
        is_found = reuse(b, rounded, out) || try_count_below(b, rounded, b->limit / 4 * 3);
    pthread_mutex_unlock(&b->lock);
    if (!is_found)
        return PEN_AGAIN;
    if (!out->data)
        out->cap = rounded;
    return allocate(b, out);
}

void pen__budget_put(pen__budget *b, pen__home *home, pen__block *block)
{
    bool is_none = block->cap == 0 && block->extra == 0;
    if (!is_none && !put_at_home(b, home, block))
        put_for_all(b, block);
}

void pen__budget_remove_home(pen__budget *b, pen__home *home)
{
    pen__block block = {0}, unwanted = {0};
    pthread_mutex_lock(&b->lock);
    pen__home **at = &b->homes;
    while (*at != home)
        at = &(*at)->next;
    *at = home->next;
    if (empty_home(home, &block))
        unwanted = keep(b, &block);
    pthread_mutex_unlock(&b->lock);
    pen__pages_free(unwanted.data, unwanted.cap);
}

void pen__budget_set_reclaim(pen__budget *b, pen__budget_reclaim reclaim, void *ctx)
{
    pthread_mutex_lock(&b->lock);
    b->reclaim = reclaim;
    b->reclaim_ctx = ctx;
    pthread_mutex_unlock(&b->lock);
}

void pen__budget_nudge(pen__budget *b)
{
    if (b->n_waiters > 0)
        pen__budget_wake(b);
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

void pen__budget_usage(const pen__budget *b, int64_t *used, int64_t *peak)
{
    *used = b->used;
    *peak = b->peak;
}
