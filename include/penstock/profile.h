/* profile.h - what a sample weighs after each operation, and what it takes to get there.
 *
 *     pen_profiler *profiler;
 *     pen_profile_sample sample;
 *     pen_profiler_create(&profiler, ds, pipe, &err);
 *     for (int64_t id = 0; id < 400; id++)
 *         pen_profiler_measure(profiler, &(pen_key){.seed = 1, .sample = id}, &sample, &err);
 *     pen_profiler_free(profiler);
 *
 * On its way from the storage to the device a sample is a file, pixels and a tensor, and between
 * them in any of the exact forms in which a storage node may send it.  Each of these is a point;
 * the pipeline says which there are.  They are made one after the other with the code that loaders
 * and storage nodes run, from the file on each time, so figures are what each takes alone.
 *
 * `penstock profile` is this and tables.  Loaders do not need it: they estimate, and learn from
 * what comes.
 */
#ifndef PENSTOCK_PROFILE_H
#define PENSTOCK_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/dataset.h>
#include <penstock/pipeline.h>

typedef enum pen_profile_form {
    PEN_PROFILE_FILE = 0, /* as stored */
    PEN_PROFILE_JPEG_CUT, /* a JPEG file of what the crop needs */
    PEN_PROFILE_PIXELS,   /* bytes, a channel each */
    PEN_PROFILE_CODED,    /* the same, coded without loss */
    PEN_PROFILE_TENSOR,   /* what a batch holds */
    PEN_PROFILE_FORM_COUNT
} pen_profile_form;

/* "file", "JPEG cut", "pixels", "coded pixels", "tensor". */
PEN_API const char *pen_profile_form_name(pen_profile_form form);

typedef struct pen_profile_point {
    pen_profile_form form;
    size_t n_ops; /* operations of the pipeline that are done; 0: the file and its cut */
    size_t op;    /* the last of them that stands in no group */
} pen_profile_point;

#define PEN_PROFILE_MAX_POINTS (2 * PEN_PIPELINE_MAX_OPS + 3)

/* NaN: this sample cannot be had there.  A PNG file has no JPEG cut; a resize and the crop behind
 * it are one step. */
typedef struct pen_profile_figure {
    double bytes;
    double cpu_s; /* of one thread, from the file in memory on; the smaller of two runs */
} pen_profile_figure;

typedef struct pen_profile_sample {
    pen_profile_figure points[PEN_PROFILE_MAX_POINTS];
    pen_profile_figure sent; /* the smallest form that a storage node finds, and finding it */
    double node_cpu_s;       /* remote: what the node says that took it; NaN: not told */
} pen_profile_sample;

/* One thread's.  It keeps references. */
typedef struct pen_profiler pen_profiler;

/* On success the caller owns *out.  PEN_ENOMEM. */
PEN_API int pen_profiler_create(pen_profiler **out, pen_dataset *ds, pen_pipeline *pipe,
                                pen_error *err);
/* NULL is legal. */
PEN_API void pen_profiler_free(pen_profiler *profiler);

/* The points, in the order of the line: how many, and the i-th. */
PEN_API size_t pen_profiler_count(const pen_profiler *profiler);
PEN_API pen_profile_point pen_profiler_point(const pen_profiler *profiler, size_t i);

/* Read sample key->sample, make all that there is of it, and say what it took; of `out`, the first
 * pen_profiler_count points are set.  Errors are those of reading and decoding, and name the
 * sample. */
PEN_API int pen_profiler_measure(pen_profiler *profiler, const pen_key *key,
                                 pen_profile_sample *out, pen_error *err);

/* What loaders have learned of a dataset while it was on another machine, and have kept in the
 * cache directory for the next run. */
typedef struct pen_profile_kept {
    int64_t bytes;         /* of the file; 0: there is none, or none that a loader would use */
    int64_t n_headers;     /* samples whose image header is known, to any pipeline */
    int64_t n_ratios;      /* samples of which it is known how they differ from what is expected */
    bool is_this_pipeline; /* the ratios are those of `pipe`; to other pipelines they say nothing */
} pen_profile_kept;

/* No file is no error: `out` is 0 then.  PEN_ENOMEM. */
PEN_API int pen_profile_find_kept(pen_profile_kept *out, const pen_dataset *ds,
                                  const pen_pipeline *pipe, pen_error *err);

#endif
