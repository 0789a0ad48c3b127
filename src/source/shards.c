/* shards.c - listing shards, and reading fields that lie in them.
 *
 * Reading is one pread.  The first shards read stay open, as many as a quarter
 * of the process's descriptors; shards beyond that are opened for each read,
 * which costs microseconds beside a decode.  So there is no list of open files
 * to lock: a slot goes from -1 to a descriptor once and stays until the end,
 * and a fork at any moment leaves it usable.
 *
 * Where a field's checksum follows it and is wrong, it is read once more, past the
 * page cache if that can be: a bad transfer is no reason to stop.  What is wrong
 * then is wrong on the disk, and stays so.  If the file has changed since it was
 * indexed, that is the reason, an I/O fault as of any source; else it is the sample
 * that is damaged, a fault of the data, which may be skipped like a damaged JPEG.
 */
#include "source/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/mem.h"
#include "source/fileio.h"
#include "source/names.h"

int pen__shard_prefix(pen_error *err, int rc, const char *path)
{
    pen__shown shown;
    pen__fail_prefix(err, "shard '%s'", pen__show(&shown, path, strlen(path)));
    return rc;
}

/* ---- opening ---- */

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

static int stamp_shard(const pen__shards *shards, pen__shard *s, pen_error *err)
{
    struct stat st;
    pen__shown shown;
    pen__show(&shown, s->path, strlen(s->path));
    if (stat(s->path, &st) != 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return pen__fail_errno(err, errno, "open shard", shown.text);
        return pen__fail(err, PEN_ENOTFOUND, -1, "no such shard: '%s' (%zu of %zu)", shown.text,
                         (size_t)(s - shards->items) + 1, shards->paths.n);
    }
    if (!S_ISREG(st.st_mode))
        return pen__fail(err, PEN_EIO, -1, "shard '%s' is not a regular file", shown.text);
    s->stamp = pen__shard_stamp_of(&st);
    return 0;
}

/* Look at every shard first: a missing one is found before hours of indexing. */
static int list_shards(pen__shards *shards, const char *spec, pen_error *err)
{
    int rc = list_paths(&shards->paths, spec, err);
    if (rc != 0)
        return rc;
    shards->items = pen__calloc(shards->paths.n, sizeof *shards->items);
    if (!shards->items)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    shards->n = shards->paths.n;
    for (size_t i = 0; i < shards->n; i++) {
        shards->items[i].path = shards->paths.items[i];
        atomic_init(&shards->items[i].fd, -1);
    }
    for (size_t i = 0; rc == 0 && i < shards->n; i++) {
        rc = stamp_shard(shards, &shards->items[i], err);
        shards->bytes += shards->items[i].stamp.size;
    }
    return rc;
}

int pen__shards_open(pen_dataset *ds, const char *spec, pen_error *err)
{
    pen__shards *shards = pen__calloc(1, sizeof *shards);
    if (!shards)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    ds->state = shards;
    shards->max_kept = max_kept_open();
    shards->start_fd = -1;
    if (*spec != '/' && (shards->start_fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        return pen__fail_errno(err, errno, "open", ".");
    int rc = list_shards(shards, spec, err);
    ds->state_bytes = sizeof *shards + shards->n * (sizeof *shards->items + sizeof(char *));
    return rc;
}

int pen__shard_look(pen__shard *shard, int (*look)(void *ctx, int fd, pen_error *err), void *ctx,
                    pen_error *err)
{
    struct stat st, after;
    int fd = pen__open_regular(AT_FDCWD, shard->path, &st, err);
    if (fd < 0)
        return fd;
    shard->stamp = pen__shard_stamp_of(&st);
    int rc = look(ctx, fd, err);
    if (rc == 0 && fstat(fd, &after) == 0) {
        pen__shard_stamp now = pen__shard_stamp_of(&after);
        if (memcmp(&now, &shard->stamp, sizeof now) != 0)
            rc = pen__fail(err, PEN_EIO, -1, "the file changed while it was indexed");
    }
    close(fd);
    return rc ? pen__shard_prefix(err, rc, shard->path) : 0;
}

int pen__shards_add(pen_dataset *ds, const pen__shard_index *from, uint32_t number, bool are_keys,
                    pen_error *err)
{
    pen__index *into = &ds->index;
    for (size_t i = 0; i < from->n; i++) {
        const pen__shard_record *record = &from->records[i];
        const char *path = from->names + record->name;
        size_t len = strlen(path), leaf = pen__leaf_start(path, len);
        int64_t dir = pen__index_dir(into, path, leaf ? leaf - 1 : 0);
        if (dir < 0)
            return pen__fail(err, PEN_ENOMEM, -1, "out of memory after %zu samples", into->n);
        pen__found found = {.dir = (uint32_t)dir,
                            .name = path + leaf,
                            .name_len = len - leaf,
                            .stem_len = (are_keys ? len : pen__path_stem(path, len)) - leaf,
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

/* ---- reading ---- */

/* Its path in messages; for strangers, the last part of that. */
static const char *name_of(const pen_dataset *ds, const pen__shard *s)
{
    return s->path + (ds->is_confined ? pen__leaf_start(s->path, strlen(s->path)) : 0);
}

static int has_changed(const pen_dataset *ds, const pen__shard *s, int64_t at, pen_error *err)
{
    return pen__shard_prefix(
        err, pen__fail(err, pen__changed_code(ds), at, "changed since it was indexed"),
        name_of(ds, s));
}

static int open_again(const pen_dataset *ds, const pen__shard *s, struct stat *st, pen_error *err)
{
    const pen__shards *shards = ds->state;
    const char *name = name_of(ds, s);
    pen__shown shown;
    int fd = pen__open_regular(shards->start_fd, s->path, st, err);
    if (fd >= 0 || !ds->is_confined)
        return fd;
    pen__show(&shown, name, strlen(name));
    /* A node's clients ask again after PEN_EIO: in vain for what is not there any more. */
    if (faccessat(shards->start_fd, s->path, F_OK, 0) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return pen__fail(err, PEN_ENOTFOUND, -1, "shard '%s' is gone", shown.text);
    return pen__fail(err, fd, -1, "cannot open shard '%s'", shown.text);
}

static bool is_as_indexed(const pen__shard *s, const struct stat *st)
{
    pen__shard_stamp now = pen__shard_stamp_of(st);
    return now.size == s->stamp.size && now.mtime_ns == s->stamp.mtime_ns;
}

/* The shard's descriptor; *is_own: close it after the read. */
static int acquire(const pen_dataset *ds, pen__shard *s, bool *is_own, pen_error *err)
{
    pen__shards *shards = ds->state;
    int fd = atomic_load_explicit(&s->fd, memory_order_acquire);
    *is_own = false;
    if (fd >= 0)
        return fd;
    struct stat st;
    fd = open_again(ds, s, &st, err);
    if (fd < 0)
        return fd;
    if (!is_as_indexed(s, &st)) {
        close(fd);
        return has_changed(ds, s, -1, err);
    }
    int none = -1;
    if (atomic_fetch_add(&shards->n_kept, 1) < shards->max_kept &&
        atomic_compare_exchange_strong(&s->fd, &none, fd))
        return fd;
    atomic_fetch_sub(&shards->n_kept, 1); /* no room, or another thread was first */
    *is_own = true;
    return fd;
}

static int find(const pen_dataset *ds, pen__shard *s, uint32_t block, pen__opened *out,
                pen_error *err)
{
    const pen__shards *shards = ds->state;
    *out = (pen__opened){.at = (uint64_t)block * PEN__BLOCK, .is_summed = shards->are_summed};
    out->fd = acquire(ds, s, &out->is_own, err);
    return out->fd < 0 ? out->fd : 0;
}

int pen__shards_open_field(const pen_dataset *ds, const pen__entry *entry, uint32_t block,
                           size_t len, pen__opened *out, pen_error *err)
{
    (void)len;
    struct stat st;
    const pen__shards *shards = ds->state;
    int rc = find(ds, &shards->items[entry->shard], block, out, err);
    if (rc)
        return rc;
    if (fstat(out->fd, &st) != 0) {
        pen__opened_close(out);
        return pen__fail(err, PEN_EIO, -1, "a shard's state cannot be read");
    }
    out->stamp = pen__file_stamp(&st);
    return 0;
}

/* What a read that brought `got` instead of all has met. */
static int explain(const pen_dataset *ds, const pen__shard *s, const pen__opened *from, int64_t got,
                   pen_error *err)
{
    struct stat st;
    pen__shown shown;
    const char *name = name_of(ds, s);
    const bool is_damaged = got == -EBADMSG;
    if (got < 0 && !is_damaged)
        return pen__fail_errno(err, (int)-got, "read shard", pen__show(&shown, name, strlen(name)));
    if (!is_damaged || fstat(from->fd, &st) != 0 || !is_as_indexed(s, &st))
        return has_changed(ds, s, (int64_t)from->at, err);
    pen__fail(err, PEN_ECORRUPT, (int64_t)from->at,
              "what is there is not what was written: its checksum differs");
    return pen__shard_prefix(err, PEN_ECORRUPT, name);
}

int pen__shards_read(const pen_dataset *ds, const pen__entry *entry, uint32_t block, uint8_t *dst,
                     size_t len, pen_error *err)
{
    const pen__shards *shards = ds->state;
    pen__shard *s = &shards->items[entry->shard];
    pen__opened from;
    int rc = find(ds, s, block, &from, err);
    if (rc)
        return rc;
    int64_t got = pen__opened_read(&from, dst, len);
    if (got == -EBADMSG) {
        posix_fadvise(from.fd, (off_t)from.at, (off_t)len, POSIX_FADV_DONTNEED);
        got = pen__opened_read(&from, dst, len);
    }
    if (got < 0 || (uint64_t)got != len)
        rc = explain(ds, s, &from, got, err);
    pen__opened_close(&from);
    return rc;
}

void pen__shards_close(pen_dataset *ds)
{
    pen__shards *shards = ds->state;
    if (!shards)
        return;
    for (size_t i = 0; i < shards->n; i++) {
        int fd = atomic_load(&shards->items[i].fd);
        if (fd >= 0)
            close(fd);
    }
    if (shards->start_fd >= 0)
        close(shards->start_fd);
    pen__free(shards->items);
    pen__paths_fini(&shards->paths);
    pen__free(shards);
}
