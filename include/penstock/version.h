/* version.h - which library this is, and what it can use here. */
#ifndef PENSTOCK_VERSION_H
#define PENSTOCK_VERSION_H

#include <penstock/visibility.h>

/* Version of the arithmetic: part of every state, because a stream is only
 * the same stream under the same numerics. */
#define PEN_NUMERICS_VERSION 1

/* "0.1.0" */
PEN_API const char *pen_version(void);
/* The SIMD level in use: "avx512", "avx2" or "scalar".  PENSTOCK_CPU=avx2 or =scalar in the
 * environment goes no higher; results never differ. */
PEN_API const char *pen_cpu_level(void);

#endif
