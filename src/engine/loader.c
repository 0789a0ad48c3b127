/* loader.c - a loader's life: options, parts, position, end.
 *
 *     dataset --> claim slot --> carry sample --> slab --> take in order --> user
 *                 \____ reorder window (sched/window.h), memory budget ____/
 *
 * Everything ends through pen__window_close and the cancel flag: workers leave
 * their claim, their decode or their wait for memory, and are joined.
 */
#include "engine/loader_impl.h"
#include "engine/parts.h"

#include <penstock/version.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/mem.h"
#include "engine/state.h"
#include "engine/views.h"
#include "source/cachedir.h"
#include "source/source.h"
#include "telemetry/limits.h"

enum { MAX_BATCH = 1 << 20, MAX_READY = 1024, MAX_WORLD = 1 << 20, MAX_PERIOD_MS = 60000 };

static _Atomic int64_t n_loaders; /* of this process, so far */

int64_t pen__loader_number(void)
{
    return atomic_fetch_add(&n_loaders, 1);
}

void pen_loader_opts_init(pen_loader_opts *opts)
{
    memset(opts, 0, sizeof *opts);
    opts->struct_size = sizeof *opts;
    opts->batch_size = 1;
    opts->order_block = 256;
    opts->order_window = 16;
    opts->world_size = 1;
    opts->max_bad = 1000;
    opts->workers = -1;
    opts->use_index = 1;
    opts->period_ms = 100;
}

/* Callers built against an older header pass a shorter struct. */
static int complete_opts(pen_loader_opts *full, const pen_loader_opts *opts, pen_error *err)
{
    pen_loader_opts_init(full);
    if (!opts)
        return 0;
    if (opts->struct_size < sizeof opts->struct_size || opts->struct_size > sizeof *full)
        return pen__fail(err, PEN_EINVAL, -1,
                         "loader options have a size of %zu: call pen_loader_opts_init first",
                         opts->struct_size);
    memcpy(full, opts, opts->struct_size);
    full->struct_size = sizeof *full;
    return 0;
}

/* NULL, or what is wrong with the options. */
static const char *check(const pen_loader_opts *o)
{
    if (o->batch_size < 1 || o->batch_size > MAX_BATCH)
        return "batch_size must be 1 to 1048576";
    if (o->world_size < 1 || o->world_size > MAX_WORLD || o->rank < 0 || o->rank >= o->world_size)
        return "rank must be 0 to world_size - 1";
    if ((unsigned)o->order > PEN_ORDER_FED || o->order_block < 1 || o->order_window < 1)
        return "unknown order, or block and window below 1";
    if ((unsigned)o->tail > PEN_TAIL_WRAP || (unsigned)o->on_error > PEN_ON_ERROR_REPLACE)
        return "unknown tail or on_error";
    if (o->tail != PEN_TAIL_AUTO && o->order == PEN_ORDER_FED)
        return "a fed order has no tail: its batches are what is fed";
    if (o->tail == PEN_TAIL_SHORT && o->world_size > 1)
        return "tail 'short' would give ranks unequal batches: use drop, pad or wrap";
    if (o->on_error == PEN_ON_ERROR_SKIP && o->world_size > 1)
        return "on_error 'skip' would give ranks unequal batches: use replace";
    if (o->workers < -1 || o->workers > PEN_MAX_WORKERS)
        return "workers must be -1 (one a core) to 256";
    if (o->ready_batches < 0 || o->ready_batches > MAX_READY)
        return "ready batches must be 1 to 1024, or 0 (as many as threads keep busy)";
    if (o->max_bad < 0 || o->memory_budget < 0 || o->index_max_bytes < 0)
        return "max_bad, memory_budget and index_max_bytes must not be negative";
    if (o->period_ms < 1 || o->period_ms > MAX_PERIOD_MS)
        return "period_ms must be 1 to 60000";
    if (!pen_offload_name(o->offload))
        return "unknown offload";
    return NULL;
}

/* One that is being finished, and two samples a thread beyond it, so that nobody waits for the
 * slowest sample of a batch.  More would only take memory; a policy adds them where they help. */
static int32_t usual_ready(const pen_loader_opts *o)
{
    const int64_t beyond = 2 * (int64_t)(o->workers > 0 ? o->workers : 1);
    const int64_t n = 1 + (beyond + o->batch_size - 1) / o->batch_size;
    return n < MAX_READY ? (int32_t)n : MAX_READY;
}

/* Share the budget out: slabs get at most half (but one always), idle decoders a little
 * of what they like to keep, samples the rest.  Knobs move inside that: room for more batches
 * than were asked for is set aside from a quarter of the budget, and what a sample may take
 * does not depend on where a knob stands. */
static int divide_budget(pen_loader *loader, int64_t *sample_bytes, pen_error *err)
{
    enum { KEEP_SHARE = 16, ROOMY = 16, CORE_FACTOR = 2 };
    const int64_t budget = loader->opts.memory_budget;
    int64_t slab = (int64_t)pen__slab_bytes(&loader->slab);
    int64_t asked = loader->opts.ready_batches + 1; /* and the one that the user gives back */
    int64_t fitting = budget / 2 / slab;
    int64_t more = budget / 4 / slab < ROOMY ? budget / 4 / slab : ROOMY;
    asked = asked > fitting ? fitting : asked;
    asked = asked > more ? asked : more;
    loader->max_slabs = asked < 1 ? 1 : (int)asked;
    int64_t n = loader->opts.workers > 0 ? (int64_t)pen__limit_cores() * CORE_FACTOR : 1;
    n = n > loader->opts.workers ? n : loader->opts.workers;
    loader->max_workers = n > PEN_MAX_WORKERS ? PEN_MAX_WORKERS : (int)n;
    loader->decoder_keep = budget / KEEP_SHARE / loader->max_workers;
    if (loader->decoder_keep > (int64_t)PEN__DECODER_KEEPS)
        loader->decoder_keep = (int64_t)PEN__DECODER_KEEPS;
    const int64_t tables = loader->marks ? pen__sidecar_memory(loader->ds)
                           : loader->ds->source->fetch
                               ? pen__allow_memory(pen_dataset_count(loader->ds))
                               : 0;
    *sample_bytes =
        budget - loader->max_slabs * slab - loader->max_workers * loader->decoder_keep - tables;
    if (*sample_bytes <= 0)
        return pen__fail(err, PEN_EINVAL, -1,
                         "memory budget of %.1f MB: one batch takes %.1f MB, and samples need room",
                         (double)budget / 1e6, (double)slab / 1e6);
    return 0;
}

/* May what is found out about samples be kept from run to run? */
static bool wants_index(const pen_loader *loader)
{
    return loader->opts.use_index && pen__cache_takes_index();
}

/* Begin or go on with the index of JPEG files, if it is wanted, its table is a small part of
 * the budget, and samples come as files. */
static void open_index(pen_loader *loader)
{
    enum { BUDGET_SHARE = 16 };
    const pen_loader_opts *o = &loader->opts;
    if (!wants_index(loader) || loader->ds->source->fetch ||
        pen__sidecar_memory(loader->ds) > o->memory_budget / BUDGET_SHARE)
        return;
    loader->marks = pen__sidecar_open(loader->ds, o->index_max_bytes);
    loader->parts = pen__parts_mode_wanted();
}

int pen__loader_make_carriers(pen_loader *loader, int n)
{
    for (int i = atomic_load(&loader->n_carriers); i < n; i++) {
        pen__carrier *carrier = pen__malloc(sizeof *carrier);
        if (!carrier || pen__carrier_init(carrier, loader->budget, &loader->cancel) != 0) {
            pen__free(carrier);
            return PEN_ENOMEM;
        }
        carrier->reading.is_callers = loader->opts.workers == 0;
        pen__decoder_set_keep(carrier->dec, (size_t)loader->decoder_keep);
        atomic_store(&loader->carriers[i], carrier);
        atomic_store(&loader->n_carriers, i + 1);
    }
    return 0;
}

static void hand_over(void *ctx, void *payload)
{
    (void)ctx;
    pen__slab_hand_over(payload);
}

/* What was read ahead and is not a worker's yet goes first when memory is short. */
static size_t reclaim(void *ctx, void **data)
{
    return pen__window_strip(ctx, data);
}

/* Where samples come as parcels: who may do what with them. */
static int set_offload(pen_loader *loader, pen_error *err)
{
    pen_offload kind;
    if (!loader->ds->source->fetch)
        return 0;
    int rc = pen__allow_kind(loader->opts.offload, &kind, err);
    if (rc)
        return rc;
    rc = pen__allow_init(&loader->allow, kind, loader->pipe, pen_dataset_count(loader->ds));
    if (rc)
        return pen__fail(err, rc, -1, "out of memory");
    for (int64_t i = 0; loader->ds->headers && i < loader->allow.headers.n; i++)
        pen__headers_restore(&loader->allow.headers, i, loader->ds->headers[i]);
    if (wants_index(loader))
        pen__allow_keep(&loader->allow, loader->ds);
    return 0;
}

static int build(pen_loader *loader, const char *ledger_path, const char *log_path, pen_error *err)
{
    int64_t sample_bytes = 0;
    open_index(loader);
    int rc = set_offload(loader, err);
    if (rc == 0)
        rc = divide_budget(loader, &sample_bytes, err);
    if (rc == 0)
        rc = pen__ledger_open(&loader->ledger, ledger_path, err);
    if (rc == 0)
        rc = pen__control_create(loader, log_path, err);
    if (rc)
        return rc;
    rc = pen__budget_create(&loader->budget, sample_bytes, &loader->cancel);
    if (rc == 0)
        rc = pen__slab_pool_create(&loader->slabs, &loader->slab, loader->max_slabs);
    if (rc == 0 && loader->opts.order == PEN_ORDER_FED)
        rc =
            pen__feed_create(&loader->feed, pen_dataset_count(loader->ds), loader->opts.batch_size);
    if (rc == 0)
        rc = pen__window_create(&loader->window, pen__loader_max_ready(loader),
                                pen__loader_open_job, loader);
    if (rc == 0) {
        pen__window_on_take(loader->window, hand_over);
        pen__budget_set_reclaim(loader->budget, reclaim, loader->window);
        rc = pen__loader_make_carriers(loader, loader->opts.workers > 0 ? loader->opts.workers : 1);
    }
    if (rc == 0)
        rc = pen__board_init(loader);
    return rc ? pen__fail(err, rc, -1, "%s", pen_error_message(rc)) : 0;
}

static void set_stream(pen_loader *loader)
{
    const pen_loader_opts *o = &loader->opts;
    loader->stream = (pen__stream){
        .order = {o->order, o->order_block, o->order_window, o->seed,
                  pen_dataset_count(loader->ds)},
        .local_batch = o->batch_size,
        .rank = o->rank,
        .world_size = o->world_size,
        .tail = o->tail != PEN_TAIL_AUTO ? o->tail
                : o->world_size > 1      ? PEN_TAIL_WRAP
                                         : PEN_TAIL_SHORT,
    };
    loader->n_batches = o->order == PEN_ORDER_FED ? 0 : pen__stream_batches(&loader->stream);
}

/* What is done to whole batches, and the room it takes. */
static int set_mixing(pen_loader *loader, const pen_mix *mixes, pen_error *err)
{
    pen_loader_opts opts = loader->opts;
    opts.mixes = mixes;
    int rc = pen__mixer_init(&loader->mixer, &opts, &loader->pipe->shape, loader->ds, err);
    bool is_mixing = loader->mixer.n > 0;
    loader->n_ghosts = is_mixing && opts.world_size > 1 && opts.order != PEN_ORDER_FED;
    loader->slab = (pen__slab_plan){
        .shape = loader->pipe->shape,
        .n_slots = opts.batch_size,
        .n_classes = loader->mixer.n_classes,
        .has_ghost = is_mixing,
    };
    return rc;
}

int pen_loader_create(pen_loader **out, pen_dataset *ds, pen_pipeline *pipe,
                      const pen_loader_opts *opts, pen_error *err)
{
    *out = NULL;
    pen_loader_opts full;
    int rc = complete_opts(&full, opts, err);
    if (rc)
        return rc;
    const char *wrong = check(&full);
    if (wrong)
        return pen__fail(err, PEN_EINVAL, -1, "%s", wrong);
    pen_loader *loader = pen__calloc(1, sizeof *loader);
    if (!loader)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    loader->ledger.fd = -1;
    pthread_mutex_init(&loader->board.lock, NULL);
    pen__trace_init(&loader->trace);
    pen__lately_init(&loader->lately);
    pen__gate_init(&loader->io);
    pen__shares_init(&loader->shares, pen__limit_cores());
    atomic_store(&loader->newest_batch, -1);
    loader->ds = pen_dataset_ref(ds);
    loader->pipe = pen_pipeline_ref(pipe);
    loader->pid = getpid();
    loader->number = pen__loader_number();
    loader->opts = full;
    loader->opts.ledger_path = NULL; /* the caller's, and only needed once */
    loader->opts.mixes = NULL;
    loader->opts.decision_log = NULL;
    loader->opts.metrics = NULL;
    if (loader->opts.workers < 0)
        loader->opts.workers = pen__limit_cores();
    else
        loader->opts.pinned_knobs |= UINT64_C(1) << PEN_KNOB_WORKERS;
    if (loader->opts.ready_batches == 0)
        loader->opts.ready_batches = usual_ready(&loader->opts);
    if (loader->opts.memory_budget == 0)
        loader->opts.memory_budget = pen__limit_memory() / 4;
    set_stream(loader);
    rc = set_mixing(loader, full.mixes, err);
    if (rc == 0)
        rc = build(loader, full.ledger_path, full.decision_log, err);
    if (rc == 0) /* last: from now on other threads look at it */
        rc = pen__serve_begin(loader, full.metrics, err);
    if (rc) {
        pen_loader_free(loader);
        return rc;
    }
    *out = loader;
    return 0;
}

int pen__loader_check_owner(const pen_loader *loader, pen_error *err)
{
    if (loader->pid == getpid())
        return 0;
    return pen__fail(err, PEN_EFORK, -1,
                     "this loader was made before a fork: its threads are in the parent; make "
                     "a new one here");
}

static void drop_job(void *ctx, void *payload)
{
    (void)ctx;
    pen_batch_unref(payload);
}

void pen_loader_free(pen_loader *loader)
{
    if (!loader || loader->pid != getpid()) /* threads and locks stayed in the parent */
        return;
    pen__serve_end(loader);
    pen__control_free(loader); /* before all others: it starts threads */
    atomic_store(&loader->cancel, true);
    if (loader->budget)
        pen__budget_wake(loader->budget);
    if (loader->window) {
        pen__window_close(loader->window);
        pen__pool_join(loader->pool);
        pen__pool_join(loader->readers);
        pen__loader_drop_left(loader);
        pen__window_pause(loader->window, drop_job);
    }
    pen__pool_join(loader->saver);
    if (loader->budget) /* the window goes first */
        pen__budget_set_reclaim(loader->budget, NULL, NULL);
    pen__window_free(loader->window);
    pen__feed_free(loader->feed);
    for (int i = 0; i < loader->n_carriers; i++) {
        pen__carrier *carrier = atomic_load(&loader->carriers[i]);
        pen__carrier_fini(carrier);
        pen__free(carrier);
    }
    pen__free(atomic_load(&loader->readings));
    pen__board_fini(loader);
    if (loader->allow.is_ready)
        pen__allow_save(&loader->allow);
    pen__allow_fini(&loader->allow);
    pen__lately_fini(&loader->lately);
    pen__trace_fini(&loader->trace);
    if (loader->marks)
        pen__sidecar_save(loader->marks);
    pen__sidecar_free(loader->marks);
    pen__slab_pool_release(loader->slabs);
    pen__budget_free(loader->budget);
    pen__ledger_close(&loader->ledger);
    pen_pipeline_unref(loader->pipe);
    pen_dataset_unref(loader->ds);
    pen__free(loader);
}

/* PEN_EINVAL for a place that no stream, or not this one, has. */
static int check_place(const pen_loader *loader, int64_t epoch, int64_t batch, pen_error *err)
{
    int64_t global = (int64_t)loader->opts.batch_size * loader->opts.world_size;
    int64_t last = loader->feed ? INT64_MAX / 4 / global : loader->n_batches; /* no overflow */
    if (epoch < 0 || epoch >= UINT32_MAX)
        return pen__fail(err, PEN_EINVAL, -1, "no epoch %lld: they go from 0 to %lld",
                         (long long)epoch, (long long)UINT32_MAX - 1);
    if (batch < 0 || batch > last)
        return pen__fail(err, PEN_EINVAL, -1, "no batch %lld in epoch %lld (an epoch has %lld)",
                         (long long)batch, (long long)epoch, (long long)last);
    return 0;
}

int pen_loader_seek(pen_loader *loader, int64_t epoch, int64_t batch, pen_error *err)
{
    int rc = pen__loader_check_owner(loader, err);
    if (rc == 0)
        rc = check_place(loader, epoch, batch, err);
    if (rc)
        return rc;
    if (batch == loader->n_batches && batch > 0) {
        batch = 0;
        epoch++;
    }
    bool is_there = epoch == loader->epoch && batch == loader->batch && !loader->failure.code;
    loader->end_pending = false;
    if (is_there && !loader->feed)
        return 0;
    atomic_store(&loader->cancel, true); /* what is under way is not wanted any more */
    pen__budget_wake(loader->budget);
    pen__loader_drop_left(loader);
    pen__window_pause(loader->window, drop_job);
    atomic_store(&loader->cancel, false);
    loader->base_epoch = loader->epoch = epoch;
    loader->base_batch = loader->batch = batch;
    loader->failure = (pen_error){.offset = -1};
    if (loader->feed)
        pen__feed_restart(loader->feed, epoch, batch);
    pen__window_resume(loader->window);
    return 0;
}

void pen_loader_tell(const pen_loader *loader, int64_t *epoch, int64_t *batch)
{
    *epoch = loader->epoch;
    *batch = loader->batch;
}

int64_t pen_loader_batches(const pen_loader *loader)
{
    return loader->feed ? PEN_EINVAL : loader->n_batches;
}

/* 0 if the loader may be fed. */
static int check_feed(const pen_loader *loader, pen_error *err)
{
    if (!loader->feed)
        return pen__fail(err, PEN_EINVAL, -1, "only a loader with a fed order is fed");
    return pen__loader_check_owner(loader, err);
}

int pen_loader_feed(pen_loader *loader, const int64_t *samples, int32_t n, pen_error *err)
{
    int rc = check_feed(loader, err);
    if (rc == 0)
        rc = pen__feed_put(loader->feed, samples, n, err);
    if (rc == 0)
        pen__window_poke(loader->window);
    return rc;
}

int pen_loader_skip(pen_loader *loader, const int64_t *samples, int32_t n, pen_error *err)
{
    int rc = check_feed(loader, err);
    if (rc == 0)
        rc = pen__feed_skip(loader->feed, samples, n, err);
    if (rc == 0)
        loader->batch++;
    return rc;
}

int pen_loader_feed_end(pen_loader *loader, pen_error *err)
{
    int rc = check_feed(loader, err);
    return rc ? rc : pen__feed_end(loader->feed, loader->epoch, err);
}

int64_t pen_loader_fed(const pen_loader *loader)
{
    return loader->feed ? pen__feed_waiting(loader->feed, -1) : PEN_EINVAL;
}

static void describe_state(const pen_loader *loader, pen__state *state)
{
    const pen_loader_opts *o = &loader->opts;
    bool is_block = o->order == PEN_ORDER_BLOCK;
    *state = (pen__state){
        .epoch = loader->epoch,
        .batch = loader->batch,
        .n_bad = loader->n_bad,
        .seed = o->seed,
        .global_batch = (int64_t)o->batch_size * o->world_size,
        .order = o->order,
        .block = is_block ? o->order_block : 0,
        .window = is_block ? o->order_window : 0,
        .tail = loader->stream.tail,
        .is_tail_auto = o->tail == PEN_TAIL_AUTO,
        .on_error = o->on_error,
        .numerics = PEN_NUMERICS_VERSION,
    };
    snprintf(state->dataset, sizeof state->dataset, "%s", pen_dataset_hash(loader->ds));
    snprintf(state->pipeline, sizeof state->pipeline, "%s", pen_pipeline_hash(loader->pipe));
    if (loader->mixer.n > 0)
        pen__mixer_digest(&loader->mixer, state->mix);
}

int64_t pen_loader_state(const pen_loader *loader, char *dst, size_t dst_cap)
{
    pen__state state;
    describe_state(loader, &state);
    return pen__state_write(&state, dst, dst_cap);
}

int pen_loader_resume(pen_loader *loader, const char *text, pen_error *err)
{
    pen__state saved, here;
    int rc = pen__state_parse(&saved, text, err);
    if (rc)
        return rc;
    describe_state(loader, &here);
    rc = pen__state_match(&saved, &here, err);
    if (rc == 0)
        rc = pen_loader_seek(loader, saved.epoch, saved.batch, err);
    if (rc == 0)
        loader->n_bad = saved.n_bad;
    return rc;
}

void pen__loader_draw_mix(const pen_loader *loader, int64_t epoch, int64_t batch,
                          pen_mix_params *out)
{
    const pen_loader_opts *o = &loader->opts;
    if (loader->feed) /* each rank has batches of its own */
        batch = batch * o->world_size + o->rank;
    pen__mix_draw(&loader->mixer, o->seed, epoch, batch, &loader->pipe->shape, out);
}

int pen_loader_draw_mix(const pen_loader *loader, int64_t epoch, int64_t batch, pen_mix_params *out,
                        pen_error *err)
{
    if (loader->mixer.n == 0)
        return pen__fail(err, PEN_EINVAL, -1, "nothing mixes the batches of this loader");
    if (epoch < 0 || epoch >= UINT32_MAX || batch < 0 || batch >> 40 != 0)
        return pen__fail(err, PEN_EINVAL, -1, "no batch %lld in epoch %lld", (long long)batch,
                         (long long)epoch);
    pen__loader_draw_mix(loader, epoch, batch, out);
    return 0;
}

int64_t pen_loader_warning(pen_loader *loader, char *dst, size_t dst_cap)
{
    if (dst_cap == 0)
        return 0;
    dst[0] = '\0';
    if (loader->pid != getpid())
        return 0;
    const pen__source *source = loader->ds->source;
    if (loader->allow.is_ready)
        pen__allow_warning(&loader->allow, dst, dst_cap);
    if (!dst[0] && source->warning)
        source->warning(loader->ds, loader->pipe, dst, dst_cap);
    return (int64_t)strlen(dst);
}
