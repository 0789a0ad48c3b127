/* gate.h - at most so many threads inside at once; the number may change at any time.
 *
 * Nobody takes a lock while the gate is wide open, which it usually is.
 */
#ifndef PEN_SCHED_GATE_H
#define PEN_SCHED_GATE_H

#include <pthread.h>
#include <stdatomic.h>

typedef struct pen__gate {
    _Atomic int limit; /* 0: open to all */
    pthread_mutex_t lock;
    pthread_cond_t left;
    int n_inside; /* of those who went through while it was limited */
} pen__gate;

void pen__gate_init(pen__gate *gate);
void pen__gate_fini(pen__gate *gate);
/* Fewer than are inside: nobody enters until enough have left. */
void pen__gate_limit(pen__gate *gate, int limit);

/* Wait for a place.  The answer is what pen__gate_leave wants to hear.  Holds nothing that
 * those inside wait for. */
int pen__gate_enter(pen__gate *gate);
void pen__gate_leave(pen__gate *gate, int ticket);

#endif
