/* cmd_info.c - penstock info: what a dataset holds, and what in it will fail.
 *
 * Names and sizes come from the index; formats and faults from decoding samples:
 * up to 1,000 spread evenly, or as many as --check says.
 */
#include "cli.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static void help(void)
{
    puts("usage: penstock info DATASET [OPTIONS]\n\n"
         "Counts, sizes, formats, the class table, and which samples will fail.\n\n"
         "  --check N          decode N samples spread evenly (default 1000; 'all'; 0: none)\n"
         "  --classes          print the whole class table\n"
         "  --json             one JSON object");
}

enum { MAX_FAULTS = 10, SHOWN_CLASSES = 12 };

typedef struct fault {
    int64_t id;
    pen_error error;
} fault;

typedef struct info {
    bool as_json, all_classes;
    long long n_check; /* -1: all */
    int64_t n_checked, n_failed;
    int64_t by_format[PEN_FORMAT_COUNT];
    int64_t n_grey, n_cmyk, n_alpha, n_progressive, n_turned, n_deep, n_animated;
    int64_t by_sampling[3]; /* none, 4:2:0, other */
    double width_sum, height_sum;
    int32_t min_side, max_side;
    fault faults[MAX_FAULTS];
} info;

static void count_image(info *t, const pen_image_info *im)
{
    t->by_format[im->format]++;
    t->n_grey += im->is_grey;
    t->n_cmyk += im->format == PEN_FORMAT_JPEG && im->channels == 4;
    t->n_alpha += im->format != PEN_FORMAT_JPEG && (im->channels == 4 || im->channels == 2);
    t->n_progressive += im->is_progressive;
    t->n_turned += im->orientation != 1;
    t->n_deep += im->bits > 8;
    t->n_animated += im->is_animated;
    if (im->format == PEN_FORMAT_JPEG && !im->is_grey)
        t->by_sampling[im->sampling_h == 1 && im->sampling_v == 1   ? 0
                       : im->sampling_h == 2 && im->sampling_v == 2 ? 1
                                                                    : 2]++;
    t->width_sum += im->width;
    t->height_sum += im->height;
    int32_t shorter = im->width < im->height ? im->width : im->height;
    int32_t longer = im->width < im->height ? im->height : im->width;
    if (t->min_side == 0 || shorter < t->min_side)
        t->min_side = shorter;
    if (longer > t->max_side)
        t->max_side = longer;
}

/* Grow *buf to at least n bytes. */
static bool grow(uint8_t **buf, size_t *cap, size_t n)
{
    if (n <= *cap)
        return true;
    uint8_t *more = realloc(*buf, n);
    if (!more)
        return false;
    *buf = more;
    *cap = n;
    return true;
}

typedef struct buffers {
    uint8_t *file, *pixels;
    size_t file_cap, pixels_cap;
} buffers;

static int check_one(info *t, const pen_dataset *ds, int64_t id, buffers *b, pen_error *err)
{
    int64_t len = pen_dataset_length(ds, id);
    if (!grow(&b->file, &b->file_cap, (size_t)len + 1))
        return err->code = PEN_ENOMEM;
    int64_t n = pen_dataset_read(ds, id, b->file, b->file_cap, err);
    if (n < 0)
        return (int)n;
    pen_image_info im;
    int rc = pen_image_probe(b->file, (size_t)n, &im, err);
    if (rc)
        return rc;
    count_image(t, &im);
    size_t n_pixels = (size_t)im.width * (size_t)im.height * 3;
    if (!grow(&b->pixels, &b->pixels_cap, n_pixels))
        return err->code = PEN_ENOMEM;
    int64_t got = pen_image_decode(b->file, (size_t)n, 0, 0, im.width, im.height, 3, b->pixels,
                                   b->pixels_cap, err);
    return got < 0 ? (int)got : 0;
}

static void check(info *t, const pen_dataset *ds)
{
    int64_t count = pen_dataset_count(ds);
    int64_t n = t->n_check < 0 || t->n_check > count ? count : t->n_check;
    buffers b = {0};
    for (int64_t i = 0; i < n && !cli_is_interrupted(); i++) {
        int64_t id = (int64_t)((double)i * (double)count / (double)n);
        pen_error err = {.offset = -1};
        int rc = check_one(t, ds, id, &b, &err);
        t->n_checked++;
        if (rc) {
            if (t->n_failed < MAX_FAULTS)
                t->faults[t->n_failed] = (fault){id, err};
            t->n_failed++;
        }
        cli_progress("decoding", i + 1, n);
    }
    cli_progress("decoding", 1, 1);
    free(b.file);
    free(b.pixels);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Smallest, median and largest sample. */
static bool size_range(const pen_dataset *ds, int64_t out[3])
{
    int64_t n = pen_dataset_count(ds);
    int64_t *sizes = malloc((size_t)n * sizeof *sizes);
    if (!sizes)
        return false;
    for (int64_t i = 0; i < n; i++)
        sizes[i] = pen_dataset_length(ds, i);
    qsort(sizes, (size_t)n, sizeof *sizes, by_value);
    out[0] = sizes[0];
    out[1] = sizes[n / 2];
    out[2] = sizes[n - 1];
    free(sizes);
    return true;
}

static int64_t *count_classes(const pen_dataset *ds)
{
    int64_t n_classes = pen_dataset_class_count(ds);
    int64_t *counts = calloc((size_t)n_classes + 1, sizeof *counts);
    for (int64_t i = 0; counts && i < pen_dataset_count(ds); i++) {
        int64_t label = pen_dataset_label(ds, i);
        if (label >= 0 && label < n_classes)
            counts[label]++;
    }
    return counts;
}

static void print_classes(const info *t, const pen_dataset *ds)
{
    int64_t n = pen_dataset_class_count(ds);
    if (n == 0) {
        printf("classes    no names (labels as given, or 0 in a flat folder)\n");
        return;
    }
    int64_t *counts = count_classes(ds);
    int64_t shown = t->all_classes || n <= SHOWN_CLASSES ? n : SHOWN_CLASSES;
    printf("classes    %lld\n", (long long)n);
    for (int64_t c = 0; counts && c < shown; c++) {
        char name[64];
        snprintf(name, sizeof name, "%s", pen_dataset_class_name(ds, c));
        printf("  %5lld  %-32s %8lld\n", (long long)c, cli_printable(name), (long long)counts[c]);
    }
    if (shown < n)
        printf("  ... %lld more (--classes)\n", (long long)(n - shown));
    free(counts);
}

static void print_detail(const char *name, int64_t n)
{
    if (n)
        printf(", %lld %s", (long long)n, name);
}

static void print_checked(const info *t, const pen_dataset *ds)
{
    if (t->n_checked == 0)
        return;
    int64_t n_known = 0;
    printf("formats   ");
    for (int f = PEN_FORMAT_JPEG; f < PEN_FORMAT_COUNT; f++) {
        n_known += t->by_format[f];
        if (t->by_format[f])
            printf("%s %lld %s", n_known > t->by_format[f] ? "," : "", (long long)t->by_format[f],
                   pen_format_name((pen_format)f));
    }
    print_detail("grey", t->n_grey);
    print_detail("4:4:4", t->by_sampling[0]);
    print_detail("4:2:0", t->by_sampling[1]);
    print_detail("otherwise subsampled", t->by_sampling[2]);
    print_detail("progressive", t->n_progressive);
    print_detail("CMYK", t->n_cmyk);
    print_detail("with alpha", t->n_alpha);
    print_detail("of more than 8 bits", t->n_deep);
    print_detail("animated (first frame counts)", t->n_animated);
    print_detail("turned by EXIF", t->n_turned);
    printf("\n");
    if (n_known)
        printf("pixels     %.0fx%.0f on average, sides from %d to %d\n",
               t->width_sum / (double)n_known, t->height_sum / (double)n_known, t->min_side,
               t->max_side);
    printf("checked    %lld of %lld: %lld decode, %lld fail\n", (long long)t->n_checked,
           (long long)pen_dataset_count(ds), (long long)(t->n_checked - t->n_failed),
           (long long)t->n_failed);
    for (int64_t i = 0; i < t->n_failed && i < MAX_FAULTS; i++) {
        char key[PEN_KEY_MAX];
        pen_error error = t->faults[i].error;
        if (pen_dataset_key(ds, t->faults[i].id, key, sizeof key) < 0)
            key[0] = '\0';
        printf("  fails    %s: %s\n", cli_printable(key), cli_printable(error.text));
    }
    if (t->n_failed > MAX_FAULTS)
        printf("  fails    ... and %lld more\n", (long long)(t->n_failed - MAX_FAULTS));
}

/* What loaders have found out about JPEG files so far. */
static void print_jpeg_index(const pen_dataset *ds)
{
    char a[32];
    int64_t n_samples, n_bytes;
    pen_dataset_jpeg_index(ds, &n_samples, &n_bytes);
    if (n_samples == 0)
        printf("jpeg index none yet: the first epoch writes it\n");
    else
        printf("jpeg index %lld samples (%.0f %%), %s, %.1f %% of the dataset\n",
               (long long)n_samples, 100.0 * (double)n_samples / (double)pen_dataset_count(ds),
               cli_bytes(a, (double)n_bytes),
               100.0 * (double)n_bytes / (double)pen_dataset_bytes(ds));
}

static void print_text(const info *t, const char *spec, const pen_dataset *ds,
                       const int64_t sizes[3])
{
    char a[32], b[32], c[32], d[32];
    int64_t n = pen_dataset_count(ds);
    printf("dataset    %s (%s)\n", spec, pen_source_kind_name(pen_dataset_kind(ds)));
    printf("samples    %lld, %s in all\n", (long long)n,
           cli_bytes(a, (double)pen_dataset_bytes(ds)));
    printf("sizes      %s smallest, %s median, %s mean, %s largest\n",
           cli_bytes(a, (double)sizes[0]), cli_bytes(b, (double)sizes[1]),
           cli_bytes(c, (double)pen_dataset_bytes(ds) / (double)n), cli_bytes(d, (double)sizes[2]));
    printf("identity   %s\n", pen_dataset_hash(ds));
    printf("index      %.0f bytes a sample beside its name\n",
           (double)pen_dataset_index_bytes(ds) / (double)n);
    print_jpeg_index(ds);
    print_checked(t, ds);
    print_classes(t, ds);
}

static void print_json(const info *t, const char *spec, const pen_dataset *ds,
                       const int64_t sizes[3])
{
    printf("{\"dataset\":");
    cli_json_string(stdout, spec);
    printf(",\"kind\":\"%s\",\"samples\":%lld,\"bytes\":%lld,\"smallest\":%lld,\"median\":%lld,"
           "\"largest\":%lld,\"identity\":\"%s\",\"classes\":%lld,\"checked\":%lld,\"failed\":%lld",
           pen_source_kind_name(pen_dataset_kind(ds)), (long long)pen_dataset_count(ds),
           (long long)pen_dataset_bytes(ds), (long long)sizes[0], (long long)sizes[1],
           (long long)sizes[2], pen_dataset_hash(ds), (long long)pen_dataset_class_count(ds),
           (long long)t->n_checked, (long long)t->n_failed);
    int64_t n_samples, n_bytes;
    pen_dataset_jpeg_index(ds, &n_samples, &n_bytes);
    printf(",\"jpeg_index\":{\"samples\":%lld,\"bytes\":%lld},\"formats\":{", (long long)n_samples,
           (long long)n_bytes);
    for (int f = PEN_FORMAT_JPEG; f < PEN_FORMAT_COUNT; f++)
        printf("%s\"%s\":%lld", f > PEN_FORMAT_JPEG ? "," : "", pen_format_name((pen_format)f),
               (long long)t->by_format[f]);
    printf("},\"grey\":%lld,\"progressive\":%lld,\"cmyk\":%lld,\"alpha\":%lld,\"faults\":[",
           (long long)t->n_grey, (long long)t->n_progressive, (long long)t->n_cmyk,
           (long long)t->n_alpha);
    for (int64_t i = 0; i < t->n_failed && i < MAX_FAULTS; i++) {
        char key[PEN_KEY_MAX];
        if (pen_dataset_key(ds, t->faults[i].id, key, sizeof key) < 0)
            key[0] = '\0';
        printf("%s{\"key\":", i ? "," : "");
        cli_json_string(stdout, key);
        printf(",\"code\":\"%s\",\"reason\":", pen_error_name(t->faults[i].error.code));
        cli_json_string(stdout, t->faults[i].error.text);
        printf("}");
    }
    printf("]}\n");
}

/* Exit code, or -1 to go on. */
static int parse(info *t, int argc, char **argv)
{
    static const struct option options[] = {{"check", 1, NULL, 'c'},
                                            {"classes", 0, NULL, 'l'},
                                            {"json", 0, NULL, 'j'},
                                            {"help", 0, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (c == 'h') {
            help();
            return EXIT_OK;
        }
        if (c == 'c' && strcmp(optarg, "all") == 0)
            t->n_check = -1;
        else if (c == 'c' && !cli_number("--check", optarg, 0, INT64_MAX, &t->n_check))
            return EXIT_USAGE;
        else if (c == '?')
            return EXIT_USAGE;
        t->all_classes |= c == 'l';
        t->as_json |= c == 'j';
    }
    return cli_has_dataset(argc, "info") ? -1 : EXIT_USAGE;
}

int cmd_info(int argc, char **argv)
{
    static info t = {.n_check = 1000};
    int code = parse(&t, argc, argv);
    if (code >= 0)
        return code;
    const char *spec = argv[optind];
    cli_open open = {0};
    int64_t sizes[3] = {0};
    code = EXIT_FAILED;
    if (cli_open_dataset(&open, spec) && size_range(open.ds, sizes)) {
        check(&t, open.ds);
        (t.as_json ? print_json : print_text)(&t, spec, open.ds, sizes);
        code = cli_is_interrupted() || t.n_failed ? EXIT_FAILED : EXIT_OK;
    }
    cli_close(&open);
    return code;
}
