/* budget.h - the memory that samples on their way may take, as a hard limit.
 *
 * Workers get blocks here and put them back.  Returned blocks are kept for the
 * next sample while there is room, and given up as soon as somebody needs it.
 * Running into the limit makes a worker wait, never the total grow.
 *
 * A worker's last block waits in a home of its own, where getting it again takes no lock;
 * whoever runs into the limit may empty the homes of all.
 *
 * Why nobody waits for ever: whoever waits holds nothing, whoever holds
 * something finishes, and the sample closest to delivery is served first.
 * What was read ahead and waits for a worker is nobody's: it is reclaimed.
 */
#ifndef PEN_ENGINE_BUDGET_H
#define PEN_ENGINE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pen__budget pen__budget;

typedef struct pen__block {
    uint8_t *data; /* 64-byte aligned */
    size_t cap;
    size_t extra; /* counted, but allocated by someone else (a decoding library) */
} pen__block;

/* Where one thread's block waits for its next sample.  Zeroed before it is added. */
typedef struct pen__home {
    atomic_int state;
    pen__block block;
    struct pen__home *next;
} pen__home;

/* `cancel`: once true, waiting ends with PEN_ECANCELED (after pen__budget_wake). */
int pen__budget_create(pen__budget **out, int64_t limit_bytes, const atomic_bool *cancel);
void pen__budget_free(pen__budget *budget);
/* A thread comes with its home, and leaves. */
void pen__budget_add_home(pen__budget *budget, pen__home *home);
void pen__budget_remove_home(pen__budget *budget, pen__home *home);

/* A block of at least `bytes`, with `extra` bytes counted beside it.  `rank` orders
 * those who wait: the lowest is next.  The caller holds no other block if it `may_wait`.
 * `home` is the thread's own, or NULL.
 * 0, PEN_EBUDGET (could never fit), PEN_AGAIN (would have to wait), PEN_ECANCELED,
 * PEN_ENOMEM. */
int pen__budget_get(pen__budget *budget, pen__home *home, int64_t rank, size_t bytes, size_t extra,
                    bool may_wait, pen__block *out);
/* A block for something that can wait, such as reading ahead: only if nobody waits and a
 * quarter of the limit stays free.  0, PEN_AGAIN, PEN_ENOMEM. */
int pen__budget_get_spare(pen__budget *budget, size_t bytes, pen__block *out);
/* Where blocks are that may be taken back: gives the address and size of one, or 0.  Called
 * with the budget's lock held, when somebody would have to wait otherwise. */
typedef size_t (*pen__budget_reclaim)(void *ctx, void **data);
void pen__budget_set_reclaim(pen__budget *budget, pen__budget_reclaim reclaim, void *ctx);
/* Something may be reclaimed now: whoever waits looks again. */
void pen__budget_nudge(pen__budget *budget);
/* What a block of so many bytes counts: sizes are rounded up. */
size_t pen__budget_cost(size_t bytes);
/* Give a block back, to the thread's home or, with NULL, to all; one that is all zero is ignored.
 */
void pen__budget_put(pen__budget *budget, pen__home *home, pen__block *block);
/* Make waiters look at `cancel`. */
void pen__budget_wake(pen__budget *budget);

int64_t pen__budget_limit(const pen__budget *budget);
void pen__budget_usage(const pen__budget *budget, int64_t *used, int64_t *peak);

#endif
