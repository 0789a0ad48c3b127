/* manifest.h - rows of a manifest, whatever its syntax. */
#ifndef PEN_SOURCE_MANIFEST_H
#define PEN_SOURCE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

typedef struct pen__row {
    int64_t line; /* where it begins, from 1 */
    const char *path;
    size_t path_len;
    const char *label; /* NULL: none */
    size_t label_len;
    bool is_text; /* the label was written as a string (JSON): a word on purpose */
} pen__row;

/* Gets each row; another answer than 0 ends the parsing with it. */
typedef int (*pen__row_sink)(void *ctx, const pen__row *row, pen_error *err);

/* Both take the whole text; neither reads past text+len.  PEN_ECORRUPT and PEN_ELIMIT name
 * the line.
 *
 * CSV is RFC 4180: commas, optional double quotes, LF or CRLF, a byte order mark, blanks
 * around unquoted fields dropped (quote what needs them).  A first row that has a column
 * "path" is a header and may name more columns, in any order; without one, rows are
 * path or path,label.  Unescapes in place. */
int pen__csv_parse(char *text, size_t len, pen__row_sink sink, void *ctx, pen_error *err);
/* One object a line: {"path": "a/b.jpg", "label": 3}, the label an integer, a string or null;
 * other names are ignored. */
int pen__jsonl_parse(const char *text, size_t len, pen__row_sink sink, void *ctx, pen_error *err);

#endif
