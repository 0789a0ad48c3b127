/* node_request.c - paths, headers and bodies of requests.  See node_request.h. */
#include "remote/node_request.h"

#include <jansson.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "base/text.h"
#include "source/names.h"

/* What random numbers are drawn for has 40 bits: base/rng.h. */
#define MAX_ID (((int64_t)1 << 40) - 1)

static const char name_characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                      "0123456789._-";

/* ---- words and numbers ---- */

bool pen__node_name_is_valid(const char *name)
{
    const size_t len = strlen(name);
    return len > 0 && len < PEN__NODE_NAME && strspn(name, name_characters) == len &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

bool pen__hash_is_valid(const char *text)
{
    return strlen(text) == PEN__DIGEST_TEXT - 1 &&
           strspn(text, "0123456789abcdef") == PEN__DIGEST_TEXT - 1;
}

/* Of the `len` bytes at text. */
static bool parse_digits(const char *text, size_t len, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    if (len == 0 || len > 20)
        return false;
    for (size_t i = 0; i < len; i++) {
        const unsigned digit = (unsigned char)text[i] - (unsigned)'0';
        if (digit > 9 || value > (max - digit) / 10 || digit > max)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

bool pen__decimal_parse(const char *text, uint64_t max, uint64_t *out)
{
    return parse_digits(text, strlen(text), max, out);
}

/* ---- paths ---- */

/* What follows `prefix`, or NULL. */
static const char *after(const char *text, const char *prefix)
{
    const size_t n = strlen(prefix);
    return strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

/* A field beside the image; PEN_FIELD_IMAGE: there is none of that name. */
static pen_field field_named(const char *name)
{
    int field = PEN_FIELD_COUNT - 1;
    while (field > PEN_FIELD_IMAGE && strcmp(name, pen_field_name((pen_field)field)) != 0)
        field--;
    return (pen_field)field;
}

/* "ID", "ID/FIELD". */
static bool parse_sample(const char *path, pen__route *out)
{
    const size_t n = strcspn(path, "/");
    uint64_t number;
    if (!parse_digits(path, n, INT64_MAX, &number))
        return false;
    out->id = (int64_t)number;
    if (!path[n])
        return true;
    out->field = field_named(path + n + 1);
    return out->field != PEN_FIELD_IMAGE;
}

/* "NAME", "NAME/manifest", "NAME/samples", and samples. */
static pen__route_kind parse_data(const char *path, pen__route *out)
{
    const size_t n = strcspn(path, "/");
    const char *rest = path + n, *sample;
    if (n >= sizeof out->name)
        return PEN__ROUTE_NONE;
    memcpy(out->name, path, n);
    out->name[n] = '\0';
    if (!pen__node_name_is_valid(out->name))
        return PEN__ROUTE_NONE;
    if (!*rest)
        return PEN__ROUTE_DATASET;
    if (strcmp(rest, "/manifest") == 0)
        return PEN__ROUTE_MANIFEST;
    if (strcmp(rest, "/samples") == 0)
        return PEN__ROUTE_SAMPLES;
    sample = after(rest, "/samples/");
    return sample && parse_sample(sample, out) ? PEN__ROUTE_SAMPLE : PEN__ROUTE_NONE;
}

static pen__route_kind parse_path(const char *path, pen__route *out)
{
    const char *rest;
    if (strcmp(path, "/healthz") == 0)
        return PEN__ROUTE_HEALTH;
    if (strcmp(path, "/metrics") == 0)
        return PEN__ROUTE_METRICS;
    if (strcmp(path, "/v1") == 0)
        return PEN__ROUTE_ROOT;
    if ((rest = after(path, "/v1/data/")))
        return parse_data(rest, out);
    if ((rest = after(path, "/v1/pipelines/")) && pen__hash_is_valid(rest)) {
        memcpy(out->hash, rest, sizeof out->hash);
        return PEN__ROUTE_PIPELINE;
    }
    return PEN__ROUTE_NONE;
}

pen__route_kind pen__route_parse(const char *path, pen__route *out)
{
    memset(out, 0, sizeof *out);
    out->kind = parse_path(path, out);
    return out->kind;
}

/* ---- headers ---- */

/* A place in a file; one beyond 64 bits is as far as can be. */
static bool parse_place(const char *text, size_t len, uint64_t *out)
{
    if (len == 0 || strspn(text, "0123456789") < len)
        return false;
    const size_t n_zeros = strspn(text, "0");
    const size_t skip = n_zeros < len ? n_zeros : len - 1;
    if (!parse_digits(text + skip, len - skip, UINT64_MAX, out))
        *out = UINT64_MAX;
    return true;
}

pen__range_kind pen__range_parse(const char *text, uint64_t length, uint64_t *from, uint64_t *to)
{
    static const char unit[] = "bytes="; /* in any case: RFC 9110 */
    const bool is_ours = text && strncasecmp(text, unit, sizeof unit - 1) == 0;
    const char *first = is_ours ? text + sizeof unit - 1 : NULL;
    const char *dash = first ? strchr(first, '-') : NULL;
    uint64_t a = 0, b = 0;
    *from = 0;
    *to = length;
    if (!dash)
        return PEN__RANGE_WHOLE;
    const bool has_a = dash > first, has_b = dash[1] != '\0';
    if ((has_a && !parse_place(first, (size_t)(dash - first), &a)) ||
        (has_b && !parse_place(dash + 1, strlen(dash + 1), &b)) || (!has_a && !has_b) ||
        (has_a && has_b && b < a))
        return PEN__RANGE_WHOLE;
    if (!has_a) { /* the last b bytes */
        *from = b < length ? length - b : 0;
        return b > 0 && length > 0 ? PEN__RANGE_PART : PEN__RANGE_OUTSIDE;
    }
    if (a >= length)
        return PEN__RANGE_OUTSIDE;
    *from = a;
    if (has_b && b < length - 1)
        *to = b + 1;
    return PEN__RANGE_PART;
}

/* The next member of a list with commas, without the spaces around it; NULL: no more. */
static const char *next_member(const char **at, size_t *len)
{
    const char *p = *at + strspn(*at, " \t,");
    if (!*p)
        return NULL;
    size_t n = strcspn(p, ",");
    *at = p + n;
    while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
        n--;
    *len = n;
    return p;
}

bool pen__etag_is_in(const char *header, const char *etag)
{
    size_t n;
    for (const char *p; header && (p = next_member(&header, &n));) {
        if (n == 1 && *p == '*')
            return true;
        if (n > 2 && p[0] == 'W' && p[1] == '/') { /* compared as if it were strong: RFC 9110 */
            p += 2;
            n -= 2;
        }
        if (n == strlen(etag) && memcmp(p, etag, n) == 0)
            return true;
    }
    return false;
}

/* "q=0", "q=0.000": not wanted.  `p` is what follows the name. */
static bool has_weight(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && (p[i] == ';' || p[i] == ' ' || p[i] == '\t'))
        i++;
    if (i + 2 > n || (p[i] | 0x20) != 'q' || p[i + 1] != '=')
        return true;
    for (i += 2; i < n; i++)
        if (p[i] != '0' && p[i] != '.')
            return true;
    return false;
}

bool pen__accepts_zstd(const char *header)
{
    size_t n;
    for (const char *p; header && (p = next_member(&header, &n));)
        if (n >= 4 && strncasecmp(p, "zstd", 4) == 0 && (n == 4 || strchr("; \t", p[4])))
            return has_weight(p + 4, n - 4);
    return false;
}

bool pen__token_is_right(const char *header, const char *token)
{
    static const char scheme[] = "Bearer ";
    if (!header || strncasecmp(header, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *given = header + sizeof scheme - 1;
    const size_t n_given = strlen(given), n = strlen(token);
    /* Every byte that was given is looked at, whatever those before it were: the time tells how
     * long the guess is, which who guesses knows. */
    volatile unsigned difference = n_given != n;
    for (size_t i = 0; i < n_given; i++)
        difference |= (unsigned)(unsigned char)given[i] ^ (unsigned char)token[n ? i % n : 0];
    return difference == 0 && n > 0;
}

/* ---- bodies ---- */

static int refuse(pen_error *err, const char *what, const char *wanted)
{
    return pen__fail(err, PEN_EINVAL, -1, "'%s' must be %s", what, wanted);
}

/* One of an item's numbers. */
static bool get_number(const json_t *item, size_t i, json_int_t max, json_int_t *out)
{
    const json_t *value = json_array_get(item, i);
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= 0 && *out <= max;
}

/* [id, "json", forms] */
static bool read_field_item(const json_t *item, json_int_t max_id, pen__node_item *out)
{
    json_int_t id, forms;
    const char *name = json_string_value(json_array_get(item, 1));
    if (json_array_size(item) != 3 || !get_number(item, 0, max_id, &id) || !name ||
        !get_number(item, 2, UINT32_MAX, &forms))
        return false;
    *out = (pen__node_item){.field = field_named(name), .id = id, .forms = (uint32_t)forms};
    return out->field != PEN_FIELD_IMAGE;
}

/* `max_id`: what the base leaves. */
static int read_item(const json_t *item, int index, json_int_t max_id, pen__node_item *out,
                     pen_error *err)
{
    json_int_t id, epoch, occurrence, max_cut, forms;
    if (json_is_array(item) && read_field_item(item, max_id, out))
        return 0;
    if (!json_is_array(item) || json_array_size(item) != 5 || !get_number(item, 0, max_id, &id) ||
        !get_number(item, 1, UINT32_MAX, &epoch) || !get_number(item, 2, UINT16_MAX, &occurrence) ||
        !get_number(item, 3, 255, &max_cut) || !get_number(item, 4, UINT32_MAX, &forms))
        return pen__fail(err, PEN_EINVAL, -1,
                         "item %d is neither [id, epoch, occurrence, max_cut, forms] nor [id, "
                         "field, forms], within range",
                         index);
    *out = (pen__node_item){.id = id,
                            .epoch = epoch,
                            .occurrence = (int32_t)occurrence,
                            .max_cut = (int32_t)max_cut,
                            .forms = (uint32_t)forms};
    return 0;
}

static int read_items(pen__node_order *out, const json_t *items, pen_error *err)
{
    const size_t n = json_array_size(items);
    if (!json_is_array(items) || n == 0)
        return refuse(err, "items", "a list of one item or more");
    if (n > PEN__NODE_MAX_ITEMS)
        return pen__fail(err, PEN_ELIMIT, -1, "%zu items: more than %d", n, PEN__NODE_MAX_ITEMS);
    for (size_t i = 0; i < n; i++) {
        int rc =
            read_item(json_array_get(items, i), (int)i, MAX_ID - out->base, &out->items[i], err);
        if (rc)
            return rc;
    }
    out->n_items = (int)n;
    return 0;
}

/* A hash, or nothing where that is allowed. */
static int read_hash(const json_t *value, const char *name, char out[PEN__DIGEST_TEXT],
                     pen_error *err)
{
    const char *text = json_string_value(value);
    if (!value || json_is_null(value))
        return 0;
    if (!text || !pen__hash_is_valid(text))
        return refuse(err, name, "32 hex digits or null");
    memcpy(out, text, PEN__DIGEST_TEXT);
    return 0;
}

static int read_base(const json_t *value, int64_t *out, pen_error *err)
{
    *out = json_integer_value(value);
    if (!value || (json_is_integer(value) && *out >= 0 && *out <= MAX_ID))
        return 0;
    return refuse(err, "base", "a whole number from 0, below 2^40");
}

static int read_job(const json_t *value, uint64_t *out, pen_error *err)
{
    const char *text = json_string_value(value);
    if (!value || (text && pen__decimal_parse(text, UINT64_MAX, out)))
        return 0;
    return refuse(err, "job", "a decimal number below 2^64, as text");
}

static int read_order(pen__node_order *out, const json_t *root, pen_error *err)
{
    const char *seed = json_string_value(json_object_get(root, "seed"));
    if (!json_is_object(root))
        return pen__fail(err, PEN_EINVAL, -1, "the body must be a JSON object");
    if (!json_object_get(root, "pipeline"))
        return refuse(err, "pipeline", "32 hex digits or null");
    if (!seed || !pen__decimal_parse(seed, UINT64_MAX, &out->seed))
        return refuse(err, "seed", "a decimal number below 2^64, as text");
    int rc = read_hash(json_object_get(root, "pipeline"), "pipeline", out->pipeline, err);
    if (rc == 0)
        rc = read_hash(json_object_get(root, "hash"), "hash", out->dataset, err);
    if (rc == 0)
        rc = read_base(json_object_get(root, "base"), &out->base, err);
    if (rc == 0)
        rc = read_job(json_object_get(root, "job"), &out->job, err);
    if (rc == 0)
        rc = read_items(out, json_object_get(root, "items"), err);
    return rc;
}

int pen__node_order_parse(pen__node_order *out, const char *text, size_t len, pen_error *err)
{
    memset(out, 0, sizeof *out);
    if (len > PEN__NODE_MAX_BODY)
        return pen__fail(err, PEN_ELIMIT, -1, "a body of %zu bytes: more than %d", len,
                         PEN__NODE_MAX_BODY);
    enum { MAX_VALUES = 8 * PEN__NODE_MAX_ITEMS };
    if (pen__text_count_values(text, len) > MAX_VALUES)
        return pen__fail(err, PEN_ELIMIT, -1, "more values than %d items have",
                         PEN__NODE_MAX_ITEMS);
    json_error_t why;
    pen__shown shown;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        return pen__fail(err, PEN_EINVAL, -1, "no JSON: %s",
                         pen__show(&shown, why.text, strlen(why.text)));
    int rc = read_order(out, root, err);
    json_decref(root);
    return rc;
}
