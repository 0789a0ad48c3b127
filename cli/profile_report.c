/* profile_report.c - a profile as a table and as JSON. */
#include "profile_report.h"

#include <math.h>
#include <string.h>

#include "cli.h"

enum { BAR = 40 };

const char *profile_after(const profile_subject *subject, size_t point)
{
    const pen_profile_point *at = &subject->data->points[point];
    return at->n_ops > 0 ? pen_op_name(pen_pipeline_op_kind(subject->pipe, at->op)) : "";
}

static double percent(size_t part, size_t all)
{
    return all > 0 ? 100 * (double)part / (double)all : 0;
}

/* ---- a table ---- */

static void print_row(FILE *out, const profile_subject *subject, size_t point)
{
    const profile_row *row = &subject->stats->rows[point];
    const size_t n = subject->data->n;
    char texts[3][32];
    if (row->n == 0)
        return;
    fprintf(out, "%-22s %-12s %8s %8s %8s %8.3f %9.3f %7.1f %%", profile_after(subject, point),
            pen_profile_form_name(subject->data->points[point].form), cli_bytes(texts[0], row->p10),
            cli_bytes(texts[1], row->p50), cli_bytes(texts[2], row->p90), row->share,
            row->cpu_s * 1e3, percent(row->n_smallest, n));
    if (row->n < n)
        fprintf(out, "   (of %.1f %%)", percent(row->n, n));
    fputc('\n', out);
}

static void print_total(FILE *out, const profile_subject *subject, const char *what,
                        const profile_total *total)
{
    char text[32];
    fprintf(out, "%-46s %7s %8.3f %9.3f\n", what, cli_bytes(text, total->bytes),
            total->bytes / subject->stats->files.bytes,
            total->cpu_s / (double)subject->data->n * 1e3);
}

static void print_bar(FILE *out, double share)
{
    for (int i = 0; i < (int)ceil(share * BAR); i++)
        fputc('#', out);
}

static void print_bins(FILE *out, const profile_subject *subject)
{
    const profile_stats *s = subject->stats;
    size_t most = s->n_unsaved;
    int first = PROFILE_BINS, last = -1;
    for (int i = 0; i < PROFILE_BINS; i++) {
        if (s->bins[i].n == 0)
            continue;
        most = s->bins[i].n > most ? s->bins[i].n : most;
        first = i < first ? i : first;
        last = i;
    }
    fprintf(out, "\n%-22s %8s %12s\n", "saved a CPU second", "samples", "bytes saved");
    if (s->n_unsaved > 0) {
        fprintf(out, "%-22s %8zu %12s   ", "nothing", s->n_unsaved, "0 B");
        print_bar(out, (double)s->n_unsaved / (double)most);
        fputc('\n', out);
    }
    for (int i = first; i <= last; i++) {
        char from[32], to[32], range[72], saved[32];
        const profile_bin *bin = &s->bins[i];
        snprintf(range, sizeof range, "%s to %s", cli_bytes(from, bin->from),
                 cli_bytes(to, bin->to));
        fprintf(out, "%-22s %8zu %12s   ", range, bin->n, cli_bytes(saved, bin->saved_bytes));
        print_bar(out, (double)bin->n / (double)most);
        fputc('\n', out);
    }
}

static void print_heading(FILE *out, const profile_subject *subject)
{
    char spec[512];
    snprintf(spec, sizeof spec, "%s", subject->spec);
    fprintf(out, "%s: %zu of %lld samples, %s, seed %llu, one thread (%s)\n", cli_printable(spec),
            subject->data->n, (long long)pen_dataset_count(subject->ds), subject->ops,
            (unsigned long long)subject->seed, pen_cpu_level());
    fprintf(out, "\n%-22s %-12s %8s %8s %8s %8s %9s %9s\n", "after", "form", "p10", "p50", "p90",
            "of file", "CPU ms", "smallest");
}

static void print_stage(FILE *out, const profile_stage *stage)
{
    char rate[32];
    fprintf(out,
            "\nms a sample, each alone: device %.3f, client CPU %.3f, storage CPU %.3f on a core;\n"
            "fetching %.3f as files (%.0f of them, %s/s), %.3f in the smallest forms.\n",
            stage->device_s * 1e3, stage->client_s * 1e3, stage->storage_s * 1e3,
            stage->file_s * 1e3, stage->n_fetched, cli_bytes(rate, stage->bytes_per_s),
            stage->sent_s * 1e3);
    if (profile_stage_is_bound(stage))
        fprintf(out,
                "I/O-bound: the job waits for its files.  All in their smallest forms, it would "
                "take\n%.2f times less, with %.1f cores of the storage.\n",
                stage->file_s / fmax(stage->sent_s, fmax(stage->device_s, stage->client_s)),
                profile_stage_cores(stage));
    else
        fputs("Not I/O-bound: files come as fast as the job takes them.  Nothing to offload.\n",
              out);
}

static void print_kept(FILE *out, const pen_profile_kept *kept, long long n_samples)
{
    char text[32];
    if (kept->bytes == 0) {
        fputs("\nKept by loaders of it as a remote dataset: nothing.\n", out);
        return;
    }
    fprintf(out,
            "\nKept by loaders of it as a remote dataset: headers of %lld of %lld samples, ratios "
            "of\n%lld (with %s pipeline), %s.\n",
            (long long)kept->n_headers, n_samples, (long long)kept->n_ratios,
            kept->is_this_pipeline ? "this" : "another", cli_bytes(text, (double)kept->bytes));
}

void profile_print_text(FILE *out, const profile_subject *subject)
{
    const profile_stats *s = subject->stats;
    print_heading(out, subject);
    for (size_t i = 0; i < subject->data->n_points; i++)
        print_row(out, subject, i);
    fprintf(out, "\n%.1f %% of the samples are smaller on their way than as files.\n",
            percent(s->n_shrinking, subject->data->n));
    fprintf(out, "\n%-46s %7s %8s %9s\n", "what a storage node sends", "bytes", "of files",
            "CPU ms");
    print_total(out, subject, "files", &s->files);
    print_total(out, subject, "SOPHON's rule: pixels, or the file if smaller", &s->sophon);
    print_total(out, subject, "the smallest form it finds", &s->sent);
    print_bins(out, subject);
    if (s->n_told > 0 && s->told_local_s > 0)
        fprintf(out,
                "\nThe node took %.3f ms of its processor for the smallest form of a sample and "
                "%.2f times\nas long as this machine.\n",
                s->node_s / (double)s->n_told * 1e3, s->node_s / s->told_local_s);
    print_kept(out, &subject->kept, (long long)pen_dataset_count(subject->ds));
    if (subject->stage)
        print_stage(out, subject->stage);
}

/* ---- JSON ---- */

static void put_number(FILE *out, double value)
{
    if (isfinite(value))
        fprintf(out, "%.9g", value);
    else
        fputs("null", out);
}

/* ,"key":value */
static void put_field(FILE *out, const char *key, double value)
{
    fprintf(out, ",\"%s\":", key);
    put_number(out, value);
}

static void put_point(FILE *out, const profile_subject *subject, size_t point)
{
    const profile_row *row = &subject->stats->rows[point];
    fputs(point ? ",{\"after\":" : "{\"after\":", out);
    cli_json_string(out, profile_after(subject, point));
    fputs(",\"form\":", out);
    cli_json_string(out, pen_profile_form_name(subject->data->points[point].form));
    put_field(out, "samples", (double)row->n);
    put_field(out, "p10", row->p10);
    put_field(out, "p50", row->p50);
    put_field(out, "p90", row->p90);
    put_field(out, "share", row->share);
    put_field(out, "cpu_s", row->cpu_s);
    put_field(out, "smallest", (double)row->n_smallest);
    fputc('}', out);
}

static void put_total(FILE *out, const char *key, const profile_total *total)
{
    fprintf(out, "\"%s\":{\"bytes\":", key);
    put_number(out, total->bytes);
    put_field(out, "cpu_s", total->cpu_s);
    fputc('}', out);
}

static void put_bins(FILE *out, const profile_stats *s)
{
    fputs(",\"saved_per_cpu_s\":[", out);
    for (int i = 0; i < PROFILE_BINS; i++) {
        fprintf(out, "%s{\"from\":%.9g", i ? "," : "", s->bins[i].from);
        put_field(out, "to", s->bins[i].to);
        put_field(out, "samples", (double)s->bins[i].n);
        put_field(out, "bytes", s->bins[i].saved_bytes);
        fputc('}', out);
    }
    fprintf(out, "],\"saves_nothing\":%zu", s->n_unsaved);
}

static void put_sample(FILE *out, const profile_data *data, size_t i)
{
    fprintf(out, "%s\n{\"id\":%lld", i ? "," : "", (long long)data->ids[i]);
    for (int k = 0; k < 2; k++) {
        fputs(k ? "],\"cpu_s\":[" : ",\"bytes\":[", out);
        for (size_t point = 0; point < data->n_points; point++) {
            if (point)
                fputc(',', out);
            put_number(out, (k ? profile_cpu(data, point) : profile_bytes(data, point))[i]);
        }
    }
    fputc(']', out);
    put_field(out, "sent_bytes", profile_sent_bytes(data)[i]);
    put_field(out, "sent_cpu_s", profile_sent_cpu(data)[i]);
    put_field(out, "node_cpu_s", profile_node_cpu(data)[i]);
    fputc('}', out);
}

static void put_stage(FILE *out, const profile_stage *stage)
{
    fprintf(out, ",\"job\":{\"is_io_bound\":%s", profile_stage_is_bound(stage) ? "true" : "false");
    put_field(out, "device_s", stage->device_s);
    put_field(out, "client_s", stage->client_s);
    put_field(out, "storage_s", stage->storage_s);
    put_field(out, "net_s", stage->file_s);
    put_field(out, "net_smallest_s", stage->sent_s);
    put_field(out, "bytes_per_s", stage->bytes_per_s);
    put_field(out, "fetched", stage->n_fetched);
    put_field(out, "storage_cores", profile_stage_cores(stage));
    fputc('}', out);
}

/* null: nothing. */
static void put_kept(FILE *out, const pen_profile_kept *kept)
{
    fputs(",\"kept\":", out);
    if (kept->bytes == 0)
        fputs("null", out);
    else
        fprintf(out, "{\"bytes\":%lld,\"headers\":%lld,\"ratios\":%lld,\"is_this_pipeline\":%s}",
                (long long)kept->bytes, (long long)kept->n_headers, (long long)kept->n_ratios,
                kept->is_this_pipeline ? "true" : "false");
}

void profile_print_json(FILE *out, const profile_subject *subject)
{
    const profile_data *data = subject->data;
    const profile_stats *s = subject->stats;
    fputs("{\"dataset\":", out);
    cli_json_string(out, subject->spec);
    fprintf(out,
            ",\"hash\":\"%s\",\"ops\":\"%s\",\"pipeline\":\"%s\",\"seed\":%llu,\"cpu\":\"%s\","
            "\"count\":%lld,\"measured\":%zu,\"failed\":%lld,\"shrinking\":%zu,\"points\":[",
            pen_dataset_hash(subject->ds), subject->ops, pen_pipeline_hash(subject->pipe),
            (unsigned long long)subject->seed, pen_cpu_level(),
            (long long)pen_dataset_count(subject->ds), data->n, subject->n_failed, s->n_shrinking);
    for (size_t i = 0; i < data->n_points; i++)
        put_point(out, subject, i);
    fputs("],\"totals\":{", out);
    put_total(out, "files", &s->files);
    fputc(',', out);
    put_total(out, "sophon", &s->sophon);
    fputc(',', out);
    put_total(out, "smallest", &s->sent);
    fputc('}', out);
    put_bins(out, s);
    put_field(out, "node_slowness", s->n_told > 0 ? s->node_s / s->told_local_s : NAN);
    put_kept(out, &subject->kept);
    if (subject->stage)
        put_stage(out, subject->stage);
    fputs(",\"samples\":[", out);
    for (size_t i = 0; i < data->n; i++)
        put_sample(out, data, i);
    fputs("]}\n", out);
}
