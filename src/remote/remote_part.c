/* remote_part.c - from descriptions and pages to a dataset's index.
 *
 * A key is taken as the server gives it: its last component is the entry's name and stem in one,
 * so nothing of it is ever cut off or added to, and keys, ids and identity come out as they are on
 * the server, whatever kind of source it has.
 */
#include "remote/remote_part.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/text.h"
#include "remote/node_request.h"
#include "remote/remote_page.h"
#include "source/grow.h"
#include "source/names.h"
#include "telemetry/limits.h"

enum {
    MEMORY_PART = 4,   /* of the memory there is, the most that parts take */
    VALUE_BYTES = 256, /* that jansson takes for one, at most: an empty object */
    SEAL = 24,         /* , "crc32c": "01234567"}\n */
};

int64_t pen__parts_max_bytes(void)
{
    return pen__limit_memory() / MEMORY_PART;
}

void pen__part_fini(pen__part *part)
{
    pen__index_fini(&part->index);
    pen__intern_fini(&part->classes);
    pen__free(part->headers);
    part->headers = NULL;
}

static int odd(pen_error *err, const char *what)
{
    return pen__fail(err, PEN_ECORRUPT, -1, "the server's description of the dataset %s", what);
}

/* A description ends in the checksum of all that stands before its last comma.  What neither begins
 * nor ends as one does is something else, and would be that if it were asked for again. */
static int check_seal(const char *json, size_t len, pen_error *err)
{
    static const char mark[] = ", \"crc32c\": \"";
    const bool is_long = len > SEAL;
    const bool is_marked = is_long && memcmp(json + len - SEAL, mark, sizeof mark - 1) == 0;
    if (!is_marked && (len == 0 || json[0] != '{'))
        return odd(err, "is no JSON");
    char seal[SEAL + 1] = "";
    if (is_long)
        snprintf(seal, sizeof seal, "%s%08x\"}\n", mark, pen__crc32c(0, json, len - SEAL));
    if (is_long && memcmp(json + len - SEAL, seal, SEAL) == 0)
        return 0;
    return pen__fail(err, PEN_EIO, -1,
                     "the server's description of the dataset has another checksum, or none: is "
                     "the server of an older version?");
}

/* A tree of small values takes many times as much memory as their text. */
static int check_size(const pen__part *part, const char *json, size_t len, pen_error *err)
{
    const size_t n = pen__text_count_values(json, len);
    if (part->max_bytes == 0 || (int64_t)n * VALUE_BYTES <= part->max_bytes)
        return 0;
    return pen__fail(err, PEN_ELIMIT, -1,
                     "the server's description of the dataset has %zu values: to read it could "
                     "take more than %lld MB of memory",
                     n, (long long)(part->max_bytes / 1000000));
}

/* A class's name into `number`; `bytes` is scratch for one that is told in hex, or NULL. */
static int take_class(pen__part *part, const json_t *name, char *bytes, int64_t *number,
                      pen_error *err)
{
    const char *text = json_string_value(name);
    size_t len = json_string_length(name);
    if (text && bytes) {
        const int64_t n = pen__text_from_hex(text, len, bytes, len + 1);
        text = n < 0 ? NULL : bytes;
        len = n < 0 ? 0 : (size_t)n;
    }
    if (!text || len != strlen(text))
        return odd(err, "has a class without a name");
    *number = pen__intern_put(&part->classes, text, len);
    return *number < 0 ? pen__fail(err, PEN_ENOMEM, -1, "out of memory") : 0;
}

static int take_names(pen__part *part, const json_t *classes, char *bytes, pen_error *err)
{
    for (size_t i = 0; i < json_array_size(classes); i++) {
        int64_t number = 0;
        const int rc = take_class(part, json_array_get(classes, i), bytes, &number, err);
        if (rc)
            return rc;
        if (number != (int64_t)i)
            return odd(err, "names a class twice");
    }
    return 0;
}

/* Names that are no UTF-8 stand in a list of their own, with all others, in hex. */
static int take_classes(pen__part *part, const json_t *root, size_t text_len, pen_error *err)
{
    const json_t *classes = json_object_get(root, "classes");
    const json_t *in_hex = json_object_get(root, "class_bytes");
    if ((classes && !json_is_array(classes)) || (in_hex && !json_is_array(in_hex)))
        return odd(err, "has classes that are no list");
    if (in_hex && json_array_size(in_hex) != json_array_size(classes))
        return odd(err, "has two numbers of classes");
    char *bytes = in_hex ? pen__malloc(text_len + 1) : NULL;
    if (in_hex && !bytes)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    const int rc = take_names(part, in_hex ? in_hex : classes, bytes, err);
    pen__free(bytes);
    if (rc)
        return rc;
    /* all of them, in order, each with its NUL */
    pen__digest(part->classes.bytes, part->classes.n_bytes, part->identity.classes);
    return 0;
}

static int take_numbers(pen__part *part, const json_t *root, pen_error *err)
{
    const char *hash = json_string_value(json_object_get(root, "hash"));
    part->count = json_integer_value(json_object_get(root, "count"));
    part->bytes = json_integer_value(json_object_get(root, "bytes"));
    part->page = json_integer_value(json_object_get(root, "page"));
    if (!hash || !pen__hash_is_valid(hash))
        return odd(err, "has no hash");
    memcpy(part->identity.samples, hash, sizeof part->identity.samples);
    if (part->count < 1 || part->count > PEN__PART_MAX_SAMPLES || part->bytes < 0)
        return odd(err, "has no sensible number of samples");
    const int min_page = part->count > PEN__PART_SMALL ? PEN__PART_MIN_PAGE : 1;
    if (part->page < min_page || part->page > PEN__PART_MAX_PAGE)
        return odd(err, "has no sensible number of samples a page");
    return 0;
}

int pen__part_describe(pen__part *part, const char *json, size_t len, pen_error *err)
{
    int rc = check_seal(json, len, err);
    if (rc == 0)
        rc = check_size(part, json, len, err);
    if (rc)
        return rc;
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        return odd(err, "is no JSON");
    }
    rc = take_numbers(part, root, err);
    if (rc == 0)
        rc = take_classes(part, root, len, err);
    json_decref(root);
    return rc;
}

uint32_t pen__part_next_page(const pen__part *part)
{
    int64_t left = part->count - (int64_t)part->index.n;
    return (uint32_t)(left < part->page ? left : part->page);
}

/* Add a sample to an index under its key. */
static int add_key(pen__index *index, const char *key, size_t len, const pen__found *found,
                   pen_error *err)
{
    size_t leaf = pen__leaf_start(key, len);
    int64_t dir = pen__index_dir(index, key, leaf > 1 ? leaf - 1 : leaf);
    if (dir < 0)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory after %zu samples", index->n);
    pen__found whole = *found;
    whole.dir = (uint32_t)dir;
    whole.name = key + leaf;
    whole.name_len = whole.stem_len = len - leaf;
    return pen__index_add(index, &whole, err);
}

static int add_record(void *ctx, const pen__page_record *record, pen_error *err)
{
    pen__part *part = ctx;
    if (part->classes.n > 0 && record->label >= (int64_t)part->classes.n)
        return odd(err, "has fewer classes than its labels");
    const size_t n = part->index.n;
    uint64_t *headers = pen__grow(part->headers, &part->headers_cap, n + 1, sizeof *headers);
    if (!headers)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory after %zu samples", n);
    part->headers = headers;
    headers[n] = record->header ? pen__page_header(record->header) : 0;
    pen__found found = {.length = record->length, .label = record->label, .block = (uint32_t)n};
    for (int i = 1; i < PEN_FIELD_COUNT; i++)
        if (record->fields >> i & 1)
            found.fields[i] =
                (pen__field_at){pen__part_field_block((pen_field)i), record->field_length[i]};
    return add_key(&part->index, record->key, record->key_len, &found, err);
}

int64_t pen__part_bytes(const pen__part *part)
{
    const pen__index *index = &part->index;
    return pen__index_bytes(index) + (int64_t)(index->cap_names + index->dirs.cap_bytes) +
           (int64_t)(part->headers_cap * sizeof *part->headers) +
           (int64_t)pen__intern_bytes(&part->classes);
}

int pen__part_add_page(pen__part *part, const uint8_t *page, size_t len, pen_error *err)
{
    int rc =
        pen__page_parse(page, len, part->index.n, pen__part_next_page(part), add_record, part, err);
    if (rc == 0 && part->max_bytes && pen__part_bytes(part) > part->max_bytes)
        rc =
            pen__fail(err, PEN_ELIMIT, -1, "its first %zu samples take more than %lld MB of memory",
                      part->index.n, (long long)(part->max_bytes / 1000000));
    return rc;
}

int pen__part_finish(pen__part *part, pen_error *err)
{
    char hash[PEN__DIGEST_TEXT];
    int rc = pen__index_keys_as_added(&part->index, err);
    if (rc == 0)
        rc = pen__index_digest(&part->index, hash, err);
    if (rc)
        return rc;
    const char *theirs = part->identity.samples;
    if (strcmp(hash, theirs) != 0)
        return pen__fail(err, PEN_ECORRUPT, -1,
                         "the manifest gives the dataset hash %s, the server says %s", hash,
                         theirs);
    if (part->index.total_bytes != part->bytes)
        return pen__fail(err, PEN_ECORRUPT, -1,
                         "the manifest has %lld bytes of samples, the server says %lld",
                         (long long)part->index.total_bytes, (long long)part->bytes);
    return 0;
}

/* ---- several parts ---- */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The sorted union of class names into `classes`; `all` is scratch. */
static int unite(pen__intern *classes, const pen__part *parts, int n, const char **all)
{
    size_t n_all = 0;
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < parts[i].classes.n; k++)
            all[n_all++] = pen__intern_text(&parts[i].classes, k);
    qsort(all, n_all, sizeof *all, compare_texts);
    for (size_t i = 0; i < n_all; i++)
        if (pen__intern_put(classes, all[i], strlen(all[i])) < 0)
            return PEN_ENOMEM;
    return 0;
}

static int unite_classes(pen_dataset *ds, const pen__part *parts, int n)
{
    size_t n_all = 0;
    for (int i = 0; i < n; i++) {
        if (parts[i].classes.n == 0)
            return 0; /* labels without names cannot be told from others */
        n_all += parts[i].classes.n;
    }
    const char **all = pen__calloc(n_all, sizeof *all);
    int rc = all ? unite(&ds->classes, parts, n, all) : PEN_ENOMEM;
    pen__free(all);
    return rc;
}

static int32_t label_in(pen_dataset *ds, const pen__part *part, int32_t label)
{
    if (ds->classes.n == 0 || label < 0)
        return label;
    const char *name = pen__intern_text(&part->classes, (size_t)label);
    return (int32_t)pen__intern_put(&ds->classes, name, strlen(name));
}

static int append(pen_dataset *ds, const pen__part *part, int shard, pen_error *err)
{
    char key[PEN_KEY_MAX];
    const pen__index *from = &part->index;
    for (size_t i = 0; i < from->n; i++) {
        const pen__entry *entry = &from->entries[i];
        pen__found found = {.length = entry->length,
                            .label = label_in(ds, part, entry->label),
                            .shard = (uint32_t)shard,
                            .block = entry->block};
        for (int k = 1; k < PEN_FIELD_COUNT; k++) {
            const pen__field_at *field = pen__index_field(from, entry, (pen_field)k);
            if (field)
                found.fields[k] = *field;
        }
        size_t len = pen__index_path(from, entry, pen__index_key_part(from, entry), key);
        int rc = add_key(&ds->index, key, len, &found, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Behind each other, as the ids are. */
static int join_headers(pen_dataset *ds, const pen__part *parts, int n)
{
    size_t n_all = 0;
    for (int i = 0; i < n; i++)
        n_all += parts[i].index.n;
    ds->headers = pen__calloc(n_all, sizeof *ds->headers);
    if (!ds->headers)
        return PEN_ENOMEM;
    uint64_t *at = ds->headers;
    for (int i = 0; i < n; at += parts[i++].index.n)
        memcpy(at, parts[i].headers, parts[i].index.n * sizeof *at);
    return 0;
}

int pen__parts_join(pen_dataset *ds, pen__part *parts, int n, pen_error *err)
{
    if (n == 1) {
        ds->index = parts[0].index;
        ds->classes = parts[0].classes;
        ds->headers = parts[0].headers;
        parts[0].index = (pen__index){0};
        parts[0].classes = (pen__intern){0};
        parts[0].headers = NULL;
        return 0;
    }
    if (join_headers(ds, parts, n) != 0)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    int rc = unite_classes(ds, parts, n);
    if (rc)
        return pen__fail(err, rc, -1, "out of memory");
    for (int i = 0; i < n && rc == 0; i++) {
        rc = append(ds, &parts[i], i, err);
        pen__part_fini(&parts[i]);
    }
    return rc ? rc : pen__index_keys_as_added(&ds->index, err);
}
