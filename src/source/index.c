/* index.c - adding samples, giving them ids, and taking entries apart. */
#include "source/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "source/grow.h"
#include "source/names.h"

int pen__bytes_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

int pen__dir_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    const char *a_slash = memchr(a, '/', a_len), *b_slash = memchr(b, '/', b_len);
    size_t a_top = a_slash ? (size_t)(a_slash - a) : a_len;
    size_t b_top = b_slash ? (size_t)(b_slash - b) : b_len;
    int order = pen__bytes_compare(a, a_top, b, b_top);
    return order ? order : pen__bytes_compare(a + a_top, a_len - a_top, b + b_top, b_len - b_top);
}

int64_t pen__index_dir(pen__index *index, const char *dir, size_t len)
{
    return pen__intern_put(&index->dirs, dir, len);
}

static int add_fields(pen__index *index, const pen__found *found, pen__entry *entry)
{
    entry->first_field = (uint32_t)index->n_fields;
    for (int i = 1; i < PEN_FIELD_COUNT; i++) {
        if (found->fields[i].block == 0)
            continue;
        if (index->n_fields >= UINT32_MAX)
            return PEN_ENOMEM;
        pen__field_at *fields = pen__grow(index->fields, &index->cap_fields, index->n_fields + 1,
                                          sizeof *index->fields);
        if (!fields)
            return PEN_ENOMEM;
        index->fields = fields;
        fields[index->n_fields++] = found->fields[i];
        entry->flags |= (uint8_t)(1U << i);
    }
    return 0;
}

static int add_name(pen__index *index, const pen__found *found, pen__entry *entry)
{
    size_t at = index->n_names, end = at + found->name_len + 1;
    char *names = pen__grow(index->names, &index->cap_names, end, 1);
    if (!names || end >> 40 != 0)
        return PEN_ENOMEM;
    index->names = names;
    memcpy(names + at, found->name, found->name_len);
    names[end - 1] = '\0';
    index->n_names = end;
    entry->name_lo = (uint32_t)at;
    entry->name_hi = (uint8_t)((uint64_t)at >> 32);
    return 0;
}

static int check_limits(const pen__index *index, const pen__found *found, pen_error *err)
{
    pen__shown shown;
    if (found->length > UINT32_MAX)
        return pen__fail(err, PEN_ELIMIT, -1, "'%s' has %llu bytes: a sample is below 4 GiB",
                         pen__show(&shown, found->name, found->name_len),
                         (unsigned long long)found->length);
    if (pen__intern_len(&index->dirs, found->dir) + 1 + found->name_len >= PEN_KEY_MAX)
        return pen__fail(err, PEN_ELIMIT, -1, "the path of '%s' is too long: the limit is %d bytes",
                         pen__show(&shown, found->name, found->name_len), PEN_KEY_MAX - 1);
    if (index->n >= UINT32_MAX)
        return pen__fail(err, PEN_ELIMIT, -1, "more than %u samples", UINT32_MAX);
    return 0;
}

int pen__index_add(pen__index *index, const pen__found *found, pen_error *err)
{
    int rc = check_limits(index, found, err);
    if (rc != 0)
        return rc;
    pen__entry entry = {.block = found->block,
                        .length = (uint32_t)found->length,
                        .label = found->label,
                        .dir = found->dir,
                        .shard = found->shard,
                        .stem_len = (uint16_t)found->stem_len};
    pen__entry *entries = pen__grow(index->entries, &index->cap, index->n + 1, sizeof *entries);
    if (entries)
        index->entries = entries;
    if (!entries || add_name(index, found, &entry) != 0 || add_fields(index, found, &entry) != 0)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory after %zu samples", index->n);
    entries[index->n++] = entry;
    index->total_bytes += entry.length;
    return 0;
}

static int compare_dirs(const void *a, const void *b, void *ctx)
{
    const pen__intern *dirs = ctx;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    return pen__dir_compare(pen__intern_text(dirs, i), pen__intern_len(dirs, i),
                            pen__intern_text(dirs, j), pen__intern_len(dirs, j));
}

static int compare_entries(const void *a, const void *b, void *ctx)
{
    const pen__entry *x = a, *y = b;
    if (x->dir != y->dir)
        return x->dir < y->dir ? -1 : 1;
    return strcmp(pen__index_name(ctx, x), pen__index_name(ctx, y));
}

/* Renumber directories in sorted order; `order` and `rank` are scratch. */
static void renumber_dirs(pen__index *index, uint32_t *order, uint32_t *rank, pen__interned *sorted)
{
    size_t n = index->dirs.n;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, n, sizeof *order, compare_dirs, &index->dirs);
    for (size_t i = 0; i < n; i++) {
        rank[order[i]] = (uint32_t)i;
        sorted[i] = index->dirs.items[order[i]];
    }
    memcpy(index->dirs.items, sorted, n * sizeof *sorted);
    for (size_t i = 0; i < index->n; i++)
        index->entries[i].dir = rank[index->entries[i].dir];
}

int pen__index_sort_dirs(pen__index *index, pen_error *err)
{
    size_t n = index->dirs.n;
    pen__intern_freeze(&index->dirs); /* the numbers change under its slots */
    uint32_t *order = pen__calloc(2 * n, sizeof *order);
    pen__interned *sorted = pen__calloc(n, sizeof *sorted);
    int rc = 0;
    if (order && sorted)
        renumber_dirs(index, order, order + n, sorted);
    else
        rc = pen__fail(err, PEN_ENOMEM, -1, "out of memory while sorting %zu directories", n);
    pen__free(order);
    pen__free(sorted);
    return rc;
}

int pen__index_sort(pen__index *index, pen_error *err)
{
    int rc = pen__index_sort_dirs(index, err);
    if (rc == 0 && index->n > 1)
        qsort_r(index->entries, index->n, sizeof *index->entries, compare_entries, index);
    return rc;
}

void pen__index_freeze(pen__index *index)
{
    pen__intern_freeze(&index->dirs);
    index->entries = pen__trim(index->entries, &index->cap, index->n, sizeof *index->entries);
    index->fields =
        pen__trim(index->fields, &index->cap_fields, index->n_fields, sizeof *index->fields);
    index->names = pen__trim(index->names, &index->cap_names, index->n_names, 1);
}

void pen__index_fini(pen__index *index)
{
    pen__free(index->entries);
    pen__free(index->fields);
    pen__free(index->by_key);
    pen__free(index->names);
    pen__intern_fini(&index->dirs);
    memset(index, 0, sizeof *index);
}

size_t pen__index_path(const pen__index *index, const pen__entry *entry, size_t name_len, char *dst)
{
    size_t n = pen__intern_len(&index->dirs, entry->dir);
    memcpy(dst, pen__intern_text(&index->dirs, entry->dir), n);
    if (n > 0)
        dst[n++] = '/';
    memcpy(dst + n, pen__index_name(index, entry), name_len);
    dst[n + name_len] = '\0';
    return n + name_len;
}

size_t pen__index_key_part(const pen__index *index, const pen__entry *entry)
{
    return entry->flags & PEN__FULL_NAME ? strlen(pen__index_name(index, entry)) : entry->stem_len;
}

const pen__field_at *pen__index_field(const pen__index *index, const pen__entry *entry,
                                      pen_field field)
{
    if (field <= PEN_FIELD_IMAGE || field >= PEN_FIELD_COUNT || !(entry->flags & (1U << field)))
        return NULL;
    size_t at = entry->first_field;
    for (int i = 1; i < (int)field; i++)
        at += (entry->flags >> i) & 1U;
    return &index->fields[at];
}

int64_t pen__index_bytes(const pen__index *index)
{
    size_t total = index->cap * sizeof *index->entries +
                   (index->by_key ? index->n : 0) * sizeof *index->by_key +
                   index->cap_fields * sizeof *index->fields +
                   index->dirs.cap * sizeof *index->dirs.items +
                   index->dirs.n_slots * sizeof *index->dirs.slots;
    return (int64_t)total;
}
