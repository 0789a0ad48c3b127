/* top_frame.c - a status as a page of text. */
#include "top.h"

#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BAR_MIN = 10, BAR_MAX = 40, MAX_DECISIONS = 6, MAX_SPARKS = 60, MAX_LOADERS = 16 };

/* ---- reading ---- */

/* NaN for what is not there, or no number. */
static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* A copy that is fit for a terminal; "" for what is no text. */
static const char *text(const json_t *object, const char *key, char *dst, size_t dst_cap)
{
    const char *value = json_string_value(json_object_get(object, key));
    snprintf(dst, dst_cap, "%s", value ? value : "");
    return cli_printable(dst);
}

/* The same loader in an earlier status. */
static const json_t *same_loader(const json_t *before, const json_t *loader)
{
    const json_t *one, *list = json_object_get(before, "loaders");
    size_t i;
    json_array_foreach(list, i, one) if (number(one, "loader") ==
                                         number(loader, "loader")) return number(one, "time_ns") <
            number(loader, "time_ns")
        ? one
        : NULL;
    return NULL;
}

bool top_has_moved(const json_t *status, const json_t *before)
{
    const json_t *one, *list = json_object_get(status, "loaders");
    size_t i;
    json_array_foreach(list, i, one) if (same_loader(before, one)) return true;
    return false;
}

static const json_t *stage_of(const json_t *loader, const char *stage)
{
    return json_object_get(json_object_get(loader, "stages"), stage);
}

/* How much a counter grew: since `before`, or at all. */
static double growth(const json_t *now, const json_t *before, const char *key)
{
    return number(now, key) - (before ? number(before, key) : 0);
}

static double stage_growth(const json_t *now, const json_t *before, const char *stage)
{
    return growth(stage_of(now, stage), before ? stage_of(before, stage) : NULL, "total_s");
}

/* Seconds that rates are over. */
static double span(const json_t *now, const json_t *before)
{
    if (before)
        return growth(now, before, "time_ns") * 1e-9;
    return stage_growth(now, NULL, "wait") + stage_growth(now, NULL, "step");
}

/* ---- writing ---- */

static void put_count(FILE *out, double value)
{
    if (!isfinite(value))
        fputs("-", out);
    else
        fprintf(out, "%.*f", value < 10 && value != floor(value) ? 1 : 0, value);
}

static void put_bytes(FILE *out, double value)
{
    char buf[32];
    fputs(value >= 0 && value < 1e18 ? cli_bytes(buf, value) : "-", out);
}

/* 0.012 -> " 12.0 ms", nine columns. */
static void put_time(FILE *out, double s)
{
    if (!(s >= 0 && s < 1e9))
        fprintf(out, "%9s", "-");
    else if (s < 1e-3)
        fprintf(out, "%6.0f us", s * 1e6);
    else if (s < 1)
        fprintf(out, "%6.1f ms", s * 1e3);
    else
        fprintf(out, "%6.1f s ", s);
}

static void put_bar(FILE *out, double share, int width, top_style style)
{
    static const char *const parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const double level = share > 0 ? fmin(share, 1) * width : 0; /* NaN: 0 */
    int full = (int)level, used = full;
    for (int i = 0; i < full; i++)
        fputs(style.is_utf8 ? "█" : "#", out);
    if (style.is_utf8 && full < width) {
        const char *part = parts[(int)((level - full) * 8)];
        fputs(part, out);
        used += *part != '\0';
    }
    fprintf(out, "%*s", width - used, "");
}

static void put_percent(FILE *out, double share)
{
    if (isfinite(share))
        fprintf(out, "%3.0f %%", 100 * fmin(fmax(share, 0), 9.99));
    else
        fputs("  - %", out);
}

static void put_spark(FILE *out, const json_t *shares, int columns, top_style style)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    size_t n = json_array_size(shares), most = columns < MAX_SPARKS ? (size_t)columns : MAX_SPARKS;
    for (size_t i = n > most ? n - most : 0; i < n; i++) {
        const json_t *value = json_array_get(shares, i);
        double share = json_is_number(value) ? json_number_value(value) : 0;
        share = share > 0 ? fmin(share, 1) : 0;
        if (style.is_utf8)
            fputs(blocks[(int)(share * 7.999)], out);
        else
            fputc('0' + (int)(share * 9.999), out);
    }
}

/* ---- parts of a frame ---- */

static int bar_width(top_style style, int beside)
{
    const int width = style.columns - beside;
    return width < BAR_MIN ? BAR_MIN : width > BAR_MAX ? BAR_MAX : width;
}

static void draw_waiting(FILE *out, const json_t *now, const json_t *before, top_style style)
{
    const double seconds = span(now, before);
    /* Of the caller's time; the first batch says nothing about the rest. */
    const double waited = before ? growth(now, before, "wait_s")
                                 : stage_growth(now, NULL, "wait") - number(now, "first_batch_s");
    const double whole = before ? seconds : seconds - number(now, "first_batch_s");
    fputs("waiting  ", out);
    put_percent(out, whole > 0 ? fmin(fmax(waited / whole, 0), 1) : (double)NAN);
    fputs("  ", out);
    put_spark(out, json_object_get(now, "wait_shares"), style.columns - 24, style);
    fputs("\nflow     ", out);
    put_count(out, growth(now, before, "batches") / seconds);
    fputs(" batches/s, ", out);
    put_count(out, growth(now, before, "samples") / seconds);
    fputs(" samples/s, ", out);
    put_bytes(out, growth(now, before, "bytes_in") / seconds);
    fputs("/s read; ", out);
    put_count(out, number(now, "batches"));
    fputs(" batches, ", out);
    put_count(out, number(now, "bad_samples"));
    fputs(" bad samples\nqueue    ", out);
    put_count(out, number(now, "ready_batches"));
    fputs(" ready of ", out);
    put_count(out, number(now, "open_batches"));
    fputs(" open; ", out);
    put_count(out, number(now, "samples_in_flight"));
    fputs(" samples in hand, ", out);
    put_count(out, number(now, "samples_shelved"));
    fputs(" read ahead\n", out);
}

static void draw_memory(FILE *out, const json_t *now, top_style style)
{
    const double used = number(now, "budget_used"), budget = number(now, "budget_bytes");
    fputs("memory   ", out);
    put_bar(out, used / budget, bar_width(style, 50), style);
    fputs(" ", out);
    put_bytes(out, used);
    fputs(" of ", out);
    put_bytes(out, budget);
    fputs(", peak ", out);
    put_bytes(out, number(now, "budget_peak"));
    fputs("\n", out);
}

static void draw_row(FILE *out, const char *name, const json_t *stage)
{
    fprintf(out, "%-8s", name);
    put_time(out, number(stage, "mean_s"));
    put_time(out, number(stage, "p50_s"));
    put_time(out, number(stage, "p95_s"));
    put_time(out, number(stage, "p99_s"));
}

/* What there is to tell of a loader's time: of its threads, or of its worker processes. */
typedef struct stage_names {
    const char *title;
    const char *work[4]; /* parts of the time of whoever works; up to a NULL */
    const char *rest[3];
} stage_names;

static const stage_names *names_of(const json_t *loader)
{
    static const stage_names threads = {
        "threads'", {"read", "decode", "augment", "tensor"}, {"batch", "wait", "step"}};
    static const stage_names processes = {
        "workers'", {"compute", "queue", "sleep", NULL}, {"make", "wait", "step"}};
    return stage_of(loader, "make") ? &processes : &threads;
}

static void draw_stages(FILE *out, const json_t *now, const json_t *before, top_style style)
{
    const stage_names *names = names_of(now);
    double spent[5], sum = 0;
    int n = 0;
    for (; n < 4 && names->work[n]; n++)
        sum += spent[n] = stage_growth(now, before, names->work[n]);
    sum += spent[n] = growth(now, before, "idle_s");
    fprintf(out, "\nstage        mean      p50      p95      p99   of the %s time\n", names->title);
    for (int i = 0; i <= n; i++) {
        draw_row(out, i < n ? names->work[i] : "(idle)",
                 i < n ? stage_of(now, names->work[i]) : NULL);
        fputs("   ", out);
        put_bar(out, spent[i] / sum, bar_width(style, 56), style);
        put_percent(out, spent[i] / sum);
        fputs("\n", out);
    }
    for (int i = 0; i < 3; i++) {
        draw_row(out, names->rest[i], stage_of(now, names->rest[i]));
        fputs("\n", out);
    }
}

/* Does the line tell anything?  A local dataset has no storage nodes, and shares of 0 are none. */
static bool is_shown(const char *name, const json_t *knob)
{
    const bool is_set = number(knob, "value") != 0 || json_is_true(json_object_get(knob, "pinned"));
    return number(knob, "min") != number(knob, "max") &&
           (is_set || strncmp(name, "share_", strlen("share_")) != 0);
}

static void draw_knobs(FILE *out, const json_t *now)
{
    const json_t *knobs = json_object_get(now, "knobs"), *knob;
    const char *key;
    fputs("\nknob              value   range\n", out);
    json_object_foreach((json_t *)(uintptr_t)knobs, key, knob)
    {
        char name[20], unit[16];
        const double value = number(knob, "value"), min = number(knob, "min"),
                     max = number(knob, "max");
        if (!is_shown(key, knob))
            continue;
        snprintf(name, sizeof name, "%.19s", key);
        fprintf(out, "%-16s %6.4g   %.4g to %.4g %s", cli_printable(name), value, min, max,
                text(knob, "unit", unit, sizeof unit));
        fputs(json_is_true(json_object_get(knob, "pinned")) ? " (pinned)\n" : "\n", out);
    }
}

static void draw_decisions(FILE *out, const json_t *now)
{
    const json_t *list = json_object_get(now, "decisions");
    const size_t n = json_array_size(list);
    char policy[40], reason[256];
    fprintf(out, "\npolicy   %s", text(now, "policy", policy, sizeof policy));
    text(now, "reason", reason, sizeof reason);
    fprintf(out, "%s%s\n", *reason ? ": " : "", reason);
    for (size_t i = n > MAX_DECISIONS ? n - MAX_DECISIONS : 0; i < n; i++) {
        const json_t *one = json_array_get(list, i), *pair;
        const json_t *changed = json_object_get(one, "changed");
        const char *key;
        fprintf(out, "%6.0f s ago  ", (number(now, "time_ns") - number(one, "time_ns")) * 1e-9);
        json_object_foreach((json_t *)(uintptr_t)changed, key, pair)
        {
            char name[20];
            snprintf(name, sizeof name, "%.19s", key);
            fprintf(out, "%s %.4g to %.4g; ", cli_printable(name),
                    json_number_value(json_array_get(pair, 0)),
                    json_number_value(json_array_get(pair, 1)));
        }
        fprintf(out, "%s\n", text(one, "reason", reason, sizeof reason));
    }
}

/* Words behind a heading of 9 columns, in as many lines as they take. */
static void put_wrapped(FILE *out, const char *heading, const char *words, int columns)
{
    enum { INDENT = 9 };
    const size_t room = columns > 2 * INDENT ? (size_t)(columns - INDENT) : INDENT;
    do {
        size_t n = strlen(words);
        if (n > room) {
            for (n = room; n > 0 && words[n] != ' '; n--)
                ;
            for (n = n > 0 ? n : room; n > 1 && ((unsigned char)words[n] & 0xC0) == 0x80; n--)
                ; /* not within a character */
        }
        fprintf(out, "%-*s%.*s\n", INDENT, heading, (int)n, words);
        words += n + (words[n] == ' ');
        heading = "";
    } while (*words);
}

/* What changes most comes first: a small terminal has room for no more. */
static void draw_loader(FILE *out, const json_t *now, const json_t *before, top_style style)
{
    char verdict[600];
    draw_waiting(out, now, before, style);
    draw_memory(out, now, style);
    put_wrapped(out, "verdict", text(now, "verdict", verdict, sizeof verdict), style.columns);
    draw_stages(out, now, before, style);
    draw_decisions(out, now);
    draw_knobs(out, now);
}

void top_frame(FILE *out, const json_t *status, const json_t *before, top_style style)
{
    const json_t *list = json_object_get(status, "loaders"), *loader;
    const size_t n = json_array_size(list);
    char version[24];
    size_t i;
    fprintf(out, "penstock %s, process %.0f, %zu loader%s\n",
            text(status, "version", version, sizeof version), number(status, "pid"), n,
            n == 1 ? "" : "s");
    json_array_foreach(list, i, loader)
    {
        if (i == MAX_LOADERS) {
            fprintf(out, "\n... and %zu more\n", n - i);
            break;
        }
        if (n > 1)
            fprintf(out, "\nloader %.0f\n", number(loader, "loader"));
        draw_loader(out, loader, same_loader(before, loader), style);
    }
}
