/* tar_index.c - members become samples, by WebDataset's naming.
 *
 * The path of a member up to the first dot of its last component is the key,
 * what follows is the field: "n01/0001.jpg" and "n01/0001.cls" are one sample.
 * WebDataset streams and so needs them side by side; with the whole list at
 * hand they are put together wherever they stand in the shard.
 *
 * What would be a guess is an error: a field twice, two images in a sample, a
 * .cls that is no integer, and an image whose name has a second dot
 * ("a.left.jpg") in a sample without a plain one.
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

enum { PART_DOTTED = PEN_FIELD_COUNT, PART_OTHER };

/* A member that may belong to a sample. */
typedef struct part {
    uint32_t name, key_len, block, length;
    int32_t label;
    int kind; /* pen_field or PART_DOTTED */
} part;

typedef struct parts {
    part *items;
    size_t n, cap;
    char *names;
    size_t n_names, cap_names;
} parts;

size_t pen__tar_key_length(const char *path, size_t len)
{
    size_t leaf = pen__leaf_start(path, len);
    const char *dot = memchr(path + leaf, '.', len - leaf);
    return dot ? (size_t)(dot - path) : len;
}

static int kind_of(const char *path, size_t len, size_t key_len)
{
    static const char *const fields[PEN_FIELD_COUNT] = {
        [PEN_FIELD_CLS] = "cls", [PEN_FIELD_JSON] = "json", [PEN_FIELD_TXT] = "txt"};
    if (key_len == len || key_len == pen__leaf_start(path, len))
        return PART_OTHER; /* no extension, or a hidden file */
    const char *extension = path + key_len + 1;
    size_t n = len - key_len - 1;
    if (pen__is_image_extension(extension, n))
        return PEN_FIELD_IMAGE;
    for (int i = 1; i < PEN_FIELD_COUNT; i++)
        if (strlen(fields[i]) == n && strncasecmp(fields[i], extension, n) == 0)
            return i;
    size_t stem = pen__stem_length(extension, n);
    return stem < n && pen__is_image_extension(extension + stem + 1, n - stem - 1) ? PART_DOTTED
                                                                                   : PART_OTHER;
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* "7\n": an integer, white space around it allowed. */
static int read_cls(pen__tar_walk *walk, const pen__tar_member *member, int32_t *label,
                    pen_error *err)
{
    const uint8_t *bytes = NULL;
    size_t len = (size_t)member->size;
    int rc = PEN_EINVAL;
    if (member->size <= MAX_CLS_BYTES) {
        rc = pen__tar_bytes_at(walk, member->data_at, len, &bytes, err);
        if (rc != 0)
            return rc;
        while (len > 0 && is_blank(bytes[len - 1]))
            len--;
        for (; len > 0 && is_blank(bytes[0]); len--)
            bytes++;
        rc = pen__parse_label((const char *)bytes, len, label);
    }
    pen__shown name;
    if (rc != 0)
        return pen__fail(err, PEN_ECORRUPT, (int64_t)member->data_at,
                         "'%s' at byte %llu is no class label: it must be one integer of -1 to %d",
                         pen__show(&name, member->name, member->name_len),
                         (unsigned long long)member->header_at, INT32_MAX);
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
    part next = {.label = -1};
    size_t key_len = pen__tar_key_length(member->name, member->name_len);
    next.kind = kind_of(member->name, member->name_len, key_len);
    if (next.kind == PART_OTHER) {
        ++*n_other;
        return 0;
    }
    pen__shown name;
    if (member->size > UINT32_MAX || member->data_at / PEN__BLOCK > UINT32_MAX)
        return pen__fail(err, PEN_ELIMIT, (int64_t)member->header_at,
                         "'%s' at byte %llu: fields are below 4 GiB and shards below 2 TiB",
                         pen__show(&name, member->name, member->name_len),
                         (unsigned long long)member->header_at);
    next.key_len = (uint32_t)key_len;
    next.block = (uint32_t)(member->data_at / PEN__BLOCK);
    next.length = (uint32_t)member->size;
    int rc = next.kind == PEN_FIELD_CLS ? read_cls(walk, member, &next.label, err) : 0;
    return rc ? rc : add_part(all, member, &next, err);
}

static int compare_parts(const void *a, const void *b, void *ctx)
{
    const part *x = a, *y = b;
    const char *names = ctx;
    int order = pen__bytes_compare(names + x->name, x->key_len, names + y->name, y->key_len);
    if (order)
        return order;
    return x->kind != y->kind ? x->kind - y->kind : (x->block > y->block) - (x->block < y->block);
}

static int twice(const parts *all, const part *first, const part *second, pen_error *err)
{
    pen__shown a, b;
    const char *x = all->names + first->name, *y = all->names + second->name;
    return pen__fail(err, PEN_ECORRUPT, (int64_t)second->block * PEN__BLOCK,
                     "'%s' (data at byte %llu) and '%s' (at byte %llu) are the same field of one "
                     "sample: names must differ before their first dot",
                     pen__show(&a, x, strlen(x)), (unsigned long long)first->block * PEN__BLOCK,
                     pen__show(&b, y, strlen(y)), (unsigned long long)second->block * PEN__BLOCK);
}

static int add_record(pen__tar_index *index, const parts *all, const part *image,
                      pen__tar_record *record, pen_error *err)
{
    size_t len = strlen(all->names + image->name) + 1;
    pen__tar_record *records =
        pen__grow(index->records, &index->cap, index->n + 1, sizeof *records);
    if (records)
        index->records = records;
    char *names =
        records ? pen__grow(index->names, &index->cap_names, index->n_names + len, 1) : NULL;
    if (!names)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory after %zu samples", index->n);
    index->names = names;
    memcpy(names + index->n_names, all->names + image->name, len);
    record->name = (uint32_t)index->n_names;
    record->block = image->block;
    record->length = image->length;
    index->n_names += len;
    records[index->n++] = *record;
    return 0;
}

/* The parts [first, end) share a key; sorted by kind, the image comes first. */
static int take_group(pen__tar_index *index, const parts *all, const part *first, const part *end,
                      pen_error *err)
{
    pen__tar_record record = {.label = -1};
    for (const part *p = first; p < end; p++) {
        if (p + 1 < end && p[1].kind == p->kind && p->kind != PART_DOTTED)
            return twice(all, p, p + 1, err);
        if (p->kind == PEN_FIELD_CLS)
            record.label = p->label;
        if (p->kind > PEN_FIELD_IMAGE && p->kind < PEN_FIELD_COUNT)
            record.fields[p->kind - 1] = (pen__field_at){p->block, p->length};
        if (p->kind == PART_DOTTED)
            index->n_other++;
    }
    if (first->kind == PEN_FIELD_IMAGE)
        return add_record(index, all, first, &record, err);
    const part *last = end - 1;
    if (last->kind == PART_DOTTED) {
        pen__shown shown;
        const char *name = all->names + last->name;
        return pen__fail(err, PEN_ECORRUPT, (int64_t)last->block * PEN__BLOCK,
                         "'%s' (data at byte %llu): a name ends at its first dot in a tar, so this "
                         "is no image but a further field; rename it without the inner dot",
                         pen__show(&shown, name, strlen(name)),
                         (unsigned long long)last->block * PEN__BLOCK);
    }
    index->n_other += (uint64_t)(end - first); /* fields of a sample that has no image */
    return 0;
}

static int group(pen__tar_index *index, parts *all, pen_error *err)
{
    if (all->n > 1)
        qsort_r(all->items, all->n, sizeof *all->items, compare_parts, all->names);
    int rc = 0;
    for (size_t i = 0, end; rc == 0 && i < all->n; i = end) {
        const part *first = &all->items[i];
        for (end = i + 1; end < all->n; end++)
            if (all->items[end].key_len != first->key_len ||
                memcmp(all->names + all->items[end].name, all->names + first->name,
                       first->key_len) != 0)
                break;
        rc = take_group(index, all, first, all->items + end, err);
    }
    return rc;
}

int pen__tar_index_build(pen__tar_index *index, const pen__tar_bytes *in,
                         void (*progress)(void *ctx, uint64_t bytes_done), void *ctx,
                         pen_error *err)
{
    pen__tar_walk walk;
    pen__tar_member member;
    parts all = {0};
    pen__tar_walk_init(&walk, in);
    int rc;
    for (uint64_t n = 1; (rc = pen__tar_next(&walk, &member, err)) > 0; n++) {
        rc = take_member(&all, &walk, &member, &index->n_other, err);
        if (rc != 0)
            break;
        if (progress && n % PROGRESS_EVERY == 0)
            progress(ctx, walk.at);
    }
    if (rc == 0)
        rc = group(index, &all, err);
    pen__free(all.items);
    pen__free(all.names);
    return rc;
}

void pen__tar_index_fini(pen__tar_index *index)
{
    pen__free(index->records);
    pen__free(index->names);
    memset(index, 0, sizeof *index);
}

pen__tar_stamp pen__tar_stamp_of(const struct stat *st)
{
    return (pen__tar_stamp){
        .size = (uint64_t)st->st_size,
        .inode = (uint64_t)st->st_ino,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
        .ctime_ns = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec,
    };
}
