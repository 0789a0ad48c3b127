/* profile_stats.h - what the figures of many samples say together.  Pure. */
#ifndef PEN_CLI_PROFILE_STATS_H
#define PEN_CLI_PROFILE_STATS_H

#include <penstock/profile.h>

#include <stdbool.h>
#include <stddef.h>

/* Figures by column: sorting wants them so. */
typedef struct profile_data {
    size_t n, cap; /* samples */
    size_t n_points;
    pen_profile_point points[PEN_PROFILE_MAX_POINTS];
    double *columns; // (2 * n_points + 3, cap)
    int64_t *ids;    // (cap)
} profile_data;

/* Room for `cap` samples.  False: no memory.  Fini in any case. */
bool profile_data_init(profile_data *data, const pen_profile_point *points, size_t n_points,
                       size_t cap);
void profile_data_fini(profile_data *data);
void profile_data_add(profile_data *data, int64_t id, const pen_profile_sample *sample);

/* A figure of each sample. */
const double *profile_bytes(const profile_data *data, size_t point);
const double *profile_cpu(const profile_data *data, size_t point);
const double *profile_sent_bytes(const profile_data *data);
const double *profile_sent_cpu(const profile_data *data);
const double *profile_node_cpu(const profile_data *data);

/* One point. */
typedef struct profile_row {
    size_t n;             /* samples that can be had there; without any, the rest says nothing */
    double p10, p50, p90; /* bytes */
    double share;         /* bytes, of those of the same samples' files */
    double cpu_s;         /* mean */
    size_t n_smallest;    /* samples of which this is the smallest, the first of equals */
} profile_row;

typedef struct profile_total {
    double bytes, cpu_s; /* of all samples */
} profile_total;

/* Bytes saved a second of a storage node's processor: doublings, from PROFILE_LEAST on. */
enum { PROFILE_BINS = 20 };
#define PROFILE_LEAST 62500.0

typedef struct profile_bin {
    double from, to; /* bytes a second; the outermost have what is beyond as well */
    size_t n;
    double saved_bytes;
} profile_bin;

typedef struct profile_stats {
    profile_row rows[PEN_PROFILE_MAX_POINTS];
    size_t n_shrinking;   /* samples that are smaller than their file somewhere */
    profile_total files;  /* nothing is done at the storage */
    profile_total sophon; /* finished crops, where they are fewer bytes than the file */
    profile_total sent;   /* the smallest form that a node finds */
    profile_bin bins[PROFILE_BINS];
    size_t n_unsaved;    /* samples that a node does not make smaller */
    size_t n_told;       /* samples of which a node told its time, */
    double node_s;       /* its sum, */
    double told_local_s; /* and what the same took here */
} profile_stats;

/* False: no memory. */
bool profile_stats_make(profile_stats *stats, const profile_data *data);

/* The value that a share `q` of the n values, which are sorted, lies below: between two, in
 * proportion. */
double profile_quantile(const double *sorted, size_t n, double q);

#endif
