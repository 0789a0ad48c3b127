/* jsonl.c - one JSON object a line, by jansson. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "source/manifest.h"

#define MAX_LINE_BYTES (1 << 20)
#define MAX_DEPTH      64 /* of brackets: the parser recurses */

/* Brackets outside strings never nest deeper than MAX_DEPTH? */
static bool is_shallow(const char *text, size_t len)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        if (in_string) {
            in_string = text[i] != '"';
            i += text[i] == '\\';
            continue;
        }
        in_string = text[i] == '"';
        depth += (text[i] == '{' || text[i] == '[') - (text[i] == '}' || text[i] == ']');
        if (depth > MAX_DEPTH)
            return false;
    }
    return true;
}

static int bad(int64_t line, const char *what, pen_error *err)
{
    return pen__fail(err, PEN_ECORRUPT, -1, "line %lld: %s", (long long)line, what);
}

static int give_object(const json_t *object, int64_t line, pen__row_sink sink, void *ctx,
                       pen_error *err)
{
    const json_t *path = json_object_get(object, "path");
    const json_t *label = json_object_get(object, "label");
    if (!json_is_string(path))
        return bad(line, "no \"path\" that is a string", err);
    pen__row row = {
        .line = line, .path = json_string_value(path), .path_len = json_string_length(path)};
    char number[32];
    if (json_is_integer(label)) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(label));
        row.label = number;
        row.label_len = strlen(number);
    } else if (json_is_string(label)) {
        row.label = json_string_value(label);
        row.label_len = json_string_length(label);
        row.is_text = true;
    } else if (label && !json_is_null(label)) {
        return bad(line, "a \"label\" that is neither an integer, a string nor null", err);
    }
    return sink(ctx, &row, err);
}

static int parse_line(const char *text, size_t len, int64_t line, pen__row_sink sink, void *ctx,
                      pen_error *err)
{
    if (len > MAX_LINE_BYTES)
        return pen__fail(err, PEN_ELIMIT, -1, "line %lld: more than %d bytes", (long long)line,
                         MAX_LINE_BYTES);
    if (!is_shallow(text, len))
        return pen__fail(err, PEN_ELIMIT, -1, "line %lld: nested deeper than %d", (long long)line,
                         MAX_DEPTH);
    json_error_t reason;
    json_t *object = json_loadb(text, len, JSON_REJECT_DUPLICATES, &reason);
    int rc;
    if (!object)
        rc = pen__fail(err, PEN_ECORRUPT, -1, "line %lld: no valid JSON: %s", (long long)line,
                       reason.text);
    else if (!json_is_object(object))
        rc = bad(line, "no JSON object", err);
    else
        rc = give_object(object, line, sink, ctx, err);
    json_decref(object);
    return rc;
}

static bool is_blank(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return false;
    return true;
}

int pen__jsonl_parse(const char *text, size_t len, pen__row_sink sink, void *ctx, pen_error *err)
{
    const char *end = text + len;
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        text += 3;
    for (int64_t line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((stop ? stop : end) - text);
        int rc = is_blank(text, n) ? 0 : parse_line(text, n, line, sink, ctx, err);
        if (rc != 0)
            return rc;
        text += n + (stop ? 1 : 0);
    }
    return 0;
}
