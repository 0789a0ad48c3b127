/* bench_report.h - what `penstock bench` says about a run that is over. */
#ifndef PEN_CLI_BENCH_REPORT_H
#define PEN_CLI_BENCH_REPORT_H

#include "cli.h"
#include "device.h"

/* How long the loop waited for each batch but the very first, which says how long starting takes
 * and nothing about the rest. */
typedef struct bench_waits {
    double *s;
    int64_t n, cap;
    bool has_first; /* it came, and was left out */
} bench_waits;

/* Room for so many batches; complains and returns false if there is none. */
bool waits_init(bench_waits *w, int64_t n_batches);
void waits_fini(bench_waits *w);
void waits_add(bench_waits *w, double wait_s);
/* Below which a share of them are, s; NaN of none.  Sorts them. */
double waits_quantile(bench_waits *w, double share);

typedef struct bench_report {
    const char *spec;
    const cli_stream *stream;
    const cli_open *open;
    const device *device;
    const double *rates; // (n_epochs), images a second
    long long n_epochs;
    const usage *used;
    bench_waits *waits;
    pen_loader_stats stats;
} bench_report;

/* One JSON object on a line. */
void bench_print_json(const bench_report *r);
/* For a person; beside a device, with a table of what such a run is judged by. */
void bench_print_text(const bench_report *r);

#endif
