/* cmd_bench.c - penstock bench: how fast batches of a dataset come, alone or beside a device. */
#include "cli.h"

#include <getopt.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "device.h"

static void help(void)
{
    puts("usage: penstock bench DATASET [OPTIONS]\n\n"
         "Runs epochs over DATASET (a folder, tar shards, a manifest or penstock://HOST/NAME)\n"
         "and reports images a second: with a progress bar on a terminal, as one JSON object\n"
         "otherwise.\n\n"
         "  --ops NAME         imagenet-train (RandomResizedCrop 224, flip, normalize; default)\n"
         "                     or imagenet-val (Resize 256, CenterCrop 224, normalize)\n"
         "  --threads N        worker threads; 0 runs inline (default: one a core)\n"
         "  --batch-size B     samples a batch (default 64)\n"
         "  --epochs E         epochs (default 3)\n"
         "  --seed S           seed of order and augmentation (default 0)\n"
         "  --memory SIZE      memory budget, bytes or 2GiB (default: a quarter of the machine's)\n"
         "  --step-ms M[,J]    after each batch be busy for M ms, give or take J, as a device\n"
         "                     would be that needs no CPU\n"
         "  --policy NAME      who turns the knobs: fixed (default), rules, hillclimb, model\n"
         "  --set KNOB=N       set and pin a knob: workers, ready_batches, read_ahead, io\n"
         "  --decisions FILE   append what the policy decides, a line of JSON each period\n"
         "  --json             JSON also on a terminal");
}

typedef struct bench {
    cli_stream stream;
    long long n_epochs;
    bool as_json;
    device device;
    pen_knobs knobs;
} bench;

enum { MAX_EPOCHS = 1000 };

static bool parse_policy(const char *text, bench *b)
{
    b->stream.loader.policy = pen_policy_find(text);
    if (!b->stream.loader.policy)
        cli_complain("--policy takes fixed, rules, hillclimb or model, not '%s'", text);
    return b->stream.loader.policy;
}

static const pen_knob_kind knob_kinds[PEN_KNOB_COUNT] = {
#define KNOB_KIND(id, name, kind, unit, text) PEN_KNOB_KIND_##kind,
    PEN_KNOBS(KNOB_KIND)
#undef KNOB_KIND
};

/* NAME=N of a knob that may be set by itself. */
static bool parse_knob(const char *text, bench *b)
{
    char name[32];
    const char *equals = strchr(text, '=');
    const size_t n = equals ? (size_t)(equals - text) : sizeof name;
    int knob = -1;
    long long value = 0;
    if (n < sizeof name) {
        memcpy(name, text, n);
        name[n] = '\0';
        knob = pen_knob_find(name);
    }
    if (knob < 0 || knob_kinds[knob] == PEN_KNOB_KIND_SHARE) {
        cli_complain("--set takes workers=N, ready_batches=N, read_ahead=N or io=N, not '%s'",
                     text);
        return false;
    }
    if (!cli_number("--set", equals + 1, 0, 1 << 20, &value))
        return false;
    b->knobs.value[knob] = (double)value;
    return true;
}

/* Exit code, or -1 to go on. */
static int parse(bench *b, int argc, char **argv)
{
    static const struct option options[] = {
        {"ops", 1, NULL, 'o'},    {"threads", 1, NULL, 't'}, {"batch-size", 1, NULL, 'b'},
        {"epochs", 1, NULL, 'e'}, {"seed", 1, NULL, 's'},    {"memory", 1, NULL, 'm'},
        {"json", 0, NULL, 'j'},   {"help", 0, NULL, 'h'},    {"step-ms", 1, NULL, 'S'},
        {"policy", 1, NULL, 'p'}, {"set", 1, NULL, 'k'},     {"decisions", 1, NULL, 'd'},
        {NULL, 0, NULL, 0}};
    long long n = 0;
    bool is_good = true;
    for (int c; is_good && (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        switch (c) {
        case 'o':
            is_good = cli_ops(optarg, &b->stream);
            break;
        case 't':
            is_good = cli_number("--threads", optarg, 0, PEN_MAX_WORKERS, &n);
            b->stream.loader.workers = (int32_t)n;
            break;
        case 'b':
            is_good = cli_number("--batch-size", optarg, 1, 65536, &n);
            b->stream.loader.batch_size = (int32_t)n;
            break;
        case 'e':
            is_good = cli_number("--epochs", optarg, 1, MAX_EPOCHS, &b->n_epochs);
            break;
        case 's':
            is_good = cli_seed(optarg, &b->stream.loader.seed);
            break;
        case 'm':
            is_good = cli_memory("--memory", optarg, &b->stream.loader.memory_budget);
            break;
        case 'S':
            is_good = device_parse(optarg, &b->device);
            break;
        case 'p':
            is_good = parse_policy(optarg, b);
            break;
        case 'k':
            is_good = parse_knob(optarg, b);
            break;
        case 'd':
            b->stream.loader.decision_log = optarg;
            break;
        case 'j':
            b->as_json = true;
            break;
        case 'h':
            help();
            return EXIT_OK;
        default:
            is_good = false;
        }
    }
    return is_good && cli_has_dataset(argc, "bench") ? -1 : EXIT_USAGE;
}

/* One epoch: images a second, negative on error. */
static double run_epoch(pen_loader *loader, device *beside, usage *used, long long epoch,
                        int64_t n_batches)
{
    double t0 = cli_seconds();
    int64_t n_images = 0, n_done = 0;
    char what[32];
    snprintf(what, sizeof what, "epoch %lld", epoch);
    for (;;) {
        pen_batch *batch;
        pen_error err;
        int rc = pen_loader_next(loader, 100000000, &batch, &err);
        if (rc == PEN_END)
            break;
        if (rc < 0) {
            cli_progress(what, 1, 1);
            cli_complain("%s", err.text);
            return -1;
        }
        if (cli_is_interrupted()) {
            pen_batch_unref(batch);
            cli_progress(what, 1, 1);
            cli_complain("interrupted");
            return -1;
        }
        if (rc == PEN_AGAIN)
            continue;
        n_images += pen_batch_count(batch);
        device_step(beside);
        pen_batch_unref(batch);
        usage_look(used);
        cli_progress(what, ++n_done, n_batches);
    }
    return (double)n_images / (cli_seconds() - t0);
}

/* Share of the time that the loop waited, the first batch aside. */
static double wait_share(const pen_pipeline_stats *now, const pen_loader_stats *s)
{
    const double waited = now->stages[PEN_STAGE_WAIT].total_s - (double)s->first_batch_ns * 1e-9;
    const double all = waited + now->stages[PEN_STAGE_STEP].total_s;
    return all > 0 ? fmax(waited, 0) / all : 0;
}

static void print_number(const char *key, double value)
{
    if (isnan(value))
        printf(",\"%s\":null", key);
    else
        printf(",\"%s\":%.6g", key, value);
}

/* What a run beside a device is judged by. */
static void print_run(const bench *b, const pen_loader *loader, const usage *used,
                      const pen_loader_stats *s)
{
    pen_pipeline_stats now = PEN_PIPELINE_STATS_INIT;
    char verdict[PEN_VERDICT_MAX] = "";
    pen_knobs knobs;
    pen_loader_get_pipeline_stats(loader, &now);
    pen_loader_get_knobs(loader, &knobs);
    pen_loader_verdict(loader, verdict, sizeof verdict);
    const pen_stage_stats *wait = &now.stages[PEN_STAGE_WAIT];
    printf(",\"policy\":\"%s\"", pen_loader_policy(loader));
    print_number("step_ms", b->device.mean_ms);
    print_number("jitter_ms", b->device.jitter_ms);
    print_number("wait_share", wait_share(&now, s));
    print_number("batch_wait_p50_ms", wait->p50_s * 1e3);
    print_number("batch_wait_p95_ms", wait->p95_s * 1e3);
    print_number("batch_wait_p99_ms", wait->p99_s * 1e3);
    print_number("samples_per_s", (double)now.samples / used->seconds);
    print_number("seconds", used->seconds);
    print_number("cpu_s", used->cpu_s);
    print_number("iowait", used->iowait);
    print_number("rss_peak_bytes", used->peak_bytes);
    print_number("rss_mean_bytes", used->mean_bytes);
    printf(",\"knobs\":{");
    for (int i = 0; i < PEN_KNOB_COUNT; i++) {
        pen_knob_info info;
        pen_loader_knob(loader, i, &info);
        printf("%s\"%s\":%g", i ? "," : "", info.name, knobs.value[i]);
    }
    printf("},\"verdict\":");
    cli_json_string(stdout, verdict);
}

static double percent(int64_t part, const pen_loader_stats *s)
{
    int64_t all = s->read_ns + s->decode_ns + s->augment_ns + s->tensor_ns;
    return all ? 100.0 * (double)part / (double)all : 0;
}

static void print_json(const bench *b, const char *spec, const cli_open *open, const double *rates,
                       const usage *used, const pen_loader_stats *s)
{
    printf("{\"dataset\":");
    cli_json_string(stdout, spec);
    printf(",\"samples\":%lld,\"ops\":\"%s\",\"threads\":%d,\"batch_size\":%d,\"cpu\":\"%s\","
           "\"images_per_s\":[",
           (long long)pen_dataset_count(open->ds), b->stream.ops, s->workers,
           b->stream.loader.batch_size, pen_cpu_level());
    for (long long e = 0; e < b->n_epochs; e++)
        printf("%s%.1f", e ? "," : "", rates[e]);
    printf("],\"first_batch_ms\":%.1f,\"bytes_read\":%lld,\"read_ns\":%lld,\"decode_ns\":%lld,"
           "\"augment_ns\":%lld,\"tensor_ns\":%lld,\"budget_peak\":%lld,\"jpeg_indexed\":%lld,"
           "\"jpeg_plain\":%lld,\"jpeg_library\":%lld",
           (double)s->first_batch_ns / 1e6, (long long)s->bytes_read, (long long)s->read_ns,
           (long long)s->decode_ns, (long long)s->augment_ns, (long long)s->tensor_ns,
           (long long)s->budget_peak, (long long)s->jpeg_indexed, (long long)s->jpeg_plain,
           (long long)s->jpeg_library);
    print_run(b, open->loader, used, s);
    puts("}");
}

static void print_text(const cli_open *open, const usage *used, const pen_loader_stats *s)
{
    char verdict[PEN_VERDICT_MAX] = "", memory[32];
    pen_loader_verdict(open->loader, verdict, sizeof verdict);
    printf("%d threads (%s); first batch after %.0f ms; worker time: read %.0f %%, decode %.0f "
           "%%, augment %.0f %%, tensor %.0f %%\n",
           s->workers, pen_cpu_level(), (double)s->first_batch_ns / 1e6, percent(s->read_ns, s),
           percent(s->decode_ns, s), percent(s->augment_ns, s), percent(s->tensor_ns, s));
    printf("%.1f s of CPU in %.1f s, %s at most; %s\n", used->cpu_s, used->seconds,
           cli_bytes(memory, used->peak_bytes), verdict);
}

/* Dataset and loader, its knobs set. */
static bool open_all(const bench *b, const char *spec, cli_open *open)
{
    pen_error err;
    if (!cli_open_dataset(open, spec) || !cli_open_loader(open, &b->stream))
        return false;
    if (pen_loader_set_knobs(open->loader, &b->knobs, &err) == 0)
        return true;
    cli_complain("%s", err.text);
    return false;
}

static int run(const bench *b, const char *spec)
{
    cli_open open = {0};
    static double rates[MAX_EPOCHS];
    pen_loader_stats s;
    usage used;
    device beside = b->device;
    bool as_json = b->as_json || !isatty(STDOUT_FILENO), is_good = true;
    if (!open_all(b, spec, &open) || !usage_begin(&used)) {
        cli_close(&open);
        return EXIT_FAILED;
    }
    if (!as_json)
        printf("%lld samples, %s, batch %d\n", (long long)pen_dataset_count(open.ds), b->stream.ops,
               b->stream.loader.batch_size);
    for (long long e = 0; is_good && e < b->n_epochs; e++) {
        rates[e] = run_epoch(open.loader, &beside, &used, e, pen_loader_batches(open.loader));
        is_good = rates[e] >= 0;
        if (is_good && !as_json)
            printf("epoch %lld: %.0f images/s\n", e, rates[e]);
    }
    usage_end(&used);
    pen_loader_get_stats(open.loader, &s);
    if (is_good && as_json)
        print_json(b, spec, &open, rates, &used, &s);
    else if (is_good)
        print_text(&open, &used, &s);
    cli_close(&open);
    return is_good ? EXIT_OK : EXIT_FAILED;
}

int cmd_bench(int argc, char **argv)
{
    bench b = {.n_epochs = 3};
    cli_stream_init(&b.stream);
    pen_knobs_init(&b.knobs);
    int code = parse(&b, argc, argv);
    return code >= 0 ? code : run(&b, argv[optind]);
}
