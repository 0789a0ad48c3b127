/* meter.h - how long things take: histograms that one thread writes and any may read.
 *
 * Four buckets of one width a factor of two, and a quantile is the middle of one: at most 12.5 %
 * above what it is, and 10 % below.  160 of them reach from 1 ns to 18 minutes.  Writing is two
 * relaxed stores, without a lock; a reader adds the meters of all threads up, and subtracts an
 * earlier sum to see a stretch of time.
 */
#ifndef PEN_TELEMETRY_METER_H
#define PEN_TELEMETRY_METER_H

#include <stdatomic.h>
#include <stdint.h>

enum { PEN__METER_BUCKETS = 160 };

/* Written by one thread; zero-initialise. */
typedef struct pen__meter {
    _Atomic int64_t sum_ns;
    _Atomic double sum_squares; /* s^2 */
    _Atomic uint32_t bucket[PEN__METER_BUCKETS];
} pen__meter;

/* A sum over meters, at one moment; counts modulo 2^32 a bucket. */
typedef struct pen__times {
    int64_t sum_ns;
    double sum_squares;
    uint32_t bucket[PEN__METER_BUCKETS];
} pen__times;

/* The bucket of a time, and the time in the middle of a bucket. */
int pen__meter_bucket(int64_t ns);
double pen__meter_middle(int bucket);

void pen__meter_add(pen__meter *meter, int64_t ns);

/* Add a meter to a sum. */
void pen__times_add(pen__times *times, const pen__meter *meter);
/* now -= before, the same meters earlier. */
void pen__times_subtract(pen__times *now, const pen__times *before);
int64_t pen__times_count(const pen__times *times);
/* Seconds below which a share (0 to 1) of the times are; 0 of none. */
double pen__times_quantile(const pen__times *times, double share);
/* Deviation over mean; 0 of none. */
double pen__times_variation(const pen__times *times);

#endif
