/* trig.h - sine, cosine, tangent and its inverse, correctly rounded and the same on every host.
 *
 * Matrices of rotations decide bytes, so libm, whose last bit depends on its
 * version and the processor, is not asked.  |radians| <= 2^20.
 */
#ifndef PEN_BASE_TRIG_H
#define PEN_BASE_TRIG_H

double pen__sin(double radians);
double pen__cos(double radians);
double pen__tan(double radians);
double pen__atan(double x); /* finite x */

#endif
