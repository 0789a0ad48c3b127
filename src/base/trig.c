/* trig.c - sine, cosine, tangent and its inverse in pairs of doubles.
 *
 * A pair carries about 106 bits, twice what the result needs, so that rounding the
 * pair is rounding the true value but for one argument in 2^40 or so.  The argument is
 * brought to +-pi/4 with pi/2 in three doubles; what is left goes through the
 * plain series.  It takes a microsecond and is called a few times an image.
 */
#include "base/trig.h"

#include "base/fmath.h"
#include "base/pair.h"

/* radians less `quarters` times pi/2, |result| <= pi/4 and a little. */
static pen__pair take_quarters(double radians, double quarters)
{
    static const double half_pi[3] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54,
                                      -0x1.f1976b7ed8fbcp-110};
    pen__pair rest = {radians, 0.0};
    for (int i = 0; i < 3; i++)
        rest = pen__pair_subtract(rest, pen__pair_multiply_exactly(quarters, half_pi[i]));
    return rest;
}

/* first * (1 - x^2 / (n (n+1)) * (1 - x^2 / ((n+2) (n+3)) * ...)) from n on. */
static pen__pair sum_series(pen__pair x, pen__pair first, int n)
{
    const pen__pair one = {1.0, 0.0};
    pen__pair square = pen__pair_multiply(x, x), sum = one;
    for (int k = n + 26; k >= n; k -= 2) {
        pen__pair share = pen__pair_divide(square, (pen__pair){k * (k + 1.0), 0.0});
        sum = pen__pair_subtract(one, pen__pair_multiply(share, sum));
    }
    return pen__pair_multiply(first, sum);
}

static void sine_and_cosine(double radians, pen__pair *sine, pen__pair *cosine)
{
    const pen__pair one = {1.0, 0.0};
    double quarters = pen__round_even(radians * 0x1.45f306dc9c883p-1);
    pen__pair rest = take_quarters(radians, quarters);
    pen__pair s = sum_series(rest, rest, 2), c = sum_series(rest, one, 1);
    const pen__pair turned[4] = {s, c, pen__pair_negative(s), pen__pair_negative(c)};
    int quadrant = (int)quarters & 3;
    *sine = turned[quadrant];
    *cosine = turned[(quadrant + 1) & 3];
}

double pen__sin(double radians)
{
    pen__pair sine, cosine;
    sine_and_cosine(radians, &sine, &cosine);
    return sine.high;
}

double pen__cos(double radians)
{
    pen__pair sine, cosine;
    sine_and_cosine(radians, &sine, &cosine);
    return cosine.high;
}

double pen__tan(double radians)
{
    pen__pair sine, cosine;
    sine_and_cosine(radians, &sine, &cosine);
    return pen__pair_divide(sine, cosine).high;
}

/* An angle for |x| <= 1, right to 0.005. */
static double rough_atan(double x)
{
    return x / (1.0 + 0.28125 * x * x);
}

/* Twice, the angle's own tangent shows what is missing: with t = tan(angle),
 * atan(x) - angle = atan((x - t) / (1 + x t)), and of a small number the series is
 * short.  Dividing by the larger of x and 1 keeps everything in range. */
double pen__atan(double x)
{
    double size = x < 0.0 ? -x : x;
    double angle = size <= 1.0 ? rough_atan(size) : 0x1.921fb54442d18p+0 - rough_atan(1.0 / size);
    const pen__pair one = {1.0, 0.0}, from = {size, 0.0};
    pen__pair up = size <= 1.0 ? from : one; /* up / along is size */
    pen__pair along = size <= 1.0 ? one : pen__pair_divide(one, from);
    pen__pair sum = {angle, 0.0};
    for (int round = 0; round < 2; round++) {
        pen__pair sine, cosine;
        sine_and_cosine(sum.high, &sine, &cosine);
        pen__pair missing = pen__pair_divide(
            pen__pair_subtract(pen__pair_multiply(up, cosine), pen__pair_multiply(along, sine)),
            pen__pair_add(pen__pair_multiply(along, cosine), pen__pair_multiply(up, sine)));
        double square = missing.high * missing.high;
        double bend = missing.high * square * (square / 5.0 - 1.0 / 3.0);
        sum = pen__pair_add((pen__pair){sum.high, 0.0},
                            pen__pair_add(missing, (pen__pair){bend, 0.0}));
    }
    return x < 0.0 ? -sum.high : sum.high;
}
