/* tar.c - tar shards, read in place.
 *
 * Opening asks each shard's index of the cache or of its headers, and adds the
 * samples to the common index.  Keys that occur in more than one shard (counters
 * that start at 0 in each) get the shard's name in front, for all samples, so
 * that adding a shard never renames only some.  What lies in shards is read by
 * shards.c.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "source/cachedir.h"
#include "source/names.h"
#include "source/shards.h"
#include "source/tar_index.h"

/* How far opening has come, in bytes of shards. */
typedef struct progress {
    const pen_dataset_opts *opts;
    uint64_t before, total;
} progress;

static int report(void *ctx, uint64_t bytes_done, pen_error *err)
{
    const progress *p = ctx;
    return pen__dataset_report(p->opts, (int64_t)(p->before + bytes_done), (int64_t)p->total, err);
}

/* A shard whose headers are to be read. */
typedef struct reading {
    pen__shard_index *index;
    const pen__shard *shard;
    progress *progress;
} reading;

static int read_headers(void *ctx, int fd, pen_error *err)
{
    const reading *r = ctx;
    pen__tar_bytes in = {.fd = fd, .size = r->shard->stamp.size};
    return pen__tar_index_build(r->index, &in, report, r->progress, err);
}

/* The index of one shard, from the cache if it may be, into ds->index. */
static int open_shard(pen_dataset *ds, uint32_t number, const char *cache, progress *p,
                      uint64_t *n_other, pen_error *err)
{
    pen__shards *shards = ds->state;
    pen__shard *s = &shards->items[number];
    pen__shard_index index = {0};
    int rc = 0;
    if (!cache || !pen__tar_cache_load(&index, cache, s->path, &s->stamp)) {
        reading r = {&index, s, p};
        rc = pen__shard_look(s, read_headers, &r, err);
        if (rc == 0 && cache)
            pen__tar_cache_store(&index, cache, s->path, &s->stamp);
    }
    if (rc == 0) {
        rc = pen__shards_add(ds, &index, number, false, err);
        *n_other += index.n_other;
    }
    pen__shard_index_fini(&index);
    p->before += s->stamp.size;
    return rc ? rc : report(p, 0, err);
}

/* Bytes at the front of all paths up to the last slash they share. */
static size_t common_dir(const pen__shards *shards)
{
    const char *first = shards->items[0].path;
    size_t common = strlen(first);
    for (size_t i = 0; i < shards->n; i++) {
        size_t n = 0;
        while (n < common && shards->items[i].path[n] == first[n])
            n++;
        common = n;
    }
    return pen__leaf_start(first, common);
}

/* Put each entry's directory below the name of its shard: the path below the
 * directory that all shards share, without ".tar". */
static int prefix_keys(pen_dataset *ds, pen_error *err)
{
    const pen__shards *shards = ds->state;
    size_t skip = common_dir(shards);
    pen__intern dirs = {0};
    char dir[PEN_KEY_MAX];
    for (size_t i = 0; i < ds->index.n; i++) {
        pen__entry *entry = &ds->index.entries[i];
        const char *name = shards->items[entry->shard].path + skip;
        const char *old = pen__intern_text(&ds->index.dirs, entry->dir);
        size_t len = strlen(name);
        len -= len > 4 && strcmp(name + len - 4, ".tar") == 0 ? 4 : 0;
        int n = snprintf(dir, sizeof dir, "%.*s%s%s", (int)len, name, *old ? "/" : "", old);
        size_t leaf = strlen(pen__index_name(&ds->index, entry));
        int64_t number = (size_t)n + leaf + 1 < PEN_KEY_MAX ? pen__intern_put(&dirs, dir, (size_t)n)
                                                            : PEN_ELIMIT;
        if (number < 0) {
            pen__intern_fini(&dirs);
            return pen__fail(err, (int)number, -1, "keys with their shard in front: %s",
                             pen_error_message((int)number));
        }
        entry->dir = (uint32_t)number;
    }
    pen__intern_fini(&ds->index.dirs);
    ds->index.dirs = dirs;
    return pen__index_sort(&ds->index, err);
}

static int give_keys(pen_dataset *ds, pen_error *err)
{
    const pen__shards *shards = ds->state;
    uint32_t a = 0, b = 0;
    int64_t n_repeated = pen__index_keys(&ds->index, &a, &b, err);
    if (n_repeated > 0) {
        int rc = prefix_keys(ds, err);
        if (rc != 0)
            return rc;
        n_repeated = pen__index_keys(&ds->index, &a, &b, err);
    }
    if (n_repeated <= 0)
        return (int)n_repeated;
    const char *path = shards->items[ds->index.entries[a].shard].path;
    pen__shown shown;
    return pen__fail(err, PEN_EINVAL, -1, "shard '%s' is listed twice",
                     pen__show(&shown, path, strlen(path)));
}

/* Without any .cls, directories are classes and a flat tar is one class: a folder and
 * a plain tar of it are the same dataset. */
static int label_unlabelled(pen_dataset *ds, pen_error *err)
{
    const pen__index *index = &ds->index;
    bool has_root = false, has_dirs = false;
    for (size_t i = 0; i < index->n; i++) {
        if (index->entries[i].flags & 1 << PEN_FIELD_CLS) /* also one that says -1 */
            return 0;
        bool is_root = *pen__intern_text(&index->dirs, index->entries[i].dir) == '\0';
        has_root |= is_root;
        has_dirs |= !is_root;
    }
    if (has_root && has_dirs) /* no class in common */
        return 0;
    return pen__dataset_label_by_directory(ds, err);
}

static int tar_open(pen_dataset *ds, const char *spec, const pen_dataset_opts *opts, pen_error *err)
{
    int rc = pen__shards_open(ds, spec, err);
    if (rc != 0)
        return rc;
    const pen__shards *shards = ds->state;
    progress p = {.opts = opts, .total = shards->bytes};
    char dir[PATH_MAX];
    const char *cache = pen__cache_dir(opts, dir) ? dir : NULL;
    uint64_t n_other = 0;
    for (size_t i = 0; rc == 0 && i < shards->n; i++)
        rc = open_shard(ds, (uint32_t)i, cache, &p, &n_other, err);
    if (rc != 0)
        return rc;
    pen__shown shown;
    if (ds->index.n == 0)
        return pen__fail(err, PEN_ENOTFOUND, -1,
                         "no images in '%s': looked for " PEN__IMAGE_EXTENSIONS
                         "; found %llu other members",
                         pen__show(&shown, spec, strlen(spec)), (unsigned long long)n_other);
    rc = pen__index_sort(&ds->index, err);
    if (rc == 0) /* before keys may get their shard in front, which is no class */
        rc = label_unlabelled(ds, err);
    return rc ? rc : give_keys(ds, err);
}

const pen__source pen__source_tar = {
    .name = "tar",
    .open = tar_open,
    .read = pen__shards_read,
    .open_field = pen__shards_open_field,
    .close = pen__shards_close,
};
