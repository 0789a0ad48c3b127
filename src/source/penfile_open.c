/* penfile_open.c - packs as a source of samples: .pen files, read in place.
 *
 * A file's own index says what is in it, so opening reads a header and that, and keeps nothing in
 * a cache.  Ids count on from one file of a pack to the next, whatever order they are named in; a
 * pack whose files are not all there is a smaller dataset.  Files of different packs are refused:
 * their labels count other classes, and their keys may be the same.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "source/fileio.h"
#include "source/names.h"
#include "source/penfile.h"
#include "source/shards.h"

/* A file of the pack, and which samples it has. */
typedef struct member {
    pen__penfile_head head;
    pen__shard *shard;
} member;

static int read_at(int fd, void *dst, size_t len, uint64_t at, pen_error *err)
{
    int64_t got = pen__pread_full(fd, dst, len, at);
    if (got < 0)
        return pen__fail_errno(err, (int)-got, "read", "it");
    return (uint64_t)got == len ? 0 : pen__fail(err, PEN_EIO, (int64_t)at, "it ends early");
}

static int look_at_head(void *ctx, int fd, pen_error *err)
{
    member *m = ctx;
    uint8_t bytes[PEN__PENFILE_HEAD];
    const uint64_t size = m->shard->stamp.size;
    const size_t len = size < sizeof bytes ? (size_t)size : sizeof bytes;
    int rc = read_at(fd, bytes, len, 0, err);
    return rc ? rc : pen__penfile_get_head(&m->head, bytes, len, size, err);
}

/* Where an index goes. */
typedef struct look {
    member *member;
    pen__shard_index index;
    pen__intern classes;
} look;

static int look_at_index(void *ctx, int fd, pen_error *err)
{
    look *to = ctx;
    const pen__penfile_head *head = &to->member->head;
    if (to->member->shard->stamp.size != head->index_at + pen__penfile_index_bytes(head))
        return pen__fail(err, PEN_EIO, -1, "the file changed while it was indexed");
    const size_t len = (size_t)pen__penfile_index_bytes(head);
    uint8_t *bytes = pen__malloc(len);
    if (!bytes)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory for an index of %zu bytes", len);
    int rc = read_at(fd, bytes, len, head->index_at, err);
    if (rc == 0)
        rc = pen__penfile_get_index(&to->index, &to->classes, head, bytes, err);
    pen__free(bytes);
    return rc;
}

static int compare_members(const void *a, const void *b)
{
    const member *x = a, *y = b;
    return (x->head.first_id > y->head.first_id) - (x->head.first_id < y->head.first_id);
}

static const char *show_path(pen__shown *shown, const member *m)
{
    return pen__show(shown, m->shard->path, strlen(m->shard->path));
}

/* In order, and each once? */
static int check_members(const member *members, size_t n, pen_error *err)
{
    pen__shown x, y;
    for (size_t i = 1; i < n; i++) {
        const pen__penfile_head *before = &members[i - 1].head, *head = &members[i].head;
        if (strcmp(head->id, before->id) != 0 || head->n_all != before->n_all)
            return pen__fail(err, PEN_EINVAL, -1,
                             "'%s' and '%s' are of different packs, which cannot be opened as one "
                             "dataset",
                             show_path(&x, &members[i - 1]), show_path(&y, &members[i]));
        if (before->first_id + before->n_records > head->first_id)
            return pen__fail(err, PEN_EINVAL, -1,
                             "'%s' and '%s' hold the same samples: a shard is listed twice",
                             show_path(&x, &members[i - 1]), show_path(&y, &members[i]));
    }
    return 0;
}

/* All files of a pack have all its classes. */
static int take_classes(pen_dataset *ds, pen__intern *classes, bool is_first, pen_error *err)
{
    if (is_first) {
        ds->classes = *classes;
        *classes = (pen__intern){0};
        return 0;
    }
    const bool is_same =
        ds->classes.n == classes->n && ds->classes.n_bytes == classes->n_bytes &&
        (classes->n_bytes == 0 || memcmp(ds->classes.bytes, classes->bytes, classes->n_bytes) == 0);
    return is_same ? 0
                   : pen__fail(err, PEN_ECORRUPT, -1, "it has other classes than those before it");
}

static int add_member(pen_dataset *ds, member *m, bool is_first, pen_error *err)
{
    const pen__shards *shards = ds->state;
    look to = {.member = m};
    int rc = pen__shard_look(m->shard, look_at_index, &to, err);
    if (rc == 0) {
        rc = take_classes(ds, &to.classes, is_first, err);
        if (rc)
            pen__shard_prefix(err, rc, m->shard->path);
    }
    if (rc == 0)
        rc = pen__shards_add(ds, &to.index, (uint32_t)(m->shard - shards->items), true, err);
    pen__shard_index_fini(&to.index);
    pen__intern_fini(&to.classes);
    return rc;
}

static int add_members(pen_dataset *ds, member *members, const pen_dataset_opts *opts,
                       pen_error *err)
{
    pen__shards *shards = ds->state;
    int rc = 0;
    for (size_t i = 0; i < shards->n && rc == 0; i++) {
        members[i].shard = &shards->items[i];
        rc = pen__shard_look(members[i].shard, look_at_head, &members[i], err);
    }
    if (rc == 0) {
        qsort(members, shards->n, sizeof *members, compare_members);
        rc = check_members(members, shards->n, err);
    }
    uint64_t done = 0;
    for (size_t i = 0; i < shards->n && rc == 0; i++) {
        rc = add_member(ds, &members[i], i == 0, err);
        done += members[i].shard->stamp.size;
        if (rc == 0)
            rc = pen__dataset_report(opts, (int64_t)done, (int64_t)shards->bytes, err);
    }
    return rc;
}

static int pack_open(pen_dataset *ds, const char *spec, const pen_dataset_opts *opts,
                     pen_error *err)
{
    int rc = pen__shards_open(ds, spec, err);
    if (rc)
        return rc;
    pen__shards *shards = ds->state;
    shards->are_summed = true;
    member *members = pen__calloc(shards->n, sizeof *members);
    rc = members ? add_members(ds, members, opts, err)
                 : pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    pen__free(members);
    return rc ? rc : pen__index_keys_as_added(&ds->index, err);
}

const pen__source pen__source_pack = {
    .name = "pack",
    .open = pack_open,
    .read = pen__shards_read,
    .open_field = pen__shards_open_field,
    .close = pen__shards_close,
};
