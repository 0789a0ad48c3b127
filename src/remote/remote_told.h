/* remote_told.h - how much of their processors servers say that a job may use.
 *
 * A job is one dataset's samples through one pipeline, which mostly is a loader; its number goes to
 * servers with each request, and answers have a line "Penstock-Cores: 0.750000".  Figures are kept
 * for the jobs that were heard of last, and for each server.
 *
 * No locks in here.
 */
#ifndef PEN_REMOTE_REMOTE_TOLD_H
#define PEN_REMOTE_REMOTE_TOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/pipeline.h>

#include "remote/remote_url.h"

enum { PEN__TOLD_JOBS = 4, PEN__TOLD_MAX_CORES = 1024 };

/* Zero-initialise. */
typedef struct pen__told {
    struct {
        uint64_t job, heard; /* heard: when, counted; 0: never */
        bool has_answered[PEN__REMOTE_MAX_SERVERS];
        double cores[PEN__REMOTE_MAX_SERVERS]; /* NaN: it answered, and did not say */
    } all[PEN__TOLD_JOBS];
    uint64_t clock;
} pen__told;

/* The number of a job of who has the number `owner`; `pipe` may be NULL. */
uint64_t pen__told_job(uint64_t owner, const pen_pipeline *pipe);

/* Is this line of an answer's head, which need not end, the one?  Then *cores is what it says, up
 * to PEN__TOLD_MAX_CORES.  What is no plain number of at most 16 characters says nothing. */
bool pen__told_parse(const char *line, size_t len, double *cores);

/* A server answered and said so; NaN: it did not say. */
void pen__told_note(pen__told *told, uint64_t job, int server, double cores);
/* A server failed: what it said is no longer so. */
void pen__told_forget(pen__told *told, int server);
/* The sum over the servers that answer; NaN: none does, or one does not say. */
double pen__told_sum(const pen__told *told, uint64_t job);

#endif
