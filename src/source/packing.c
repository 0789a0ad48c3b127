/* packing.c - write a dataset as a pack: what goes into which file, and all of it or nothing.
 *
 * Lengths are known from the index, so what each file will hold, how many there are and what they
 * are called is settled before the first sample is read.  Files are written under temporary names
 * beside their own; they get theirs when all are on the disk.  Samples are written in order of id,
 * so that reading in order is reading ahead.
 */
#include <penstock/pack.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/mem.h"
#include "source/brace.h"
#include "source/cachedir.h"
#include "source/grow.h"
#include "source/names.h"
#include "source/penfile_write.h"
#include "source/source.h"

static const char ending[] = ".pen";
#define ENDING_LEN      (sizeof ending - 1)
#define MAX_SHARD_BYTES (INT64_C(1) << 40)

enum {
    MIN_DIGITS = 3,
    NAME_ROOM = PATH_MAX + 16,
    MAX_CLASS_BYTES = 1 << 30, /* each file has all of them, and samples as well */
};

/* A file to be. */
typedef struct part {
    int64_t first; /* id */
    int64_t bytes, index_bytes;
    char *temporary; /* its name as long as it exists, or NULL */
} part;

typedef struct packing {
    const pen_dataset *ds;
    const char *path;
    size_t stem_len; /* of the path, without its ending */
    pen_pack_opts opts;
    part *parts;
    size_t n, cap;
    int n_digits;
    int64_t done, total;
    pen__penfile_writer writer;
} packing;

void pen_pack_opts_init(pen_pack_opts *opts)
{
    *opts = (pen_pack_opts){.struct_size = sizeof *opts};
}

static int begin(packing *p, const pen_dataset *ds, const char *path, const pen_pack_opts *opts,
                 pen_error *err)
{
    *p = (packing){.ds = ds, .path = path};
    pen_pack_opts_init(&p->opts);
    if (opts) {
        if (opts->struct_size < sizeof opts->struct_size || opts->struct_size > sizeof p->opts)
            return pen__fail(err, PEN_EINVAL, -1,
                             "pack options have a size of %zu: call pen_pack_opts_init first",
                             opts->struct_size);
        memcpy(&p->opts, opts, opts->struct_size);
    }
    if (p->opts.shard_bytes < 0 || p->opts.shard_bytes > MAX_SHARD_BYTES)
        return pen__fail(err, PEN_EINVAL, -1, "a shard has 1 byte to 1 TiB, not %lld bytes",
                         (long long)p->opts.shard_bytes);
    if (p->opts.shard_bytes == 0)
        p->opts.shard_bytes = MAX_SHARD_BYTES;
    const size_t len = path ? strlen(path) : 0;
    pen__shown shown;
    if (len <= ENDING_LEN || strcasecmp(path + len - ENDING_LEN, ending) != 0 ||
        path[len - ENDING_LEN - 1] == '/')
        return pen__fail(err, PEN_EINVAL, -1,
                         "'%s': a pack's name ends in .pen, or nobody would take it for one",
                         pen__show(&shown, len ? path : "", len));
    if (len >= PATH_MAX)
        return pen__fail(err, PEN_EINVAL, -1, "'%s': the path is too long",
                         pen__show(&shown, path, len));
    p->stem_len = len - ENDING_LEN;
    return 0;
}

/* ---- what goes where ---- */

static int64_t check_key(const pen_dataset *ds, int64_t id, pen_error *err)
{
    char key[PEN_KEY_MAX];
    const char *why;
    pen__shown shown;
    int64_t len = pen_dataset_key(ds, id, key, sizeof key);
    if (len >= 0 && !pen__penfile_takes_key(key, (size_t)len, &why))
        return pen__fail(err, PEN_EINVAL, -1,
                         "sample '%s' cannot be packed: its key %s, and keys of a pack are paths "
                         "below one root",
                         pen__show(&shown, key, (size_t)len), why);
    return len;
}

static int check_classes(const pen_dataset *ds, pen_error *err)
{
    const pen__intern *classes = &ds->classes;
    bool is_right = classes->n <= PEN__PENFILE_MAX_CLASSES && classes->n_bytes <= MAX_CLASS_BYTES;
    for (size_t i = 0; i < classes->n && is_right; i++)
        is_right = pen__intern_len(classes, i) < PEN_KEY_MAX;
    return is_right
               ? 0
               : pen__fail(
                     err, PEN_ELIMIT, -1,
                     "a pack has %d classes at most, with names of %d bytes each and %d in all",
                     PEN__PENFILE_MAX_CLASSES, PEN_KEY_MAX - 1, MAX_CLASS_BYTES);
}

/* What a sample's fields take. */
static int64_t measure(packing *p, int64_t id)
{
    int64_t bytes = 0;
    for (int i = 0; i < PEN_FIELD_COUNT; i++) {
        const int64_t len = pen_dataset_field_length(p->ds, id, (pen_field)i);
        if (len < 0)
            continue;
        bytes += (int64_t)pen__penfile_blocks((uint64_t)len) * PEN__BLOCK;
        p->total += len;
    }
    return bytes;
}

static bool has_room(const packing *p, int64_t bytes, int64_t index_bytes)
{
    const part *last = &p->parts[p->n - 1];
    return last->bytes + bytes + index_bytes <= p->opts.shard_bytes &&
           last->index_bytes + index_bytes <= (int64_t)PEN__PENFILE_MAX_INDEX;
}

static int add_part(packing *p, int64_t first, pen_error *err)
{
    if (p->n == PEN__BRACE_MAX)
        return pen__fail(err, PEN_ELIMIT, -1, "a pack has %d shards at most: let them be larger",
                         PEN__BRACE_MAX);
    part *parts = pen__grow(p->parts, &p->cap, p->n + 1, sizeof *parts);
    if (!parts)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    p->parts = parts;
    const int64_t of_classes = (int64_t)p->ds->classes.n_bytes;
    parts[p->n++] =
        (part){.first = first, .bytes = PEN__PENFILE_HEAD + of_classes, .index_bytes = of_classes};
    return 0;
}

static int plan(packing *p, pen_error *err)
{
    const int64_t n = pen_dataset_count(p->ds);
    int rc = check_classes(p->ds, err);
    for (int64_t id = 0; id < n && rc == 0; id++) {
        const int64_t key_len = check_key(p->ds, id, err);
        if (key_len < 0)
            return (int)key_len;
        const int64_t bytes = measure(p, id), index_bytes = PEN__SHARD_RECORD + key_len + 1;
        if (p->n == 0 || !has_room(p, bytes, index_bytes))
            rc = add_part(p, id, err);
        if (rc == 0) {
            p->parts[p->n - 1].bytes += bytes + index_bytes;
            p->parts[p->n - 1].index_bytes += index_bytes;
        }
    }
    p->n_digits = MIN_DIGITS;
    for (size_t most = 1000; p->n > most; most *= 10)
        p->n_digits++;
    return rc;
}

/* The name of file i. */
static void name_part(const packing *p, size_t i, char dst[NAME_ROOM])
{
    const char *end = p->path + p->stem_len;
    if (p->n == 1)
        snprintf(dst, NAME_ROOM, "%s", p->path);
    else
        snprintf(dst, NAME_ROOM, "%.*s-%0*zu%s", (int)p->stem_len, p->path, p->n_digits, i, end);
}

static int name_all(const packing *p, char *spec, size_t spec_cap, pen_error *err)
{
    pen__shown shown;
    if (p->n > 1 && strpbrk(p->path, "{}"))
        return pen__fail(err, PEN_EINVAL, -1,
                         "'%s': braces are in the way of naming several shards",
                         pen__show(&shown, p->path, strlen(p->path)));
    if (!spec)
        return 0;
    const char *end = p->path + p->stem_len;
    int n = p->n == 1 ? snprintf(spec, spec_cap, "%s", p->path)
                      : snprintf(spec, spec_cap, "%.*s-{%0*d..%0*zu}%s", (int)p->stem_len, p->path,
                                 p->n_digits, 0, p->n_digits, p->n - 1, end);
    return n >= 0 && (size_t)n < spec_cap
               ? 0
               : pen__fail(err, PEN_ENOSPC, -1, "no room for what the pack is opened with");
}

static int is_taken(const char *name, pen_error *err)
{
    pen__shown shown;
    return pen__fail(err, PEN_EINVAL, -1, "'%s' is there already, and is not to be overwritten",
                     pen__show(&shown, name, strlen(name)));
}

/* Is there something where files are to be? */
static int check_places(const packing *p, pen_error *err)
{
    char name[NAME_ROOM];
    struct stat st;
    pen__shown shown;
    for (size_t i = 0; i < p->n; i++) {
        name_part(p, i, name);
        if (lstat(name, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode))
            return pen__fail(err, PEN_EINVAL, -1, "'%s' is a directory: name a file",
                             pen__show(&shown, name, strlen(name)));
        if (!p->opts.overwrite)
            return is_taken(name, err);
    }
    return 0;
}

/* ---- writing ---- */

static int copy_field(packing *p, int64_t id, pen_field field, pen__field_at *at, pen_error *err)
{
    int64_t len = pen_dataset_field_length(p->ds, id, field);
    *at = (pen__field_at){0};
    if (len < 0) /* there is none; an image there is */
        return 0;
    uint8_t *room;
    int rc = pen__penfile_room(&p->writer, (size_t)len, &room, err);
    if (rc)
        return rc;
    int64_t got = pen_dataset_field_read(p->ds, id, field, room, (size_t)len, err);
    if (got < 0)
        return (int)got;
    *at = pen__penfile_add(&p->writer, (size_t)len);
    p->done += len;
    return 0;
}

static int copy_sample(packing *p, int64_t id, pen_error *err)
{
    char key[PEN_KEY_MAX];
    pen__shard_record record = {.label = (int32_t)pen_dataset_label(p->ds, id)};
    pen__field_at image;
    int64_t len = pen_dataset_key(p->ds, id, key, sizeof key);
    int rc = len < 0 ? (int)len : copy_field(p, id, PEN_FIELD_IMAGE, &image, err);
    for (int i = 1; i < PEN_FIELD_COUNT && rc == 0; i++)
        rc = copy_field(p, id, (pen_field)i, &record.fields[i - 1], err);
    if (rc) {
        pen__shown shown;
        pen__fail_prefix(err, "sample '%s'", pen__show(&shown, key, len < 0 ? 0 : (size_t)len));
        return rc;
    }
    record.block = image.block;
    record.length = image.length;
    return pen__shard_index_add(&p->writer.index, &record, key, (size_t)len, err);
}

static int write_samples(packing *p, int64_t first, int64_t end, pen_error *err)
{
    for (int64_t id = first; id < end; id++) {
        int rc = copy_sample(p, id, err);
        if (rc)
            return rc;
        if (p->opts.progress && p->opts.progress(p->opts.progress_ctx, p->done, p->total) != 0)
            return pen__fail(err, PEN_ECANCELED, -1, "packing was cancelled");
    }
    return 0;
}

/* Take the room now, and in one piece where the file system can: better than to find out at the
 * end that there is none.  One that cannot do this does without. */
static int take_room(int fd, int64_t bytes, const char *name, pen_error *err)
{
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, bytes) == 0 ||
        (errno != ENOSPC && errno != EDQUOT && errno != EFBIG))
        return 0;
    const int reason = errno;
    pen__shown shown;
    pen__fail_errno(err, reason, "write", pen__show(&shown, name, strlen(name)));
    pen__fail_prefix(err, "it takes %.3f GB", (double)bytes / 1e9);
    return PEN_EIO;
}

static int create(part *to, const char *name, pen_error *err)
{
    char temporary[PEN__CACHE_TEMPORARY];
    pen__shown shown;
    int fd = pen__cache_create(name, temporary);
    if (fd < 0)
        return pen__fail_errno(err, errno, "create", pen__show(&shown, name, strlen(name)));
    to->temporary = pen__strdup(temporary);
    if (to->temporary)
        return fd;
    close(fd);
    unlink(temporary);
    return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
}

static int write_part(packing *p, size_t i, pen_error *err)
{
    char name[NAME_ROOM];
    name_part(p, i, name);
    part *to = &p->parts[i];
    const int64_t n = pen_dataset_count(p->ds), end = i + 1 < p->n ? to[1].first : n;
    int fd = create(to, name, err);
    if (fd < 0)
        return fd;
    pen__penfile_head head = {.first_id = (uint64_t)to->first, .n_all = (uint64_t)n};
    memcpy(head.id, pen_dataset_hash(p->ds), sizeof head.id);
    int rc = take_room(fd, to->bytes, name, err);
    if (rc == 0)
        rc = pen__penfile_begin(&p->writer, fd, name, err);
    if (rc == 0)
        rc = write_samples(p, to->first, end, err);
    if (rc == 0)
        rc = pen__penfile_end(&p->writer, &head, &p->ds->classes, err);
    pen__shown shown;
    if (close(fd) != 0 && rc == 0)
        rc = pen__fail_errno(err, errno, "write", pen__show(&shown, name, strlen(name)));
    return rc;
}

/* ---- names ---- */

/* The directory that the files are in: their names are to be on the disk, too.  Some file systems
 * cannot be asked for that. */
static void sync_directory(const packing *p)
{
    char dir[PATH_MAX];
    const size_t n = pen__leaf_start(p->path, p->stem_len);
    snprintf(dir, sizeof dir, "%.*s", (int)n, p->path);
    int fd = open(n ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

static int rename_part(const packing *p, size_t i, pen_error *err)
{
    char name[NAME_ROOM];
    name_part(p, i, name);
    const char *from = p->parts[i].temporary;
    int rc = renameat2(AT_FDCWD, from, AT_FDCWD, name, p->opts.overwrite ? 0 : RENAME_NOREPLACE);
    if (rc != 0 && (errno == EINVAL || errno == ENOSYS)) /* NFS: was looked at before */
        rc = rename(from, name);
    if (rc == 0)
        return 0;
    pen__shown shown;
    return errno == EEXIST
               ? is_taken(name, err)
               : pen__fail_errno(err, errno, "create", pen__show(&shown, name, strlen(name)));
}

static int rename_all(packing *p, pen_error *err)
{
    char name[NAME_ROOM];
    for (size_t i = 0; i < p->n; i++) {
        int rc = rename_part(p, i, err);
        for (size_t k = 0; rc != 0 && k < i; k++) {
            name_part(p, k, name);
            unlink(name);
        }
        if (rc)
            return rc;
        pen__free(p->parts[i].temporary);
        p->parts[i].temporary = NULL;
    }
    sync_directory(p);
    return 0;
}

static void end(packing *p)
{
    for (size_t i = 0; i < p->n; i++) {
        if (p->parts[i].temporary)
            unlink(p->parts[i].temporary);
        pen__free(p->parts[i].temporary);
    }
    pen__free(p->parts);
    pen__penfile_writer_fini(&p->writer);
}

int64_t pen_pack_write(const pen_dataset *ds, const char *path, const pen_pack_opts *opts,
                       char *spec, size_t spec_cap, pen_error *err)
{
    packing p;
    int rc = begin(&p, ds, path, opts, err);
    if (rc == 0)
        rc = plan(&p, err);
    if (rc == 0)
        rc = name_all(&p, spec, spec_cap, err);
    if (rc == 0)
        rc = check_places(&p, err);
    for (size_t i = 0; i < p.n && rc == 0; i++)
        rc = write_part(&p, i, err);
    if (rc == 0)
        rc = rename_all(&p, err);
    const int64_t n = (int64_t)p.n;
    end(&p);
    return rc ? rc : n;
}
