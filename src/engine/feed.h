/* feed.h - batches that the caller names, on their way to the workers.
 *
 * One thread, the loader's consumer, feeds, counts and delivers; workers take.  They meet
 * only in the queue, which its lock guards.
 *
 * A sample's occurrence is how often it was fed before in the same epoch, 16 bits a sample
 * of the dataset.  The random key has room for 15 of them; then the count begins again.
 */
#ifndef PEN_ENGINE_FEED_H
#define PEN_ENGINE_FEED_H

#include <stdint.h>

#include <penstock/error.h>

/* One batch.  Whoever holds it frees it with pen__free. */
typedef struct pen__fed {
    struct pen__fed *next;
    int64_t epoch, index;
    int32_t n;
    struct pen__fed_slot {
        int64_t sample;
        int32_t occurrence;
    } slots[];
} pen__fed;

typedef struct pen__feed pen__feed;

/* For a dataset of `n_samples`, batches of at most `max_batch`. */
int pen__feed_create(pen__feed **out, int64_t n_samples, int32_t max_batch);
void pen__feed_free(pen__feed *feed);

/* The consumer's */

/* Forget everything; go on at `batch` of `epoch`. */
void pen__feed_restart(pen__feed *feed, int64_t epoch, int64_t batch);
/* PEN_EINVAL (and then nothing has changed), PEN_ENOMEM. */
int pen__feed_put(pen__feed *feed, const int64_t *samples, int32_t n, pen_error *err);
int pen__feed_skip(pen__feed *feed, const int64_t *samples, int32_t n, pen_error *err);
/* `delivering` is the epoch that the consumer stands in. */
int pen__feed_end(pen__feed *feed, int64_t delivering, pen_error *err);
/* The epoch of the next batch put. */
int64_t pen__feed_epoch(const pen__feed *feed);
/* Batches of `epoch` that were put and not delivered; all of them with -1. */
int64_t pen__feed_waiting(const pen__feed *feed, int64_t epoch);
void pen__feed_delivered(pen__feed *feed, int64_t epoch);

/* Workers': the oldest batch not taken yet, or NULL. */
pen__fed *pen__feed_take(pen__feed *feed);

#endif
