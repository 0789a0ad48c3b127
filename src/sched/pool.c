/* pool.c - threads. */
#include "sched/pool.h"

#include <penstock/error.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
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
    const char *name;
    int cap;
    _Atomic int n;
    member members[];
};

static void *enter(void *arg)
{
    member *self = arg;
    self->pool->fn(self->pool->ctx, self->index);
    return NULL;
}

int pen__pool_create(pen__pool **out, int cap, const char *name, void (*fn)(void *ctx, int index),
                     void *ctx)
{
    pen__pool *pool = pen__calloc(1, sizeof *pool + (size_t)cap * sizeof pool->members[0]);
    *out = pool;
    if (!pool)
        return PEN_ENOMEM;
    pool->fn = fn;
    pool->ctx = ctx;
    pool->name = name;
    pool->cap = cap;
    return 0;
}

int pen__pool_grow(pen__pool *pool, int n)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int started = atomic_load(&pool->n);
    for (; started < n && started < pool->cap; started++) {
        member *m = &pool->members[started];
        *m = (member){.pool = pool, .index = started};
        if (pthread_create(&m->thread, NULL, enter, m) != 0)
            break;
        char name[32];
        snprintf(name, sizeof name, "%.11s-%d", pool->name, started % 1000); /* 15 at most */
        pthread_setname_np(m->thread, name);
        atomic_store(&pool->n, started + 1);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

int pen__pool_start(pen__pool **out, int n, void (*fn)(void *ctx, int index), void *ctx)
{
    int rc = pen__pool_create(out, n, "penstock", fn, ctx);
    if (rc == 0 && pen__pool_grow(*out, n) == 0) {
        pen__free(*out);
        *out = NULL;
        rc = PEN_ENOMEM;
    }
    return rc;
}

int pen__pool_size(const pen__pool *pool)
{
    return pool ? atomic_load(&pool->n) : 0;
}

void pen__pool_join(pen__pool *pool)
{
    if (!pool)
        return;
    for (int i = 0; i < pool->n; i++)
        pthread_join(pool->members[i].thread, NULL);
    pen__free(pool);
}
