/* observe.c - add up what threads have counted.
 *
 * Every counter has one writer and is read without a lock, so a sum is not of one instant;
 * differences over a period are good to a sample or two.
 */
#include "engine/observe.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "engine/loader_impl.h"
#include "telemetry/limits.h"

enum { LOOK_AHEAD = 128 }; /* samples */

const char *pen_stage_name(int stage)
{
#define PEN_STAGE_NAME(id, name) name,
    static const char *const names[] = {PEN_STAGES(PEN_STAGE_NAME)};
    return stage >= 0 && stage < PEN_STAGE_COUNT ? names[stage] : NULL;
}

const pen_state_field *pen_policy_fields(int *n)
{
#define PEN_STATE_LINE(field, unit, scale, text) \
    {#field, unit, text, scale, offsetof(pen_policy_state, field)},
    static const pen_state_field fields[] = {PEN_POLICY_STATE(PEN_STATE_LINE)};
    *n = (int)(sizeof fields / sizeof fields[0]);
    return fields;
}

static void add_reading(const pen__reading *reading, pen__facts *out)
{
    pen__times_add(&out->stages[PEN_STAGE_READ], &reading->times);
    out->bytes_in += atomic_load(&reading->bytes);
    out->stored_in += atomic_load(&reading->stored);
    out->shared_wait_ns += atomic_load(&reading->wait_ns);
    out->node_ns += atomic_load(&reading->node_ns);
}

static void add_carrier(const pen__carrier *c, pen__facts *out)
{
    add_reading(&c->reading, out);
    pen__times_add(&out->stages[PEN_STAGE_DECODE], &c->decode);
    pen__times_add(&out->stages[PEN_STAGE_AUGMENT], &c->augment);
    pen__times_add(&out->stages[PEN_STAGE_TENSOR], &c->tensor);
    pen__times_add(&out->stages[PEN_STAGE_BATCH], &c->batch);
    out->made += atomic_load(&c->n_samples);
    out->mix_ns += atomic_load(&c->mix_ns);
    out->idle_ns += atomic_load(&c->idle_ns);
    out->memory_wait_ns += atomic_load(&c->memory_wait_ns);
    out->shared_wait_ns += atomic_load(&c->share_wait_ns);
    out->cache_hits += atomic_load(&c->jpeg_indexed);
    out->cache_misses += atomic_load(&c->jpeg_plain);
}

/* The order is a function and lengths are in the index: what comes is known. */
static void look_ahead(const pen_loader *loader, pen__facts *out)
{
    out->ahead_samples = out->ahead_bytes = -1;
    if (loader->feed || loader->n_batches == 0)
        return;
    int64_t n = atomic_load(&loader->newest_batch) + 1;
    out->ahead_samples = out->ahead_bytes = 0;
    while (out->ahead_samples < LOOK_AHEAD) {
        int64_t epoch = n / loader->n_batches, index = n % loader->n_batches;
        int32_t slots = pen__stream_slots(&loader->stream, index);
        for (int32_t i = 0; i < slots && out->ahead_samples < LOOK_AHEAD; i++) {
            pen__slot slot = pen__stream_slot(&loader->stream, epoch, index, i);
            out->ahead_bytes += pen_dataset_length(loader->ds, slot.sample);
            out->ahead_samples++;
        }
        n++;
    }
}

/* What is counted without a lock. */
static void add_up(const pen_loader *loader, pen__facts *out)
{
    memset(out, 0, sizeof *out);
    out->time_ns = pen__now_ns();
    const int n_carriers = atomic_load(&loader->n_carriers);
    for (int i = 0; i < n_carriers; i++)
        add_carrier(atomic_load(&loader->carriers[i]), out);
    const int n_readings = atomic_load(&loader->n_readings);
    const pen__reading *readings = atomic_load(&loader->readings);
    for (int i = 0; i < n_readings; i++)
        add_reading(&readings[i], out);
    pen__times_add(&out->stages[PEN_STAGE_WAIT], &loader->times.wait);
    pen__times_add(&out->stages[PEN_STAGE_STEP], &loader->times.step);
    out->batches = atomic_load(&loader->n_batches_out);
    out->samples = atomic_load(&loader->n_samples_out);
    out->bytes_out = atomic_load(&loader->bytes_out);
    out->wait_ns = atomic_load(&loader->times.wait_ns);
    out->is_away = atomic_load(&loader->times.is_away);
}

int pen__observe(const pen_loader *loader, pen__facts *out)
{
    int rc = pen__loader_check_owner(loader, NULL);
    if (rc) /* the locks below may be held for ever */
        return rc;
    add_up(loader, out);
    int64_t since = atomic_load(&loader->times.inside_since);
    if (since && since < out->time_ns)
        out->wait_ns += out->time_ns - since;
    pen_knobs knobs;
    pen_loader_get_knobs(loader, &knobs);
    out->window = pen__window_look(loader->window);
    const double ahead = fmin(knobs.value[PEN_KNOB_READ_AHEAD], knobs.value[PEN_KNOB_IO]);
    out->workers = (int)fmin(knobs.value[PEN_KNOB_WORKERS], out->window.crew[PEN__WORKER]);
    out->readers = (int)fmin(ahead, out->window.crew[PEN__READER]);
    int64_t peak;
    pen__budget_usage(loader->budget, &out->budget_used, &peak);
    out->budget_used += pen__slab_pool_used(loader->slabs);
    out->budget_bytes = loader->opts.memory_budget;
    out->slab_bytes = (int64_t)pen__slab_bytes(&loader->slab);
    look_ahead(loader, out);
    return 0;
}

void pen_loader_get_stats(const pen_loader *loader, pen_loader_stats *out)
{
    pen__facts facts;
    memset(out, 0, sizeof *out);
    add_up(loader, &facts);
    out->batches = facts.batches;
    out->samples = facts.samples;
    out->bad_samples = atomic_load(&loader->n_bad_seen);
    out->wait_ns = facts.wait_ns;
    out->first_batch_ns = atomic_load(&loader->first_batch_ns);
    out->bytes_read = facts.bytes_in;
    out->read_ns = facts.stages[PEN_STAGE_READ].sum_ns;
    out->decode_ns = facts.stages[PEN_STAGE_DECODE].sum_ns;
    out->augment_ns = facts.stages[PEN_STAGE_AUGMENT].sum_ns + facts.mix_ns;
    out->tensor_ns = facts.stages[PEN_STAGE_TENSOR].sum_ns;
    out->idle_ns = facts.idle_ns;
    out->jpeg_indexed = facts.cache_hits;
    out->jpeg_plain = facts.cache_misses;
    for (int i = 0; i < atomic_load(&loader->n_carriers); i++)
        out->jpeg_library += atomic_load(&atomic_load(&loader->carriers[i])->jpeg_library);
    if (loader->marks) {
        pen__sidecar_size size = pen__sidecar_size_of(loader->marks);
        out->index_samples = size.n_blocks;
        out->index_bytes = size.bytes;
    }
    out->budget_bytes = loader->opts.memory_budget;
    out->workers = loader->opts.workers;
    if (pen__observe(loader, &facts) != 0)
        return; /* after a fork */
    out->workers = facts.workers;
    out->wait_ns = facts.wait_ns; /* the wait under way, too */
    pen__budget_usage(loader->budget, &out->budget_used, &out->budget_peak);
    out->budget_used += pen__slab_pool_used(loader->slabs);
    out->budget_peak += pen__slab_pool_peak(loader->slabs);
    out->ready = facts.window.n_ready;
}

static void describe(const pen__times *times, pen_stage_stats *out)
{
    out->count = pen__times_count(times);
    out->total_s = (double)times->sum_ns * 1e-9;
    out->mean_s = out->count ? out->total_s / (double)out->count : 0;
    out->p50_s = pen__times_quantile(times, 0.5);
    out->p95_s = pen__times_quantile(times, 0.95);
    out->p99_s = pen__times_quantile(times, 0.99);
    out->variation = pen__times_variation(times);
}

/* Mixing is done to whole batches; each sample has its part of it. */
static void add_mixing(pen_stage_stats *augment, const pen__facts *facts)
{
    if (facts->mix_ns == 0 || facts->made == 0)
        return;
    augment->count = augment->count ? augment->count : facts->made;
    augment->total_s += (double)facts->mix_ns * 1e-9;
    augment->mean_s = augment->total_s / (double)augment->count;
}

/* What the samples that come will cost one worker, if a stored byte costs what it has cost. */
static double expected_cost(const pen__facts *facts)
{
    const pen__times *s = facts->stages;
    double spent =
        (double)(s[PEN_STAGE_READ].sum_ns + s[PEN_STAGE_DECODE].sum_ns +
                 s[PEN_STAGE_AUGMENT].sum_ns + s[PEN_STAGE_TENSOR].sum_ns + facts->mix_ns);
    if (facts->ahead_bytes < 0 || facts->stored_in == 0)
        return NAN;
    return spent * 1e-9 * (double)facts->ahead_bytes / (double)facts->stored_in;
}

int pen_loader_get_pipeline_stats(const pen_loader *loader, pen_pipeline_stats *out)
{
    const size_t size = out->struct_size;
    if (size < sizeof out->struct_size || size > sizeof *out)
        return PEN_EINVAL;
    pen__facts facts;
    int rc = pen__observe(loader, &facts);
    if (rc)
        return rc;
    pen_pipeline_stats full = {
        .struct_size = size,
        .time_ns = facts.time_ns,
        .batches = facts.batches,
        .samples = facts.samples,
        .bytes_in = facts.bytes_in,
        .bytes_out = facts.bytes_out,
        .idle_ns = facts.idle_ns,
        .memory_wait_ns = facts.memory_wait_ns,
        .shared_wait_ns = facts.shared_wait_ns,
        .workers = facts.workers,
        .readers = facts.readers,
        .open_batches = facts.window.n_open,
        .ready_batches = facts.window.n_ready,
        .samples_in_flight = facts.window.n_busy,
        .samples_read = facts.window.n_shelved,
        .budget_bytes = facts.budget_bytes,
        .budget_used = facts.budget_used,
        .slab_bytes = facts.slab_bytes,
        .ahead_samples = facts.ahead_samples,
        .ahead_bytes = facts.ahead_bytes,
        .ahead_cost_s = expected_cost(&facts),
        .cache_hits = facts.cache_hits,
        .cache_misses = facts.cache_misses,
    };
    for (int i = 0; i < PEN_STAGE_COUNT; i++)
        describe(&facts.stages[i], &full.stages[i]);
    add_mixing(&full.stages[PEN_STAGE_AUGMENT], &facts);
    memcpy(out, &full, size);
    return 0;
}

int64_t pen_loader_verdict(const pen_loader *loader, char *dst, size_t dst_cap)
{
    pen_pipeline_stats stats = PEN_PIPELINE_STATS_INIT;
    int rc = pen_loader_get_pipeline_stats(loader, &stats);
    if (rc)
        return rc;
    pen__mark mark;
    pen_pipeline_stats recent = stats;
    pen__lately *lately = &((pen_loader *)(uintptr_t)loader)->lately;
    const bool has_mark = pen__lately_find(lately, stats.time_ns, &mark);
    if (has_mark)
        pen__lately_subtract(&recent, &mark);
    pen_knobs knobs;
    pen_loader_get_knobs(loader, &knobs);
    const pen__surroundings around = {
        .first_wait_s = (double)atomic_load(&loader->first_batch_ns) * 1e-9,
        .cores = pen__limit_cores(),
        .max_workers = loader->max_workers,
        .ready_limit = knobs.value[PEN_KNOB_READY_BATCHES],
        .ready_max = pen__loader_max_ready(loader),
        .least_read_s = pen__lately_least_read(lately),
    };
    return pen__verdict(&stats, has_mark ? &recent : NULL, &around, dst, dst_cap);
}

void pen__observe_mark(pen_loader *loader)
{
    if (!pen__lately_is_due(&loader->lately, pen__now_ns()))
        return;
    pen__facts facts;
    add_up(loader, &facts);
    pen__mark mark = {
        .time_ns = facts.time_ns,
        .batches = facts.batches,
        .samples = facts.samples,
        .idle_ns = facts.idle_ns,
        .memory_wait_ns = facts.memory_wait_ns,
    };
    for (int i = 0; i < PEN_STAGE_COUNT; i++) {
        mark.stages[i].count = pen__times_count(&facts.stages[i]);
        mark.stages[i].sum_ns = facts.stages[i].sum_ns;
    }
    mark.stages[PEN_STAGE_AUGMENT].sum_ns += facts.mix_ns;
    pen__lately_add(&loader->lately, &mark);
}

/* ---- the state vector ---- */

static double share(double part, double whole)
{
    return whole > 0 ? fmin(fmax(part / whole, 0), 1) : NAN;
}

static double divide(double part, double whole)
{
    return whole > 0 ? part / whole : NAN;
}

/* A stage since `base`, in the fields that the state has for it; any may be NULL. */
static void set_stage(const pen__facts *base, const pen__facts *now, int stage, double *mean,
                      double *p50, double *p95, double *cv)
{
    pen__times times = now->stages[stage];
    pen__times_subtract(&times, &base->stages[stage]);
    pen_stage_stats s;
    describe(&times, &s);
    const bool is_any = s.count > 0;
    *mean = is_any ? s.mean_s : NAN;
    if (p50)
        *p50 = is_any ? s.p50_s : NAN;
    if (p95)
        *p95 = is_any ? s.p95_s : NAN;
    if (cv)
        *cv = is_any ? s.variation : NAN;
}

static void set_stages(const pen__facts *base, const pen__facts *now, pen_policy_state *s)
{
    set_stage(base, now, PEN_STAGE_STEP, &s->step_s, NULL, NULL, &s->step_cv);
    set_stage(base, now, PEN_STAGE_READ, &s->read_s, &s->read_p50_s, &s->read_p95_s, &s->read_cv);
    set_stage(base, now, PEN_STAGE_DECODE, &s->decode_s, NULL, &s->decode_p95_s, &s->decode_cv);
    set_stage(base, now, PEN_STAGE_AUGMENT, &s->augment_s, NULL, &s->augment_p95_s, &s->augment_cv);
    set_stage(base, now, PEN_STAGE_TENSOR, &s->tensor_s, NULL, &s->tensor_p95_s, &s->tensor_cv);
    set_stage(base, now, PEN_STAGE_BATCH, &s->batch_s, NULL, &s->batch_p95_s, NULL);
    const double mixed_s = (double)(now->mix_ns - base->mix_ns) * 1e-9;
    if (mixed_s > 0 && now->made > base->made)
        s->augment_s =
            (isnan(s->augment_s) ? 0 : s->augment_s) + mixed_s / (double)(now->made - base->made);
}

/* Files that come over files that came; both as they are stored, whatever part of them was read. */
static double ahead_ratio(const pen__facts *base, const pen__facts *now)
{
    const double n_read = (double)(pen__times_count(&now->stages[PEN_STAGE_READ]) -
                                   pen__times_count(&base->stages[PEN_STAGE_READ]));
    const double came = (double)(now->stored_in - base->stored_in);
    if (now->ahead_samples <= 0 || !(n_read > 0) || !(came > 0))
        return NAN;
    return ((double)now->ahead_bytes / (double)now->ahead_samples) / (came / n_read);
}

static double grown(const pen__facts *before, const pen__facts *now, int stage)
{
    return (double)(now->stages[stage].sum_ns - before->stages[stage].sum_ns) * 1e-9;
}

/* What the workers did in the period. */
static void set_workers(const pen__facts *before, const pen__facts *now, pen_policy_state *s)
{
    const double seconds = s->period_s, threads = now->workers > 0 ? now->workers : 1;
    const double computed =
        grown(before, now, PEN_STAGE_DECODE) + grown(before, now, PEN_STAGE_AUGMENT) +
        grown(before, now, PEN_STAGE_TENSOR) + (double)(now->mix_ns - before->mix_ns) * 1e-9;
    s->busy_cores = divide(computed, seconds);
    s->read_threads = divide(grown(before, now, PEN_STAGE_READ), seconds);
    s->idle_share = share((double)(now->idle_ns - before->idle_ns) * 1e-9, seconds * threads);
    s->memory_wait_share =
        share((double)(now->memory_wait_ns - before->memory_wait_ns) * 1e-9, seconds * threads);
}

static void set_nothing(pen_policy_state *s)
{
    int n;
    const pen_state_field *fields = pen_policy_fields(&n);
    for (int i = 0; i < n; i++)
        *(double *)(void *)((char *)s + fields[i].offset) = NAN;
}

void pen__observe_state(const pen__facts *base, const pen__facts *before, const pen__facts *now,
                        const pen_machine *machine, const pen_rates *rates, double cores,
                        double batch_samples, pen_policy_state *out)
{
    const double seconds = (double)(now->time_ns - before->time_ns) * 1e-9;
    set_nothing(out);
    out->period_s = seconds;
    out->wait_share = share((double)(now->wait_ns - before->wait_ns) * 1e-9, seconds);
    out->away = now->is_away;
    out->batches = (double)(now->batches - before->batches);
    out->samples = (double)(now->samples - before->samples);
    out->made = (double)(now->made - before->made);
    out->batch_samples = batch_samples;
    set_stages(base, now, out);
    out->ready = now->window.n_ready;
    out->open = now->window.n_open;
    out->in_flight = now->window.n_busy;
    out->shelved = now->window.n_shelved;
    set_workers(before, now, out);
    out->bytes_per_s = divide((double)(now->bytes_in - before->bytes_in), seconds);
    out->budget_share = share((double)now->budget_used, (double)now->budget_bytes);
    out->slab_share = share((double)now->slab_bytes, (double)now->budget_bytes);
    out->ahead_ratio = ahead_ratio(base, now);
    const int64_t n_hits = now->cache_hits - before->cache_hits;
    const int64_t n_misses = now->cache_misses - before->cache_misses;
    out->cache_share = share((double)n_hits, (double)(n_hits + n_misses));
    out->cores = cores;
    if (machine && rates)
        pen__observe_machine(machine, rates, out);
}

void pen__observe_offload(pen_loader *loader, const pen__facts *before, const pen__facts *now,
                          pen_policy_state *out)
{
    double saves[PEN_OFFLOAD_SLICES], takes[PEN_OFFLOAD_SLICES];
    if (!loader->allow.is_ready)
        return;
    const pen__weight raw = pen__allow_raw(&loader->allow);
    out->stored_bytes = raw.bytes;
    out->node_file_s = raw.cpu_s;
    out->node_cores = divide((double)(now->node_ns - before->node_ns) * 1e-9, out->period_s);
    if (loader->ds->source->cores)
        out->node_allowance = loader->ds->source->cores(loader->ds, loader->pipe);
    for (int i = 0; i < PEN_OFFLOAD_SLICES; i++) {
        const pen__gain gain =
            pen__allow_gain(&loader->allow, (i + 1) / (double)PEN_OFFLOAD_SLICES);
        saves[i] = gain.saved_bytes;
        takes[i] = gain.cpu_s;
    }
    char *state = (char *)out; /* where they stand one after the other */
    memcpy(state + offsetof(pen_policy_state, node_saves_1), saves, sizeof saves);
    memcpy(state + offsetof(pen_policy_state, node_takes_1), takes, sizeof takes);
}
