/* pool.c - threads. */
#include "sched/pool.h"

#include <penstock/error.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "base/mem.h"

typedef struct member {
    pen__pool *pool;
    pthread_t thread;
    int index;
} member;

struct pen__pool {
    void (*fn)(void *ctx, int index);
    void *ctx;
    int n;
    member members[];
};

static void *enter(void *arg)
{
    member *self = arg;
    self->pool->fn(self->pool->ctx, self->index);
    return NULL;
}

int pen__pool_start(pen__pool **out, int n, void (*fn)(void *ctx, int index), void *ctx)
{
    *out = NULL;
    pen__pool *pool = pen__calloc(1, sizeof *pool + (size_t)n * sizeof pool->members[0]);
    if (!pool)
        return PEN_ENOMEM;
    pool->fn = fn;
    pool->ctx = ctx;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < n; i++) {
        member *m = &pool->members[pool->n];
        m->pool = pool;
        m->index = i;
        if (pthread_create(&m->thread, NULL, enter, m) != 0)
            break;
        char name[16];
        snprintf(name, sizeof name, "penstock-%d", i % 1000);
        pthread_setname_np(m->thread, name);
        pool->n++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pool->n == 0) {
        pen__free(pool);
        return PEN_ENOMEM;
    }
    *out = pool;
    return 0;
}

int pen__pool_size(const pen__pool *pool)
{
    return pool ? pool->n : 0;
}

void pen__pool_join(pen__pool *pool)
{
    if (!pool)
        return;
    for (int i = 0; i < pool->n; i++)
        pthread_join(pool->members[i].thread, NULL);
    pen__free(pool);
}
