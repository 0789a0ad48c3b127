/* carry.c - one sample's journey.
 *
 * Memory is taken twice: first for the file, whose length the index knows, then
 * for pixels, whose number only the header tells.  The second time must not wait,
 * because two samples that each hold a file and wait for pixels would block each
 * other.  Where it would have to, the file is let go, and both are asked for
 * together, holding nothing; the file is read again, from the page cache.
 *
 * Where the dataset's source has parcels, a parcel stands in the file's place.  It may be another
 * one when it is fetched again, as whoever packs it is free to choose.  A parcel that is not what
 * was asked for is the network's fault or its sender's, never the sample's, so nobody skips the
 * sample for it; a file that came as it is may be bad as any file.
 */
#include "engine/carry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "engine/parts.h"
#include "source/names.h"
#include "source/source.h"

enum {
    READ_TRIES = 4,
    FIRST_PAUSE_MS = 10, /* then 40, then 160 */
    ONE_BLOCK_TRIES = 8, /* parcels of a sample that each need more than the one before */
    SLOW_NS = 1000000,   /* a read that takes so long is worth two, if they bring less */
    USUAL = 8,           /* samples that what is usual is made of */
};

int pen__carrier_init(pen__carrier *carrier, pen__budget *budget, const atomic_bool *cancel)
{
    memset(carrier, 0, sizeof *carrier);
    int rc = pen__decoder_create(&carrier->dec, cancel);
    if (rc)
        return rc;
    carrier->budget = budget;
    pen__budget_add_home(budget, &carrier->file_home);
    pen__budget_add_home(budget, &carrier->scratch_home);
    return 0;
}

void pen__carrier_fini(pen__carrier *carrier)
{
    if (!carrier->budget) /* it did not come into being */
        return;
    pen__budget_remove_home(carrier->budget, &carrier->scratch_home);
    pen__budget_remove_home(carrier->budget, &carrier->file_home);
    pen__decoder_free(carrier->dec);
    pen__bytes_coder_free(carrier->coder);
    carrier->dec = NULL;
    carrier->coder = NULL;
}

static bool is_cancelled(const pen__carry_env *env)
{
    return env->cancel && atomic_load_explicit(env->cancel, memory_order_relaxed);
}

/* Sleep in short pieces, so that closing does not wait for it. */
static void pause_ms(const pen__carry_env *env, int ms)
{
    for (; ms > 0 && !is_cancelled(env); ms -= 10)
        nanosleep(&(struct timespec){0, 10 * 1000000}, NULL);
}

static bool has_parcels(const pen__carry_env *env)
{
    return env->ds->source->fetch;
}

size_t pen__carry_room(const pen__carry_env *env, size_t len)
{
    return has_parcels(env) ? pen__parcel_bound(env->pipe, len) + PEN__SOURCE_PARCEL_ROOM
                            : pen__parts_room(len);
}

/* What is wrong with a parcel is not wrong with the sample. */
static int blame_sender(int rc, pen_error *err)
{
    if (!pen_error_is_data(rc))
        return rc;
    pen__fail_prefix(err, "what was sent is not what was asked for");
    if (err)
        err->code = PEN_EIO;
    return PEN_EIO;
}

static int64_t fetch(const pen__carry_env *env, pen__reading *reading, const pen_key *key,
                     uint8_t *dst, size_t len, pen_error *err)
{
    pen__foreseen foreseen = {.choice = {.forms = 1U << PEN__FORM_RAW}};
    if (!env->wants_files)
        pen__allow_choose(env->allow, key, len, &foreseen);
    int64_t node_ns = -1; /* not told */
    const pen__wanted wanted = {env->pipe, *key, foreseen.choice, &node_ns, reading->is_callers};
    int64_t n =
        env->ds->source->fetch(env->ds, &wanted, dst, pen__carry_room(env, len), env->cancel, err);
    if (n < 0)
        return n;
    pen__parcel parcel;
    int rc = pen__parcel_read(&parcel, dst, (size_t)n, err);
    if (rc == 0 && parcel.raw_len != len)
        rc = pen__fail(err, PEN_ECORRUPT, -1, "a parcel of a file with %zu bytes instead of %zu",
                       parcel.raw_len, len);
    if (rc)
        return blame_sender(rc, err);
    pen__allow_learn(env->allow, key->sample, &foreseen, &parcel,
                     node_ns < 0 ? NAN : (double)node_ns * 1e-9);
    pen__counter_add(&reading->node_ns, node_ns < 0 ? pen__foreseen_ns(&foreseen) : node_ns);
    return n;
}

static int64_t read_file(const pen__carry_env *env, const pen__reading *reading, const pen_key *key,
                         uint8_t *dst, size_t len, pen_error *err)
{
    const bool in_parts = env->parts == PEN__PARTS_ALWAYS ||
                          (env->parts == PEN__PARTS_AUTO && reading->usual_ns > SLOW_NS);
    const int64_t n = pen__parts_read(env, key, in_parts, dst, len);
    return n > 0 ? n : pen_dataset_read(env->ds, key->sample, dst, len, err);
}

int pen__carry_read(const pen__carry_env *env, pen__reading *reading, const pen_key *key,
                    uint8_t *dst, size_t len, pen_error *err)
{
    int64_t asked = pen__now_ns();
    int ticket = pen__gate_enter(env->io);
    int64_t t0 = ticket ? pen__now_ns() : asked;
    int64_t n = 0;
    int pause = FIRST_PAUSE_MS;
    const int n_tries = env->ds->source->is_patient ? 1 : READ_TRIES;
    for (int i = 0; i < n_tries; i++, pause *= 4) {
        n = has_parcels(env) ? fetch(env, reading, key, dst, len, err)
                             : read_file(env, reading, key, dst, len, err);
        if (n != PEN_EIO || i == n_tries - 1 || is_cancelled(env))
            break;
        pause_ms(env, pause);
    }
    pen__gate_leave(env->io, ticket);
    int64_t t1 = pen__now_ns();
    pen__meter_add(&reading->times, t1 - t0);
    reading->usual_ns += (t1 - t0 - reading->usual_ns) / USUAL;
    pen__trace_add(env->trace, PEN__TRACE_READ, t0, t1, key->sample, -1);
    pen__counter_add(&reading->wait_ns, t0 - asked);
    if (n < 0)
        return (int)n;
    pen__counter_add(&reading->bytes, n);
    pen__counter_add(&reading->stored, (int64_t)len);
    return 0;
}

static int explain(pen_error *err, int rc, size_t bytes, size_t extra, const pen__budget *budget)
{
    if (rc == PEN_EBUDGET)
        return pen__fail(err, rc, -1, "needs %.3f MB, the memory budget leaves %.3f MB for samples",
                         (double)(pen__budget_cost(bytes) + extra) / 1e6,
                         (double)pen__budget_limit(budget) / 1e6);
    return pen__fail(err, rc, -1, "%s", pen_error_message(rc));
}

/* Is it the stored file, packed or not, whose faults are the sample's own? */
static bool is_own_file(const pen__carrier *c)
{
    const pen__form form = c->unpacking.parcel.form;
    pen__bytes_codec codec;
    return form == PEN__FORM_RAW || pen__form_codec(form, &codec);
}

/* What a parcel led to.  A fault of the stored file is the sample's. */
static int judge(pen__carrier *c, int rc, pen_error *err)
{
    if (rc == 0 || is_own_file(c))
        return rc;
    c->was_cheated = pen_error_is_data(rc);
    return blame_sender(rc, err);
}

/* Header to plan. */
static int prepare(const pen__carry_env *env, pen__carrier *c, const pen_key *key, uint8_t *src,
                   size_t len, pen_error *err)
{
    if (has_parcels(env)) {
        int rc = pen__unpack_plan(&c->unpacking, env->pipe, key, src, pen__parcel_length(src), len,
                                  c->params, &c->plan, err);
        return judge(c, rc, err);
    }
    int rc = pen_image_probe(src, len, &c->info, err);
    if (rc == 0)
        rc = pen_pipeline_draw(env->pipe, key, &c->info, c->params, PEN_PIPELINE_MAX_OPS, err);
    if (rc == 0)
        pen__plan_build(&c->plan, env->pipe, &c->info, c->params);
    return rc;
}

static void set_counter(_Atomic int64_t *counter, int64_t value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

static void count_jpegs(pen__carrier *c)
{
    pen__jpeg_counts n = pen__decoder_jpeg_counts(c->dec);
    set_counter(&c->jpeg_indexed, n.n_indexed);
    set_counter(&c->jpeg_plain, n.n_own - n.n_indexed);
    set_counter(&c->jpeg_library, n.n_foreign + n.n_flawed);
}

/* Tell the decoder what is known of the file. */
static void give_marks(const pen__carry_env *env, pen__carrier *c, int64_t id)
{
    if (!env->marks || c->info.format != PEN_FORMAT_JPEG)
        return;
    size_t n = pen__sidecar_get(env->marks, id, c->marks, sizeof c->marks);
    pen__decoder_give_marks(c->dec, c->marks, n);
}

/* Keep what it has found out. */
static void keep_marks(const pen__carry_env *env, pen__carrier *c, int64_t id)
{
    const void *entry;
    size_t n = env->marks ? pen__decoder_take_marks(c->dec, &entry) : 0;
    if (n > 0 && c->info.format == PEN_FORMAT_JPEG)
        pen__sidecar_put(env->marks, id, entry, n);
}

static void trace_stages(pen__trace *trace, const pen__stage_ns *t, int64_t sample)
{
    pen__trace_add(trace, PEN__TRACE_DECODE, t->decode_at, t->decode_at + t->decode, sample, -1);
    pen__trace_add(trace, PEN__TRACE_AUGMENT, t->augment_at, t->augment_at + t->augment, sample,
                   -1);
    pen__trace_add(trace, PEN__TRACE_TENSOR, t->tensor_at, t->tensor_at + t->tensor, sample, -1);
}

static int run_parcel(const pen__carry_env *env, pen__carrier *c, const pen_key *key,
                      uint8_t *scratch, void *dst, pen__stage_ns *times, pen_error *err)
{
    const int64_t t0 = pen__now_ns();
    int rc = pen__unpack_open(&c->unpacking, &c->coder, &scratch, err);
    times->decode += pen__now_ns() - t0;
    if (rc) {
        c->was_cheated = pen_error_is_data(rc);
        return blame_sender(rc, err);
    }
    rc = pen__run(env->pipe, &c->plan, c->params, key, c->dec, &c->unpacking.in, scratch, dst,
                  times, err);
    return judge(c, rc, err);
}

/* From a file of which there may be parts only. */
static int run_once(const pen__carry_env *env, pen__carrier *c, const pen_key *key,
                    const uint8_t *src, size_t len, void *scratch, void *dst, pen__stage_ns *times,
                    pen_error *err)
{
    const pen__input in = pen__input_of_file(&c->plan, &c->info, src, len);
    const pen__file_note note = pen__parts_note(src, len);
    give_marks(env, c, key->sample);
    pen__decoder_give_stamp(c->dec, note.stamp, note.is_partial);
    return pen__run(env->pipe, &c->plan, c->params, key, c->dec, &in, scratch, dst, times, err);
}

_Static_assert(sizeof(pen_image_info) == 20, "no padding in what is compared");

/* Its index was no help after all: read all of the file, and begin again.  The plan is of its head,
 * which must be what it was. */
static int run_whole(const pen__carry_env *env, pen__carrier *c, const pen_key *key, uint8_t *src,
                     size_t len, void *scratch, void *dst, pen__stage_ns *times, pen_error *err)
{
    const pen_image_info before = c->info;
    pen__carry_env all_of_it = *env;
    all_of_it.parts = PEN__PARTS_NEVER;
    int rc = pen__carry_read(&all_of_it, &c->reading, key, src, len, err);
    if (rc == 0)
        rc = pen_image_probe(src, len, &c->info, err);
    if (rc == 0 && memcmp(&before, &c->info, sizeof before) != 0)
        rc = pen__fail(err, PEN_EIO, -1, "the file changed while it was read");
    return rc ? rc : run_once(env, c, key, src, len, scratch, dst, times, err);
}

static int run(const pen__carry_env *env, pen__carrier *c, const pen_key *key, uint8_t *src,
               size_t len, void *scratch, void *dst, pen_error *err)
{
    pen__stage_ns times = {.shares = env->shares, .share = -1};
    int rc;
    if (has_parcels(env)) {
        rc = run_parcel(env, c, key, scratch, dst, &times, err);
    } else {
        rc = run_once(env, c, key, src, len, scratch, dst, &times, err);
        if (rc == PEN_AGAIN)
            rc = run_whole(env, c, key, src, len, scratch, dst, &times, err);
    }
    pen__counter_add(&c->share_wait_ns, times.wait);
    pen__meter_add(&c->decode, times.decode);
    trace_stages(env->trace, &times, key->sample);
    if (rc == 0) {
        pen__meter_add(&c->augment, times.augment);
        pen__meter_add(&c->tensor, times.tensor);
        pen__counter_add(&c->n_samples, 1);
        keep_marks(env, c, key->sample);
    }
    count_jpegs(c);
    return rc;
}

/* Ask for memory and count the time as idle. */
static int get_block(pen__carrier *c, pen__home *home, int64_t rank, size_t bytes, size_t extra,
                     pen__block *out)
{
    int64_t t0 = pen__now_ns();
    int rc = pen__budget_get(c->budget, home, rank, bytes, extra, true, out);
    int64_t waited = pen__now_ns() - t0;
    pen__counter_add(&c->idle_ns, waited);
    pen__counter_add(&c->memory_wait_ns, waited);
    return rc;
}

/* Read, plan and run in a block that has room for the file and, it is hoped, for the rest.
 * PEN_AGAIN: it has not, because what was read is not what was read before. */
static int carry_in_block(const pen__carry_env *env, pen__carrier *c, const pen_key *key,
                          size_t len, const pen__block *block, void *dst, pen_error *err)
{
    const size_t file_bytes = pen__align_up(pen__carry_room(env, len));
    int rc = pen__carry_read(env, &c->reading, key, block->data, len, err);
    if (rc == 0)
        rc = prepare(env, c, key, block->data, len, err);
    if (rc)
        return rc;
    /* Never trust the first plan with new bytes. */
    if (file_bytes + c->plan.scratch_bytes > block->cap || c->plan.library_bytes > block->extra)
        return PEN_AGAIN;
    return run(env, c, key, block->data, len, block->data + file_bytes, dst, err);
}

/* The slow way, holding nothing while it waits: one block for file and pixels. */
static int carry_in_one_block(const pen__carry_env *env, pen__carrier *c, const pen_key *key,
                              int64_t rank, size_t len, void *dst, pen_error *err)
{
    const size_t file_bytes = pen__align_up(pen__carry_room(env, len));
    const int n_tries = has_parcels(env) ? ONE_BLOCK_TRIES : 1;
    size_t bytes = 0, extra = 0;
    for (int i = 0; i < n_tries; i++) {
        pen__block block;
        bytes = pen__max_bytes(bytes, file_bytes + c->plan.scratch_bytes);
        extra = pen__max_bytes(extra, c->plan.library_bytes);
        int rc = get_block(c, NULL, rank, bytes, extra, &block);
        if (rc)
            return explain(err, rc, bytes, extra, c->budget);
        rc = carry_in_block(env, c, key, len, &block, dst, err);
        pen__budget_put(c->budget, NULL, &block);
        if (rc != PEN_AGAIN)
            return rc;
    }
    return pen__fail(err, PEN_EIO, -1, "the file changed while it was read");
}

/* Header to tensor, from a file that is in memory and goes to `home` afterwards. */
static int carry_file(const pen__carry_env *env, pen__carrier *c, const pen_key *key, int64_t rank,
                      pen__block *file, pen__home *home, size_t len, void *dst, pen_error *err)
{
    pen__block scratch;
    int rc = prepare(env, c, key, file->data, len, err);
    if (rc == 0) {
        int got = pen__budget_get(c->budget, &c->scratch_home, rank, c->plan.scratch_bytes,
                                  c->plan.library_bytes, false, &scratch);
        if (got == PEN_AGAIN) {
            pen__budget_put(c->budget, NULL, file);
            return carry_in_one_block(env, c, key, rank, len, dst, err);
        }
        rc = got ? explain(err, got, len + c->plan.scratch_bytes, c->plan.library_bytes, c->budget)
                 : run(env, c, key, file->data, len, scratch.data, dst, err);
        pen__budget_put(c->budget, &c->scratch_home, &scratch);
    }
    pen__budget_put(c->budget, home, file);
    return rc;
}

static int carry_once(const pen__carry_env *env, pen__carrier *c, const pen_key *key, int64_t rank,
                      pen__block *file, size_t len, void *dst, pen_error *err)
{
    const size_t room = pen__carry_room(env, len);
    if (file->data) /* a reader's, for readers to have again */
        return carry_file(env, c, key, rank, file, NULL, len, dst, err);
    int rc = get_block(c, &c->file_home, rank, room, 0, file);
    if (rc)
        return explain(err, rc, room, 0, c->budget);
    rc = pen__carry_read(env, &c->reading, key, file->data, len, err);
    if (rc == 0)
        return carry_file(env, c, key, rank, file, &c->file_home, len, dst, err);
    pen__budget_put(c->budget, &c->file_home, file);
    return rc;
}

/* A node that makes parcels nobody can open may still have the file. */
static int carry(const pen__carry_env *env, pen__carrier *c, const pen_key *key, int64_t rank,
                 pen__block *file, size_t len, void *dst, pen_error *err)
{
    c->was_cheated = false;
    const int rc = carry_once(env, c, key, rank, file, len, dst, err);
    if (rc == 0 || !c->was_cheated)
        return rc;
    pen__carry_env as_stored = *env;
    as_stored.wants_files = true;
    return carry_once(&as_stored, c, key, rank, &(pen__block){0}, len, dst, err);
}

int pen__carry(const pen__carry_env *env, pen__carrier *c, const pen_key *key, int64_t rank,
               pen__block *file, void *dst, pen_error *err)
{
    int64_t len = pen_dataset_length(env->ds, key->sample);
    int64_t began = env->trace && pen__trace_is_on(env->trace) ? pen__now_ns() : 0;
    int rc = len < 0 ? pen__fail(err, PEN_EINVAL, -1, "no such sample")
                     : carry(env, c, key, rank, file, (size_t)len, dst, err);
    if (began)
        pen__trace_add(env->trace, PEN__TRACE_SAMPLE, began, pen__now_ns(), key->sample, -1);
    if (rc == 0)
        return 0;
    if (rc == PEN_ECANCELED || is_cancelled(env))
        return PEN_ECANCELED;
    if (err)
        err->sample = key->sample;
    char name[PEN_KEY_MAX];
    pen__shown shown;
    int64_t n = pen_dataset_key(env->ds, key->sample, name, sizeof name);
    if (n < 0)
        n = snprintf(name, sizeof name, "id %lld", (long long)key->sample);
    const char *text = pen__show(&shown, name, (size_t)n);
    if (err && err->offset >= 0)
        pen__fail_prefix(err, "sample '%s', byte %lld", text, (long long)err->offset);
    else
        pen__fail_prefix(err, "sample '%s'", text);
    return rc;
}
