/* bench_report.c - see bench_report.h. */
#include "bench_report.h"

#include <math.h>
#include <stdlib.h>

/* ---- waits ---- */

bool waits_init(bench_waits *w, int64_t n_batches)
{
    *w = (bench_waits){.cap = n_batches, .s = malloc(((size_t)n_batches + 1) * sizeof *w->s)};
    if (!w->s)
        cli_complain("out of memory");
    return w->s;
}

void waits_fini(bench_waits *w)
{
    free(w->s);
    *w = (bench_waits){0};
}

void waits_add(bench_waits *w, double wait_s)
{
    if (w->has_first && w->n < w->cap)
        w->s[w->n++] = wait_s;
    w->has_first = true;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double waits_quantile(bench_waits *w, double share)
{
    if (w->n == 0)
        return NAN;
    qsort(w->s, (size_t)w->n, sizeof *w->s, compare);
    const int64_t rank = (int64_t)ceil(share * (double)w->n);
    return w->s[rank < 1 ? 0 : rank - 1];
}

/* ---- what a run beside a device is judged by ---- */

typedef struct figures {
    double wait_share;
    double wait_ms[3]; /* p50, p95, p99 */
    double samples_per_s;
} figures;

/* Share of the time that the loop waited, the first batch aside. */
static double wait_share(const pen_pipeline_stats *now, const pen_loader_stats *s)
{
    const double waited = now->stages[PEN_STAGE_WAIT].total_s - (double)s->first_batch_ns * 1e-9;
    const double all = waited + now->stages[PEN_STAGE_STEP].total_s;
    return all > 0 ? fmax(waited, 0) / all : 0;
}

static figures figures_of(const bench_report *r)
{
    static const double shares[3] = {0.5, 0.95, 0.99};
    pen_pipeline_stats now = PEN_PIPELINE_STATS_INIT;
    pen_loader_get_pipeline_stats(r->open->loader, &now);
    figures f = {.wait_share = wait_share(&now, &r->stats),
                 .samples_per_s = (double)now.samples / r->used->seconds};
    for (int i = 0; i < 3; i++)
        f.wait_ms[i] = waits_quantile(r->waits, shares[i]) * 1e3;
    return f;
}

/* ---- JSON ---- */

static void print_number(const char *key, double value)
{
    if (isnan(value))
        printf(",\"%s\":null", key);
    else
        printf(",\"%s\":%.6g", key, value);
}

static void print_knobs(const pen_loader *loader)
{
    pen_knobs knobs;
    pen_loader_get_knobs(loader, &knobs);
    printf(",\"knobs\":{");
    for (int i = 0; i < PEN_KNOB_COUNT; i++) {
        pen_knob_info info;
        pen_loader_knob(loader, i, &info);
        printf("%s\"%s\":%g", i ? "," : "", info.name, knobs.value[i]);
    }
    printf("}");
}

static void print_run(const bench_report *r)
{
    const figures f = figures_of(r);
    char verdict[PEN_VERDICT_MAX] = "";
    pen_loader_verdict(r->open->loader, verdict, sizeof verdict);
    printf(",\"policy\":\"%s\"", pen_loader_policy(r->open->loader));
    print_number("step_ms", r->device->mean_ms);
    print_number("jitter_ms", r->device->jitter_ms);
    print_number("wait_share", f.wait_share);
    print_number("batch_wait_p50_ms", f.wait_ms[0]);
    print_number("batch_wait_p95_ms", f.wait_ms[1]);
    print_number("batch_wait_p99_ms", f.wait_ms[2]);
    print_number("samples_per_s", f.samples_per_s);
    print_number("seconds", r->used->seconds);
    print_number("cpu_s", r->used->cpu_s);
    print_number("iowait", r->used->iowait);
    print_number("rss_peak_bytes", r->used->peak_bytes);
    print_number("rss_mean_bytes", r->used->mean_bytes);
    print_knobs(r->open->loader);
    printf(",\"verdict\":");
    cli_json_string(stdout, verdict);
}

void bench_print_json(const bench_report *r)
{
    const pen_loader_stats *s = &r->stats;
    printf("{\"dataset\":");
    cli_json_string(stdout, r->spec);
    printf(",\"samples\":%lld,\"ops\":\"%s\",\"threads\":%d,\"batch_size\":%d,\"cpu\":\"%s\","
           "\"images_per_s\":[",
           (long long)pen_dataset_count(r->open->ds), r->stream->ops, s->workers,
           r->stream->loader.batch_size, pen_cpu_level());
    for (long long e = 0; e < r->n_epochs; e++)
        printf("%s%.1f", e ? "," : "", r->rates[e]);
    printf("],\"first_batch_ms\":%.1f,\"bytes_read\":%lld,\"read_ns\":%lld,\"decode_ns\":%lld,"
           "\"augment_ns\":%lld,\"tensor_ns\":%lld,\"budget_peak\":%lld,\"jpeg_indexed\":%lld,"
           "\"jpeg_plain\":%lld,\"jpeg_library\":%lld",
           (double)s->first_batch_ns / 1e6, (long long)s->bytes_read, (long long)s->read_ns,
           (long long)s->decode_ns, (long long)s->augment_ns, (long long)s->tensor_ns,
           (long long)s->budget_peak, (long long)s->jpeg_indexed, (long long)s->jpeg_plain,
           (long long)s->jpeg_library);
    print_run(r);
    puts("}");
}

/* ---- text ---- */

static double percent(int64_t part, const pen_loader_stats *s)
{
    int64_t all = s->read_ns + s->decode_ns + s->augment_ns + s->tensor_ns;
    return all ? 100.0 * (double)part / (double)all : 0;
}

/* "12.3" or "-" where it is not known. */
static const char *figure(char buf[32], double value)
{
    if (isnan(value))
        return "-";
    snprintf(buf, 32, "%.1f", value);
    return buf;
}

static void print_table(const bench_report *r)
{
    const figures f = figures_of(r);
    const usage *used = r->used;
    char a[32], b[32], c[32];
    printf("waiting     %.1f %% of the time, the first batch left out\n", f.wait_share * 100);
    printf("batch wait  p50 %s ms, p95 %s ms, p99 %s ms\n", figure(a, f.wait_ms[0]),
           figure(b, f.wait_ms[1]), figure(c, f.wait_ms[2]));
    printf("samples     %.0f a second\n", f.samples_per_s);
    printf("CPU         %.1f s in %.1f s; I/O wait %s %% of all cores\n", used->cpu_s,
           used->seconds, figure(a, used->iowait * 100));
    printf("memory      %s at most, %s on average\n", cli_bytes(a, used->peak_bytes),
           cli_bytes(b, used->mean_bytes));
    printf("read        %s\n", cli_bytes(a, (double)r->stats.bytes_read));
}

void bench_print_text(const bench_report *r)
{
    const pen_loader_stats *s = &r->stats;
    char verdict[PEN_VERDICT_MAX] = "", memory[32];
    pen_loader_verdict(r->open->loader, verdict, sizeof verdict);
    printf("%d threads (%s); first batch after %.0f ms; worker time: read %.0f %%, decode %.0f "
           "%%, augment %.0f %%, tensor %.0f %%\n",
           s->workers, pen_cpu_level(), (double)s->first_batch_ns / 1e6, percent(s->read_ns, s),
           percent(s->decode_ns, s), percent(s->augment_ns, s), percent(s->tensor_ns, s));
    if (r->device->mean_ms > 0)
        print_table(r);
    else
        printf("%.1f s of CPU in %.1f s, %s at most\n", r->used->cpu_s, r->used->seconds,
               cli_bytes(memory, r->used->peak_bytes));
    puts(verdict);
}
