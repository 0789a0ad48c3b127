/* cli_util.c - opening, numbers, progress, JSON: the small change of commands. */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static const float imagenet_mean[3] = {0.485F, 0.456F, 0.406F};
static const float imagenet_std[3] = {0.229F, 0.224F, 0.225F};

/* What cli_progress has written on stderr stands on a line that has no end yet. */
static bool has_open_line;

static void erase_open_line(void)
{
    if (has_open_line)
        fputs("\r\033[K", stderr);
    has_open_line = false;
}

void cli_complain(const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    erase_open_line();
    fprintf(stderr, "penstock: %s\n", cli_printable(text));
}

bool cli_number(const char *option, const char *text, long long min, long long max, long long *out)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (errno || end == text || *end || *out < min || *out > max) {
        cli_complain("%s takes a whole number from %lld to %lld, not '%s'", option, min, max, text);
        return false;
    }
    return true;
}

/* Bytes of one "K", "MB", "GiB"; 0 for anything else. */
static double unit_bytes(const char *unit)
{
    static const char prefixes[] = "KMGT";
    if (!*unit || strcasecmp(unit, "B") == 0)
        return 1;
    const char *prefix = strchr(prefixes, *unit & ~0x20);
    bool is_binary = strcasecmp(unit + 1, "iB") == 0;
    if (!prefix || !(is_binary || strcasecmp(unit + 1, "B") == 0 || !unit[1]))
        return 0;
    double bytes = 1;
    for (const char *p = prefixes; p <= prefix; p++)
        bytes *= is_binary ? 1024 : 1000;
    return bytes;
}

bool cli_memory(const char *option, const char *text, int64_t *out)
{
    char *end;
    double n = *text >= '0' && *text <= '9' ? strtod(text, &end) : 0;
    double bytes = n > 0 ? n * unit_bytes(end) : 0;
    if (!(bytes >= 1 && bytes < 0x1p62)) {
        cli_complain("%s takes bytes or text such as 2GiB, not '%s'", option, text);
        return false;
    }
    *out = (int64_t)bytes;
    return true;
}

bool cli_seed(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-') {
        cli_complain("--seed takes a whole number from 0 to 2^64-1, not '%s'", text);
        return false;
    }
    return true;
}

bool cli_ops(const char *text, cli_stream *stream)
{
    if (strcmp(text, "imagenet-train") != 0 && strcmp(text, "imagenet-val") != 0) {
        cli_complain("--ops is imagenet-train or imagenet-val, not '%s'", text);
        return false;
    }
    stream->ops = text;
    return true;
}

void cli_stream_init(cli_stream *stream)
{
    stream->ops = "imagenet-train";
    pen_loader_opts_init(&stream->loader);
    stream->loader.batch_size = 64;
    stream->loader.order = PEN_ORDER_SHUFFLE;
}

static int show_progress(void *ctx, int64_t done, int64_t total)
{
    (void)ctx;
    cli_progress("indexing", done, total);
    return cli_is_interrupted();
}

bool cli_has_dataset(int argc, const char *command)
{
    if (optind == argc - 1)
        return true;
    cli_complain("%s takes one DATASET; see penstock %s --help", command, command);
    return false;
}

static int stop_waiting(void *ctx)
{
    (void)ctx;
    return cli_is_interrupted();
}

bool cli_open_dataset(cli_open *open, const char *spec)
{
    pen_error err;
    pen_dataset_opts opts;
    pen_dataset_opts_init(&opts);
    opts.progress = show_progress;
    opts.waiting = stop_waiting;
    const int rc = pen_dataset_open(&open->ds, spec, &opts, &err);
    erase_open_line(); /* opening tells of no end where it does not know how much there is */
    if (rc)
        cli_complain("%s", err.text);
    return rc == 0;
}

static int make_pipeline(pen_pipeline **out, const char *name, pen_error *err)
{
    pen_op train[] = {pen_op_random_resized_crop(224, 224), pen_op_hflip(0.5F), pen_op_to_tensor(),
                      pen_op_normalize(imagenet_mean, imagenet_std, 3)};
    pen_op val[] = {pen_op_resize(256), pen_op_center_crop(224, 224), pen_op_to_tensor(),
                    pen_op_normalize(imagenet_mean, imagenet_std, 3)};
    const pen_op *ops = strcmp(name, "imagenet-val") == 0 ? val : train;
    return pen_pipeline_create(out, ops, 4, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, err);
}

bool cli_open_pipeline(cli_open *open, const cli_stream *stream)
{
    pen_error err;
    if (make_pipeline(&open->pipe, stream->ops, &err) == 0)
        return true;
    cli_complain("%s", err.text);
    return false;
}

bool cli_open_loader(cli_open *open, const cli_stream *stream)
{
    pen_error err;
    if (!cli_open_pipeline(open, stream))
        return false;
    if (pen_loader_create(&open->loader, open->ds, open->pipe, &stream->loader, &err) == 0)
        return true;
    cli_complain("%s", err.text);
    return false;
}

void cli_close(cli_open *open)
{
    pen_loader_free(open->loader);
    pen_pipeline_unref(open->pipe);
    pen_dataset_unref(open->ds);
}

void cli_progress(const char *what, long long done, long long total)
{
    static double last;
    if (!isatty(STDERR_FILENO))
        return;
    bool is_end = total > 0 && done >= total;
    double now = cli_seconds();
    if (!is_end && now - last < 0.1)
        return;
    last = now;
    if (is_end) {
        erase_open_line();
        return;
    }
    has_open_line = true;
    if (total <= 0) {
        fprintf(stderr, "\r%s: %lld", what, done);
        return;
    }
    char bar[31];
    int filled = (int)(30 * done / total);
    memset(bar, '.', 30);
    memset(bar, '#', (size_t)filled);
    bar[30] = '\0';
    fprintf(stderr, "\r%s [%s] %lld/%lld", what, bar, done, total);
}

const char *cli_bytes(char buf[32], double n)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int unit = 0;
    while (n >= 1000 && unit < 4) {
        n /= 1000;
        unit++;
    }
    snprintf(buf, 32, unit && n < 10 ? "%.1f %s" : "%.0f %s", n, units[unit]);
    return buf;
}

/* Bytes of the valid UTF-8 sequence at p, 0 if there is none. */
static int utf8_length(const unsigned char *p)
{
    int n = *p < 0x80 ? 1 : *p >= 0xC2 && *p < 0xE0 ? 2 : *p >= 0xE0 && *p < 0xF0 ? 3 : 0;
    n = *p >= 0xF0 && *p < 0xF5 ? 4 : n;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    bool is_overlong = (*p == 0xE0 && p[1] < 0xA0) || (*p == 0xF0 && p[1] < 0x90);
    bool is_outside = (*p == 0xED && p[1] >= 0xA0) || (*p == 0xF4 && p[1] >= 0x90);
    return is_overlong || is_outside ? 0 : n;
}

char *cli_printable(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p;) {
        int n = utf8_length(p);
        bool is_control = *p < 0x20 || *p == 0x7F || (*p == 0xC2 && n == 2 && p[1] < 0xA0);
        if (n == 0 || is_control)
            *p = '?';
        p += n && !is_control ? n : 1;
    }
    return text;
}

void cli_json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        int n = utf8_length(p);
        if (n == 0)
            fputs("\\ufffd", out);
        else if (*p < 0x20 || *p == '"' || *p == '\\' || *p == 0x7F)
            fprintf(out, "\\u%04x", *p);
        else
            fwrite(p, 1, (size_t)n, out);
        p += n ? n : 1;
    }
    fputc('"', out);
}

double cli_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* The next one ends the program the usual way. */
static const struct sigaction stopping = {.sa_handler = on_interrupt,
                                          .sa_flags = (int)SA_RESETHAND};

void cli_stop_on(int number)
{
    struct sigaction was;
    if (sigaction(number, NULL, &was) == 0 && was.sa_handler != SIG_IGN)
        sigaction(number, &stopping, NULL);
}

bool cli_is_interrupted(void)
{
    static bool is_installed;
    if (!is_installed) {
        sigaction(SIGINT, &stopping, NULL);
        is_installed = true;
    }
    return interrupted != 0;
}
