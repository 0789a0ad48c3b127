/* fmath.c - exp, log, sine and cosine by range reduction and plain series. */
#include "base/fmath.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static const double ln2_high = 0x1.62e42fefp-1, ln2_low = 0x1.473de6af278edp-34;

/* x * 2^k by building the power, exact while the result is normal. */
static double scale_by_power(double x, int k)
{
    uint64_t bits = (uint64_t)(int64_t)(k + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return x * power;
}

double pen__exp(double x)
{
    double k = pen__round_even(x * 0x1.71547652b82fep+0);
    double r = (x - k * ln2_high) - k * ln2_low;
    double sum = 1.0;
    for (int n = 14; n >= 1; n--)
        sum = 1.0 + sum * r / n;
    return scale_by_power(sum, (int)k);
}

double pen__log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int k = (int)(bits >> 52 & 0x7FF) - 1023;
    bits = (bits & 0xFFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 0x1.6a09e667f3bcdp+0) { /* keep m near 1, where the series is short */
        m *= 0.5;
        k++;
    }
    double s = (m - 1.0) / (m + 1.0), s2 = s * s, sum = 0.0;
    for (int n = 23; n >= 1; n -= 2)
        sum = sum * s2 + 1.0 / n;
    return k * ln2_high + (2.0 * s * sum + k * ln2_low);
}

double pen__sqrt(double x)
{
    return sqrt(x); /* one instruction, and the one libm function IEEE defines to the bit */
}

void pen__sincos_turn(double turn, double *sine, double *cosine)
{
    int quadrant = (int)(turn * 4.0);
    double a = (turn * 4.0 - quadrant) * 0x1.921fb54442d18p+0, a2 = a * a;
    double s = 1.0, c = 1.0;
    for (int n = 21; n >= 3; n -= 2) {
        s = 1.0 - s * a2 / (n * (n - 1.0));
        c = 1.0 - c * a2 / ((n - 1.0) * (n - 2.0));
    }
    s *= a;
    double values[4] = {s, c, -s, -c};
    *sine = values[quadrant & 3];
    *cosine = values[(quadrant + 1) & 3];
}
