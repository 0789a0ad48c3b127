/* gamma.h - gamma and Dirichlet draws. */
#ifndef PEN_BASE_GAMMA_H
#define PEN_BASE_GAMMA_H

#include "base/rng.h"

/* Gamma(shape, 1), shape >= 0.001.  May be 0 where the shape is small. */
double pen__rng_gamma(pen__rng *rng, double shape);
/* n weights that sum to 1, Dirichlet with n equal parameters. */
void pen__rng_dirichlet(pen__rng *rng, double alpha, int n, double *out);

#endif
