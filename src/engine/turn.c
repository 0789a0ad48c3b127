/* turn.c - the knobs: the table, what they are set to, and making it so.
 *
 * Setting a knob changes limits that others look at when they next claim, read or compute:
 * nothing is stopped for it.  Threads are started when they are first wanted and parked when
 * they are not.  What a knob may reach was set aside when the budget was shared out.
 */
#include <penstock/knobs.h>
#include <penstock/policy.h>

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "engine/loader_impl.h"
#include "telemetry/limits.h"

#define PEN_KNOB_LINE(id, name, kind, unit, text) {name, unit, text, PEN_KNOB_KIND_##kind},
static const struct line {
    const char *name, *unit, *text;
    pen_knob_kind kind;
} lines[PEN_KNOB_COUNT] = {PEN_KNOBS(PEN_KNOB_LINE)};

enum { LEAST_IO = 16 };

/* The knobs of the stages that shares.c knows, in its order. */
static const pen_knob share_knobs[PEN__SHARE_STAGES] = {
    PEN_KNOB_SHARE_DECODE, PEN_KNOB_SHARE_AUGMENT, PEN_KNOB_SHARE_TOKENIZE,
    PEN_KNOB_SHARE_TRANSFER};

void pen_knobs_init(pen_knobs *knobs)
{
    knobs->struct_size = sizeof *knobs;
    for (int i = 0; i < PEN_KNOB_CAP; i++)
        knobs->value[i] = NAN;
}

int pen_knob_find(const char *name)
{
    for (int i = 0; i < PEN_KNOB_COUNT; i++)
        if (strcmp(lines[i].name, name) == 0)
            return i;
    return -1;
}

static bool is_share(int knob)
{
    return lines[knob].kind == PEN_KNOB_KIND_SHARE;
}

static bool is_integer(int knob)
{
    return lines[knob].kind == PEN_KNOB_KIND_WHOLE;
}

/* Only a remote dataset and a policy that weighs samples leave a choice. */
static bool has_offload(const pen_loader *loader)
{
    return loader->allow.is_ready && pen__allow_has_share(&loader->allow);
}

/* How far storage nodes ever go, and whether less can be asked for. */
static pen__allow_bounds widest(const pen_loader *loader)
{
    const pen__allow *allow = &loader->allow;
    return allow->is_ready ? pen__allow_widest(allow) : (pen__allow_bounds){0, PEN_CODEC_NONE};
}

static bool has_bounds(const pen_loader *loader)
{
    return loader->allow.is_ready && pen__allow_has_bounds(&loader->allow);
}

/* The range of a knob of this loader. */
static void range_of(const pen_loader *loader, int knob, double *min, double *max)
{
    const bool is_inline = loader->opts.workers == 0;
    *min = is_inline ? 0 : 1;
    *max = 1;
    switch (knob) {
    case PEN_KNOB_WORKERS:
        *max = is_inline ? 0 : loader->max_workers;
        break;
    case PEN_KNOB_READY_BATCHES:
        *min = 1;
        *max = pen__loader_max_ready(loader);
        break;
    case PEN_KNOB_READ_AHEAD:
        *min = 0;
        *max = is_inline ? 0 : PEN__SHELF_CAP;
        break;
    case PEN_KNOB_IO:
        *min = 1;
        *max = PEN_MAX_IO > loader->max_workers ? PEN_MAX_IO : loader->max_workers;
        break;
    case PEN_KNOB_OFFLOAD:
        *min = 0;
        *max = has_offload(loader);
        break;
    case PEN_KNOB_CUT_WIRE:
        *max = widest(loader).cut_wire;
        *min = has_bounds(loader) ? 0 : *max;
        break;
    case PEN_KNOB_CODEC:
        *max = widest(loader).codec;
        *min = has_bounds(loader) ? 0 : *max;
        break;
    default:
        *min = 0;
    }
}

int pen_loader_knob(const pen_loader *loader, int knob, pen_knob_info *out)
{
    if (knob < 0 || knob >= PEN_KNOB_COUNT)
        return PEN_EINVAL;
    *out = (pen_knob_info){
        .name = lines[knob].name,
        .unit = lines[knob].unit,
        .text = lines[knob].text,
        .is_integer = is_integer(knob),
        .is_share = is_share(knob),
    };
    range_of(loader, knob, &out->min, &out->max);
    if (pen__loader_check_owner(loader, NULL) != 0)
        return PEN_EFORK;
    pen__board *board = &((pen_loader *)(uintptr_t)loader)->board;
    pthread_mutex_lock(&board->lock);
    out->is_pinned = board->pinned >> knob & 1;
    pthread_mutex_unlock(&board->lock);
    return 0;
}

int pen_loader_get_knobs(const pen_loader *loader, pen_knobs *out)
{
    pen_knobs_init(out);
    if (pen__loader_check_owner(loader, NULL) != 0)
        return PEN_EFORK;
    pen__board *board = &((pen_loader *)(uintptr_t)loader)->board;
    pthread_mutex_lock(&board->lock);
    memcpy(out->value, board->value, sizeof board->value);
    pthread_mutex_unlock(&board->lock);
    return 0;
}

/* A cargo of the window's that nobody wants any more. */
static void let_go(void *ctx, void *cargo, size_t bytes)
{
    pen_loader *loader = ctx;
    pen__budget_put(loader->budget, NULL, &(pen__block){cargo, bytes, 0});
}

/* Threads for the workers that are wanted.  How many there are in the end. */
static int want_workers(pen_loader *loader, int n)
{
    if (!loader->board.is_running || loader->opts.workers == 0)
        return n;
    if (pen__loader_make_carriers(loader, n) != 0)
        n = atomic_load(&loader->n_carriers);
    int got = pen__pool_grow(loader->pool, n);
    return got < n ? got : n;
}

static int want_readers(pen_loader *loader, int n)
{
    if (!loader->board.is_running || n == 0)
        return n;
    if (!loader->readers) {
        pen__reading *readings = pen__calloc(PEN_MAX_IO, sizeof *readings);
        if (!readings || pen__pool_create(&loader->readers, PEN_MAX_IO, "penstock-io",
                                          pen__loader_read, loader) != 0) {
            pen__free(readings);
            return 0;
        }
        atomic_store(&loader->readings, readings);
    }
    int got = pen__pool_grow(loader->readers, n);
    atomic_store(&loader->n_readings, pen__pool_size(loader->readers));
    return got < n ? got : n;
}

/* A permit for each core that there is now: a quota may have come since the loader was made. */
static void want_shares(pen_loader *loader, const double *value)
{
    double weight[PEN__SHARE_STAGES], sum = 0;
    for (int i = 0; i < PEN__SHARE_STAGES; i++)
        sum += weight[i] = value[share_knobs[i]];
    if (sum > 0)
        pen__shares_limit(&loader->shares, pen__limit_cores());
    if (memcmp(loader->shares.weight, weight, sizeof weight) != 0 || !loader->shares.is_on)
        pen__shares_set(&loader->shares, weight);
}

/* Make it so.  The board's lock is held.  PEN_ENOMEM: not all of it could be. */
static int apply(pen_loader *loader)
{
    const double *value = loader->board.value;
    const int workers = (int)value[PEN_KNOB_WORKERS], ready = (int)value[PEN_KNOB_READY_BATCHES];
    const int ahead = (int)value[PEN_KNOB_READ_AHEAD], io = (int)value[PEN_KNOB_IO];
    int readers = ahead < io ? ahead : io;
    readers = readers < PEN_MAX_IO ? readers : PEN_MAX_IO;
    pen__slab_pool_keep(loader->slabs, ready);
    pen__window_limit(loader->window, ready);
    int rc = pen__window_read_ahead(loader->window, ahead, let_go);
    int got_workers = want_workers(loader, workers);
    int got_readers = rc ? 0 : want_readers(loader, readers);
    if (workers > 0)
        pen__window_crew(loader->window, PEN__WORKER, got_workers);
    pen__window_crew(loader->window, PEN__READER, got_readers);
    pen__gate_limit(&loader->io, io >= workers + readers ? 0 : io);
    if (has_offload(loader))
        pen__allow_set_share(&loader->allow, value[PEN_KNOB_OFFLOAD]);
    if (has_bounds(loader))
        pen__allow_set_bounds(
            &loader->allow,
            &(pen__allow_bounds){(int)value[PEN_KNOB_CUT_WIRE], (pen_codec)value[PEN_KNOB_CODEC]});
    want_shares(loader, value);
    return got_workers < workers || got_readers < readers ? PEN_ENOMEM : 0;
}

int pen__board_init(pen_loader *loader)
{
    pen__board *board = &loader->board;
    const pen_loader_opts *o = &loader->opts;
    double *value = board->value;
    value[PEN_KNOB_WORKERS] = o->workers;
    const int most = pen__loader_max_ready(loader);
    value[PEN_KNOB_READY_BATCHES] = o->ready_batches < most ? o->ready_batches : most;
    const bool is_planned =
        o->policy && o->policy->begins_with_files && !(o->pinned_knobs >> PEN_KNOB_OFFLOAD & 1);
    value[PEN_KNOB_OFFLOAD] = has_offload(loader) && !is_planned;
    value[PEN_KNOB_CUT_WIRE] = widest(loader).cut_wire;
    value[PEN_KNOB_CODEC] = widest(loader).codec;
    value[PEN_KNOB_IO] = loader->max_workers > LEAST_IO ? loader->max_workers : LEAST_IO;
    board->pinned = o->pinned_knobs;
    pthread_mutex_lock(&board->lock);
    int rc = apply(loader);
    pthread_mutex_unlock(&board->lock);
    return rc;
}

void pen__board_fini(pen_loader *loader)
{
    pen__shares_fini(&loader->shares);
    pen__gate_fini(&loader->io);
    pthread_mutex_destroy(&loader->board.lock);
}

int pen__board_start(pen_loader *loader)
{
    int rc = 0;
    pthread_mutex_lock(&loader->board.lock);
    if (loader->opts.workers > 0 && !loader->pool)
        rc = pen__pool_create(&loader->pool, loader->max_workers, "penstock", pen__loader_work,
                              loader);
    if (rc == 0) {
        loader->board.is_running = true;
        apply(loader); /* fewer threads than asked for will do, if there is one */
        if (loader->opts.workers > 0 && pen__pool_size(loader->pool) == 0)
            rc = PEN_ENOMEM;
    }
    pthread_mutex_unlock(&loader->board.lock);
    return rc;
}

/* NULL, or the knob whose new value is out of range. */
static const char *check(const pen_loader *loader, const double *value, double *min, double *max)
{
    double sum = 0;
    for (int i = 0; i < PEN_KNOB_COUNT; i++) {
        range_of(loader, i, min, max);
        bool is_whole = !is_integer(i) || value[i] == floor(value[i]);
        if (!(value[i] >= *min && value[i] <= *max && is_whole))
            return lines[i].name;
        sum += is_share(i) ? value[i] : 0;
    }
    *min = *max = 1;
    return fabs(sum - 1) < 1e-6 || sum == 0 ? NULL : "the sum of shares";
}

/* The present values with the new ones over them; the mask of those. */
static uint64_t merge(const pen__board *board, const pen_knobs *knobs, double *value)
{
    uint64_t set = 0;
    memcpy(value, board->value, sizeof board->value);
    for (int i = 0; i < PEN_KNOB_COUNT; i++)
        if (!isnan(knobs->value[i])) {
            value[i] = knobs->value[i];
            set |= UINT64_C(1) << i;
        }
    return set;
}

int pen_loader_set_knobs(pen_loader *loader, const pen_knobs *knobs, pen_error *err)
{
    int rc = pen__loader_check_owner(loader, err);
    if (rc)
        return rc;
    if (knobs->struct_size != sizeof *knobs)
        return pen__fail(err, PEN_EINVAL, -1, "knobs of %zu bytes: call pen_knobs_init first",
                         knobs->struct_size);
    pen__board *board = &loader->board;
    double value[PEN_KNOB_COUNT], min = 0, max = 0;
    pthread_mutex_lock(&board->lock);
    uint64_t set = merge(board, knobs, value);
    const char *wrong = check(loader, value, &min, &max);
    if (!wrong) {
        memcpy(board->value, value, sizeof value);
        board->pinned |= set;
        rc = apply(loader);
    }
    pthread_mutex_unlock(&board->lock);
    if (wrong)
        return pen__fail(err, PEN_EINVAL, -1, "%s must be %g to %g here", wrong, min, max);
    return rc ? pen__fail(err, rc, -1, "a thread could not be started") : 0;
}

int pen__board_turn(pen_loader *loader, const pen_knobs *knobs)
{
    pen__board *board = &loader->board;
    double value[PEN_KNOB_COUNT], sum = 0;
    int rc = 0;
    pthread_mutex_lock(&board->lock);
    merge(board, knobs, value);
    for (int i = 0; i < PEN_KNOB_COUNT; i++) {
        double min, max;
        range_of(loader, i, &min, &max);
        if (board->pinned >> i & 1)
            value[i] = board->value[i];
        value[i] = fmin(fmax(is_integer(i) ? round(value[i]) : value[i], min), max);
        sum += is_share(i) ? value[i] : 0;
    }
    for (int i = 0; i < PEN_KNOB_COUNT; i++)
        if (is_share(i) && fabs(sum - 1) > 1e-6 && sum != 0) /* together, or not at all */
            value[i] = board->value[i];
    if (memcmp(board->value, value, sizeof value) != 0) {
        memcpy(board->value, value, sizeof value);
        rc = apply(loader);
    }
    pthread_mutex_unlock(&board->lock);
    return rc;
}

int pen_loader_release_knobs(pen_loader *loader, uint64_t mask)
{
    if (pen__loader_check_owner(loader, NULL) != 0)
        return PEN_EFORK;
    pthread_mutex_lock(&loader->board.lock);
    loader->board.pinned &= ~mask;
    pthread_mutex_unlock(&loader->board.lock);
    return 0;
}
