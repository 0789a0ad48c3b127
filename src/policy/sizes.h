/* sizes.h - how much of everything a loop needs, in closed form from service times.
 *
 * A sample costs a worker c seconds and its reading r seconds; the loop takes a batch of B every
 * `step` seconds when it never waits.
 *
 *     wanted rate   x = B / step, with a margin; at most what the cores bring, C / c
 *     workers       ceil(x c), at most C: more would only take turns, but for those that read
 *     reading       while r is small beside c, workers read for themselves: ceil(x (c + r))
 *                   while it is below `by_workers` times c, too, and as many more of them as read
 *                   at a time: what was read stays in its core's cache, and nobody is woken for it
 *                   else readers do: x r of them at once, on average (Little), and a margin; of
 *                   storage nodes 16 at least, and 64 at most for their sake
 *     ready batches 1 + ceil(p95 of a batch / step): those under way, and on top what keeps the
 *                   probability of running empty below 1 %: with a load of rho = m / step and
 *                   deviations of both sides, heavy traffic gives
 *                   ln(100) (dev_m^2 + dev_step^2) / (2 (step - m) step)
 *                   at least: with what a batch takes alone, B c / workers and its reading
 */
#ifndef PEN_POLICY_SIZES_H
#define PEN_POLICY_SIZES_H

#include "policy/policies.h"

#define PEN__LEAST_READ_S 1e-4 /* less is no reading worth the name */

/* What is known of the source by now. */
typedef struct pen__source_now {
    double best_read_s; /* reading, while nobody queues */
    double rate;        /* samples a second that it does not exceed; 0: not known */
    double by_workers; /* what takes less than so many times c, workers read; 0: only on the side */
} pen__source_now;

typedef struct pen__sizes {
    double workers, io, read_ahead;
    double ready;       /* NaN: not known */
    double least_ready; /* if no batch is kept under way longer than it must; NaN likewise */
} pen__sizes;

#define PEN__MORE_READ 1.25 /* times as many as do on average */

/* Readers, where so many are busy on average. */
static inline double pen__readers_for(double busy)
{
    return ceil(busy * PEN__MORE_READ) + 1;
}

/* Where there are any, and `rate` samples a second come (0: not known).  Samples that are wanted at
 * once share requests, and a request has its price for a storage node (docs/near-storage.md, "How
 * it asks").  And a node with a small quota works for some milliseconds of every tenth of a second:
 * what is under way keeps the network busy while the node pauses, and the node while the network
 * takes its time. */
static inline double pen__least_readers(const pen_policy_state *s, double rate)
{
    const double few = 16, most = 64, under_way_s = 1;
    return isnan(s->node_cores) ? 0 : fmin(fmax(ceil(rate * under_way_s), few), most);
}

/* What is needed at `factor` times the rate of a loop that never waits. */
pen__sizes pen__size(const pen_policy_state *s, const pen__source_now *source, double factor);

#endif
