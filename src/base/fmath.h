/* fmath.h - the few functions that draws need, the same bits on every host.
 *
 * libm's last bit depends on its version; these use only IEEE +, -, *, / and
 * square root in a fixed order (the build forbids contraction to FMA).
 * Relative error below 1e-14, which is far more than a crop needs.
 */
#ifndef PEN_BASE_FMATH_H
#define PEN_BASE_FMATH_H

double pen__exp(double x);  /* |x| <= 700 */
double pen__log(double x);  /* x > 0, finite, normal */
double pen__sqrt(double x); /* correctly rounded, as IEEE demands */
/* sine and cosine of `turn` whole turns, 0 <= turn < 1. */
void pen__sincos_turn(double turn, double *sine, double *cosine);

/* Round to nearest, ties to even (Python's round), for |x| < 2^51. */
static inline double pen__round_even(double x)
{
    volatile double shifted = x + 0x1.8p52; /* volatile: must really be rounded to a double */
    return shifted - 0x1.8p52;
}

#endif
