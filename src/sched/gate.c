/* gate.c - a semaphore whose number of places changes. */
#include "sched/gate.h"

void pen__gate_init(pen__gate *gate)
{
    atomic_store(&gate->limit, 0);
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->left, NULL);
    gate->n_inside = 0;
}

void pen__gate_fini(pen__gate *gate)
{
    pthread_cond_destroy(&gate->left);
    pthread_mutex_destroy(&gate->lock);
}

void pen__gate_limit(pen__gate *gate, int limit)
{
    pthread_mutex_lock(&gate->lock);
    atomic_store(&gate->limit, limit < 0 ? 0 : limit);
    pthread_cond_broadcast(&gate->left);
    pthread_mutex_unlock(&gate->lock);
}

static int is_full(const pen__gate *gate)
{
    int limit = atomic_load_explicit(&gate->limit, memory_order_relaxed);
    return limit > 0 && gate->n_inside >= limit;
}

int pen__gate_enter(pen__gate *gate)
{
    if (atomic_load_explicit(&gate->limit, memory_order_relaxed) == 0)
        return 0;
    pthread_mutex_lock(&gate->lock);
    while (is_full(gate))
        pthread_cond_wait(&gate->left, &gate->lock);
    gate->n_inside++;
    pthread_mutex_unlock(&gate->lock);
    return 1;
}

void pen__gate_leave(pen__gate *gate, int ticket)
{
    if (!ticket)
        return;
    pthread_mutex_lock(&gate->lock);
    gate->n_inside--;
    pthread_cond_signal(&gate->left);
    pthread_mutex_unlock(&gate->lock);
}
