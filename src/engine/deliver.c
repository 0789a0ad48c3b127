/* deliver.c - the consumer's side: take finished batches in order, judge their
 * faults, keep the position.
 */
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "engine/loader_impl.h"
#include "engine/observe.h"
#include "engine/views.h"

static const char *const action_names[] = {"raise", "skip", "replace"};

/* Is this fault one that the options tolerate?  A stand-in that was itself the last
 * resort is not. */
static bool is_tolerated(const pen_loader *loader, const pen_batch *batch, const pen__bad *bad)
{
    if (loader->opts.on_error == PEN_ON_ERROR_RAISE || !pen_error_is_data(bad->error.code))
        return false;
    if (loader->opts.on_error == PEN_ON_ERROR_SKIP)
        return true;
    bool is_last_of_slot = !bad->next || bad->next->slot != bad->slot;
    return !(is_last_of_slot && batch->mask[bad->slot] == PEN__SLOT_BAD);
}

/* Judge a finished batch.  `is_counted` false: a replay, which leaves no trace. */
static int judge(pen_loader *loader, pen_batch *batch, bool is_counted, pen_error *err)
{
    if (atomic_load(&batch->lost_a_fault))
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    pen__slab_sort_bad(batch);
    for (const pen__bad *bad = batch->bad; bad; bad = bad->next) {
        bool tolerated = is_tolerated(loader, batch, bad);
        bool is_ours = is_counted && bad->slot < batch->n_slots; /* not a ghost: another rank's */
        int rc = 0;
        if (is_ours)
            rc = pen__ledger_write(&loader->ledger, loader->ds, batch, bad,
                                   action_names[tolerated ? loader->opts.on_error : 0], err);
        if (rc)
            return rc;
        if (!tolerated) {
            if (err)
                *err = bad->error;
            return bad->error.code;
        }
        if (is_ours && ++loader->n_bad > loader->opts.max_bad)
            return pen__fail(err, PEN_EBAD, -1, "more than %lld bad samples; the last: %s",
                             (long long)loader->opts.max_bad, bad->error.text);
    }
    pen__slab_clear_bad(batch);
    return 0;
}

static int start(pen_loader *loader, pen_error *err)
{
    if (loader->is_started) {
        if (atomic_exchange(&loader->shall_show, false)) /* a policy came later */
            pen__serve_locally(loader);
        return 0;
    }
    if (pen__board_start(loader) != 0 || pen__control_start(loader) != 0)
        return pen__fail(err, PEN_ENOMEM, -1, "cannot start a worker thread");
    pen__serve_locally(loader);
    loader->is_started = true;
    return 0;
}

/* Take the next finished batch; with no workers, make it first, and be back in time
 * though it is half done: the caller may have signals to look at. */
static int take(pen_loader *loader, int64_t timeout_ns, pen_batch **out)
{
    const int64_t start_ns = pen__now_ns();
    while (!loader->pool && !pen__window_is_ready(loader->window)) {
        int rc = pen__loader_work_once(loader, atomic_load(&loader->carriers[0]));
        if (rc == PEN_END)
            break;
        bool is_late = timeout_ns >= 0 && pen__now_ns() - start_ns >= timeout_ns;
        if (rc == PEN_AGAIN || (is_late && !pen__window_is_ready(loader->window)))
            return PEN_AGAIN;
    }
    void *payload = NULL;
    int rc = pen__window_take(loader->window, timeout_ns, &payload);
    *out = payload;
    return rc;
}

static void save_index_now(void *ctx, int index)
{
    (void)index;
    pen_loader *loader = ctx;
    if (loader->marks)
        pen__sidecar_save(loader->marks);
    if (loader->allow.is_ready)
        pen__allow_save(&loader->allow);
    atomic_store(&loader->is_saving, false);
}

static bool start_saver(pen_loader *loader)
{
    return pen__pool_create(&loader->saver, 1, "penstock-ix", save_index_now, loader) == 0 &&
           pen__pool_grow(loader->saver, 1) == 1;
}

static bool has_news(pen_loader *loader)
{
    return (loader->marks && pen__sidecar_has_news(loader->marks)) ||
           (loader->allow.is_ready && pen__allow_has_news(&loader->allow));
}

/* An index of gigabytes takes its time, and training waits for this thread: another saves. */
static void save_index(pen_loader *loader)
{
    if (atomic_load(&loader->is_saving) || !has_news(loader))
        return;
    pen__pool_join(loader->saver);
    loader->saver = NULL;
    atomic_store(&loader->is_saving, true);
    if (!loader->pool || !start_saver(loader))
        save_index_now(loader, 0);
}

static void advance(pen_loader *loader, const pen_batch *batch)
{
    if (loader->feed) {
        loader->batch = batch->index + 1;
        pen__feed_delivered(loader->feed, batch->epoch);
        return;
    }
    if (++loader->batch == loader->n_batches) {
        loader->batch = 0;
        loader->epoch++;
        loader->end_pending = true;
        save_index(loader);
    }
}

static int fail_for_good(pen_loader *loader, const pen_error *why, pen_error *err)
{
    loader->failure = *why;
    if (err)
        *err = *why;
    return why->code;
}

/* The caller comes. */
static void enter(pen__consumer_times *times)
{
    int64_t now = pen__now_ns();
    if (times->outside_since)
        times->stepped_ns += now - times->outside_since;
    atomic_store(&times->inside_since, now);
    atomic_store(&times->is_away, false);
}

/* It goes, with a batch (rc 0) or without. */
static void leave(pen__consumer_times *times, int rc)
{
    int64_t now = pen__now_ns(), waited = now - atomic_load(&times->inside_since);
    pen__counter_add(&times->wait_ns, waited);
    pen__trail_add(&times->trail, now - waited, now);
    atomic_store(&times->inside_since, 0);
    times->waited_ns += waited;
    if (rc == 0) {
        pen__meter_add(&times->wait, times->waited_ns);
        if (times->outside_since)
            pen__meter_add(&times->step, times->stepped_ns);
        times->waited_ns = times->stepped_ns = 0;
    }
    bool is_between_epochs = rc == PEN_END || (rc == PEN_AGAIN && !times->outside_since);
    times->outside_since = is_between_epochs ? 0 : now;
    atomic_store(&times->is_away, rc == PEN_END);
    if (is_between_epochs)
        times->stepped_ns = 0;
}

/* Take a batch, judge it and move on.  0 with *out NULL: all its samples were skipped. */
static int deliver(pen_loader *loader, int64_t timeout_ns, pen_batch **out, pen_error *err)
{
    pen_batch *batch = NULL;
    pen_error why = {.offset = -1};
    int rc = start(loader, &why);
    if (rc == 0 && (rc = take(loader, timeout_ns, &batch)) < 0)
        pen__fail(&why, rc, -1, "%s", pen_error_message(rc));
    if (rc)
        return rc < 0 ? fail_for_good(loader, &why, err) : rc;
    why.code = judge(loader, batch, true, &why);
    atomic_store(&loader->n_bad_seen, loader->n_bad);
    if (why.code) {
        pen_batch_unref(batch);
        return fail_for_good(loader, &why, err);
    }
    advance(loader, batch);
    if (batch->count == 0) {
        pen_batch_unref(batch);
        return 0;
    }
    pen__counter_add(&loader->n_batches_out, 1);
    pen__counter_add(&loader->n_samples_out, batch->count);
    pen__counter_add(&loader->bytes_out, (int64_t)batch->shape.bytes * batch->count);
    *out = batch;
    return 0;
}

/* 0: there is a batch to wait for.  PEN_END, or the caller has not said what comes next. */
static int look_ahead(pen_loader *loader, pen_error *err)
{
    if (!loader->feed) {
        bool is_over = loader->end_pending || loader->n_batches == 0;
        loader->end_pending = false;
        return is_over ? PEN_END : 0;
    }
    if (pen__feed_waiting(loader->feed, loader->epoch) > 0)
        return 0;
    if (pen__feed_epoch(loader->feed) == loader->epoch)
        return pen__fail(err, PEN_EINVAL, -1,
                         "nothing was fed: feed a batch, or end the epoch, before asking for the "
                         "next batch");
    loader->epoch++;
    loader->batch = 0;
    save_index(loader);
    return PEN_END;
}

int pen_loader_next(pen_loader *loader, int64_t timeout_ns, pen_batch **out, pen_error *err)
{
    *out = NULL;
    int rc = pen__loader_check_owner(loader, err);
    if (rc)
        return rc;
    if (loader->failure.code)
        return fail_for_good(loader, &loader->failure, err);
    enter(&loader->times);
    const int64_t began = atomic_load(&loader->times.inside_since);
    do {
        rc = look_ahead(loader, err);
        if (rc == 0)
            rc = deliver(loader, timeout_ns, out, err);
    } while (rc == 0 && !*out);
    leave(&loader->times, rc);
    if (pen__trace_is_on(&loader->trace))
        pen__trace_add(&loader->trace, PEN__TRACE_WAIT, began, pen__now_ns(), -1, -1);
    if (rc == 0 && atomic_load(&loader->first_batch_ns) == 0)
        atomic_store(&loader->first_batch_ns, atomic_load(&loader->times.wait_ns));
    if (rc == 0)
        pen__observe_mark(loader);
    return rc;
}

static int replay(pen_loader *loader, pen_batch *batch, pen__carrier *carrier, pen_error *err)
{
    int32_t n = pen__fill_begin(loader, batch, batch->epoch, batch->index,
                                pen__stream_slots(&loader->stream, batch->index));
    for (int32_t slot = 0; slot < n; slot++)
        if (!pen__fill_slot(loader, carrier, batch, slot, -1, NULL))
            return pen__fail(err, PEN_ECANCELED, -1, "cancelled");
    return judge(loader, batch, false, err);
}

int pen_loader_replay(pen_loader *loader, int64_t epoch, int64_t index, pen_batch **out,
                      pen_error *err)
{
    *out = NULL;
    int rc = pen__loader_check_owner(loader, err);
    if (rc)
        return rc;
    if (loader->feed)
        return pen__fail(err, PEN_EINVAL, -1,
                         "a fed order cannot be replayed: feed the batch again");
    if (epoch < 0 || epoch >= UINT32_MAX || index < 0 || index >= loader->n_batches)
        return pen__fail(err, PEN_EINVAL, -1, "no batch %lld in epoch %lld (an epoch has %lld)",
                         (long long)index, (long long)epoch, (long long)loader->n_batches);
    pen__slab_pool *slabs = NULL; /* of its own: a replay takes no place in the stream */
    pen_batch *batch = NULL;
    pen__carrier *carrier = pen__malloc(sizeof *carrier);
    rc = carrier ? pen__carrier_init(carrier, loader->budget, &loader->cancel) : PEN_ENOMEM;
    if (rc == 0)
        rc = pen__slab_pool_create(&slabs, &loader->slab, 1);
    if (rc == 0 && !(batch = pen__slab_get(slabs)))
        rc = PEN_ENOMEM;
    if (rc) {
        pen__fail(err, rc, -1, "%s", pen_error_message(rc));
    } else {
        carrier->reading.is_callers = true;
        batch->epoch = epoch;
        batch->index = index;
        rc = replay(loader, batch, carrier, err);
    }
    if (carrier)
        pen__carrier_fini(carrier);
    pen__free(carrier);
    if (rc == 0) {
        pen__slab_hand_over(batch);
        *out = batch;
    } else {
        pen_batch_unref(batch);
    }
    pen__slab_pool_release(slabs);
    return rc;
}
