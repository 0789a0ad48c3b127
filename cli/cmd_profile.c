/* cmd_profile.c - penstock profile: what samples weigh after each operation, and what that costs.
 *
 * A part of the dataset, drawn by the seed, goes through the pipeline in this thread, in every
 * form there is (penstock/profile.h).  What it says is in profile_stats.c, how in
 * profile_report.c and profile_svg.c.
 */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profile_report.h"

static void help(void)
{
    puts("usage: penstock profile DATASET [OPTIONS]\n\n"
         "What samples of DATASET (a folder, tar shards, a manifest or penstock://HOST/NAME)\n"
         "weigh after each operation, and how much processor time it takes to get there:\n"
         "measured with some of them, in one thread, without the index of JPEG files.  Tells\n"
         "what a storage node could save (docs/near-storage.md); that of a remote dataset is\n"
         "asked as well.  Says what loaders have learned of it and kept in the cache directory;\n"
         "nothing of that is used or changed.\n\n"
         "  --ops NAME         imagenet-train (RandomResizedCrop 224, flip, normalize; default)\n"
         "                     or imagenet-val (Resize 256, CenterCrop 224, normalize)\n"
         "  --samples N        measure so many, drawn at random (default 400; all if fewer)\n"
         "  --seed S           seed of the choice and of the augmentation (default 0)\n"
         "  --step-ms M[,J]    find out as well whether a job whose device is busy for M ms a\n"
         "                     batch, give or take J, waits for its data: runs device and\n"
         "                     fetching alone, up to 50 batches or 10 s each\n"
         "  --batch-size B     of that job (default 64)\n"
         "  --threads N        worker threads of that job (default: one a core)\n"
         "  --json FILE        write all figures, also those of each sample; - for stdout,\n"
         "                     instead of the table\n"
         "  --plot FILE.svg    draw sizes, savings and totals");
}

enum { DEFAULT_SAMPLES = 400, MAX_SAMPLES = 100000 };

typedef struct profile {
    cli_stream stream;
    profile_job job;
    long long n_samples;
    const char *json, *plot;
} profile;

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static bool parse_plot(const char *text, profile *p)
{
    p->plot = text;
    if (ends_with(text, ".svg"))
        return true;
    cli_complain("--plot writes SVG: give FILE.svg, not '%s'", text);
    return false;
}

/* Exit code, or -1 to go on. */
static int parse(profile *p, int argc, char **argv)
{
    static const struct option options[] = {{"ops", 1, NULL, 'o'},     {"samples", 1, NULL, 'n'},
                                            {"seed", 1, NULL, 's'},    {"json", 1, NULL, 'j'},
                                            {"plot", 1, NULL, 'p'},    {"help", 0, NULL, 'h'},
                                            {"step-ms", 1, NULL, 'S'}, {"batch-size", 1, NULL, 'b'},
                                            {"threads", 1, NULL, 't'}, {NULL, 0, NULL, 0}};
    bool is_good = true;
    long long n = 0;
    for (int c; is_good && (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        switch (c) {
        case 'o':
            is_good = cli_ops(optarg, &p->stream);
            break;
        case 'n':
            is_good = cli_number("--samples", optarg, 1, MAX_SAMPLES, &p->n_samples);
            break;
        case 's':
            is_good = cli_seed(optarg, &p->stream.loader.seed);
            break;
        case 'S':
            is_good = device_parse(optarg, &p->job.device);
            break;
        case 'b':
            is_good = cli_number("--batch-size", optarg, 1, 65536, &n);
            p->job.batch_size = (int)n;
            break;
        case 't':
            is_good = cli_number("--threads", optarg, 1, PEN_MAX_WORKERS, &n);
            p->job.n_threads = (int)n;
            break;
        case 'j':
            p->json = optarg;
            break;
        case 'p':
            is_good = parse_plot(optarg, p);
            break;
        case 'h':
            help();
            return EXIT_OK;
        default:
            is_good = false;
        }
    }
    return is_good && cli_has_dataset(argc, "profile") ? -1 : EXIT_USAGE;
}

/* ---- measuring ---- */

/* Room for as many samples as are wanted and there. */
static bool make_room(const profile *p, const cli_open *open, const pen_profiler *profiler,
                      profile_data *data)
{
    pen_profile_point points[PEN_PROFILE_MAX_POINTS];
    const int64_t count = pen_dataset_count(open->ds);
    const size_t n_points = pen_profiler_count(profiler);
    for (size_t i = 0; i < n_points; i++)
        points[i] = pen_profiler_point(profiler, i);
    if (profile_data_init(data, points, n_points,
                          (size_t)(count < p->n_samples ? count : p->n_samples)))
        return true;
    cli_complain("out of memory");
    return false;
}

typedef struct failures {
    long long n;
    pen_error first;
} failures;

/* Samples whose data is at fault are counted; anything else ends it. */
static int measure_all(const profile *p, const cli_open *open, pen_profiler *profiler,
                       profile_data *data, failures *failed, pen_error *err)
{
    const pen_order order = {.kind = PEN_ORDER_SHUFFLE,
                             .seed = p->stream.loader.seed,
                             .count = pen_dataset_count(open->ds)};
    pen_profile_sample sample;
    for (size_t i = 0; i < data->cap; i++) {
        const pen_key key = {.seed = order.seed, .sample = pen_order_at(&order, 0, (int64_t)i)};
        const int rc = pen_profiler_measure(profiler, &key, &sample, err);
        if (rc != 0 && !pen_error_is_data(rc))
            return rc;
        if (rc == 0)
            profile_data_add(data, key.sample, &sample);
        else if (failed->n++ == 0)
            failed->first = *err;
        if (cli_is_interrupted()) {
            snprintf(err->text, sizeof err->text, "interrupted");
            return PEN_ECANCELED;
        }
        cli_progress("profiling", (long long)i + 1, (long long)data->cap);
    }
    return 0;
}

static bool measure(const profile *p, const cli_open *open, pen_profiler *profiler,
                    profile_data *data, long long *n_failed)
{
    failures failed = {0};
    pen_error err;
    const int rc = measure_all(p, open, profiler, data, &failed, &err);
    cli_progress("profiling", 1, 1);
    *n_failed = failed.n;
    if (rc)
        cli_complain("%s", err.text);
    else if (data->n == 0)
        cli_complain("no sample can be decoded; the first: %s", failed.first.text);
    else if (failed.n > 0)
        cli_complain("%lld of %zu samples cannot be decoded and are left out; the first: %s",
                     failed.n, data->cap, failed.first.text);
    return rc == 0 && data->n > 0;
}

/* ---- telling ---- */

/* Said before all is measured rather than after.  What is there stays until then. */
static bool may_write(const char *path)
{
    char text[PATH_MAX];
    struct stat st;
    if (!path || strcmp(path, "-") == 0)
        return true;
    snprintf(text, sizeof text, "%s", path);
    const bool is_directory = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (!is_directory &&
        (access(path, W_OK) == 0 || (errno == ENOENT && access(dirname(text), W_OK) == 0)))
        return true;
    cli_complain("cannot write %s: %s", path, strerror(is_directory ? EISDIR : errno));
    return false;
}

static void print_json(FILE *out, const void *subject)
{
    profile_print_json(out, subject);
}

static void print_svg(FILE *out, const void *subject)
{
    profile_print_svg(out, subject);
}

static bool tell(const profile *p, const profile_subject *subject)
{
    const bool is_piped = p->json && strcmp(p->json, "-") == 0;
    if (is_piped)
        profile_print_json(stdout, subject);
    else
        profile_print_text(stdout, subject);
    return (!p->json || is_piped || cli_write_file(p->json, print_json, subject)) &&
           (!p->plot || cli_write_file(p->plot, print_svg, subject));
}

/* Figures of samples, and what they say. */
static bool find_out(const profile *p, const cli_open *open, pen_profiler *profiler,
                     profile_data *data, profile_stats *stats, long long *n_failed)
{
    if (!make_room(p, open, profiler, data) || !measure(p, open, profiler, data, n_failed))
        return false;
    if (profile_stats_make(stats, data))
        return true;
    cli_complain("out of memory");
    return false;
}

static bool find_out_and_tell(const profile *p, const char *spec, const cli_open *open,
                              pen_profiler *profiler)
{
    static profile_stats stats;
    profile_data data = {0};
    profile_stage stage;
    const bool has_job = p->job.device.mean_ms > 0;
    profile_subject subject = {.spec = spec,
                               .ops = p->stream.ops,
                               .ds = open->ds,
                               .pipe = open->pipe,
                               .seed = p->stream.loader.seed,
                               .data = &data,
                               .stats = &stats,
                               .stage = has_job ? &stage : NULL};
    pen_error err;
    if (pen_profile_find_kept(&subject.kept, open->ds, open->pipe, &err) != 0) {
        cli_complain("%s", err.text);
        return false;
    }
    bool is_good = (!has_job || profile_stage_run(&stage, &p->job, open->ds)) &&
                   find_out(p, open, profiler, &data, &stats, &subject.n_failed);
    if (is_good && has_job)
        profile_stage_finish(&stage, &p->job, &data, &stats);
    is_good = is_good && tell(p, &subject);
    profile_data_fini(&data);
    return is_good;
}

static int run(const profile *p, const char *spec)
{
    cli_open open = {0};
    pen_profiler *profiler = NULL;
    pen_error err;
    bool is_good = cli_open_dataset(&open, spec) && cli_open_pipeline(&open, &p->stream);
    if (is_good && pen_profiler_create(&profiler, open.ds, open.pipe, &err) != 0) {
        cli_complain("%s", err.text);
        is_good = false;
    }
    is_good = is_good && find_out_and_tell(p, spec, &open, profiler);
    pen_profiler_free(profiler);
    cli_close(&open);
    return is_good ? EXIT_OK : EXIT_FAILED;
}

/* That we may use: by affinity, and by the quota of our control group. */
static int count_cores(void)
{
    static pen_machine machine = PEN_MACHINE_INIT;
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    pen_sampler_opts opts;
    pen_sampler *sampler = NULL;
    pen_sampler_opts_init(&opts);
    opts.use_gpus = false;
    if (pen_sampler_create(&sampler, &opts, NULL) == 0 &&
        pen_sampler_read(sampler, &machine) == 0 && machine.cgroup.cpu_quota_cores < n)
        n = machine.cgroup.cpu_quota_cores < 1 ? 1 : (int)ceil(machine.cgroup.cpu_quota_cores);
    pen_sampler_free(sampler);
    return n;
}

int cmd_profile(int argc, char **argv)
{
    profile p = {.n_samples = DEFAULT_SAMPLES,
                 .job = {.batch_size = 64, .n_threads = count_cores()}};
    cli_stream_init(&p.stream);
    int code = parse(&p, argc, argv);
    p.job.seed = p.stream.loader.seed;
    if (code < 0 && !(may_write(p.json) && may_write(p.plot)))
        code = EXIT_FAILED;
    return code >= 0 ? code : run(&p, argv[optind]);
}
