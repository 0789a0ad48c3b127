/* lately.c - where the counters stood in the last seconds. */
#include "engine/lately.h"

enum {
    MARKS = PEN__LATELY_SECONDS + 1,
    FEW_READS = 16 /* say little about a second */
};

static const int64_t SECOND = 1000000000;

void pen__lately_init(pen__lately *lately)
{
    pthread_mutex_init(&lately->lock, NULL);
}

void pen__lately_fini(pen__lately *lately)
{
    pthread_mutex_destroy(&lately->lock);
}

bool pen__lately_is_due(const pen__lately *lately, int64_t now_ns)
{
    return lately->last_ns == 0 || now_ns - lately->last_ns >= SECOND;
}

static void note_reading(pen__lately *lately, const pen__mark *mark)
{
    const pen__mark none = {0};
    const pen__mark *last = lately->n > 0 ? &lately->mark[(lately->n - 1) % MARKS] : &none;
    const int64_t n = mark->stages[PEN_STAGE_READ].count - last->stages[PEN_STAGE_READ].count;
    const int64_t ns = mark->stages[PEN_STAGE_READ].sum_ns - last->stages[PEN_STAGE_READ].sum_ns;
    if (n < FEW_READS)
        return;
    const double read_s = (double)ns * 1e-9 / (double)n;
    if (lately->least_read_s == 0 || read_s < lately->least_read_s)
        lately->least_read_s = read_s;
}

void pen__lately_add(pen__lately *lately, const pen__mark *mark)
{
    lately->last_ns = mark->time_ns;
    pthread_mutex_lock(&lately->lock);
    note_reading(lately, mark);
    lately->mark[lately->n++ % MARKS] = *mark;
    pthread_mutex_unlock(&lately->lock);
}

bool pen__lately_find(pen__lately *lately, int64_t now_ns, pen__mark *out)
{
    const int64_t reach = now_ns - (2 * PEN__LATELY_SECONDS + 1) * SECOND / 2;
    pthread_mutex_lock(&lately->lock);
    const int64_t n = lately->n;
    int64_t i = n > MARKS ? n - MARKS : 0;
    while (i < n - 1 && lately->mark[i % MARKS].time_ns < reach)
        i++;
    if (n > 0)
        *out = lately->mark[i % MARKS];
    pthread_mutex_unlock(&lately->lock);
    return n > 0;
}

double pen__lately_least_read(pen__lately *lately)
{
    pthread_mutex_lock(&lately->lock);
    const double least_s = lately->least_read_s;
    pthread_mutex_unlock(&lately->lock);
    return least_s;
}

void pen__lately_subtract(pen_pipeline_stats *stats, const pen__mark *mark)
{
    stats->batches -= mark->batches;
    stats->samples -= mark->samples;
    stats->idle_ns -= mark->idle_ns;
    stats->memory_wait_ns -= mark->memory_wait_ns;
    for (int i = 0; i < PEN_STAGE_COUNT; i++) {
        pen_stage_stats *s = &stats->stages[i];
        s->count -= mark->stages[i].count;
        s->total_s -= (double)mark->stages[i].sum_ns * 1e-9;
        s->mean_s = s->count > 0 ? s->total_s / (double)s->count : 0;
    }
}
