/* profile_svg.c - a profile as a picture, written by hand: no library, no fonts but the viewer's.
 *
 *     sizes after each operation (logarithmic)  |  where samples are smallest
 *     bytes saved a CPU second: a histogram     |  what a storage node sends
 */
#include <math.h>

#include "cli.h"
#include "profile_report.h"

enum { WIDTH = 960, TOP = 70, ROW = 22, LEFT = 250, SIZES = 430, LOWER = 220, MARGIN = 20 };

static const char dark[] = "#1b4965", light[] = "#8fb8d0", accent[] = "#ca6702", grid[] = "#dddddd";

typedef struct place {
    double x, y;
} place;

/* ---- elements ---- */

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        default:
            fputc(*text, out);
        }
}

/* anchor: "start", "middle", "end". */
static void put_text(FILE *out, place at, const char *anchor, const char *style, const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", at.x, at.y, anchor,
            style);
    put_escaped(out, text);
    fputs("</text>\n", out);
}

static void put_box(FILE *out, place at, double w, double h, const char *colour)
{
    fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", at.x,
            at.y, fmax(w, 0), fmax(h, 0), colour);
}

static void put_line(FILE *out, place from, place to, const char *colour)
{
    fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", from.x,
            from.y, to.x, to.y, colour);
}

/* ---- sizes, and where samples are smallest ---- */

/* Whole powers of ten around all sizes. */
static void find_decades(const profile_subject *subject, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < subject->data->n_points; i++) {
        const profile_row *row = &subject->stats->rows[i];
        if (row->n == 0)
            continue;
        *low = fmin(*low, floor(log10(fmax(row->p10, 1))));
        *high = fmax(*high, ceil(log10(fmax(row->p90, 1))));
    }
    if (!(*high > *low))
        *high = *low + 1;
}

static double x_of(double bytes, double low, double high)
{
    return LEFT + SIZES * (log10(fmax(bytes, 1)) - low) / (high - low);
}

static void put_size_row(FILE *out, const profile_subject *subject, size_t point, double y,
                         double low, double high)
{
    const profile_row *row = &subject->stats->rows[point];
    const double x10 = x_of(row->p10, low, high), x50 = x_of(row->p50, low, high),
                 x90 = x_of(row->p90, low, high);
    const double share = (double)row->n_smallest / (double)subject->data->n;
    const double right = LEFT + SIZES + 90;
    char name[96], size[32], text[48];
    snprintf(name, sizeof name, "%s %s", profile_after(subject, point),
             pen_profile_form_name(subject->data->points[point].form));
    put_text(out, (place){LEFT - 10, y + 15}, "end", "label", name);
    put_box(out, (place){x10, y + 5}, fmax(x90 - x10, 2), ROW - 10, light);
    put_box(out, (place){x50 - 1.5, y + 2}, 3, ROW - 4, dark);
    put_text(out, (place){fmax(x90, x50) + 6, y + 15}, "start", "small", cli_bytes(size, row->p50));
    put_box(out, (place){right, y + 5}, share * 110, ROW - 10, accent);
    snprintf(text, sizeof text, "%.1f %%", 100 * share);
    put_text(out, (place){right + share * 110 + 6, y + 15}, "start", "small", text);
}

/* Returns where it ends. */
static double put_sizes(FILE *out, const profile_subject *subject)
{
    double low, high, y = TOP;
    size_t n_rows = 0;
    find_decades(subject, &low, &high);
    for (size_t i = 0; i < subject->data->n_points; i++)
        n_rows += subject->stats->rows[i].n > 0;
    const double bottom = TOP + (double)n_rows * ROW;
    put_text(out, (place){LEFT, TOP - 12}, "start", "title",
             "Bytes after each operation: middle, and 10 % to 90 %");
    put_text(out, (place){LEFT + SIZES + 90, TOP - 12}, "start", "title", "Smallest here");
    for (double decade = low; decade <= high; decade++) {
        char text[32];
        const double x = x_of(pow(10, decade), low, high);
        put_line(out, (place){x, TOP}, (place){x, bottom}, grid);
        put_text(out, (place){x, bottom + 14}, "middle", "small", cli_bytes(text, pow(10, decade)));
    }
    for (size_t i = 0; i < subject->data->n_points; i++) {
        if (subject->stats->rows[i].n == 0)
            continue;
        put_size_row(out, subject, i, y, low, high);
        y += ROW;
    }
    return bottom + 14;
}

/* ---- savings ---- */

static void put_savings(FILE *out, const profile_stats *s, double top)
{
    const double left = 60, width = 500, bottom = top + LOWER - 50;
    int first = PROFILE_BINS, last = -1;
    size_t most = 1;
    for (int i = 0; i < PROFILE_BINS; i++) {
        if (s->bins[i].n == 0)
            continue;
        first = i < first ? i : first;
        last = i;
        most = s->bins[i].n > most ? s->bins[i].n : most;
    }
    put_text(out, (place){left, top - 12}, "start", "title",
             "Samples by bytes saved a second of storage CPU");
    put_line(out, (place){left, bottom}, (place){left + width, bottom}, dark);
    const double step = width / fmax(last - first + 1, 1);
    for (int i = first; i <= last; i++) {
        char from[32], text[48];
        const double x = left + step * (i - first);
        const double height = (bottom - top - 16) * (double)s->bins[i].n / (double)most;
        put_box(out, (place){x + 2, bottom - height}, step - 4, height, light);
        snprintf(text, sizeof text, "%zu", s->bins[i].n);
        put_text(out, (place){x + step / 2, bottom - height - 4}, "middle", "small", text);
        put_text(out, (place){x, bottom + 14}, "middle", "small", cli_bytes(from, s->bins[i].from));
    }
    char text[96];
    snprintf(text, sizeof text, "each bar: from the size below it to twice that; %zu save nothing",
             s->n_unsaved);
    put_text(out, (place){left, bottom + 32}, "start", "small", text);
}

static void put_total(FILE *out, const profile_stats *s, double y, const char *what,
                      const profile_total *total)
{
    const double left = 620, width = 200, share = total->bytes / s->files.bytes;
    char bytes[32], text[96];
    put_text(out, (place){left, y}, "start", "label", what);
    put_box(out, (place){left, y + 6}, width * share, 14, dark);
    snprintf(text, sizeof text, "%s, %.3f", cli_bytes(bytes, total->bytes), share);
    put_text(out, (place){left + width * share + 6, y + 18}, "start", "small", text);
}

void profile_print_svg(FILE *out, const profile_subject *subject)
{
    const profile_stats *s = subject->stats;
    size_t n_rows = 0;
    for (size_t i = 0; i < subject->data->n_points; i++)
        n_rows += s->rows[i].n > 0;
    const double height = TOP + (double)n_rows * ROW + 60 + LOWER + MARGIN;
    char heading[160];
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\">\n<style>.title{font-size:13px;"
            "font-weight:bold}.label{font-size:12px}.small{font-size:11px;fill:#444}</style>\n",
            WIDTH, height, WIDTH, height);
    put_box(out, (place){0, 0}, WIDTH, height, "#ffffff");
    snprintf(heading, sizeof heading, "%zu of %lld samples, %s: sizes on the way to a tensor",
             subject->data->n, (long long)pen_dataset_count(subject->ds), subject->ops);
    put_text(out, (place){MARGIN, 28}, "start", "title", heading);
    const double top = put_sizes(out, subject) + 46;
    put_savings(out, s, top);
    put_text(out, (place){620, top - 12}, "start", "title", "What a storage node sends");
    put_total(out, s, top + 12, "files", &s->files);
    put_total(out, s, top + 60, "SOPHON's rule: pixels or file", &s->sophon);
    put_total(out, s, top + 108, "the smallest exact form", &s->sent);
    fputs("</svg>\n", out);
}
