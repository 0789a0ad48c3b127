/* gamma.c - Marsaglia and Tsang's method ("A Simple Method for Generating Gamma
 * Variables", 2000) on fmath.h, so the draws are the same on every host.
 *
 * It takes a different number of random words from draw to draw, which is
 * harmless: they come from the operation's own stream.
 */
#include "base/gamma.h"

#include "base/fmath.h"

/* (0, 1): its logarithm is finite. */
static double open_unit(pen__rng *rng)
{
    return (pen__rng_u32(rng) + 0.5) * 0x1p-32;
}

/* Log of a gamma variable of shape >= 1. */
static double log_gamma_draw(pen__rng *rng, double shape)
{
    double d = shape - 1.0 / 3.0, c = 1.0 / pen__sqrt(9.0 * d);
    for (;;) {
        float normals[2];
        pen__rng_normal2(rng, normals);
        double x = (double)normals[0], v = 1.0 + c * x;
        double u = open_unit(rng);
        if (v <= 0)
            continue;
        double log_v = 3.0 * pen__log(v);
        if (pen__log(u) < 0.5 * x * x + d - d * v * v * v + d * log_v)
            return pen__log(d) + log_v;
    }
}

/* For a shape below 1, a draw of shape + 1 is scaled down by u^(1/shape). */
static double log_gamma(pen__rng *rng, double shape)
{
    if (shape >= 1.0)
        return log_gamma_draw(rng, shape);
    double log_u = pen__log(open_unit(rng));
    return log_gamma_draw(rng, shape + 1.0) + log_u / shape;
}

static double exp_or_zero(double x)
{
    return x < -700.0 ? 0.0 : pen__exp(x);
}

double pen__rng_gamma(pen__rng *rng, double shape)
{
    return exp_or_zero(log_gamma(rng, shape));
}

/* Through logarithms, so that small parameters do not give 0 / 0. */
void pen__rng_dirichlet(pen__rng *rng, double alpha, int n, double *out)
{
    double largest = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        out[i] = log_gamma(rng, alpha);
        if (i == 0 || out[i] > largest)
            largest = out[i];
    }
    for (int i = 0; i < n; i++) {
        out[i] = exp_or_zero(out[i] - largest);
        sum += out[i];
    }
    for (int i = 0; i < n; i++)
        out[i] /= sum;
}
