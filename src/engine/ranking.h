/* ranking.h - the offers of recent samples (estimate.h) in order of their worth.
 *
 * A histogram over bytes saved a second of a storage node's processor, in steps of a quarter of a
 * doubling; what is older counts less.  It answers two questions: how much worth an offer must
 * have to be among the best share of all, and what taking that share saves and costs a sample.
 * Pure; who shares one locks it.
 */
#ifndef PEN_ENGINE_RANKING_H
#define PEN_ENGINE_RANKING_H

#include "engine/estimate.h"

enum { PEN__RANKS = 96 };

/* Zero-initialise. */
typedef struct pen__ranking {
    double weight; /* of the next sample; 0 counts as 1 */
    double n_samples, raw_bytes;
    double n[PEN__RANKS], saved_bytes[PEN__RANKS], cpu_s[PEN__RANKS];
} pen__ranking;

/* A sample, its bytes as a file, and what could be done with it. */
void pen__ranking_add(pen__ranking *ranking, double raw_bytes, const pen__offer *offers, int n);

/* The worth from which on an offer is among the best `share` of all; 0 for all of them, INFINITY
 * for none. */
double pen__ranking_threshold(const pen__ranking *ranking, double share);

/* What the best `share` of all offers saves (bytes) and costs (seconds), a sample, beside what
 * files take. */
typedef struct pen__gain {
    double saved_bytes, cpu_s;
} pen__gain;
pen__gain pen__ranking_gain(const pen__ranking *ranking, double share);

/* Of a sample as it is stored; NaN before there was one. */
double pen__ranking_raw_bytes(const pen__ranking *ranking);

#endif
