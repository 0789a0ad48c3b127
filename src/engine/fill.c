/* fill.c - what workers do: claim a slot of the reorder window, carry its sample.
 *
 * A fault is noted in the batch and judged when the batch is delivered, in order,
 * so that what happens does not depend on which worker was faster.
 *
 * Readers claim slots ahead of the workers and shelve them with their bytes.  Whatever goes
 * wrong there is not even noted: the worker that takes the slot finds no bytes, and does
 * everything itself.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/loader_impl.h"

enum { MAX_REPLACEMENTS = 32 };

pen__carry_env pen__loader_env(const pen_loader *loader)
{
    pen_loader *shared = (pen_loader *)(uintptr_t)loader; /* what follows guards itself */
    return (pen__carry_env){.ds = loader->ds,
                            .pipe = loader->pipe,
                            .cancel = &loader->cancel,
                            .marks = loader->marks,
                            .io = &shared->io,
                            .shares = &shared->shares,
                            .trace = &shared->trace,
                            .allow = &shared->allow,
                            .parts = loader->parts};
}

int32_t pen__fill_begin(pen_loader *loader, pen_batch *batch, int64_t epoch, int64_t index,
                        int32_t n_slots)
{
    batch->epoch = epoch;
    batch->index = index;
    batch->opened_ns = pen__now_ns();
    batch->n_slots = batch->count = n_slots;
    atomic_store(&batch->n_unfilled, n_slots + loader->n_ghosts);
    return n_slots + loader->n_ghosts;
}

/* What was fed next becomes a batch; 0 if nothing was. */
static int open_fed_job(pen_loader *loader, void **payload)
{
    pen__fed *fed = pen__feed_take(loader->feed);
    if (!fed)
        return 0;
    pen_batch *batch = pen__slab_get(loader->slabs);
    if (!batch) {
        pen__free(fed);
        return PEN_ENOMEM;
    }
    batch->fed = fed;
    *payload = batch;
    return pen__fill_begin(loader, batch, fed->epoch, fed->index, fed->n);
}

int pen__loader_open_job(void *ctx, int64_t seq, void **payload)
{
    pen_loader *loader = ctx;
    if (loader->feed)
        return open_fed_job(loader, payload);
    pen_batch *batch = pen__slab_get(loader->slabs);
    if (!batch)
        return PEN_ENOMEM;
    int64_t n = loader->base_batch + seq, index = n % loader->n_batches;
    atomic_store_explicit(&loader->newest_batch, loader->base_epoch * loader->n_batches + n,
                          memory_order_relaxed);
    *payload = batch;
    return pen__fill_begin(loader, batch, loader->base_epoch + n / loader->n_batches, index,
                           pen__stream_slots(&loader->stream, index));
}

static pen__slot slot_of(const pen_loader *loader, const pen_batch *batch, int32_t slot)
{
    if (slot == batch->n_slots)
        return pen__stream_ghost(&loader->stream, batch->epoch, batch->index);
    if (!batch->fed)
        return pen__stream_slot(&loader->stream, batch->epoch, batch->index, slot);
    return (pen__slot){
        .position = pen__stream_position(&loader->stream, batch->index, slot),
        .sample = batch->fed->slots[slot].sample,
        .occurrence = batch->fed->slots[slot].occurrence,
    };
}

/* The key of attempt 0 is the sample's own; a stand-in gets occurrences that no
 * regular sample reaches. */
static pen_key key_of(const pen_loader *loader, const pen_batch *batch, const pen__slot *slot,
                      int attempt)
{
    pen_key key = {loader->opts.seed, slot->sample, batch->epoch, slot->occurrence};
    if (attempt > 0) {
        key.sample =
            pen__stream_replacement(&loader->stream, batch->epoch, slot->position, attempt);
        key.occurrence = 0x8000 | attempt;
    }
    return key;
}

/* False: the program's own thread was told to leave, and the slot is as it was. */
static bool fill_slot(pen_loader *loader, pen__carrier *carrier, pen_batch *batch, int32_t slot,
                      int64_t rank, pen__block *file)
{
    pen__carry_env env = pen__loader_env(loader);
    pen__slot where = slot_of(loader, batch, slot);
    uint8_t *dst = batch->data + (size_t)slot * batch->shape.bytes;
    pen__slab_map(batch, slot);
    /* The batch cannot be delivered any more, and waiting for a lost server takes long. */
    if (atomic_load(&batch->has_failed)) {
        batch->mask[slot] = PEN__SLOT_BAD;
        return true;
    }
    for (int attempt = 0;; attempt++) {
        pen_key key = key_of(loader, batch, &where, attempt);
        pen_error error = {.offset = -1, .sample = -1};
        batch->ids[slot] = key.sample;
        batch->labels[slot] = pen_dataset_label(loader->ds, key.sample);
        batch->mask[slot] = !where.is_repeat;
        int rc = pen__carry(&env, carrier, &key, rank, file, dst, &error);
        if (rc == 0)
            return true;
        batch->mask[slot] = PEN__SLOT_BAD;
        if (rc == PEN_ECANCELED) { /* the batch is about to be thrown away, or we come again */
            pen__slab_forget_bad(batch, slot);
            return atomic_load(&loader->cancel);
        }
        if (rc == PEN_EIO) /* other errors come again: the first in order is told */
            atomic_store(&batch->has_failed, true);
        if (pen__slab_note_bad(batch, slot, attempt, key.sample, &error) != 0) {
            atomic_store(&batch->lost_a_fault, true);
            return true;
        }
        bool may_replace = loader->opts.on_error == PEN_ON_ERROR_REPLACE && pen_error_is_data(rc);
        if (!may_replace || attempt == MAX_REPLACEMENTS)
            return true;
    }
}

/* Is a sample missing that nothing stands in for?  Then the batch is not delivered. */
static bool has_hole(const pen_loader *loader, const pen_batch *batch)
{
    bool found = loader->n_ghosts && batch->mask[batch->n_slots] == PEN__SLOT_BAD;
    for (int32_t i = 0; i < batch->count && !found; i++)
        found = batch->mask[i] == PEN__SLOT_BAD;
    return found;
}

/* What is done to a batch as a whole. */
static void finish(pen_loader *loader, pen__carrier *carrier, pen_batch *batch)
{
    if (loader->opts.on_error == PEN_ON_ERROR_SKIP)
        pen__slab_compact(batch);
    if (loader->mixer.n == 0 || has_hole(loader, batch))
        return;
    int64_t t0 = pen__now_ns();
    pen_mix_params params;
    pen__loader_draw_mix(loader, batch->epoch, batch->index, &params);
    pen__mix_batch(batch, &params, loader->n_ghosts == 0);
    int64_t t1 = pen__now_ns();
    pen__counter_add(&carrier->mix_ns, t1 - t0);
    pen__trace_add(&loader->trace, PEN__TRACE_MIX, t0, t1, batch->index, batch->epoch);
}

bool pen__fill_slot(pen_loader *loader, pen__carrier *carrier, pen_batch *batch, int32_t slot,
                    int64_t rank, pen__block *file)
{
    pen__block nothing = {0};
    if (!fill_slot(loader, carrier, batch, slot, rank, file ? file : &nothing))
        return false;
    if (atomic_fetch_sub(&batch->n_unfilled, 1) != 1)
        return true;
    finish(loader, carrier, batch);
    int64_t now = pen__now_ns();
    pen__meter_add(&carrier->batch, now - batch->opened_ns);
    pen__trace_add(&loader->trace, PEN__TRACE_BATCH, batch->opened_ns, now, batch->index,
                   batch->epoch);
    return true;
}

static int64_t rank_of(const pen_loader *loader, const pen__claim *claim)
{
    return claim->seq * loader->opts.batch_size + claim->slot;
}

static bool fill_claim(pen_loader *loader, pen__carrier *carrier, const pen__claim *claim)
{
    pen__block file = {claim->cargo, claim->cargo_bytes, 0};
    if (!pen__fill_slot(loader, carrier, claim->payload, claim->slot, rank_of(loader, claim),
                        &file))
        return false;
    pen__window_done(loader->window, claim);
    return true;
}

int pen__loader_work_once(pen_loader *loader, pen__carrier *carrier)
{
    pen__claim claim = loader->left;
    loader->left = (pen__claim){0};
    if (!claim.payload && pen__window_claim(loader->window, false, &claim) != 0)
        return PEN_END;
    if (fill_claim(loader, carrier, &claim))
        return 0;
    loader->left = claim;
    return PEN_AGAIN;
}

void pen__loader_drop_left(pen_loader *loader)
{
    if (loader->left.payload)
        pen__window_done(loader->window, &loader->left);
    loader->left = (pen__claim){0};
}

void pen__loader_work(void *ctx, int index)
{
    pen_loader *loader = ctx;
    pen__carrier *carrier = atomic_load(&loader->carriers[index]);
    pen__claim claim;
    while (pen__window_claim_as(loader->window, PEN__WORKER, index, &claim) == 0) {
        pen__counter_add(&carrier->idle_ns, claim.idle_ns);
        fill_claim(loader, carrier, &claim);
    }
}

/* Bring the bytes of a claimed slot, if there is memory to spare. */
static void fetch(pen_loader *loader, pen__reading *reading, pen__claim *claim)
{
    pen__carry_env env = pen__loader_env(loader);
    const pen__slot slot = slot_of(loader, claim->payload, claim->slot);
    const pen_key key = key_of(loader, claim->payload, &slot, 0);
    int64_t len = pen_dataset_length(loader->ds, key.sample);
    pen__block file;
    if (len < 0 || atomic_load(&loader->cancel) ||
        pen__budget_get_spare(loader->budget, pen__carry_room(&env, (size_t)len), &file) != 0)
        return;
    if (pen__carry_read(&env, reading, &key, file.data, (size_t)len, NULL) == 0) {
        claim->cargo = file.data;
        claim->cargo_bytes = file.cap;
    } else {
        pen__budget_put(loader->budget, NULL, &file);
    }
}

void pen__loader_read(void *ctx, int index)
{
    pen_loader *loader = ctx;
    pen__reading *reading = &atomic_load(&loader->readings)[index];
    pen__claim claim;
    while (pen__window_claim_as(loader->window, PEN__READER, index, &claim) == 0) {
        fetch(loader, reading, &claim);
        pen__window_shelve(loader->window, &claim);
        pen__budget_nudge(loader->budget); /* what was shelved may be reclaimed */
    }
}
