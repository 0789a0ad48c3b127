/* csv.c - RFC 4180, in one pass over the text. */
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "source/manifest.h"

#define MAX_COLUMNS 256

typedef struct field {
    char *text;
    size_t len;
} field;

typedef struct csv {
    char *at, *end;
    int64_t line;     /* of `at` */
    int64_t row_line; /* where the current row begins */
    field fields[MAX_COLUMNS];
    size_t n;
    size_t n_columns; /* of every row; 0 until the first */
    size_t path_column, label_column;
    pen_error *err;
} csv;

static int bad(const csv *c, int64_t line, const char *what)
{
    return pen__fail(c->err, PEN_ECORRUPT, -1, "line %lld: %s", (long long)line, what);
}

static bool at_field_end(const csv *c)
{
    return c->at == c->end || *c->at == ',' || *c->at == '\n' ||
           (*c->at == '\r' && (c->at + 1 == c->end || c->at[1] == '\n'));
}

/* Behind the opening quote.  A doubled quote is one; the text is moved together in place. */
static int quoted_field(csv *c, field *out)
{
    char *to = c->at;
    out->text = to;
    for (; c->at < c->end; *to++ = *c->at++) {
        if (*c->at == '"' && (++c->at == c->end || *c->at != '"')) {
            out->len = (size_t)(to - out->text);
            while (!at_field_end(c) && (*c->at == ' ' || *c->at == '\t'))
                c->at++;
            return at_field_end(c) ? 0 : bad(c, c->line, "text after a closing quote");
        }
        c->line += *c->at == '\n';
    }
    return bad(c, c->row_line, "a quote that is never closed");
}

static int plain_field(csv *c, field *out)
{
    out->text = c->at;
    while (!at_field_end(c)) {
        if (*c->at == '"')
            return bad(c, c->line, "a quote inside a field: quote the field and double it");
        c->at++;
    }
    char *to = c->at;
    while (to > out->text && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    out->len = (size_t)(to - out->text);
    return 0;
}

/* Fields up to the end of the row; moves behind the line end. */
static int read_row(csv *c)
{
    c->row_line = c->line;
    for (c->n = 0;; c->at++) {
        if (c->n == MAX_COLUMNS)
            return bad(c, c->row_line, "more than 256 columns");
        while (c->at < c->end && (*c->at == ' ' || *c->at == '\t'))
            c->at++;
        bool is_quoted = c->at < c->end && *c->at == '"';
        c->at += is_quoted;
        field *next = &c->fields[c->n++];
        int rc = is_quoted ? quoted_field(c, next) : plain_field(c, next);
        if (rc != 0)
            return rc;
        if (c->at == c->end || *c->at != ',')
            break;
    }
    if (c->at < c->end && *c->at == '\r')
        c->at++;
    if (c->at < c->end) {
        c->at++;
        c->line++;
    }
    return 0;
}

static size_t find_column(const csv *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->fields[i].len == strlen(name) &&
            strncasecmp(c->fields[i].text, name, c->fields[i].len) == 0)
            return i;
    return SIZE_MAX;
}

/* Learn the columns from the first row.  *is_header: it holds names, not a sample. */
static int learn_columns(csv *c, bool *is_header)
{
    c->n_columns = c->n;
    c->path_column = find_column(c, "path");
    c->label_column = find_column(c, "label");
    *is_header = c->path_column != SIZE_MAX;
    if (*is_header)
        return 0;
    if (c->n > 2)
        return bad(c, c->row_line, "more than two columns: a header must name 'path' and 'label'");
    c->path_column = 0;
    c->label_column = c->n == 2 ? 1 : SIZE_MAX;
    return 0;
}

static int give_row(csv *c, pen__row_sink sink, void *ctx)
{
    if (c->n != c->n_columns)
        return pen__fail(c->err, PEN_ECORRUPT, -1, "line %lld: %zu columns instead of %zu",
                         (long long)c->row_line, c->n, c->n_columns);
    pen__row row = {.line = c->row_line,
                    .path = c->fields[c->path_column].text,
                    .path_len = c->fields[c->path_column].len};
    if (c->label_column != SIZE_MAX && c->fields[c->label_column].len > 0) {
        row.label = c->fields[c->label_column].text;
        row.label_len = c->fields[c->label_column].len;
    }
    return sink(ctx, &row, c->err);
}

int pen__csv_parse(char *text, size_t len, pen__row_sink sink, void *ctx, pen_error *err)
{
    csv c = {.at = text, .end = text + len, .line = 1, .err = err};
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        c.at += 3;
    while (c.at < c.end) {
        int rc = read_row(&c);
        if (rc != 0)
            return rc;
        if (c.n == 1 && c.fields[0].len == 0)
            continue; /* a blank line */
        bool is_header = false;
        if (c.n_columns == 0)
            rc = learn_columns(&c, &is_header);
        if (rc == 0 && !is_header)
            rc = give_row(&c, sink, ctx);
        if (rc != 0)
            return rc;
    }
    return 0;
}
