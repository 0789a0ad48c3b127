/* cmd_bench.c - penstock bench: how fast batches of a dataset come. */
#include "cli.h"

#include <getopt.h>
#include <string.h>
#include <unistd.h>

static void help(void)
{
    puts("usage: penstock bench DATASET [OPTIONS]\n\n"
         "Runs epochs over DATASET (a folder, tar shards or a manifest) and reports images\n"
         "a second: with a progress bar on a terminal, as one JSON object otherwise.\n\n"
         "  --ops NAME         imagenet-train (RandomResizedCrop 224, flip, normalize; default)\n"
         "                     or imagenet-val (Resize 256, CenterCrop 224, normalize)\n"
         "  --threads N        worker threads; 0 runs inline (default: one a core)\n"
         "  --batch-size B     samples a batch (default 64)\n"
         "  --epochs E         epochs (default 3)\n"
         "  --seed S           seed of order and augmentation (default 0)\n"
         "  --memory SIZE      memory budget, bytes or 2GiB (default: a quarter of the machine's)\n"
         "  --json             JSON also on a terminal");
}

typedef struct bench {
    cli_stream stream;
    long long n_epochs;
    bool as_json;
} bench;

enum { MAX_EPOCHS = 1000 };

/* Exit code, or -1 to go on. */
static int parse(bench *b, int argc, char **argv)
{
    static const struct option options[] = {
        {"ops", 1, NULL, 'o'},    {"threads", 1, NULL, 't'}, {"batch-size", 1, NULL, 'b'},
        {"epochs", 1, NULL, 'e'}, {"seed", 1, NULL, 's'},    {"memory", 1, NULL, 'm'},
        {"json", 0, NULL, 'j'},   {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
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
    if (is_good && optind != argc - 1) {
        cli_complain("bench takes one DATASET; see penstock bench --help");
        is_good = false;
    }
    return is_good ? -1 : EXIT_USAGE;
}

/* One epoch: images a second, negative on error. */
static double run_epoch(pen_loader *loader, long long epoch, int64_t n_batches)
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
        pen_batch_unref(batch);
        cli_progress(what, ++n_done, n_batches);
    }
    return (double)n_images / (cli_seconds() - t0);
}

static double percent(int64_t part, const pen_loader_stats *s)
{
    int64_t all = s->read_ns + s->decode_ns + s->augment_ns + s->tensor_ns;
    return all ? 100.0 * (double)part / (double)all : 0;
}

static void print_json(const bench *b, const char *spec, const cli_open *open, const double *rates,
                       const pen_loader_stats *s)
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
           "\"jpeg_plain\":%lld,\"jpeg_library\":%lld}\n",
           (double)s->first_batch_ns / 1e6, (long long)s->bytes_read, (long long)s->read_ns,
           (long long)s->decode_ns, (long long)s->augment_ns, (long long)s->tensor_ns,
           (long long)s->budget_peak, (long long)s->jpeg_indexed, (long long)s->jpeg_plain,
           (long long)s->jpeg_library);
}

static int run(const bench *b, const char *spec)
{
    cli_open open = {0};
    static double rates[MAX_EPOCHS];
    pen_loader_stats s;
    int code = EXIT_FAILED;
    bool as_json = b->as_json || !isatty(STDOUT_FILENO);
    if (!cli_open_dataset(&open, spec) || !cli_open_loader(&open, &b->stream))
        goto out;
    if (!as_json)
        printf("%lld samples, %s, batch %d\n", (long long)pen_dataset_count(open.ds), b->stream.ops,
               b->stream.loader.batch_size);
    for (long long e = 0; e < b->n_epochs; e++) {
        rates[e] = run_epoch(open.loader, e, pen_loader_batches(open.loader));
        if (rates[e] < 0)
            goto out;
        if (!as_json)
            printf("epoch %lld: %.0f images/s\n", e, rates[e]);
    }
    pen_loader_get_stats(open.loader, &s);
    if (as_json)
        print_json(b, spec, &open, rates, &s);
    else
        printf("%d threads (%s); first batch after %.0f ms; worker time: read %.0f %%, decode %.0f "
               "%%, augment %.0f %%, tensor %.0f %%\n",
               s.workers, pen_cpu_level(), (double)s.first_batch_ns / 1e6, percent(s.read_ns, &s),
               percent(s.decode_ns, &s), percent(s.augment_ns, &s), percent(s.tensor_ns, &s));
    code = EXIT_OK;
out:
    cli_close(&open);
    return code;
}

int cmd_bench(int argc, char **argv)
{
    bench b = {.n_epochs = 3};
    cli_stream_init(&b.stream);
    int code = parse(&b, argc, argv);
    return code >= 0 ? code : run(&b, argv[optind]);
}
