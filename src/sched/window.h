/* window.h - the reorder window: jobs handed out in order, finished in any,
 * taken in order again.
 *
 * A job is one batch; it has slots, and a slot is what a worker claims.  At most
 * `capacity` jobs are open at once, so a slow slot holds up its own job and, only
 * once the window is full, the ones behind it.
 *
 *     worker     claim() -> (job, slot)   ... work ...   done()
 *     consumer   take()  -> the oldest job, once all its slots are done
 *
 * All limits may be changed while it runs: how many jobs are open at once, how many
 * workers claim (the others are parked), how far readers go ahead of them.
 *
 * A reader claims a slot, brings what it needs, and shelves it with that cargo; workers
 * take shelved slots before fresh ones, oldest first.  A cargo is a convenience: it may be
 * taken away again (pen__window_strip), and whoever claims the slot then fetches it.
 *
 * Claiming a slot and finishing it take no lock, but for the first and the last of a
 * job and for what passes over the shelf.  The one mutex here is never held while work is done, and
 * no other lock is taken under it except the ones `open` takes.
 */
#ifndef PEN_SCHED_WINDOW_H
#define PEN_SCHED_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pen__window pen__window;

/* Called under the window's lock to open job `seq` (0, 1, 2, ...): sets *payload and
 * returns its slots (1 to 2^24 - 1), 0 if there is none before the next pen__window_poke, or a
 * negative error, which stops new jobs and is reported by take once the jobs before it
 * are gone. */
typedef int (*pen__window_open)(void *ctx, int64_t seq, void **payload);

typedef struct pen__claim {
    int64_t seq;
    int32_t slot;
    void *payload;
    void *cargo; /* what a reader brought, the claimer's now; NULL: nothing */
    size_t cargo_bytes;
    int64_t idle_ns; /* that the claimer waited for room, and was not parked */
} pen__claim;

typedef enum pen__role { PEN__WORKER, PEN__READER, PEN__ROLES } pen__role;

/* What is going on, at one moment. */
typedef struct pen__window_facts {
    int n_open, n_ready;   /* jobs; of them complete */
    int n_busy, n_shelved; /* claims in somebody's hands; on the shelf */
    int crew[PEN__ROLES];  /* threads that may claim */
} pen__window_facts;

int pen__window_create(pen__window **out, int capacity, pen__window_open open, void *ctx);
void pen__window_free(pen__window *window);

/* Call taken(ctx, payload) for each job that is taken, before its place is given to another. */
void pen__window_on_take(pen__window *window, void (*taken)(void *ctx, void *payload));
/* How many jobs are open at once, 1 to capacity; at first as many as fit.  Fewer than are
 * open: no new ones until enough were taken. */
void pen__window_limit(pen__window *window, int n_jobs);
/* How many threads of a role claim: those with a lower index; at first all. */
void pen__window_crew(pen__window *window, pen__role role, int n_threads);
/* Let readers be up to n slots ahead of the workers, at most PEN__SHELF_CAP; 0 at first.
 * `let_go` gets cargoes that are not wanted any more, with no lock held.  PEN_ENOMEM. */
#define PEN__SHELF_CAP 1024
typedef void (*pen__window_let_go)(void *ctx, void *cargo, size_t bytes);
int pen__window_read_ahead(pen__window *window, int n_slots, pen__window_let_go let_go);

/* Wait for a slot and claim it.  0, or PEN_END once the window is closed.
 * With `wait` false, PEN_AGAIN instead of waiting. */
int pen__window_claim(pen__window *window, bool wait, pen__claim *out);
/* The same for thread `index` of a role: waits also while it is parked. */
int pen__window_claim_as(pen__window *window, pen__role role, int index, pen__claim *out);
void pen__window_done(pen__window *window, const pen__claim *claim);
/* A reader puts its slot on the shelf, with what it brought. */
void pen__window_shelve(pen__window *window, const pen__claim *claim);
/* Take the cargo of the shelved slot that is furthest from its turn: its bytes, or 0. */
size_t pen__window_strip(pen__window *window, void **cargo);

/* There may be a job to open again. */
void pen__window_poke(pen__window *window);

/* Wait until the oldest job is done, at most timeout_ns (-1: for ever), and take
 * it.  0, PEN_AGAIN, PEN_END (closed), or the error `open` gave. */
int pen__window_take(pen__window *window, int64_t timeout_ns, void **payload);
/* Is the oldest job done? */
bool pen__window_is_ready(pen__window *window);

/* Throw every open job away: no more claims, wait until claimed slots are done,
 * hand each payload to drop(ctx, payload), and stand still until resumed, when
 * jobs start again at seq 0. */
void pen__window_pause(pen__window *window, void (*drop)(void *ctx, void *payload));
void pen__window_resume(pen__window *window);
/* No more claims or takes; everybody waiting leaves.  For ever. */
void pen__window_close(pen__window *window);

/* Jobs that are complete and wait to be taken. */
int pen__window_ready_count(pen__window *window);
pen__window_facts pen__window_look(pen__window *window);

#endif
