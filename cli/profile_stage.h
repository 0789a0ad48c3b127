/* profile_stage.h - does a job wait for its data?  Its parts, each alone: device, fetching,
 * processors here and at the storage. */
#ifndef PEN_CLI_PROFILE_STAGE_H
#define PEN_CLI_PROFILE_STAGE_H

#include <penstock/dataset.h>

#include <stdbool.h>

#include "device.h"
#include "profile_stats.h"

/* What the job is. */
typedef struct profile_job {
    device device; /* mean 0: nobody asks */
    int batch_size, n_threads;
    uint64_t seed; /* of which samples are fetched */
} profile_job;

/* Seconds a sample: they all work at once, so the largest sets the pace. */
typedef struct profile_stage {
    double device_s;  /* T_G */
    double client_s;  /* T_CC: file to tensor, on all threads */
    double storage_s; /* T_CS: the smallest form, on one core of the storage */
    double file_s;    /* T_Net: files as they are stored, */
    double sent_s;    /* and in their smallest forms */
    double n_fetched, bytes_per_s;
} profile_stage;

/* Run device and fetching alone, up to 50 batches each and no longer than some seconds.  False: it
 * was said on stderr why not. */
bool profile_stage_run(profile_stage *stage, const profile_job *job, const pen_dataset *ds);
/* What follows for the other parts from the samples that were measured. */
void profile_stage_finish(profile_stage *stage, const profile_job *job, const profile_data *data,
                          const profile_stats *stats);

/* Is fetching files what the job waits for? */
bool profile_stage_is_bound(const profile_stage *stage);
/* Cores of the storage that keep up with the rest, if all samples come in their smallest form. */
double profile_stage_cores(const profile_stage *stage);

#endif
