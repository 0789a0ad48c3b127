/* sampler.h - the sampler below another root than "/", for tests with recorded files. */
#ifndef PEN_TELEMETRY_SAMPLER_H
#define PEN_TELEMETRY_SAMPLER_H

#include <penstock/telemetry.h>

/* pen_sampler_create with /proc and /sys below `root`. */
int pen__sampler_create_at(pen_sampler **out, const char *root, const pen_sampler_opts *opts,
                           pen_error *err);

#endif
