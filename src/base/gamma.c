/* gamma.c - Marsaglia and Tsang, "A simple method for generating gamma variables",
 * ACM TOMS 26 (2000), on our own logarithm.
 *
 * A shape below 1 is drawn as Gamma(shape + 1) * u^(1/shape).  That power leaves the
 * range of a double for small shapes, so everything is kept as a logarithm until the end.
 */
#include "base/gamma.h"

#include "base/fmath.h"

static const double log_limit = 700.0; /* what pen__exp takes */

/* (0, 1), 32 bits: its logarithm is finite. */
static double open_unit(pen__rng *rng)
{
    return (pen__rng_u32(rng) + 0.5) * 0x1p-32;
}

/* The logarithm of a draw with shape >= 1. */
static double log_gamma_from_one(pen__rng *rng, double shape)
{
    double d = shape - 1.0 / 3.0, c = 1.0 / pen__sqrt(9.0 * d);
    for (;;) {
        float normals[2];
        pen__rng_normal2(rng, normals);
        double log_u = pen__log(open_unit(rng)), x = normals[0], root = 1.0 + c * x;
        if (root <= 0.0)
            continue;
        double v = root * root * root, log_v = pen__log(v);
        if (log_u < 0.5 * x * x + d - d * v + d * log_v)
            return pen__log(d) + log_v;
    }
}

static double log_gamma_draw(pen__rng *rng, double shape)
{
    if (shape >= 1.0)
        return log_gamma_from_one(rng, shape);
    double log_u = pen__log(open_unit(rng));
    return log_gamma_from_one(rng, shape + 1.0) + log_u / shape;
}

static double clamp(double x)
{
    return x < -log_limit ? -log_limit : x > log_limit ? log_limit : x;
}

double pen__rng_gamma(pen__rng *rng, double shape)
{
    return pen__exp(clamp(log_gamma_draw(rng, shape)));
}

double pen__rng_beta(pen__rng *rng, double a, double b)
{
    double log_x = log_gamma_draw(rng, a), log_y = log_gamma_draw(rng, b);
    return 1.0 / (1.0 + pen__exp(clamp(log_y - log_x)));
}
