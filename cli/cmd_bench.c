/* cmd_bench.c - penstock bench: how fast batches of a dataset come, alone or beside a device. */
#include "cli.h"

#include <getopt.h>
#include <string.h>
#include <unistd.h>

#include "bench_report.h"
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
         "  --set KNOB=N       set and pin a knob: workers, ready_batches, read_ahead, io;\n"
         "                     of remote datasets also offload (0 or 1), cut_wire, codec\n"
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
        cli_complain("--set takes workers=N, ready_batches=N, read_ahead=N, io=N, offload=N, "
                     "cut_wire=N or codec=N, not '%s'",
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
static double run_epoch(pen_loader *loader, device *beside, usage *used, bench_waits *waits,
                        long long epoch)
{
    const int64_t n_batches = pen_loader_batches(loader);
    const double t0 = cli_seconds();
    double since = t0; /* it waits for the next batch */
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
        waits_add(waits, cli_seconds() - since);
        n_images += pen_batch_count(batch);
        device_step(beside);
        pen_batch_unref(batch);
        usage_look(used);
        cli_progress(what, ++n_done, n_batches);
        since = cli_seconds();
    }
    return (double)n_images / (cli_seconds() - t0);
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

/* Epochs, with a line for each; false if one failed. */
static bool run_epochs(const bench *b, const cli_open *open, usage *used, bench_waits *waits,
                       double *rates, bool as_json)
{
    device beside = b->device;
    for (long long e = 0; e < b->n_epochs; e++) {
        rates[e] = run_epoch(open->loader, &beside, used, waits, e);
        if (rates[e] < 0)
            return false;
        if (!as_json)
            printf("epoch %lld: %.0f images/s\n", e, rates[e]);
    }
    return true;
}

/* A log that was asked for is there, or the command says that it is not. */
static bool has_log(const bench *b, const pen_loader *loader)
{
    char reason[PEN_REASON_CAP] = "";
    if (!b->stream.loader.decision_log || pen_loader_reason(loader, reason, sizeof reason) < 0 ||
        strncmp(reason, PEN_LOG_FAULT, sizeof PEN_LOG_FAULT - 1) != 0)
        return true;
    cli_complain("%s", reason);
    return false;
}

static int run(const bench *b, const char *spec)
{
    cli_open open = {0};
    static double rates[MAX_EPOCHS];
    usage used;
    bench_waits waits = {0};
    const bool as_json = b->as_json || !isatty(STDOUT_FILENO);
    if (!open_all(b, spec, &open) ||
        !waits_init(&waits, b->n_epochs * pen_loader_batches(open.loader)) || !usage_begin(&used)) {
        waits_fini(&waits);
        cli_close(&open);
        return EXIT_FAILED;
    }
    if (!as_json)
        printf("%lld samples, %s, batch %d\n", (long long)pen_dataset_count(open.ds), b->stream.ops,
               b->stream.loader.batch_size);
    bool is_good = run_epochs(b, &open, &used, &waits, rates, as_json);
    usage_end(&used);
    bench_report report = {.spec = spec,
                           .stream = &b->stream,
                           .open = &open,
                           .device = &b->device,
                           .rates = rates,
                           .n_epochs = b->n_epochs,
                           .used = &used,
                           .waits = &waits};
    pen_loader_get_stats(open.loader, &report.stats);
    if (is_good)
        (as_json ? bench_print_json : bench_print_text)(&report);
    is_good &= has_log(b, open.loader);
    waits_fini(&waits);
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
