/* profile_stage.c - see profile_stage.h.
 *
 * Fetching is done by some threads at once, as readers of a loader do it: one after the other
 * would measure how long the way is, not how wide.
 */
#include "profile_stage.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cli.h"

enum { BATCHES = 50, READERS = 16 };

static const double most_s = 10;     /* of each run */
static const double io_bound = 1.05; /* the network must be so much slower: as policy/offload.c */

/* ---- device only ---- */

static double run_device(const profile_job *job)
{
    device beside = job->device;
    const double begin_s = cli_seconds();
    int n = 0;
    while (n < BATCHES && cli_seconds() - begin_s < most_s && !cli_is_interrupted()) {
        device_step(&beside);
        cli_progress("device only", ++n, BATCHES);
    }
    cli_progress("device only", 1, 1);
    return (cli_seconds() - begin_s) / n / job->batch_size;
}

/* ---- fetching only ---- */

typedef struct fetching {
    const pen_dataset *ds;
    pen_order order;
    int64_t n; /* samples */
    double begin_s;
    _Atomic int64_t next, n_done, n_bytes;
    atomic_bool is_over;
    atomic_flag has_failed;
    pen_error err; /* of who failed first */
} fetching;

static void fail(fetching *f, const pen_error *err)
{
    if (!atomic_flag_test_and_set(&f->has_failed))
        f->err = *err;
    atomic_store(&f->is_over, true);
}

/* One sample into *block, which grows. */
static bool fetch_one(fetching *f, int64_t id, uint8_t **block, int64_t *cap)
{
    pen_error err = {.text = "out of memory", .code = PEN_ENOMEM};
    const int64_t len = pen_dataset_length(f->ds, id);
    if (len > *cap || !*block) {
        free(*block);
        *cap = len > 0 ? len : 1;
        *block = malloc((size_t)*cap);
    }
    if (!*block || pen_dataset_read(f->ds, id, *block, (size_t)*cap, &err) < 0) {
        fail(f, &err);
        return false;
    }
    f->n_bytes += len;
    return true;
}

/* Until all is done, or it takes too long. */
static void fetch_all(fetching *f, bool shows_progress)
{
    uint8_t *block = NULL;
    int64_t cap = 0;
    while (!atomic_load(&f->is_over) && cli_seconds() - f->begin_s < most_s &&
           !cli_is_interrupted()) {
        const int64_t at = f->next++;
        if (at >= f->n || !fetch_one(f, pen_order_at(&f->order, 0, at), &block, &cap))
            break;
        f->n_done++;
        if (shows_progress)
            cli_progress("fetching only", at, f->n);
    }
    free(block);
}

static void *fetch_beside(void *ctx)
{
    fetch_all(ctx, false);
    return NULL;
}

static bool run_fetching(profile_stage *stage, const profile_job *job, const pen_dataset *ds)
{
    const int64_t count = pen_dataset_count(ds), most = (int64_t)BATCHES * job->batch_size;
    fetching f = {.ds = ds,
                  .order = {.kind = PEN_ORDER_SHUFFLE, .seed = job->seed, .count = count},
                  .n = count < most ? count : most,
                  .begin_s = cli_seconds(),
                  .has_failed = ATOMIC_FLAG_INIT};
    pthread_t threads[READERS - 1];
    int n = 0;
    while (n < READERS - 1 && pthread_create(&threads[n], NULL, fetch_beside, &f) == 0)
        n++;
    fetch_all(&f, true);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    const double seconds = cli_seconds() - f.begin_s;
    cli_progress("fetching only", 1, 1);
    if (f.err.code != 0)
        cli_complain("%s", f.err.text);
    if (f.err.code != 0 || f.n_done == 0)
        return false;
    stage->n_fetched = (double)f.n_done;
    stage->file_s = seconds / stage->n_fetched;
    stage->bytes_per_s = (double)f.n_bytes / seconds;
    return true;
}

bool profile_stage_run(profile_stage *stage, const profile_job *job, const pen_dataset *ds)
{
    *stage = (profile_stage){.device_s = run_device(job)};
    const bool is_good = run_fetching(stage, job, ds);
    if (cli_is_interrupted())
        cli_complain("interrupted");
    return is_good && !cli_is_interrupted();
}

/* ---- what follows ---- */

void profile_stage_finish(profile_stage *stage, const profile_job *job, const profile_data *data,
                          const profile_stats *stats)
{
    const double n = (double)data->n, told = (double)stats->n_told;
    const profile_row *tensor = &stats->rows[data->n_points - 1];
    stage->client_s = tensor->cpu_s / job->n_threads;
    stage->storage_s = told > 0 ? stats->node_s / told : stats->sent.cpu_s / n;
    stage->sent_s = stage->file_s * stats->sent.bytes / stats->files.bytes;
}

bool profile_stage_is_bound(const profile_stage *stage)
{
    return stage->file_s > io_bound * fmax(stage->device_s, stage->client_s);
}

double profile_stage_cores(const profile_stage *stage)
{
    const double pace_s = fmax(stage->sent_s, fmax(stage->device_s, stage->client_s));
    return pace_s > 0 ? stage->storage_s / pace_s : INFINITY;
}
