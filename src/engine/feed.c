/* feed.c - a queue of batches, and how often each sample was in them. */
#include "engine/feed.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"

enum { OCCURRENCE_MASK = 0x7FFF }; /* the upper half is for stand-ins (fill.c) */

struct pen__feed {
    pthread_mutex_t lock;   /* guards the queue: first, last */
    pen__fed *first, *last; /* last is valid while first is not NULL */
    /* the consumer's alone */
    int64_t n_samples;
    int32_t max_batch;
    uint16_t *n_seen;     // (n_samples), of the epoch being fed
    int64_t epoch, index; /* where the next batch stands */
    int64_t n_waiting[2]; /* by the lowest bit of the epoch: two are open at most */
    bool is_fresh;        /* nothing put since the restart */
};

int pen__feed_create(pen__feed **out, int64_t n_samples, int32_t max_batch)
{
    *out = NULL;
    pen__feed *feed = pen__calloc(1, sizeof *feed);
    if (!feed)
        return PEN_ENOMEM;
    feed->n_seen = pen__calloc((size_t)n_samples, sizeof *feed->n_seen);
    if (!feed->n_seen) {
        pen__free(feed);
        return PEN_ENOMEM;
    }
    pthread_mutex_init(&feed->lock, NULL);
    feed->n_samples = n_samples;
    feed->max_batch = max_batch;
    feed->is_fresh = true;
    *out = feed;
    return 0;
}

static void drop_queue(pen__feed *feed)
{
    for (pen__fed *fed; (fed = pen__feed_take(feed));)
        pen__free(fed);
}

void pen__feed_free(pen__feed *feed)
{
    if (!feed)
        return;
    drop_queue(feed);
    pthread_mutex_destroy(&feed->lock);
    pen__free(feed->n_seen);
    pen__free(feed);
}

/* Begin to feed an epoch. */
static void open_epoch(pen__feed *feed, int64_t epoch, int64_t index)
{
    memset(feed->n_seen, 0, (size_t)feed->n_samples * sizeof *feed->n_seen);
    feed->epoch = epoch;
    feed->index = index;
}

void pen__feed_restart(pen__feed *feed, int64_t epoch, int64_t batch)
{
    drop_queue(feed);
    open_epoch(feed, epoch, batch);
    feed->n_waiting[0] = feed->n_waiting[1] = 0;
    feed->is_fresh = true;
}

static int check(const pen__feed *feed, const int64_t *samples, int32_t n, pen_error *err)
{
    if (n < 1 || n > feed->max_batch)
        return pen__fail(err, PEN_EINVAL, -1, "a batch of %d samples: this loader takes 1 to %d", n,
                         feed->max_batch);
    for (int32_t i = 0; i < n; i++)
        if (samples[i] < 0 || samples[i] >= feed->n_samples)
            return pen__fail(err, PEN_EINVAL, -1,
                             "no sample %lld (place %d of the batch): the dataset has %lld",
                             (long long)samples[i], i, (long long)feed->n_samples);
    return 0;
}

static int32_t count_sample(pen__feed *feed, int64_t sample)
{
    return feed->n_seen[sample]++ & OCCURRENCE_MASK;
}

int pen__feed_put(pen__feed *feed, const int64_t *samples, int32_t n, pen_error *err)
{
    int rc = check(feed, samples, n, err);
    if (rc)
        return rc;
    pen__fed *fed = pen__malloc(sizeof *fed + (size_t)n * sizeof fed->slots[0]);
    if (!fed)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    *fed = (pen__fed){.epoch = feed->epoch, .index = feed->index, .n = n};
    for (int32_t i = 0; i < n; i++) {
        fed->slots[i].sample = samples[i];
        fed->slots[i].occurrence = count_sample(feed, samples[i]);
    }
    feed->index++;
    feed->is_fresh = false;
    feed->n_waiting[fed->epoch & 1]++;
    pthread_mutex_lock(&feed->lock);
    if (feed->first)
        feed->last->next = fed;
    else
        feed->first = fed;
    feed->last = fed;
    pthread_mutex_unlock(&feed->lock);
    return 0;
}

int pen__feed_skip(pen__feed *feed, const int64_t *samples, int32_t n, pen_error *err)
{
    if (!feed->is_fresh)
        return pen__fail(err, PEN_EINVAL, -1,
                         "batches are skipped before the first one is fed: seek first");
    int rc = check(feed, samples, n, err);
    if (rc)
        return rc;
    for (int32_t i = 0; i < n; i++)
        count_sample(feed, samples[i]);
    feed->index++;
    return 0;
}

int pen__feed_end(pen__feed *feed, int64_t delivering, pen_error *err)
{
    if (feed->epoch > delivering)
        return pen__fail(err, PEN_EINVAL, -1,
                         "epoch %lld cannot end yet: the end of epoch %lld was not delivered",
                         (long long)feed->epoch, (long long)delivering);
    open_epoch(feed, feed->epoch + 1, 0);
    feed->is_fresh = false;
    return 0;
}

int64_t pen__feed_epoch(const pen__feed *feed)
{
    return feed->epoch;
}

int64_t pen__feed_waiting(const pen__feed *feed, int64_t epoch)
{
    return epoch < 0 ? feed->n_waiting[0] + feed->n_waiting[1] : feed->n_waiting[epoch & 1];
}

void pen__feed_delivered(pen__feed *feed, int64_t epoch)
{
    feed->n_waiting[epoch & 1]--;
}

pen__fed *pen__feed_take(pen__feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    pen__fed *fed = feed->first;
    if (fed)
        feed->first = fed->next;
    pthread_mutex_unlock(&feed->lock);
    return fed;
}
