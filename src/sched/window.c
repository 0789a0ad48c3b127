/* window.c - a ring of open jobs under one lock, and a ticket that needs none.
 *
 * Slots of the newest job are claimed by decrementing the ticket, done ones are counted in
 * their job; the lock is taken once or twice a job, to open it and to wake the taker.
 *
 * Invariants, with the lock held:
 *   1. head <= tail <= head + capacity; jobs head..tail-1 are open.
 *   2. Only the newest open job (tail - 1) has slots left to claim.  The ticket is its number and
 *      how many; who decrements it owns a slot, and the job stays until that is done.
 *   3. Jobs are numbered on for ever, so that a ticket never comes back; `base` is the
 *      number at which the caller's count began, and does not change while a slot is claimed.
 *   4. While `paused` or `closed`, the ticket is empty and nothing is opened.
 *   5. The shelf is in order of (seq, slot), and a slot on it is claimed and not done.
 */
#include "sched/window.h"

#include <penstock/error.h>

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

enum { TICKET_BITS = 24 }; /* of slots left; above them the job's number */

typedef struct job {
    void *payload;
    int32_t n_slots;
    int32_t n_dropped; /* slots that a pause took away, unclaimed or from the shelf */
    _Atomic int32_t n_done;
} job;

struct pen__window {
    pthread_mutex_t lock;            /* guards all below but what is atomic */
    pthread_cond_t room[PEN__ROLES]; /* a slot may be claimable */
    pthread_cond_t parked;           /* a crew has grown */
    pthread_cond_t ready; /* consumer: the head may be complete; pause: a claim was done */
    pen__window_open open;
    void (*taken)(void *ctx, void *payload); /* or NULL */
    void *ctx;
    int64_t head, tail, base;
    int open_error;
    bool closed;
    int capacity, limit; /* of open jobs: a constant, and what is wanted now */
    int n_reading, max_ahead;
    pen__claim *shelf; // (PEN__SHELF_CAP), in use from first to last - 1; NULL: no readers yet
    int first, last;
    pen__window_let_go let_go;
    _Atomic int crew[PEN__ROLES]; /* threads that claim */
    _Atomic int n_shelved;        /* last - first */
    atomic_bool paused;
    _Atomic uint64_t ticket;
    job ring[];
};

int pen__window_create(pen__window **out, int capacity, pen__window_open open, void *ctx)
{
    *out = NULL;
    pen__window *w = pen__calloc(1, sizeof *w + (size_t)capacity * sizeof w->ring[0]);
    if (!w)
        return PEN_ENOMEM;
    w->open = open;
    w->ctx = ctx;
    w->capacity = w->limit = capacity;
    w->crew[PEN__WORKER] = w->crew[PEN__READER] = INT_MAX;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->room[PEN__WORKER], NULL);
    pthread_cond_init(&w->room[PEN__READER], NULL);
    pthread_cond_init(&w->parked, NULL);
    pthread_cond_init(&w->ready, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = w;
    return 0;
}

void pen__window_free(pen__window *w)
{
    if (!w)
        return;
    pthread_cond_destroy(&w->ready);
    pthread_cond_destroy(&w->parked);
    pthread_cond_destroy(&w->room[PEN__READER]);
    pthread_cond_destroy(&w->room[PEN__WORKER]);
    pthread_mutex_destroy(&w->lock);
    pen__free(w->shelf);
    pen__free(w);
}

/* Everybody who waits for a slot looks again. */
static void call_all(pen__window *w)
{
    pthread_cond_broadcast(&w->room[PEN__WORKER]);
    pthread_cond_broadcast(&w->room[PEN__READER]);
}

static job *job_at(pen__window *w, int64_t seq)
{
    return &w->ring[seq % w->capacity];
}

static bool is_complete(const job *j)
{
    return atomic_load(&j->n_done) == j->n_slots;
}

static bool head_is_complete(pen__window *w)
{
    return w->head < w->tail && is_complete(job_at(w, w->head));
}

static int32_t slots_left(uint64_t ticket)
{
    return (int32_t)(ticket & ((1U << TICKET_BITS) - 1));
}

/* Claim a slot of the newest job, if it has one left. */
static bool take_ticket(pen__window *w, pen__claim *out)
{
    uint64_t ticket = atomic_load(&w->ticket);
    do {
        if (slots_left(ticket) == 0)
            return false;
    } while (!atomic_compare_exchange_weak(&w->ticket, &ticket, ticket - 1));
    int64_t number = (int64_t)(ticket >> TICKET_BITS);
    const job *j = job_at(w, number);
    *out = (pen__claim){
        .seq = number - w->base, .slot = j->n_slots - slots_left(ticket), .payload = j->payload};
    return true;
}

/* Nobody claims anything more of the newest job. */
static void void_ticket(pen__window *w)
{
    int32_t n_left = slots_left(atomic_exchange(&w->ticket, 0));
    if (n_left > 0)
        job_at(w, w->tail - 1)->n_dropped += n_left;
}

/* Open a job whose slots can be claimed; false if that is not possible now. */
static bool open_job(pen__window *w)
{
    if (w->paused || w->open_error || w->tail - w->head >= w->limit)
        return false;
    void *payload = NULL;
    int n_slots = w->open(w->ctx, w->tail - w->base, &payload);
    if (n_slots == 0)
        return false;
    if (n_slots < 0) {
        w->open_error = n_slots;
        pthread_cond_broadcast(&w->ready);
        return false;
    }
    job *j = job_at(w, w->tail);
    *j = (job){.payload = payload, .n_slots = n_slots};
    atomic_store(&w->ticket, (uint64_t)w->tail << TICKET_BITS | (uint64_t)n_slots);
    w->tail++;
    if (n_slots > 1) /* whoever waits for room may help with this one */
        call_all(w);
    return true;
}

/* The oldest slot that was read ahead. */
static bool take_shelved(pen__window *w, pen__claim *out)
{
    if (w->paused || w->first == w->last)
        return false;
    *out = w->shelf[w->first++];
    atomic_fetch_sub(&w->n_shelved, 1);
    pthread_cond_signal(&w->room[PEN__READER]);
    return true;
}

/* A slot for a thread of this role, in a job that is opened if need be. */
static bool claim_slot(pen__window *w, pen__role role, pen__claim *out)
{
    if (role == PEN__READER && w->n_reading + w->n_shelved >= w->max_ahead)
        return false;
    if (role == PEN__WORKER && take_shelved(w, out))
        return true;
    while (!take_ticket(w, out))
        if (!open_job(w))
            return false;
    w->n_reading += role == PEN__READER;
    return true;
}

/* Under the lock, whoever the slots are for. */
static int claim_or_wait(pen__window *w, pen__role role, int index, bool wait, pen__claim *out)
{
    int rc = 0;
    int64_t idle_ns = 0;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        bool is_parked = index >= w->crew[role];
        if (w->closed)
            rc = PEN_END;
        else if (!is_parked && claim_slot(w, role, out))
            rc = 0;
        else if (!wait)
            rc = PEN_AGAIN;
        else {
            const int64_t begin_ns = pen__now_ns();
            pthread_cond_wait(is_parked ? &w->parked : &w->room[role], &w->lock);
            idle_ns += is_parked ? 0 : pen__now_ns() - begin_ns;
            continue;
        }
        break;
    }
    pthread_mutex_unlock(&w->lock);
    out->idle_ns = idle_ns;
    return rc;
}

int pen__window_claim(pen__window *w, bool wait, pen__claim *out)
{
    if (w->n_shelved == 0 && take_ticket(w, out))
        return 0;
    return claim_or_wait(w, PEN__WORKER, 0, wait, out);
}

int pen__window_claim_as(pen__window *w, pen__role role, int index, pen__claim *out)
{
    if (role == PEN__WORKER && index < w->crew[role] && w->n_shelved == 0 && take_ticket(w, out))
        return 0;
    return claim_or_wait(w, role, index, true, out);
}

void pen__window_done(pen__window *w, const pen__claim *claim)
{
    job *j = job_at(w, w->base + claim->seq);
    int32_t n_slots = j->n_slots; /* once the last slot is done, the job may be gone */
    bool is_last = atomic_fetch_add(&j->n_done, 1) + 1 == n_slots;
    if (!is_last && !atomic_load(&w->paused))
        return;
    pthread_mutex_lock(&w->lock);
    pthread_cond_broadcast(&w->ready);
    pthread_mutex_unlock(&w->lock);
}

static bool comes_after(const pen__claim *a, const pen__claim *b)
{
    return a->seq != b->seq ? a->seq > b->seq : a->slot > b->slot;
}

void pen__window_shelve(pen__window *w, const pen__claim *claim)
{
    pthread_mutex_lock(&w->lock);
    if (w->last == PEN__SHELF_CAP) { /* never more than max_ahead: there is room in front */
        memmove(w->shelf, w->shelf + w->first, (size_t)(w->last - w->first) * sizeof *w->shelf);
        w->last -= w->first;
        w->first = 0;
    }
    int at = w->last++;
    for (; at > w->first && comes_after(&w->shelf[at - 1], claim); at--)
        w->shelf[at] = w->shelf[at - 1];
    w->shelf[at] = *claim;
    w->n_reading--;
    atomic_fetch_add(&w->n_shelved, 1);
    pthread_cond_signal(&w->room[PEN__WORKER]);
    if (w->paused)
        pthread_cond_broadcast(&w->ready);
    pthread_mutex_unlock(&w->lock);
}

size_t pen__window_strip(pen__window *w, void **cargo)
{
    size_t bytes = 0;
    pthread_mutex_lock(&w->lock);
    for (int i = w->last - 1; i >= w->first && bytes == 0; i--)
        if (w->shelf[i].cargo) {
            *cargo = w->shelf[i].cargo;
            bytes = w->shelf[i].cargo_bytes;
            w->shelf[i].cargo = NULL;
            w->shelf[i].cargo_bytes = 0;
        }
    pthread_mutex_unlock(&w->lock);
    return bytes;
}

void pen__window_on_take(pen__window *w, void (*taken)(void *ctx, void *payload))
{
    pthread_mutex_lock(&w->lock);
    w->taken = taken;
    pthread_mutex_unlock(&w->lock);
}

void pen__window_limit(pen__window *w, int n_jobs)
{
    pthread_mutex_lock(&w->lock);
    w->limit = n_jobs < 1 ? 1 : n_jobs > w->capacity ? w->capacity : n_jobs;
    call_all(w);
    pthread_mutex_unlock(&w->lock);
}

void pen__window_crew(pen__window *w, pen__role role, int n_threads)
{
    pthread_mutex_lock(&w->lock);
    w->crew[role] = n_threads;
    pthread_cond_broadcast(&w->parked);
    pthread_cond_broadcast(&w->room[role]); /* some are to be parked now */
    pthread_mutex_unlock(&w->lock);
}

int pen__window_read_ahead(pen__window *w, int n_slots, pen__window_let_go let_go)
{
    int rc = 0;
    pthread_mutex_lock(&w->lock);
    if (n_slots > 0 && !w->shelf && !(w->shelf = pen__calloc(PEN__SHELF_CAP, sizeof *w->shelf))) {
        rc = PEN_ENOMEM;
    } else {
        w->max_ahead = n_slots > PEN__SHELF_CAP ? PEN__SHELF_CAP : n_slots;
        w->let_go = let_go;
        pthread_cond_broadcast(&w->room[PEN__READER]);
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void pen__window_poke(pen__window *w)
{
    pthread_mutex_lock(&w->lock);
    call_all(w);
    pthread_mutex_unlock(&w->lock);
}

/* Wait on `ready` until a deadline; false once it has passed. */
static bool wait_ready(pen__window *w, int64_t deadline_ns)
{
    if (deadline_ns < 0) {
        pthread_cond_wait(&w->ready, &w->lock);
        return true;
    }
    struct timespec until = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    return pthread_cond_timedwait(&w->ready, &w->lock, &until) != ETIMEDOUT;
}

int pen__window_take(pen__window *w, int64_t timeout_ns, void **payload)
{
    int64_t now_ns = pen__now_ns();
    bool is_endless = timeout_ns < 0 || timeout_ns > INT64_MAX - now_ns;
    int64_t deadline_ns = is_endless ? -1 : now_ns + timeout_ns;
    int rc = 0;
    pthread_mutex_lock(&w->lock);
    while (!head_is_complete(w)) {
        if (w->closed)
            rc = PEN_END;
        else if (w->open_error && w->head == w->tail)
            rc = w->open_error;
        else if (!wait_ready(w, deadline_ns) && !head_is_complete(w))
            rc = PEN_AGAIN;
        if (rc)
            break;
    }
    if (rc == 0) {
        *payload = job_at(w, w->head)->payload;
        if (w->taken)
            w->taken(w->ctx, *payload);
        w->head++;
        call_all(w);
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

bool pen__window_is_ready(pen__window *w)
{
    pthread_mutex_lock(&w->lock);
    bool is_ready = head_is_complete(w) || w->closed || (w->open_error && w->head == w->tail);
    pthread_mutex_unlock(&w->lock);
    return is_ready;
}

/* Are claimed slots not done yet?  Asked while the ticket is void. */
static bool is_busy(pen__window *w)
{
    for (int64_t n = w->head; n < w->tail; n++) {
        const job *j = job_at(w, n);
        if (atomic_load(&j->n_done) + j->n_dropped < j->n_slots)
            return true;
    }
    return false;
}

/* Empty the shelf: what was on it is dropped.  The lock is open while a cargo goes. */
static void clear_shelf(pen__window *w)
{
    while (w->last > w->first) {
        pen__claim claim = w->shelf[w->first++];
        atomic_fetch_sub(&w->n_shelved, 1);
        job_at(w, w->base + claim.seq)->n_dropped++;
        if (!claim.cargo)
            continue;
        pen__window_let_go let_go = w->let_go;
        pthread_mutex_unlock(&w->lock);
        let_go(w->ctx, claim.cargo, claim.cargo_bytes);
        pthread_mutex_lock(&w->lock);
    }
}

void pen__window_pause(pen__window *w, void (*drop)(void *ctx, void *payload))
{
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->paused, true); /* before looking: a slot done from now on is announced */
    void_ticket(w);
    for (clear_shelf(w); is_busy(w); clear_shelf(w))
        pthread_cond_wait(&w->ready, &w->lock);
    for (; w->head < w->tail; w->head++)
        drop(w->ctx, job_at(w, w->head)->payload);
    w->base = w->tail;
    w->open_error = 0;
    pthread_mutex_unlock(&w->lock);
}

void pen__window_resume(pen__window *w)
{
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->paused, false);
    call_all(w);
    pthread_mutex_unlock(&w->lock);
}

void pen__window_close(pen__window *w)
{
    pthread_mutex_lock(&w->lock);
    w->closed = true;
    void_ticket(w);
    call_all(w);
    pthread_cond_broadcast(&w->parked);
    pthread_cond_broadcast(&w->ready);
    pthread_mutex_unlock(&w->lock);
}

pen__window_facts pen__window_look(pen__window *w)
{
    pthread_mutex_lock(&w->lock);
    pen__window_facts facts = {
        .n_open = (int)(w->tail - w->head),
        .n_shelved = w->n_shelved,
        .n_busy = -w->n_shelved - slots_left(atomic_load(&w->ticket)),
        .crew = {w->crew[PEN__WORKER], w->crew[PEN__READER]},
    };
    for (int64_t n = w->head; n < w->tail; n++) {
        const job *j = job_at(w, n);
        facts.n_busy += j->n_slots - atomic_load(&j->n_done);
        facts.n_ready += is_complete(j);
    }
    pthread_mutex_unlock(&w->lock);
    if (facts.n_busy < 0) /* claims went on meanwhile */
        facts.n_busy = 0;
    return facts;
}

int pen__window_ready_count(pen__window *w)
{
    return pen__window_look(w).n_ready;
}
