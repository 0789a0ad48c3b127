/* rapl.h - energy of the CPU packages, as the power-capping framework counts it. */
#ifndef PEN_TELEMETRY_RAPL_H
#define PEN_TELEMETRY_RAPL_H

#include "telemetry/watch.h"

enum { PEN__RAPL_ZONES = 16 };

typedef struct pen__rapl {
    struct {
        pen__watch energy;
        double range_uj; /* the counter starts anew above it */
        double last_uj;  /* NaN before the first reading */
    } zones[PEN__RAPL_ZONES];
    int n_zones;
    double total_uj; /* since the first reading */
} pen__rapl;

/* Finds the packages below root's /sys/class/powercap.  Returns 0 or PEN_ENOMEM. */
int pen__rapl_init(pen__rapl *rapl, const char *root);
void pen__rapl_fini(pen__rapl *rapl);
/* Joules of all packages since the first reading; NaN if there is none or one cannot be
 * read.  A counter wraps after a minute at full power or later; one wrap between two
 * readings is seen. */
double pen__rapl_read(pen__rapl *rapl, char *buffer);

#endif
