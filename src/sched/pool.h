/* pool.h - a group of named threads that may grow, and end together. */
#ifndef PEN_SCHED_POOL_H
#define PEN_SCHED_POOL_H

typedef struct pen__pool pen__pool;

/* Room for `cap` threads named `name`-0, -1, ..., none of which runs yet.  PEN_ENOMEM. */
int pen__pool_create(pen__pool **out, int cap, const char *name, void (*fn)(void *ctx, int index),
                     void *ctx);
/* Start threads until n of them were started; each runs fn(ctx, index) once.  All signals
 * are blocked in them: they belong to the program.  Returns how many there are now, fewer
 * than n if the system gives no more.  One caller at a time. */
int pen__pool_grow(pen__pool *pool, int n);

/* Both in one, with n threads at most; if not even one starts, an error. */
int pen__pool_start(pen__pool **out, int n, void (*fn)(void *ctx, int index), void *ctx);
/* Threads started; any thread may ask. */
int pen__pool_size(const pen__pool *pool);
/* Wait for all to return, then free.  Whatever they wait for must have been closed.
 * NULL is legal. */
void pen__pool_join(pen__pool *pool);

#endif
