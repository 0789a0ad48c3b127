/* window.c - a ring of open jobs under one lock.
 *
 * Invariants, with the lock held:
 *   1. head <= tail <= head + capacity; jobs head..tail-1 are open.
 *   2. Only the newest open job (tail - 1) has slots left to claim.
 *   3. n_busy counts claims that are not done yet, over all jobs.
 *   4. While `paused`, nothing is claimed or opened.
 */
#include "sched/window.h"

#include <penstock/error.h>

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

typedef struct job {
    void *payload;
    int32_t n_slots, n_claimed, n_done;
} job;

struct pen__window {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t room;  /* workers: a slot may be claimable */
    pthread_cond_t ready; /* consumer: the head may be complete; pause: a claim was done */
    pen__window_open open;
    void *ctx;
    int64_t head, tail;
    int n_busy, open_error;
    bool paused, closed;
    int capacity;
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
    w->capacity = capacity;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->room, NULL);
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
    pthread_cond_destroy(&w->room);
    pthread_mutex_destroy(&w->lock);
    pen__free(w);
}

static job *job_at(pen__window *w, int64_t seq)
{
    return &w->ring[seq % w->capacity];
}

static bool head_is_complete(pen__window *w)
{
    const job *j = job_at(w, w->head);
    return w->head < w->tail && j->n_done == j->n_slots;
}

/* Make sure that the newest job has a slot to claim; false if that is not possible now. */
static bool have_slot(pen__window *w)
{
    if (w->paused || w->open_error)
        return false;
    if (w->tail > w->head) {
        const job *newest = job_at(w, w->tail - 1);
        if (newest->n_claimed < newest->n_slots)
            return true;
    }
    if (w->tail - w->head == w->capacity)
        return false;
    void *payload = NULL;
    int n_slots = w->open(w->ctx, w->tail, &payload);
    if (n_slots == 0)
        return false;
    if (n_slots < 0) {
        w->open_error = n_slots;
        pthread_cond_broadcast(&w->ready);
        return false;
    }
    *job_at(w, w->tail) = (job){.payload = payload, .n_slots = n_slots};
    w->tail++;
    if (n_slots > 1) /* whoever waits for room may help with this one */
        pthread_cond_broadcast(&w->room);
    return true;
}

int pen__window_claim(pen__window *w, bool wait, pen__claim *out)
{
    pthread_mutex_lock(&w->lock);
    int rc = 0;
    while (!w->closed && !have_slot(w)) {
        if (!wait) {
            rc = PEN_AGAIN;
            break;
        }
        pthread_cond_wait(&w->room, &w->lock);
    }
    if (w->closed) {
        rc = PEN_END;
    } else if (rc == 0) {
        job *newest = job_at(w, w->tail - 1);
        *out = (pen__claim){w->tail - 1, newest->n_claimed++, newest->payload};
        w->n_busy++;
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void pen__window_done(pen__window *w, const pen__claim *claim)
{
    pthread_mutex_lock(&w->lock);
    job *j = job_at(w, claim->seq);
    j->n_done++;
    w->n_busy--;
    bool wakes_taker = claim->seq == w->head && j->n_done == j->n_slots;
    if (wakes_taker || (w->paused && w->n_busy == 0))
        pthread_cond_broadcast(&w->ready);
    pthread_mutex_unlock(&w->lock);
}

void pen__window_poke(pen__window *w)
{
    pthread_mutex_lock(&w->lock);
    pthread_cond_broadcast(&w->room);
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
        w->head++;
        pthread_cond_broadcast(&w->room);
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

void pen__window_pause(pen__window *w, void (*drop)(void *ctx, void *payload))
{
    pthread_mutex_lock(&w->lock);
    w->paused = true;
    while (w->n_busy > 0)
        pthread_cond_wait(&w->ready, &w->lock);
    for (; w->head < w->tail; w->head++)
        drop(w->ctx, job_at(w, w->head)->payload);
    w->head = w->tail = 0;
    w->open_error = 0;
    pthread_mutex_unlock(&w->lock);
}

void pen__window_resume(pen__window *w)
{
    pthread_mutex_lock(&w->lock);
    w->paused = false;
    pthread_cond_broadcast(&w->room);
    pthread_mutex_unlock(&w->lock);
}

void pen__window_close(pen__window *w)
{
    pthread_mutex_lock(&w->lock);
    w->closed = true;
    pthread_cond_broadcast(&w->room);
    pthread_cond_broadcast(&w->ready);
    pthread_mutex_unlock(&w->lock);
}

int pen__window_ready_count(pen__window *w)
{
    int n = 0;
    pthread_mutex_lock(&w->lock);
    for (int64_t seq = w->head; seq < w->tail; seq++)
        n += job_at(w, seq)->n_done == job_at(w, seq)->n_slots;
    pthread_mutex_unlock(&w->lock);
    return n;
}
