/* gamma.h - draws from the gamma and beta distributions, the same on every host.
 *
 * Both take as many words as their rejections need, so a caller draws whatever it
 * wants from fixed places before these, or from a generator of its own.
 */
#ifndef PEN_BASE_GAMMA_H
#define PEN_BASE_GAMMA_H

#include "base/rng.h"

/* Gamma with the given shape (> 0, finite) and scale 1.  Always > 0: what is too small
 * for a double becomes exp(-700), so that a Dirichlet's sum is never 0. */
double pen__rng_gamma(pen__rng *rng, double shape);

/* Beta(a, b), a and b > 0 and finite; in [0, 1], and sound also where both gammas
 * are too small for a double. */
double pen__rng_beta(pen__rng *rng, double a, double b);

#endif
