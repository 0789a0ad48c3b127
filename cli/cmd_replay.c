/* cmd_replay.c - penstock replay: build any batch of a stream again.
 *
 * A batch is a function of (dataset, pipeline, seed, epoch, global batch), so the
 * samples behind a strange step can be found long after it.
 */
#include "cli.h"

#include <getopt.h>
#include <math.h>
#include <string.h>

static void help(void)
{
    puts("usage: penstock replay DATASET --epoch E --batch B [OPTIONS]\n\n"
         "Rebuilds one batch and lists its samples: slot, id, label, smallest and largest\n"
         "value, key.  Give the options of the run that produced it.\n\n"
         "  --ops NAME         imagenet-train (default) or imagenet-val\n"
         "  --batch-size B     samples a batch and rank (default 64)\n"
         "  --seed S           seed (default 0)\n"
         "  --order NAME       shuffle (default), sequential or block\n"
         "  --block N          samples a block of the block order (default 256)\n"
         "  --window N         blocks mixed with each other (default 16)\n"
         "  --tail NAME        short, drop, pad or wrap (default: short, with ranks wrap)\n"
         "  --on-error NAME    raise (default), skip or replace\n"
         "  --rank R           rank (default 0)\n"
         "  --world-size W     number of ranks (default 1)\n"
         "  --out FILE         write the tensor as a NumPy .npy file\n\n"
         "For other operations than these two lines: loader.replay(epoch, batch) in Python.");
}

typedef struct replay {
    cli_stream stream;
    long long epoch, batch;
    const char *out;
} replay;

static const char *const order_names[] = {"sequential", "shuffle", "block", NULL};
static const char *const tail_names[] = {"auto", "short", "drop", "pad", "wrap", NULL};
static const char *const on_error_names[] = {"raise", "skip", "replace", NULL};

/* The place of `name` in a list that NULL ends; complains and returns -1 otherwise. */
static int parse_name(const char *option, const char *name, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    cli_complain("%s does not know '%s'; see penstock replay --help", option, name);
    return -1;
}

/* Exit code, or -1 to go on. */
static int parse(replay *r, int argc, char **argv)
{
    static const struct option options[] = {
        {"epoch", 1, NULL, 'e'},      {"batch", 1, NULL, 'n'},    {"ops", 1, NULL, 'o'},
        {"batch-size", 1, NULL, 'b'}, {"seed", 1, NULL, 's'},     {"order", 1, NULL, 'd'},
        {"tail", 1, NULL, 't'},       {"on-error", 1, NULL, 'a'}, {"block", 1, NULL, 'k'},
        {"window", 1, NULL, 'i'},     {"rank", 1, NULL, 'r'},     {"world-size", 1, NULL, 'w'},
        {"out", 1, NULL, 'f'},        {"help", 0, NULL, 'h'},     {NULL, 0, NULL, 0}};
    long long n = 0;
    int choice;
    bool is_good = true;
    for (int c; is_good && (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        pen_loader_opts *o = &r->stream.loader;
        switch (c) {
        case 'e':
            is_good = cli_number("--epoch", optarg, 0, UINT32_MAX - 1, &r->epoch);
            break;
        case 'n':
            is_good = cli_number("--batch", optarg, 0, INT64_MAX, &r->batch);
            break;
        case 'o':
            is_good = cli_ops(optarg, &r->stream);
            break;
        case 'b':
            is_good = cli_number("--batch-size", optarg, 1, 65536, &n);
            o->batch_size = (int32_t)n;
            break;
        case 's':
            is_good = cli_seed(optarg, &o->seed);
            break;
        case 'd':
            is_good = (choice = parse_name("--order", optarg, order_names)) >= 0;
            o->order = (pen_order_kind)choice;
            break;
        case 't':
            is_good = (choice = parse_name("--tail", optarg, tail_names)) >= 0;
            o->tail = (pen_tail)choice;
            break;
        case 'a':
            is_good = (choice = parse_name("--on-error", optarg, on_error_names)) >= 0;
            o->on_error = (pen_on_error)choice;
            break;
        case 'k':
            is_good = cli_number("--block", optarg, 1, INT32_MAX, &n);
            o->order_block = (int32_t)n;
            break;
        case 'i':
            is_good = cli_number("--window", optarg, 1, INT32_MAX, &n);
            o->order_window = (int32_t)n;
            break;
        case 'r':
            is_good = cli_number("--rank", optarg, 0, 1 << 20, &n);
            o->rank = (int32_t)n;
            break;
        case 'w':
            is_good = cli_number("--world-size", optarg, 1, 1 << 20, &n);
            o->world_size = (int32_t)n;
            break;
        case 'f':
            r->out = optarg;
            break;
        case 'h':
            help();
            return EXIT_OK;
        default:
            is_good = false;
        }
    }
    if (is_good && (optind != argc - 1 || r->epoch < 0 || r->batch < 0)) {
        cli_complain("replay takes one DATASET, --epoch and --batch; see penstock replay --help");
        is_good = false;
    }
    return is_good ? -1 : EXIT_USAGE;
}

static void list(const cli_open *open, const pen_batch *batch)
{
    pen_shape shape = pen_batch_shape(batch);
    size_t n_values = shape.bytes / sizeof(float);
    const float *values = pen_batch_data(batch);
    printf("slot       id  label       min       max  key\n");
    for (int64_t i = 0; i < pen_batch_count(batch); i++, values += n_values) {
        char key[PEN_KEY_MAX];
        float least = values[0], most = values[0];
        for (size_t v = 1; v < n_values; v++) {
            least = fminf(least, values[v]);
            most = fmaxf(most, values[v]);
        }
        if (pen_dataset_key(open->ds, pen_batch_ids(batch)[i], key, sizeof key) < 0)
            key[0] = '\0';
        printf("%4lld %8lld %6lld %9.4f %9.4f  %s%s\n", (long long)i,
               (long long)pen_batch_ids(batch)[i], (long long)pen_batch_labels(batch)[i],
               (double)least, (double)most, cli_printable(key),
               pen_batch_mask(batch)[i] ? "" : "  (padding)");
    }
}

/* NumPy's format 1.0: magic, a padded header that is a Python literal, raw values. */
static void print_npy(FILE *out, const void *what)
{
    const pen_batch *batch = what;
    const pen_shape shape = pen_batch_shape(batch);
    char header[128];
    int n = snprintf(header, sizeof header,
                     "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %d, %d, %d), }",
                     (long long)pen_batch_count(batch), shape.channels, shape.height, shape.width);
    memset(header + n, ' ', sizeof header - (size_t)n);
    const size_t header_bytes = sizeof header - 10;
    header[header_bytes - 1] = '\n';
    const unsigned char magic[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)header_bytes, 0};
    fwrite(magic, 1, sizeof magic, out);
    fwrite(header, 1, header_bytes, out);
    fwrite(pen_batch_data(batch), 1, shape.bytes * (size_t)pen_batch_count(batch), out);
}

static int run(replay *r, const char *spec)
{
    cli_open open = {0};
    pen_batch *batch = NULL;
    pen_error err;
    int code = EXIT_FAILED;
    if (!cli_open_dataset(&open, spec) || !cli_open_loader(&open, &r->stream))
        goto out;
    if (pen_loader_replay(open.loader, r->epoch, r->batch, &batch, &err) != 0) {
        cli_complain("%s", err.text);
        goto out;
    }
    list(&open, batch);
    if (!r->out || cli_write_file(r->out, print_npy, batch))
        code = EXIT_OK;
out:
    pen_batch_unref(batch);
    cli_close(&open);
    return code;
}

int cmd_replay(int argc, char **argv)
{
    replay r = {.epoch = -1, .batch = -1};
    cli_stream_init(&r.stream);
    r.stream.loader.workers = 0;
    int code = parse(&r, argc, argv);
    return code >= 0 ? code : run(&r, argv[optind]);
}
