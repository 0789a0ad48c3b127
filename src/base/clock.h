/* clock.h - monotonic time and processor time in nanoseconds, and the time of day that files are
 * dated by. */
#ifndef PEN_BASE_CLOCK_H
#define PEN_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t pen__now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What the calling thread has had of processors. */
static inline int64_t pen__thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What all threads of this process have had. */
static inline int64_t pen__process_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Seconds; only for comparing with a file's times. */
static inline int64_t pen__file_clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec;
}

#endif
