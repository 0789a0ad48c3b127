/* shares.h - how the processor's time is shared over stages: weighted deficit.
 *
 * There are as many permits to compute as cores, and whoever computes holds one.  At the
 * border of a stage a thread gives its permit back and asks for the next stage.  If nobody
 * waits it goes on at once; else the permit goes to the waiting stage that has had the least
 * time for its weight.  So a stage above its share yields, but only while somebody else has
 * work for that core: no permit is idle while anybody waits.
 *
 * Time is forgotten slowly, so that a stage that slept does not come back with a claim on
 * everything.  Without weights (as at first) nobody takes a lock.
 */
#ifndef PEN_SCHED_SHARES_H
#define PEN_SCHED_SHARES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { PEN__SHARE_STAGES = 4 }; /* decode, augment, tokenize, transfer */

typedef struct pen__shares {
    _Atomic bool is_on;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t freed;
    double weight[PEN__SHARE_STAGES];
    double used_ns[PEN__SHARE_STAGES]; /* recently */
    int n_waiting[PEN__SHARE_STAGES];
    int n_permits, n_held;
} pen__shares;

void pen__shares_init(pen__shares *shares, int n_permits);
void pen__shares_fini(pen__shares *shares);
/* So many permits from now on; what is held above that is given back at the next border. */
void pen__shares_limit(pen__shares *shares, int n_permits);
/* Weights of at least 0; all 0 switches it off. */
void pen__shares_set(pen__shares *shares, const double weight[PEN__SHARE_STAGES]);

/* Wait for a permit to compute for a stage; false: it is switched off, none was taken. */
bool pen__shares_enter(pen__shares *shares, int stage);
/* Give the permit back after so much time in the stage. */
void pen__shares_leave(pen__shares *shares, int stage, int64_t ns);

#endif
