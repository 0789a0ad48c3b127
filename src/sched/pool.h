/* pool.h - a group of named threads that start and end together. */
#ifndef PEN_SCHED_POOL_H
#define PEN_SCHED_POOL_H

typedef struct pen__pool pen__pool;

/* Start n threads that each run fn(ctx, index) once.  All signals are blocked in
 * them: they belong to the program.  If not even one starts, an error; if some
 * do not, the pool is smaller. */
int pen__pool_start(pen__pool **out, int n, void (*fn)(void *ctx, int index), void *ctx);
int pen__pool_size(const pen__pool *pool);
/* Wait for all to return, then free.  Whatever they wait for must have been closed.
 * NULL is legal. */
void pen__pool_join(pen__pool *pool);

#endif
