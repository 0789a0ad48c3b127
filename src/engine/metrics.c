/* metrics.c - the counters of loaders as OpenMetrics text.
 *
 * A family is a line of a table: name, type, unit, help, and where its value stands in a
 * snapshot.  All lines of a family stand together, whichever loader they are of, as the format
 * wants it.  What is not known is left out: the format has no "unavailable".
 */
#include <penstock/metrics.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "engine/loader_impl.h"
#include "engine/views.h"

typedef enum kind { AS_INT64, AS_INT32, AS_DOUBLE, AS_NS } kind;

typedef struct family {
    const char *name, *type, *unit, *help;
    kind kind;
    size_t offset;     /* in a snapshot */
    const char *label; /* a further label, or NULL; a family's lines follow each other */
} family;

#define TOTALS(member) offsetof(pen__snapshot, totals.member)
#define PIPE(member)   offsetof(pen__snapshot, pipe.member)

static const family families[] = {
    {"penstock_batches", "counter", NULL, "Batches delivered.", AS_INT64, PIPE(batches), NULL},
    {"penstock_samples", "counter", NULL, "Samples delivered.", AS_INT64, PIPE(samples), NULL},
    {"penstock_bad_samples", "counter", NULL, "Samples that could not be read or decoded.",
     AS_INT64, TOTALS(bad_samples), NULL},
    {"penstock_input_bytes", "counter", "bytes", "Encoded bytes read.", AS_INT64, PIPE(bytes_in),
     NULL},
    {"penstock_output_bytes", "counter", "bytes", "Bytes of tensors delivered.", AS_INT64,
     PIPE(bytes_out), NULL},
    {"penstock_wait_seconds", "counter", "seconds", "The training loop waiting for batches.", AS_NS,
     TOTALS(wait_ns), NULL},
    {"penstock_idle_seconds", "counter", "seconds", "Workers waiting for room.", AS_NS,
     PIPE(idle_ns), NULL},
    {"penstock_memory_wait_seconds", "counter", "seconds", "Of that, waiting for memory.", AS_NS,
     PIPE(memory_wait_ns), NULL},
    {"penstock_shared_wait_seconds", "counter", "seconds",
     "Workers waiting for their stage's share, or to read.", AS_NS, PIPE(shared_wait_ns), NULL},
    {"penstock_jpeg_decodes", "counter", NULL, "JPEG files by how they were decoded.", AS_INT64,
     TOTALS(jpeg_indexed), "how=\"indexed\""},
    {"penstock_jpeg_decodes", "counter", NULL, NULL, AS_INT64, TOTALS(jpeg_plain), "how=\"plain\""},
    {"penstock_jpeg_decodes", "counter", NULL, NULL, AS_INT64, TOTALS(jpeg_library),
     "how=\"library\""},
    {"penstock_cache_hits", "counter", NULL, "JPEG files decoded with an entry of their index.",
     AS_INT64, PIPE(cache_hits), NULL},
    {"penstock_cache_misses", "counter", NULL, "JPEG files decoded that had no entry yet.",
     AS_INT64, PIPE(cache_misses), NULL},
    {"penstock_first_batch_seconds", "gauge", "seconds", "The wait for the first batch.", AS_NS,
     TOTALS(first_batch_ns), NULL},
    {"penstock_workers", "gauge", NULL, "Threads that carry samples.", AS_INT32, PIPE(workers),
     NULL},
    {"penstock_readers", "gauge", NULL, "Threads that read ahead.", AS_INT32, PIPE(readers), NULL},
    {"penstock_open_batches", "gauge", NULL, "Batches under way or waiting.", AS_INT32,
     PIPE(open_batches), NULL},
    {"penstock_ready_batches", "gauge", NULL, "Batches complete and waiting.", AS_INT32,
     PIPE(ready_batches), NULL},
    {"penstock_samples_in_flight", "gauge", NULL, "Samples in the hands of threads.", AS_INT32,
     PIPE(samples_in_flight), NULL},
    {"penstock_samples_shelved", "gauge", NULL, "Samples read and waiting for a worker.", AS_INT32,
     PIPE(samples_read), NULL},
    {"penstock_budget_bytes", "gauge", "bytes", "The memory budget.", AS_INT64, PIPE(budget_bytes),
     NULL},
    {"penstock_budget_used_bytes", "gauge", "bytes", "In use of the budget.", AS_INT64,
     PIPE(budget_used), NULL},
    {"penstock_budget_peak_bytes", "gauge", "bytes", "The most that was in use.", AS_INT64,
     TOTALS(budget_peak), NULL},
    {"penstock_batch_bytes", "gauge", "bytes", "The memory of one batch.", AS_INT64,
     PIPE(slab_bytes), NULL},
    {"penstock_ahead_samples", "gauge", NULL, "Samples looked ahead at.", AS_INT64,
     PIPE(ahead_samples), NULL},
    {"penstock_ahead_bytes", "gauge", "bytes", "Encoded bytes of the samples ahead.", AS_INT64,
     PIPE(ahead_bytes), NULL},
    {"penstock_ahead_cost_seconds", "gauge", "seconds",
     "What the samples ahead are expected to cost one worker.", AS_DOUBLE, PIPE(ahead_cost_s),
     NULL},
};

int pen__snapshot_take(const pen_loader *loader, pen__snapshot *out)
{
    memset(out, 0, sizeof *out);
    out->pipe.struct_size = sizeof out->pipe;
    int rc = pen_loader_get_pipeline_stats(loader, &out->pipe);
    if (rc == 0)
        pen_loader_get_stats(loader, &out->totals);
    return rc;
}

/* NaN: not known. */
static double value_of(const family *f, const pen__snapshot *from)
{
    const char *at = (const char *)from + f->offset;
    double value;
    if (f->kind == AS_DOUBLE)
        return *(const double *)(const void *)at;
    value = f->kind == AS_INT32 ? (double)*(const int32_t *)(const void *)at
                                : (double)*(const int64_t *)(const void *)at;
    if (value < 0)
        return NAN;
    return f->kind == AS_NS ? value * 1e-9 : value;
}

/* ---- lines ---- */

/* Backslash, quote and line feed are escaped in label values; ours come from tables and from
 * policies, which may be the user's own. */
static void add_escaped(pen__text *text, const char *value)
{
    for (; *value; value++)
        switch (*value) {
        case '\\':
            pen__text_add(text, "\\\\");
            break;
        case '"':
            pen__text_add(text, "\\\"");
            break;
        case '\n':
            pen__text_add(text, "\\n");
            break;
        default:
            pen__text_add(text, "%c", *value);
        }
}

static void add_head(pen__text *text, const char *name, const char *type, const char *unit,
                     const char *help)
{
    pen__text_add(text, "# TYPE %s %s\n", name, type);
    if (unit)
        pen__text_add(text, "# UNIT %s %s\n", name, unit);
    pen__text_add(text, "# HELP %s %s\n", name, help);
}

static void add_value(pen__text *text, double value)
{
    if (value == floor(value) && fabs(value) < 1e15)
        pen__text_add(text, " %.0f\n", value);
    else
        pen__text_add(text, " %.9g\n", value);
}

static void add_line(pen__text *text, const pen_loader *loader, const char *name,
                     const char *suffix, const char *label, double value)
{
    if (!isfinite(value))
        return;
    pen__text_add(text, "%s%s{loader=\"%lld\"%s%s}", name, suffix, (long long)loader->number,
                  label ? "," : "", label ? label : "");
    add_value(text, value);
}

/* ---- families that are not in the table ---- */

static void add_stage(pen__text *text, const pen_loader *loader, int stage,
                      const pen_stage_stats *s)
{
    const struct {
        const char *quantile;
        double value;
    } points[] = {{"0.5", s->p50_s}, {"0.95", s->p95_s}, {"0.99", s->p99_s}};
    char label[64];
    for (int i = 0; s->count > 0 && i < 3; i++) {
        snprintf(label, sizeof label, "stage=\"%s\",quantile=\"%s\"", pen_stage_name(stage),
                 points[i].quantile);
        add_line(text, loader, "penstock_stage_seconds", "", label, points[i].value);
    }
    snprintf(label, sizeof label, "stage=\"%s\"", pen_stage_name(stage));
    add_line(text, loader, "penstock_stage_seconds", "_count", label, (double)s->count);
    add_line(text, loader, "penstock_stage_seconds", "_sum", label, s->total_s);
}

static void add_variation(pen__text *text, const pen_loader *loader, int stage,
                          const pen_stage_stats *s)
{
    char label[64];
    snprintf(label, sizeof label, "stage=\"%s\"", pen_stage_name(stage));
    if (s->count > 0)
        add_line(text, loader, "penstock_stage_variation", "", label, s->variation);
}

static void add_stages(pen__text *text, const pen_loader *const *loaders,
                       const pen__snapshot *snapshots, int n)
{
    add_head(text, "penstock_stage_seconds", "summary", "seconds",
             "Times by stage: of a sample; of a batch for batch, wait and step.");
    for (int l = 0; l < n; l++)
        for (int i = 0; i < PEN_STAGE_COUNT; i++)
            add_stage(text, loaders[l], i, &snapshots[l].pipe.stages[i]);
    add_head(text, "penstock_stage_variation", "gauge", NULL,
             "Deviation of those times over their mean.");
    for (int l = 0; l < n; l++)
        for (int i = 0; i < PEN_STAGE_COUNT; i++)
            add_variation(text, loaders[l], i, &snapshots[l].pipe.stages[i]);
}

typedef enum knob_part { KNOB_VALUE, KNOB_MIN, KNOB_MAX, KNOB_PINNED, KNOB_PARTS } knob_part;

static void add_knobs(pen__text *text, const pen_loader *const *loaders, int n, knob_part part)
{
    static const struct {
        const char *name, *help;
    } heads[KNOB_PARTS] = {
        {"penstock_knob", "A setting, in its own unit."},
        {"penstock_knob_min", "The least it may be in this loader."},
        {"penstock_knob_max", "The most it may be in this loader."},
        {"penstock_knob_pinned", "1 if it was set by hand and policies leave it alone."},
    };
    add_head(text, heads[part].name, "gauge", NULL, heads[part].help);
    for (int l = 0; l < n; l++) {
        pen_knobs knobs;
        pen_loader_get_knobs(loaders[l], &knobs);
        for (int i = 0; i < PEN_KNOB_COUNT; i++) {
            pen_knob_info info;
            char label[64];
            pen_loader_knob(loaders[l], i, &info);
            snprintf(label, sizeof label, "knob=\"%s\"", info.name);
            const double values[KNOB_PARTS] = {knobs.value[i], info.min, info.max, info.is_pinned};
            add_line(text, loaders[l], heads[part].name, "", label, values[part]);
        }
    }
}

static void add_policies(pen__text *text, const pen_loader *const *loaders, int n)
{
    add_head(text, "penstock_policy", "info", NULL, "Who turns the knobs.");
    for (int l = 0; l < n; l++) {
        pen__text_add(text, "penstock_policy_info{loader=\"%lld\",policy=\"",
                      (long long)loaders[l]->number);
        add_escaped(text, pen_loader_policy(loaders[l]));
        pen__text_add(text, "\"} 1\n");
    }
}

/* ---- the document ---- */

static void add_table(pen__text *text, const pen_loader *const *loaders,
                      const pen__snapshot *snapshots, int n)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const family *f = &families[i];
        if (f->help)
            add_head(text, f->name, f->type, f->unit, f->help);
        const char *suffix = strcmp(f->type, "counter") == 0 ? "_total" : "";
        for (int l = 0; l < n; l++)
            add_line(text, loaders[l], f->name, suffix, f->label, value_of(f, &snapshots[l]));
    }
}

int pen__metrics_write(const pen_loader *const *loaders, int n, pen__text *text)
{
    pen__snapshot *snapshots = pen__calloc((size_t)(n > 0 ? n : 1), sizeof *snapshots);
    int rc = snapshots ? 0 : PEN_ENOMEM;
    for (int l = 0; rc == 0 && l < n; l++)
        rc = pen__snapshot_take(loaders[l], &snapshots[l]);
    if (rc == 0) {
        add_table(text, loaders, snapshots, n);
        add_stages(text, loaders, snapshots, n);
        for (int part = 0; part < KNOB_PARTS; part++)
            add_knobs(text, loaders, n, (knob_part)part);
        add_policies(text, loaders, n);
        pen__text_add(text, "# EOF\n");
        rc = text->failed ? PEN_ENOMEM : 0;
    }
    pen__free(snapshots);
    return rc;
}

int64_t pen__text_move(pen__text *text, char *dst, size_t dst_cap)
{
    int64_t n = text->failed ? PEN_ENOMEM : (int64_t)text->len;
    if (n >= 0 && text->len >= dst_cap)
        n = PEN_ENOSPC;
    if (n > 0)
        memcpy(dst, text->data, text->len + 1);
    pen__text_fini(text);
    return n;
}

int64_t pen_loader_metrics(const pen_loader *loader, char *dst, size_t dst_cap)
{
    pen__text text = {0};
    int rc = pen__metrics_write(&loader, 1, &text);
    int64_t n = pen__text_move(&text, dst, dst_cap);
    return rc ? rc : n;
}
