/* tar.c - tar shards, read in place.
 *
 * Opening asks each shard's index of the cache or of its headers, and adds the
 * samples to the common index.  Keys that occur in more than one shard (counters
 * that start at 0 in each) get the shard's name in front, for all samples, so
 * that adding a shard never renames only some.
 *
 * Reading is one pread.  The first shards read stay open, as many as a quarter
 * of the process's descriptors; shards beyond that are opened for each read,
 * which costs microseconds beside a decode.  So there is no list of open files
 * to lock: a slot goes from -1 to a descriptor once and stays until the end,
 * and a fork at any moment leaves it usable.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/mem.h"
#include "source/brace.h"
#include "source/cachedir.h"
#include "source/fileio.h"
#include "source/names.h"
#include "source/source.h"
#include "source/tar_index.h"

typedef struct shard {
    char *path; /* points into tar_state.paths */
    pen__tar_stamp stamp;
    atomic_int fd; /* -1 until it is kept open */
} shard;

typedef struct tar_state {
    pen__paths paths;
    shard *shards;
    size_t n;
    atomic_int n_kept;
    int max_kept;
    int start_fd; /* the directory relative paths were given in: the program may leave it */
} tar_state;

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

static int prefix_shard(pen_error *err, int rc, const char *path)
{
    pen__shown shown;
    pen__fail_prefix(err, "shard '%s'", pen__show(&shown, path, strlen(path)));
    return rc;
}

static int max_kept_open(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 64;
    rlim_t quarter = limit.rlim_cur / 4;
    return quarter > 4096 ? 4096 : (int)quarter;
}

/* The paths `spec` stands for; one that exists is itself, whatever braces it has. */
static int list_paths(pen__paths *paths, const char *spec, pen_error *err)
{
    struct stat st;
    if (stat(spec, &st) != 0)
        return pen__brace_expand(paths, spec, err);
    paths->items = pen__calloc(1, sizeof *paths->items);
    char *copy = paths->items ? pen__strdup(spec) : NULL;
    if (!copy)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    paths->items[0] = copy;
    paths->n = paths->cap = 1;
    return 0;
}

static int stamp_shard(const tar_state *state, shard *s, pen_error *err)
{
    struct stat st;
    pen__shown shown;
    pen__show(&shown, s->path, strlen(s->path));
    if (stat(s->path, &st) != 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return pen__fail_errno(err, errno, "open shard", shown.text);
        return pen__fail(err, PEN_ENOTFOUND, -1, "no such shard: '%s' (%zu of %zu)", shown.text,
                         (size_t)(s - state->shards) + 1, state->paths.n);
    }
    if (!S_ISREG(st.st_mode))
        return pen__fail(err, PEN_EIO, -1, "shard '%s' is not a regular file", shown.text);
    s->stamp = pen__tar_stamp_of(&st);
    return 0;
}

/* Look at every shard first: a missing one is found before hours of indexing. */
static int list_shards(tar_state *state, const char *spec, uint64_t *total, pen_error *err)
{
    int rc = list_paths(&state->paths, spec, err);
    if (rc != 0)
        return rc;
    state->shards = pen__calloc(state->paths.n, sizeof *state->shards);
    if (!state->shards)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    state->n = state->paths.n;
    for (size_t i = 0; i < state->n; i++) {
        state->shards[i].path = state->paths.items[i];
        atomic_init(&state->shards[i].fd, -1);
    }
    for (size_t i = 0; rc == 0 && i < state->n; i++) {
        rc = stamp_shard(state, &state->shards[i], err);
        *total += state->shards[i].stamp.size;
    }
    return rc;
}

/* Read the shard's headers; the stamp becomes that of the file actually read. */
static int build(pen__tar_index *index, shard *s, progress *p, pen_error *err)
{
    struct stat st, after;
    int fd = pen__open_regular(AT_FDCWD, s->path, &st, err);
    if (fd < 0)
        return fd;
    s->stamp = pen__tar_stamp_of(&st);
    pen__tar_bytes in = {.fd = fd, .size = s->stamp.size};
    int rc = pen__tar_index_build(index, &in, report, p, err);
    if (rc == 0 && fstat(fd, &after) == 0) {
        pen__tar_stamp now = pen__tar_stamp_of(&after);
        if (memcmp(&now, &s->stamp, sizeof now) != 0)
            rc = pen__fail(err, PEN_EIO, -1, "the file changed while it was indexed");
    }
    close(fd);
    return rc ? prefix_shard(err, rc, s->path) : 0;
}

static int add_samples(pen__index *into, const pen__tar_index *from, uint32_t number,
                       pen_error *err)
{
    for (size_t i = 0; i < from->n; i++) {
        const pen__tar_record *record = &from->records[i];
        const char *path = from->names + record->name;
        size_t len = strlen(path), leaf = pen__leaf_start(path, len);
        int64_t dir = pen__index_dir(into, path, leaf ? leaf - 1 : 0);
        if (dir < 0)
            return pen__fail(err, PEN_ENOMEM, -1, "out of memory after %zu samples", into->n);
        pen__found found = {.dir = (uint32_t)dir,
                            .name = path + leaf,
                            .name_len = len - leaf,
                            .stem_len = pen__path_stem(path, len) - leaf,
                            .length = record->length,
                            .label = record->label,
                            .shard = number,
                            .block = record->block};
        memcpy(&found.fields[1], record->fields, sizeof record->fields);
        int rc = pen__index_add(into, &found, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* The index of one shard, from the cache if it may be, into ds->index. */
static int open_shard(pen_dataset *ds, uint32_t number, const char *cache, progress *p,
                      uint64_t *n_other, pen_error *err)
{
    tar_state *state = ds->state;
    shard *s = &state->shards[number];
    pen__tar_index index = {0};
    int rc = 0;
    if (!cache || !pen__tar_cache_load(&index, cache, s->path, &s->stamp)) {
        rc = build(&index, s, p, err);
        if (rc == 0 && cache)
            pen__tar_cache_store(&index, cache, s->path, &s->stamp);
    }
    if (rc == 0) {
        rc = add_samples(&ds->index, &index, number, err);
        *n_other += index.n_other;
    }
    pen__tar_index_fini(&index);
    p->before += s->stamp.size;
    return rc ? rc : report(p, 0, err);
}

/* Bytes at the front of all paths up to the last slash they share. */
static size_t common_dir(const tar_state *state)
{
    const char *first = state->shards[0].path;
    size_t common = strlen(first);
    for (size_t i = 0; i < state->n; i++) {
        size_t n = 0;
        while (n < common && state->shards[i].path[n] == first[n])
            n++;
        common = n;
    }
    return pen__leaf_start(first, common);
}

/* Put each entry's directory below the name of its shard: the path below the
 * directory that all shards share, without ".tar". */
static int prefix_keys(pen_dataset *ds, pen_error *err)
{
    const tar_state *state = ds->state;
    size_t skip = common_dir(state);
    pen__intern dirs = {0};
    char dir[PEN_KEY_MAX];
    for (size_t i = 0; i < ds->index.n; i++) {
        pen__entry *entry = &ds->index.entries[i];
        const char *name = state->shards[entry->shard].path + skip;
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
    const tar_state *state = ds->state;
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
    const char *path = state->shards[ds->index.entries[a].shard].path;
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
    tar_state *state = pen__calloc(1, sizeof *state);
    if (!state)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    ds->state = state;
    state->max_kept = max_kept_open();
    state->start_fd = -1;
    if (*spec != '/' && (state->start_fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        return pen__fail_errno(err, errno, "open", ".");
    progress p = {.opts = opts};
    int rc = list_shards(state, spec, &p.total, err);
    char dir[PATH_MAX];
    const char *cache = pen__cache_dir(opts, dir) ? dir : NULL;
    uint64_t n_other = 0;
    for (size_t i = 0; rc == 0 && i < state->n; i++)
        rc = open_shard(ds, (uint32_t)i, cache, &p, &n_other, err);
    if (rc != 0)
        return rc;
    pen__shown shown;
    if (ds->index.n == 0)
        return pen__fail(err, PEN_ENOTFOUND, -1,
                         "no images in '%s': looked for " PEN__IMAGE_EXTENSIONS
                         "; found %llu other members",
                         pen__show(&shown, spec, strlen(spec)), (unsigned long long)n_other);
    ds->state_bytes = sizeof *state + state->n * (sizeof *state->shards + sizeof(char *));
    rc = pen__index_sort(&ds->index, err);
    if (rc == 0) /* before keys may get their shard in front, which is no class */
        rc = label_unlabelled(ds, err);
    return rc ? rc : give_keys(ds, err);
}

/* Its path in messages; for strangers, the last part of that. */
static const char *name_of(const pen_dataset *ds, const shard *s)
{
    return s->path + (ds->is_confined ? pen__leaf_start(s->path, strlen(s->path)) : 0);
}

static int open_again(const pen_dataset *ds, const shard *s, struct stat *st, pen_error *err)
{
    const tar_state *state = ds->state;
    const char *name = name_of(ds, s);
    pen__shown shown;
    int fd = pen__open_regular(state->start_fd, s->path, st, err);
    if (fd >= 0 || !ds->is_confined)
        return fd;
    pen__show(&shown, name, strlen(name));
    /* A node's clients ask again after PEN_EIO: in vain for what is not there any more. */
    if (faccessat(state->start_fd, s->path, F_OK, 0) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return pen__fail(err, PEN_ENOTFOUND, -1, "shard '%s' is gone", shown.text);
    return pen__fail(err, fd, -1, "cannot open shard '%s'", shown.text);
}

/* The shard's descriptor; *is_own: close it after the read. */
static int acquire(const pen_dataset *ds, shard *s, bool *is_own, pen_error *err)
{
    tar_state *state = ds->state;
    int fd = atomic_load_explicit(&s->fd, memory_order_acquire);
    *is_own = false;
    if (fd >= 0)
        return fd;
    struct stat st;
    fd = open_again(ds, s, &st, err);
    if (fd < 0)
        return fd;
    pen__tar_stamp now = pen__tar_stamp_of(&st);
    if (now.size != s->stamp.size || now.mtime_ns != s->stamp.mtime_ns) {
        close(fd);
        return prefix_shard(
            err, pen__fail(err, pen__changed_code(ds), -1, "changed since it was indexed"),
            name_of(ds, s));
    }
    int none = -1;
    if (atomic_fetch_add(&state->n_kept, 1) < state->max_kept &&
        atomic_compare_exchange_strong(&s->fd, &none, fd))
        return fd;
    atomic_fetch_sub(&state->n_kept, 1); /* no room, or another thread was first */
    *is_own = true;
    return fd;
}

static int tar_open_field(const pen_dataset *ds, const pen__entry *entry, uint32_t block,
                          size_t len, pen__opened *out, pen_error *err)
{
    (void)len;
    tar_state *state = ds->state;
    shard *s = &state->shards[entry->shard];
    struct stat st;
    *out = (pen__opened){.at = (uint64_t)block * PEN__BLOCK};
    out->fd = acquire(ds, s, &out->is_own, err);
    if (out->fd < 0)
        return out->fd;
    if (fstat(out->fd, &st) != 0) {
        pen__opened_close(out);
        return pen__fail(err, PEN_EIO, -1, "a shard's state cannot be read");
    }
    out->stamp = pen__file_stamp(&st);
    return 0;
}

static int tar_read(const pen_dataset *ds, const pen__entry *entry, uint32_t block, uint8_t *dst,
                    size_t len, pen_error *err)
{
    tar_state *state = ds->state;
    shard *s = &state->shards[entry->shard];
    bool is_own;
    int fd = acquire(ds, s, &is_own, err);
    if (fd < 0)
        return fd;
    uint64_t at = (uint64_t)block * PEN__BLOCK;
    int64_t got = pen__pread_full(fd, dst, len, at);
    if (is_own)
        close(fd);
    pen__shown shown;
    if (got < 0)
        return pen__fail_errno(err, (int)-got, "read shard",
                               pen__show(&shown, name_of(ds, s), strlen(name_of(ds, s))));
    if ((uint64_t)got != len)
        return prefix_shard(
            err, pen__fail(err, pen__changed_code(ds), (int64_t)at, "changed since it was indexed"),
            name_of(ds, s));
    return 0;
}

static void tar_close(pen_dataset *ds)
{
    tar_state *state = ds->state;
    if (!state)
        return;
    for (size_t i = 0; i < state->n; i++) {
        int fd = atomic_load(&state->shards[i].fd);
        if (fd >= 0)
            close(fd);
    }
    if (state->start_fd >= 0)
        close(state->start_fd);
    pen__free(state->shards);
    pen__paths_fini(&state->paths);
    pen__free(state);
}

const pen__source pen__source_tar = {
    .name = "tar",
    .open = tar_open,
    .read = tar_read,
    .open_field = tar_open_field,
    .close = tar_close,
};
