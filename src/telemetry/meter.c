/* meter.c - quarter-octave buckets. */
#include "telemetry/meter.h"

#include <math.h>

enum { STEPS = 4 }; /* a factor of two */

int pen__meter_bucket(int64_t ns)
{
    if (ns < STEPS)
        return ns < 0 ? 0 : (int)ns;
    int octave = 63 - __builtin_clzll((unsigned long long)ns);
    int step = (int)(ns >> (octave - 2)) & (STEPS - 1);
    int bucket = (octave - 1) * STEPS + step;
    return bucket < PEN__METER_BUCKETS ? bucket : PEN__METER_BUCKETS - 1;
}

double pen__meter_middle(int bucket)
{
    if (bucket < STEPS)
        return bucket;
    int octave = bucket / STEPS + 1;
    double low = ldexp(1.0 + (double)(bucket % STEPS) / STEPS, octave);
    return low + ldexp(0.5 / STEPS, octave);
}

void pen__meter_add(pen__meter *meter, int64_t ns)
{
    const double s = (double)ns * 1e-9;
    _Atomic uint32_t *bucket = &meter->bucket[pen__meter_bucket(ns)];
    const memory_order relaxed = memory_order_relaxed;
    atomic_store_explicit(&meter->sum_ns, atomic_load_explicit(&meter->sum_ns, relaxed) + ns,
                          relaxed);
    atomic_store_explicit(&meter->sum_squares,
                          atomic_load_explicit(&meter->sum_squares, relaxed) + s * s, relaxed);
    atomic_store_explicit(bucket, atomic_load_explicit(bucket, relaxed) + 1, relaxed);
}

void pen__times_add(pen__times *times, const pen__meter *meter)
{
    times->sum_ns += atomic_load_explicit(&meter->sum_ns, memory_order_relaxed);
    times->sum_squares += atomic_load_explicit(&meter->sum_squares, memory_order_relaxed);
    for (int i = 0; i < PEN__METER_BUCKETS; i++)
        times->bucket[i] += atomic_load_explicit(&meter->bucket[i], memory_order_relaxed);
}

void pen__times_subtract(pen__times *now, const pen__times *before)
{
    now->sum_ns -= before->sum_ns;
    now->sum_squares -= before->sum_squares;
    for (int i = 0; i < PEN__METER_BUCKETS; i++)
        now->bucket[i] -= before->bucket[i];
}

int64_t pen__times_count(const pen__times *times)
{
    int64_t n = 0;
    for (int i = 0; i < PEN__METER_BUCKETS; i++)
        n += times->bucket[i];
    return n;
}

double pen__times_quantile(const pen__times *times, double share)
{
    const int64_t n = pen__times_count(times);
    int64_t below = (int64_t)ceil(share * (double)n);
    below = below < 1 ? 1 : below > n ? n : below;
    for (int i = 0; n > 0 && i < PEN__METER_BUCKETS; i++)
        if ((below -= times->bucket[i]) <= 0)
            return pen__meter_middle(i) * 1e-9;
    return 0;
}

double pen__times_variation(const pen__times *times)
{
    const double n = (double)pen__times_count(times);
    const double mean = n > 0 ? (double)times->sum_ns * 1e-9 / n : 0;
    if (mean <= 0)
        return 0;
    const double variance = times->sum_squares / n - mean * mean;
    return variance > 0 ? sqrt(variance) / mean : 0;
}
