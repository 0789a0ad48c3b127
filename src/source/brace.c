/* brace.c - brace expansion by rewriting.
 *
 * The first brace of a pattern is replaced by each of its parts in turn, and the
 * result is expanded again; a pattern without braces is a path.  Every rewriting
 * step has one brace less and leads to at least one path, so the work is bounded
 * by the paths times MAX_BRACES.
 */
#include "source/brace.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "source/grow.h"
#include "source/names.h"

#define MAX_BRACES 32
#define MAX_DIGITS 9

typedef struct range {
    long from, to;
    int width;
} range;

static int expand(pen__paths *paths, const char *pattern, pen_error *err);

static int malformed(const char *pattern, const char *what, pen_error *err)
{
    pen__shown shown;
    return pen__fail(err, PEN_EINVAL, -1, "'%s': %s (write {000..146} or {a,b})",
                     pen__show(&shown, pattern, strlen(pattern)), what);
}

static int add_path(pen__paths *paths, const char *path, pen_error *err)
{
    if (paths->n >= PEN__BRACE_MAX)
        return pen__fail(err, PEN_ELIMIT, -1, "the braces stand for more than %d paths",
                         PEN__BRACE_MAX);
    char **items = pen__grow(paths->items, &paths->cap, paths->n + 1, sizeof *items);
    if (items)
        paths->items = items;
    char *copy = items ? pen__strdup(path) : NULL;
    if (!copy)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory after %zu paths", paths->n);
    items[paths->n++] = copy;
    return 0;
}

/* The '}' that belongs to the '{' at `open`, or NULL. */
static const char *closing(const char *open)
{
    int depth = 0;
    for (const char *p = open; *p; p++) {
        depth += (*p == '{') - (*p == '}');
        if (depth == 0)
            return p;
    }
    return NULL;
}

/* Digits from *p up to `end` or a dot. */
static bool parse_number(const char **p, const char *end, long *value, int *width)
{
    const char *from = *p;
    *value = 0;
    while (*p < end && **p >= '0' && **p <= '9')
        *value = *p - from < MAX_DIGITS ? *value * 10 + (*(*p)++ - '0') : (++*p, LONG_MAX);
    int n = (int)(*p - from);
    if (n > 1 && *from == '0' && n > *width)
        *width = n;
    return n > 0 && n <= MAX_DIGITS;
}

/* "000..146" */
static bool parse_range(const char *p, const char *end, range *out)
{
    *out = (range){0};
    if (!parse_number(&p, end, &out->from, &out->width) || end - p < 2 || memcmp(p, "..", 2) != 0)
        return false;
    p += 2;
    return parse_number(&p, end, &out->to, &out->width) && p == end;
}

/* Expand head + part + tail. */
static int expand_with(pen__paths *paths, const char *pattern, const char *open, const char *close,
                       const char *part, size_t part_len, pen_error *err)
{
    size_t head = (size_t)(open - pattern), tail = strlen(close + 1);
    char *text = pen__malloc(head + part_len + tail + 1);
    if (!text)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory after %zu paths", paths->n);
    memcpy(text, pattern, head);
    memcpy(text + head, part, part_len);
    memcpy(text + head + part_len, close + 1, tail + 1);
    int rc = expand(paths, text, err);
    pen__free(text);
    return rc;
}

static int expand_range(pen__paths *paths, const char *pattern, const char *open, const char *close,
                        const range *numbers, pen_error *err)
{
    long step = numbers->from <= numbers->to ? 1 : -1;
    for (long i = numbers->from;; i += step) {
        char part[MAX_DIGITS + 2];
        int len = snprintf(part, sizeof part, "%0*ld", numbers->width, i);
        int rc = expand_with(paths, pattern, open, close, part, (size_t)len, err);
        if (rc != 0 || i == numbers->to)
            return rc;
    }
}

static int expand_list(pen__paths *paths, const char *pattern, const char *open, const char *close,
                       pen_error *err)
{
    int depth = 0, n_commas = 0;
    const char *part = open + 1;
    for (const char *p = part; p <= close; p++) {
        depth += (*p == '{') - (p < close && *p == '}');
        bool is_end = p == close;
        if (depth > 0 || !(is_end || *p == ','))
            continue;
        if (is_end && n_commas == 0)
            return malformed(pattern, "braces with neither a range nor a comma in them", err);
        n_commas++;
        int rc = expand_with(paths, pattern, open, close, part, (size_t)(p - part), err);
        if (rc != 0)
            return rc;
        part = p + 1;
    }
    return 0;
}

static int expand(pen__paths *paths, const char *pattern, pen_error *err)
{
    const char *open = strchr(pattern, '{');
    if (!open)
        return strchr(pattern, '}') ? malformed(pattern, "a '}' without its '{'", err)
                                    : add_path(paths, pattern, err);
    const char *close = closing(open);
    if (!close)
        return malformed(pattern, "a '{' without its '}'", err);
    range numbers;
    if (parse_range(open + 1, close, &numbers))
        return expand_range(paths, pattern, open, close, &numbers, err);
    return expand_list(paths, pattern, open, close, err);
}

int pen__brace_expand(pen__paths *paths, const char *pattern, pen_error *err)
{
    int n_braces = 0;
    for (const char *p = pattern; *p; p++)
        n_braces += *p == '{';
    if (n_braces > MAX_BRACES)
        return pen__fail(err, PEN_ELIMIT, -1, "%d braces in one pattern: the limit is %d", n_braces,
                         MAX_BRACES);
    return expand(paths, pattern, err);
}

void pen__paths_fini(pen__paths *paths)
{
    for (size_t i = 0; i < paths->n; i++)
        pen__free(paths->items[i]);
    pen__free(paths->items);
    memset(paths, 0, sizeof *paths);
}
