/* status.c - a loader as JSON: what `penstock top` and notebooks show.
 *
 * docs/watching.md lists the members.  Numbers that are not known are null.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include <penstock/metrics.h>
#include <penstock/version.h>

#include "engine/loader_impl.h"
#include "engine/views.h"

void pen__text_add_number(pen__text *text, double value)
{
    if (!isfinite(value))
        pen__text_add(text, "null");
    else if (value == floor(value) && fabs(value) < 1e15)
        pen__text_add(text, "%.0f", value);
    else
        pen__text_add(text, "%.9g", value);
}

static void add_member(pen__text *text, const char *key, double value)
{
    pen__text_add(text, ",\"%s\":", key);
    pen__text_add_number(text, value);
}

static void add_string(pen__text *text, const char *key, const char *value)
{
    pen__text_add(text, ",\"%s\":", key);
    pen__text_add_json(text, value, strlen(value));
}

static double known(int64_t value)
{
    return value < 0 ? NAN : (double)value;
}

static void add_counters(pen__text *text, const pen__snapshot *s)
{
    add_member(text, "batches", (double)s->pipe.batches);
    add_member(text, "samples", (double)s->pipe.samples);
    add_member(text, "bad_samples", (double)s->totals.bad_samples);
    add_member(text, "bytes_in", (double)s->pipe.bytes_in);
    add_member(text, "bytes_out", (double)s->pipe.bytes_out);
    add_member(text, "wait_s", (double)s->totals.wait_ns * 1e-9);
    add_member(text, "idle_s", (double)s->pipe.idle_ns * 1e-9);
    add_member(text, "memory_wait_s", (double)s->pipe.memory_wait_ns * 1e-9);
    add_member(text, "shared_wait_s", (double)s->pipe.shared_wait_ns * 1e-9);
    add_member(text, "first_batch_s", (double)s->totals.first_batch_ns * 1e-9);
    add_member(text, "cache_hits", (double)s->pipe.cache_hits);
    add_member(text, "cache_misses", (double)s->pipe.cache_misses);
}

static void add_gauges(pen__text *text, const pen__snapshot *s)
{
    add_member(text, "workers", s->pipe.workers);
    add_member(text, "readers", s->pipe.readers);
    add_member(text, "open_batches", s->pipe.open_batches);
    add_member(text, "ready_batches", s->pipe.ready_batches);
    add_member(text, "samples_in_flight", s->pipe.samples_in_flight);
    add_member(text, "samples_shelved", s->pipe.samples_read);
    add_member(text, "budget_bytes", (double)s->pipe.budget_bytes);
    add_member(text, "budget_used", (double)s->pipe.budget_used);
    add_member(text, "budget_peak", (double)s->totals.budget_peak);
    add_member(text, "batch_bytes", (double)s->pipe.slab_bytes);
    add_member(text, "ahead_samples", known(s->pipe.ahead_samples));
    add_member(text, "ahead_bytes", known(s->pipe.ahead_bytes));
    add_member(text, "ahead_cost_s", s->pipe.ahead_cost_s);
}

static void add_stages(pen__text *text, const pen_pipeline_stats *stats)
{
    pen__text_add(text, ",\"stages\":{");
    for (int i = 0; i < PEN_STAGE_COUNT; i++) {
        const pen_stage_stats *s = &stats->stages[i];
        pen__text_add(text, "%s\"%s\":{\"count\":%lld", i ? "," : "", pen_stage_name(i),
                      (long long)s->count);
        add_member(text, "total_s", s->total_s);
        add_member(text, "mean_s", s->count ? s->mean_s : NAN);
        add_member(text, "p50_s", s->count ? s->p50_s : NAN);
        add_member(text, "p95_s", s->count ? s->p95_s : NAN);
        add_member(text, "p99_s", s->count ? s->p99_s : NAN);
        add_member(text, "variation", s->count ? s->variation : NAN);
        pen__text_add(text, "}");
    }
    pen__text_add(text, "}");
}

static void add_knobs(pen__text *text, const pen_loader *loader)
{
    pen_knobs knobs;
    pen_loader_get_knobs(loader, &knobs);
    pen__text_add(text, ",\"knobs\":{");
    for (int i = 0; i < PEN_KNOB_COUNT; i++) {
        pen_knob_info info;
        pen_loader_knob(loader, i, &info);
        pen__text_add(text, "%s\"%s\":{\"value\":", i ? "," : "", info.name);
        pen__text_add_number(text, knobs.value[i]);
        add_member(text, "min", info.min);
        add_member(text, "max", info.max);
        add_string(text, "unit", info.unit);
        pen__text_add(text, ",\"pinned\":%s}", info.is_pinned ? "true" : "false");
    }
    pen__text_add(text, "}");
}

static void add_policy(pen__text *text, const pen_loader *loader)
{
    char reason[PEN_REASON_CAP] = "", verdict[PEN_VERDICT_MAX] = "";
    pen_loader_reason(loader, reason, sizeof reason);
    pen_loader_verdict(loader, verdict, sizeof verdict);
    add_string(text, "policy", pen_loader_policy(loader));
    add_string(text, "reason", reason);
    add_string(text, "verdict", verdict);
    pen__text_add(text, ",\"decisions\":");
    pen__control_write_recent(loader, text);
}

/* Shares of the last whole seconds, oldest first. */
static void add_trail(pen__text *text, const pen_loader *loader, int64_t now_ns)
{
    double share[PEN__TRAIL_SECONDS];
    const int n = pen__trail_read(&loader->times.trail, now_ns,
                                  atomic_load(&loader->times.inside_since), share);
    pen__text_add(text, ",\"wait_shares\":[");
    for (int i = 0; i < n; i++)
        pen__text_add(text, "%s%.3g", i ? "," : "", share[i]);
    pen__text_add(text, "]");
}

int pen__status_write(const pen_loader *loader, pen__text *text)
{
    pen__snapshot snapshot;
    int rc = pen__snapshot_take(loader, &snapshot);
    if (rc)
        return rc;
    pen__text_add(text, "{\"loader\":%lld,\"time_ns\":%lld", (long long)loader->number,
                  (long long)snapshot.pipe.time_ns);
    add_counters(text, &snapshot);
    add_gauges(text, &snapshot);
    add_stages(text, &snapshot.pipe);
    add_knobs(text, loader);
    add_policy(text, loader);
    add_trail(text, loader, snapshot.pipe.time_ns);
    pen__text_add(text, "}");
    return 0;
}

/* A guest says all but its number. */
static void add_guest(pen__text *text, const pen_guest *guest, bool is_first)
{
    const bool is_empty = guest->said_len <= 2; /* {} */
    pen__text_add(text, "%s{\"loader\":%lld%s%.*s", is_first ? "" : ",", (long long)guest->number,
                  is_empty ? "" : ",", (int)guest->said_len - 1, guest->said + 1);
}

int pen__status_write_all(const pen_loader *const *loaders, int n, const pen_guest *guests,
                          pen__text *text)
{
    int rc = 0;
    pen__text_add(text, "{\"v\":1,\"pid\":%lld,\"version\":\"%s\",\"loaders\":[",
                  (long long)getpid(), pen_version());
    for (int i = 0; rc == 0 && i < n; i++) {
        pen__text_add(text, "%s", i ? "," : "");
        rc = pen__status_write(loaders[i], text);
    }
    bool is_first = n == 0;
    for (const pen_guest *guest = guests; guest; guest = guest->next)
        if (guest->said) {
            add_guest(text, guest, is_first);
            is_first = false;
        }
    pen__text_add(text, "]}\n");
    return text->failed ? PEN_ENOMEM : rc;
}

int64_t pen_loader_status(const pen_loader *loader, char *dst, size_t dst_cap)
{
    pen__text text = {0};
    int rc = pen__status_write(loader, &text);
    int64_t n = pen__text_move(&text, dst, dst_cap);
    return rc ? rc : n;
}
