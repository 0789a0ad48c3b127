/* profile_stats.c - see profile_stats.h. */
#include "profile_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Columns behind those of the points. */
enum { SENT_BYTES, SENT_CPU, NODE_CPU, N_MORE };

static double *column(const profile_data *data, size_t i)
{
    return data->columns + i * data->cap;
}

const double *profile_bytes(const profile_data *data, size_t point)
{
    return column(data, 2 * point);
}

const double *profile_cpu(const profile_data *data, size_t point)
{
    return column(data, 2 * point + 1);
}

const double *profile_sent_bytes(const profile_data *data)
{
    return column(data, 2 * data->n_points + SENT_BYTES);
}

const double *profile_sent_cpu(const profile_data *data)
{
    return column(data, 2 * data->n_points + SENT_CPU);
}

const double *profile_node_cpu(const profile_data *data)
{
    return column(data, 2 * data->n_points + NODE_CPU);
}

bool profile_data_init(profile_data *data, const pen_profile_point *points, size_t n_points,
                       size_t cap)
{
    *data = (profile_data){.cap = cap, .n_points = n_points};
    memcpy(data->points, points, n_points * sizeof *points);
    data->columns = calloc((2 * n_points + N_MORE) * cap, sizeof *data->columns);
    data->ids = calloc(cap, sizeof *data->ids);
    return data->columns && data->ids;
}

void profile_data_fini(profile_data *data)
{
    free(data->columns);
    free(data->ids);
    *data = (profile_data){0};
}

void profile_data_add(profile_data *data, int64_t id, const pen_profile_sample *sample)
{
    const size_t at = data->n++, more = 2 * data->n_points;
    data->ids[at] = id;
    for (size_t i = 0; i < data->n_points; i++) {
        column(data, 2 * i)[at] = sample->points[i].bytes;
        column(data, 2 * i + 1)[at] = sample->points[i].cpu_s;
    }
    column(data, more + SENT_BYTES)[at] = sample->sent.bytes;
    column(data, more + SENT_CPU)[at] = sample->sent.cpu_s;
    column(data, more + NODE_CPU)[at] = sample->node_cpu_s;
}

/* ---- points ---- */

double profile_quantile(const double *sorted, size_t n, double q)
{
    if (n == 0)
        return NAN;
    const double place = q * (double)(n - 1);
    const size_t i = (size_t)place;
    const double next = sorted[i + 1 < n ? i + 1 : i];
    return sorted[i] + (place - (double)i) * (next - sorted[i]);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* `sorted` has room for a column. */
static profile_row make_row(const profile_data *data, size_t point, double *sorted)
{
    const double *bytes = profile_bytes(data, point), *cpu = profile_cpu(data, point);
    const double *file = profile_bytes(data, 0);
    double sum = 0, files = 0, cpu_s = 0;
    size_t n = 0;
    for (size_t i = 0; i < data->n; i++) {
        if (isnan(bytes[i]))
            continue;
        sorted[n++] = bytes[i];
        sum += bytes[i];
        files += file[i];
        cpu_s += cpu[i];
    }
    qsort(sorted, n, sizeof *sorted, compare);
    return (profile_row){.n = n,
                         .p10 = profile_quantile(sorted, n, 0.1),
                         .p50 = profile_quantile(sorted, n, 0.5),
                         .p90 = profile_quantile(sorted, n, 0.9),
                         .share = files > 0 ? sum / files : NAN,
                         .cpu_s = n > 0 ? cpu_s / (double)n : NAN};
}

/* Where sample `i` is smallest; with sophon_only, among its file and plain pixels behind a whole
 * operation: those behind Decode alone are no image, only what the next operation needs of it. */
static size_t find_smallest(const profile_data *data, size_t i, bool sophon_only)
{
    size_t best = 0;
    for (size_t point = 1; point < data->n_points; point++) {
        const pen_profile_point *at = &data->points[point];
        const bool is_sophon = at->form == PEN_PROFILE_PIXELS && at->n_ops > 1;
        if ((is_sophon || !sophon_only) &&
            profile_bytes(data, point)[i] < profile_bytes(data, best)[i])
            best = point;
    }
    return best;
}

/* ---- all of it ---- */

static void add_total(profile_total *total, double bytes, double cpu_s)
{
    total->bytes += bytes;
    total->cpu_s += cpu_s;
}

static void make_bins(profile_stats *stats)
{
    for (int i = 0; i < PROFILE_BINS; i++) {
        stats->bins[i].from = ldexp(PROFILE_LEAST, i);
        stats->bins[i].to = ldexp(PROFILE_LEAST, i + 1);
    }
}

static void add_saving(profile_stats *stats, double saved_bytes, double cpu_s)
{
    if (!(saved_bytes > 0)) {
        stats->n_unsaved++;
        return;
    }
    const double worth = saved_bytes / fmax(cpu_s, 1e-9);
    const double at = floor(log2(worth / PROFILE_LEAST));
    profile_bin *bin = &stats->bins[(int)fmin(fmax(at, 0), PROFILE_BINS - 1)];
    bin->n++;
    bin->saved_bytes += saved_bytes;
}

static void add_sample(profile_stats *stats, const profile_data *data, size_t i)
{
    const double file = profile_bytes(data, 0)[i], node_s = profile_node_cpu(data)[i];
    const double sent = profile_sent_bytes(data)[i], sent_s = profile_sent_cpu(data)[i];
    const size_t smallest = find_smallest(data, i, false), plain = find_smallest(data, i, true);
    stats->rows[smallest].n_smallest++;
    stats->n_shrinking += smallest > 0;
    add_total(&stats->files, file, 0);
    add_total(&stats->sophon, profile_bytes(data, plain)[i], profile_cpu(data, plain)[i]);
    add_total(&stats->sent, sent, sent_s);
    add_saving(stats, file - sent, sent_s);
    if (!isnan(node_s)) {
        stats->n_told++;
        stats->node_s += node_s;
        stats->told_local_s += sent_s;
    }
}

bool profile_stats_make(profile_stats *stats, const profile_data *data)
{
    double *sorted = malloc((data->n > 0 ? data->n : 1) * sizeof *sorted);
    memset(stats, 0, sizeof *stats);
    if (!sorted)
        return false;
    for (size_t point = 0; point < data->n_points; point++)
        stats->rows[point] = make_row(data, point, sorted);
    make_bins(stats);
    for (size_t i = 0; i < data->n; i++)
        add_sample(stats, data, i);
    free(sorted);
    return true;
}
