/* lately.h - where the counters stood, about once a second: what the recent past is taken from.
 *
 * The thread that takes batches leaves the marks, any thread asks for one.
 */
#ifndef PEN_ENGINE_LATELY_H
#define PEN_ENGINE_LATELY_H

#include <penstock/stats.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { PEN__LATELY_SECONDS = 10 };

typedef struct pen__mark {
    int64_t time_ns;
    int64_t batches, samples;
    struct {
        int64_t count, sum_ns;
    } stages[PEN_STAGE_COUNT];
    int64_t idle_ns, memory_wait_ns;
} pen__mark;

typedef struct pen__lately {
    int64_t last_ns;      /* the marking thread's own: of the newest mark; 0: none */
    pthread_mutex_t lock; /* guards the rest */
    int64_t n;            /* marks so far; the newest is mark[(n - 1) % (seconds + 1)] */
    pen__mark mark[PEN__LATELY_SECONDS + 1];
    double least_read_s; /* mean of a sample, in the second in which it was least; 0: none */
} pen__lately;

void pen__lately_init(pen__lately *lately);
void pen__lately_fini(pen__lately *lately);

/* Has it been a second?  Asked and added to by one thread. */
bool pen__lately_is_due(const pen__lately *lately, int64_t now_ns);
void pen__lately_add(pen__lately *lately, const pen__mark *mark);

/* The oldest mark of the last ten seconds or so, or the newest if all are older; false: none. */
bool pen__lately_find(pen__lately *lately, int64_t now_ns, pen__mark *out);

/* What reading a sample took when it took least, of all seconds so far; 0: not known. */
double pen__lately_least_read(pen__lately *lately);

/* Take what was before a mark from counters and times, but for percentiles. */
void pen__lately_subtract(pen_pipeline_stats *stats, const pen__mark *mark);

#endif
