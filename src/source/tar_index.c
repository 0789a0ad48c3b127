/* tar_index.c - members become samples, by WebDataset's naming.
 *
 * The path of a member up to the first dot of its last component is the key,
 * what follows is the field: "n01/0001.jpg" and "n01/0001.cls" are one sample,
 * and beside them "n01/0001.mask.png" is a field nobody asks for.  WebDataset
 * streams and so needs them side by side; with the whole list at hand they are
 * put together wherever they stand in the shard.
 *
 * Where that leaves a sample without an image though some member of it has an
 * image's extension ("fig-1.2-a.jpg", "fig-1.3.jpg"), the files were named with
 * no thought of WebDataset: their names then end at the last dot, as in folders.
 * So for an image that is taken the key is always its path without extension.
 *
 * What would be a guess is an error: a field twice, two images in one sample, a
 * .cls that is no integer.
 */
#include "source/tar_index.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "base/mem.h"
#include "source/grow.h"
#include "source/names.h"

#define PROGRESS_EVERY 4096
#define MAX_CLS_BYTES  64

enum { NO_FIELD = PEN_FIELD_COUNT };
#define NO_LABEL INT32_MIN /* a .cls that is none; an error only if a sample needs it */

/* A member that may belong to a sample. */
typedef struct part {
    uint32_t name, len;
    uint32_t key_len; /* to the first dot */
    uint32_t block, length;
    int32_t label;
    int field;
    bool is_dotted; /* there is another dot behind that */
} part;

typedef struct parts {
    part *items;
    size_t n, cap;
    char *names;
    size_t n_names, cap_names;
} parts;

static int field_of(const char *extension, size_t len)
{
    if (pen__is_image_extension(extension, len))
        return PEN_FIELD_IMAGE;
    for (int i = 1; i < PEN_FIELD_COUNT; i++) {
        const char *name = pen_field_name((pen_field)i);
        if (strlen(name) == len && strncasecmp(name, extension, len) == 0)
            return i;
    }
    return NO_FIELD;
}

/* Take a member's path apart.  No extension, or a hidden file: NO_FIELD. */
static part part_of(const char *path, size_t len)
{
    size_t leaf = pen__leaf_start(path, len), stem = pen__path_stem(path, len);
    const char *dot = memchr(path + leaf, '.', len - leaf);
    part p = {.field = NO_FIELD, .label = -1, .len = (uint32_t)len};
    if (!dot || dot == path + leaf || stem == len)
        return p;
    p.key_len = (uint32_t)(dot - path);
    p.is_dotted = p.key_len != stem;
    p.field = field_of(path + stem + 1, len - stem - 1);
    return p;
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* "7\n": an integer, white space around it allowed; else NO_LABEL. */
static int read_cls(pen__tar_walk *walk, const pen__tar_member *member, int32_t *label,
                    pen_error *err)
{
    const uint8_t *bytes = NULL;
    size_t len = (size_t)member->size;
    *label = NO_LABEL;
    if (member->size > MAX_CLS_BYTES)
        return 0;
    int rc = pen__tar_bytes_at(walk, member->data_at, len, &bytes, err);
    if (rc != 0)
        return rc;
    while (len > 0 && is_blank(bytes[len - 1]))
        len--;
    for (; len > 0 && is_blank(bytes[0]); len--)
        bytes++;
    if (pen__parse_label((const char *)bytes, len, label) != 0)
        *label = NO_LABEL;
    return 0;
}

static int add_part(parts *all, const pen__tar_member *member, part *next, pen_error *err)
{
    part *items = pen__grow(all->items, &all->cap, all->n + 1, sizeof *items);
    if (items)
        all->items = items;
    size_t end = all->n_names + member->name_len + 1;
    char *names = items ? pen__grow(all->names, &all->cap_names, end, 1) : NULL;
    if (!names || end > UINT32_MAX)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory after %zu members", all->n);
    all->names = names;
    memcpy(names + all->n_names, member->name, member->name_len + 1);
    next->name = (uint32_t)all->n_names;
    all->n_names = end;
    items[all->n++] = *next;
    return 0;
}

static int take_member(parts *all, pen__tar_walk *walk, const pen__tar_member *member,
                       uint64_t *n_other, pen_error *err)
{
    part next = part_of(member->name, member->name_len);
    if (next.field == NO_FIELD) {
        ++*n_other;
        return 0;
    }
    pen__shown name;
    if (member->size > UINT32_MAX || member->data_at / PEN__BLOCK > UINT32_MAX)
        return pen__fail(err, PEN_ELIMIT, (int64_t)member->header_at,
                         "'%s' at byte %llu: fields are below 4 GiB and shards below 2 TiB",
                         pen__show(&name, member->name, member->name_len),
                         (unsigned long long)member->header_at);
    next.block = (uint32_t)(member->data_at / PEN__BLOCK);
    next.length = (uint32_t)member->size;
    int rc = next.field == PEN_FIELD_CLS ? read_cls(walk, member, &next.label, err) : 0;
    return rc ? rc : add_part(all, member, &next, err);
}

/* By key; within one, plain names before dotted ones, the image before other fields. */
static int compare_parts(const void *a, const void *b, void *ctx)
{
    const part *x = a, *y = b;
    const char *names = ctx;
    int order = pen__bytes_compare(names + x->name, x->key_len, names + y->name, y->key_len);
    if (order)
        return order;
    if (x->is_dotted != y->is_dotted)
        return x->is_dotted ? 1 : -1;
    return x->field != y->field ? x->field - y->field
                                : (x->block > y->block) - (x->block < y->block);
}

static int fail_twice(const parts *all, const part *a, const part *b, pen_error *err)
{
    pen__shown x, y;
    return pen__fail(
        err, PEN_ECORRUPT, (int64_t)b->block * PEN__BLOCK,
        "'%s' (data at byte %llu) and '%s' (at byte %llu) are the same field of one "
        "sample: names must differ before the dot",
        pen__show(&x, all->names + a->name, a->len), (unsigned long long)a->block * PEN__BLOCK,
        pen__show(&y, all->names + b->name, b->len), (unsigned long long)b->block * PEN__BLOCK);
}

static int fail_label(const parts *all, const part *cls, pen_error *err)
{
    pen__shown name;
    return pen__fail(err, PEN_ECORRUPT, (int64_t)cls->block * PEN__BLOCK,
                     "'%s' (data at byte %llu) is no class label: it must be one integer of -1 "
                     "to %d",
                     pen__show(&name, all->names + cls->name, cls->len),
                     (unsigned long long)cls->block * PEN__BLOCK, INT32_MAX);
}

/* The parts [first, end) are one sample, its image first. */
static int take_sample(pen__shard_index *index, const parts *all, const part *first,
                       const part *end, pen_error *err)
{
    pen__shard_record record = {.label = -1};
    for (const part *p = first; p < end; p++) {
        if (p + 1 < end && p[1].field == p->field)
            return fail_twice(all, p, p + 1, err);
        if (p->field == PEN_FIELD_IMAGE)
            continue;
        record.fields[p->field - 1] = (pen__field_at){p->block, p->length};
        if (p->field != PEN_FIELD_CLS)
            continue;
        if (p->label == NO_LABEL)
            return fail_label(all, p, err);
        record.label = p->label;
    }
    record.block = first->block;
    record.length = first->length;
    return pen__shard_index_add(index, &record, all->names + first->name, first->len, err);
}

static int group(pen__shard_index *index, const parts *all, part *items, size_t n, pen_error *err);

/* The parts [first, end) share a key.  See the top for the three cases. */
static int take_run(pen__shard_index *index, const parts *all, part *first, part *end,
                    pen_error *err)
{
    part *dotted = first;
    while (dotted < end && !dotted->is_dotted)
        dotted++;
    if (dotted > first && first->field == PEN_FIELD_IMAGE) {
        index->n_other += (uint64_t)(end - dotted);
        return take_sample(index, all, first, dotted, err);
    }
    if (dotted < end && dotted->field == PEN_FIELD_IMAGE) {
        index->n_other += (uint64_t)(dotted - first);
        for (part *p = dotted; p < end; p++) {
            p->key_len = (uint32_t)pen__path_stem(all->names + p->name, p->len);
            p->is_dotted = false;
        }
        return group(index, all, dotted, (size_t)(end - dotted), err);
    }
    index->n_other += (uint64_t)(end - first); /* fields of a sample that has no image */
    return 0;
}

static bool share_key(const parts *all, const part *a, const part *b)
{
    return a->key_len == b->key_len &&
           memcmp(all->names + a->name, all->names + b->name, a->key_len) == 0;
}

/* Calls itself once at most: dotted names become plain on the way. */
static int group(pen__shard_index *index, const parts *all, part *items, size_t n, pen_error *err)
{
    if (n > 1)
        qsort_r(items, n, sizeof *items, compare_parts, all->names);
    int rc = 0;
    for (size_t i = 0, end; rc == 0 && i < n; i = end) {
        for (end = i + 1; end < n && share_key(all, &items[i], &items[end]);)
            end++;
        rc = take_run(index, all, items + i, items + end, err);
    }
    return rc;
}

static int compare_records(const void *a, const void *b, void *ctx)
{
    const pen__shard_record *x = a, *y = b;
    const char *names = ctx, *p = names + x->name, *q = names + y->name;
    return pen__bytes_compare(p, pen__path_stem(p, strlen(p)), q, pen__path_stem(q, strlen(q)));
}

int pen__tar_index_build(pen__shard_index *index, const pen__tar_bytes *in,
                         int (*progress)(void *ctx, uint64_t bytes_done, pen_error *err), void *ctx,
                         pen_error *err)
{
    pen__tar_walk walk;
    pen__tar_member member;
    parts all = {0};
    pen__tar_walk_init(&walk, in);
    int rc;
    for (uint64_t n = 1; (rc = pen__tar_next(&walk, &member, err)) > 0; n++) {
        rc = take_member(&all, &walk, &member, &index->n_other, err);
        if (rc == 0 && progress && n % PROGRESS_EVERY == 0)
            rc = progress(ctx, walk.at, err);
        if (rc != 0)
            break;
    }
    if (rc == 0)
        rc = group(index, &all, all.items, all.n, err);
    if (rc == 0 && index->n > 1) /* keys from dotted names are out of place */
        qsort_r(index->records, index->n, sizeof *index->records, compare_records, index->names);
    pen__free(all.items);
    pen__free(all.names);
    return rc;
}
