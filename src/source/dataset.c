/* dataset.c - the public face of datasets: what is common to every source. */
#include <penstock/dataset.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/little_endian.h"
#include "base/mem.h"
#include "source/cachedir.h"
#include "source/fileio.h"
#include "source/list.h"
#include "source/names.h"
#include "source/sidecar.h"
#include "source/source.h"

static const pen__source *const sources[] = {
    [PEN_SOURCE_FOLDER] = &pen__source_folder,     [PEN_SOURCE_TAR] = &pen__source_tar,
    [PEN_SOURCE_MANIFEST] = &pen__source_manifest, [PEN_SOURCE_LIST] = &pen__source_list,
    [PEN_SOURCE_REMOTE] = &pen__source_remote,     [PEN_SOURCE_PACK] = &pen__source_pack,
};

void pen_dataset_opts_init(pen_dataset_opts *opts)
{
    *opts = (pen_dataset_opts){.struct_size = sizeof *opts, .use_cache = true};
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcasecmp(text + n - m, end) == 0;
}

bool pen__is_remote(const char *spec)
{
    return strncmp(spec, "penstock://", 11) == 0 || strncmp(spec, "penstocks://", 12) == 0;
}

/* What `spec` is.  A path that exists wins over reading its braces. */
static int classify(const char *spec, pen_source_kind *kind, pen_error *err)
{
    pen__shown shown;
    *kind = PEN_SOURCE_REMOTE;
    if (pen__is_remote(spec))
        return 0;
    pen__show(&shown, spec, strlen(spec));
    struct stat st;
    if (stat(spec, &st) != 0) {
        int reason = errno;
        *kind =
            ends_with(spec, ".pen") || ends_with(spec, ".pen}") ? PEN_SOURCE_PACK : PEN_SOURCE_TAR;
        if (strchr(spec, '{'))
            return 0;
        if (reason == ENOENT || reason == ENOTDIR)
            return pen__fail(err, PEN_ENOTFOUND, -1, "no such file or directory: '%s'", shown.text);
        return pen__fail_errno(err, reason, "open", shown.text);
    }
    if (S_ISDIR(st.st_mode))
        *kind = PEN_SOURCE_FOLDER;
    else if (ends_with(spec, ".tar"))
        *kind = PEN_SOURCE_TAR;
    else if (ends_with(spec, ".pen"))
        *kind = PEN_SOURCE_PACK;
    else if (ends_with(spec, ".csv") || ends_with(spec, ".jsonl"))
        *kind = PEN_SOURCE_MANIFEST;
    else if (ends_with(spec, ".gz") || ends_with(spec, ".tgz") || ends_with(spec, ".zst") ||
             ends_with(spec, ".xz") || ends_with(spec, ".bz2"))
        return pen__fail(err, PEN_EUNSUPPORTED, -1,
                         "'%s' is compressed and cannot be read in place: decompress it first",
                         shown.text);
    else
        return pen__fail(
            err, PEN_EUNSUPPORTED, -1,
            "'%s' is no dataset: give a directory, a .tar or .pen file, a brace range of "
            "such files, a .csv or .jsonl manifest, or penstock://HOST/NAME",
            shown.text);
    return 0;
}

/* Callers built against an older header pass a shorter struct. */
static int complete_opts(pen_dataset_opts *full, const pen_dataset_opts *opts, pen_error *err)
{
    pen_dataset_opts_init(full);
    if (!opts)
        return 0;
    if (opts->struct_size < sizeof opts->struct_size || opts->struct_size > sizeof *full)
        return pen__fail(err, PEN_EINVAL, -1,
                         "dataset options have a size of %zu: call pen_dataset_opts_init first",
                         opts->struct_size);
    memcpy(full, opts, opts->struct_size);
    full->struct_size = sizeof *full;
    return 0;
}

int pen__dataset_report(const pen_dataset_opts *opts, int64_t done, int64_t total, pen_error *err)
{
    if (!opts->progress || opts->progress(opts->progress_ctx, done, total) == 0)
        return 0;
    return pen__fail(err, PEN_ECANCELED, -1, "opening the dataset was cancelled");
}

/* Directories are sorted: a class begins wherever the first component changes. */
int pen__dataset_label_by_directory(pen_dataset *ds, pen_error *err)
{
    const pen__intern *dirs = &ds->index.dirs;
    uint32_t *class_of = pen__calloc(dirs->n, sizeof *class_of);
    int64_t number = class_of ? 0 : PEN_ENOMEM;
    for (size_t i = 0; i < dirs->n && number >= 0; i++) {
        const char *dir = pen__intern_text(dirs, i), *slash = strchr(dir, '/');
        if (*dir == '\0') /* the root is no class */
            continue;
        number = pen__intern_put(&ds->classes, dir, slash ? (size_t)(slash - dir) : strlen(dir));
        class_of[i] = (uint32_t)number;
    }
    for (size_t i = 0; i < ds->index.n && number >= 0; i++)
        ds->index.entries[i].label = (int32_t)class_of[ds->index.entries[i].dir];
    pen__free(class_of);
    return number >= 0 ? 0 : pen__fail(err, PEN_ENOMEM, -1, "out of memory");
}

static pen_dataset *create(pen_source_kind kind)
{
    pen_dataset *ds = pen__calloc(1, sizeof *ds);
    if (!ds)
        return NULL;
    atomic_init(&ds->refs, 1);
    ds->kind = kind;
    ds->source = sources[kind];
    ds->root_fd = -1;
    return ds;
}

static int keep_cache_dir(pen_dataset *ds, const pen_dataset_opts *opts, pen_error *err)
{
    char dir[PATH_MAX];
    if (!pen__cache_dir(opts, dir))
        return 0;
    ds->cache = pen__strdup(dir);
    return ds->cache ? 0 : pen__fail(err, PEN_ENOMEM, -1, "out of memory");
}

/* A source has filled the dataset, or failed with `rc`: hand it out or let it go. */
static int finish(pen_dataset *ds, int rc, const pen_dataset_opts *opts, pen_dataset **out,
                  pen_error *err)
{
    ds->is_confined = opts->is_confined;
    if (rc == 0)
        rc = keep_cache_dir(ds, opts, err);
    if (rc == 0)
        rc = pen__index_digest(&ds->index, ds->hash, err);
    if (rc != 0) {
        pen_dataset_unref(ds);
        return rc;
    }
    pen__index_freeze(&ds->index);
    pen__intern_freeze(&ds->classes);
    *out = ds;
    return 0;
}

int pen_dataset_open(pen_dataset **out, const char *spec, const pen_dataset_opts *opts,
                     pen_error *err)
{
    *out = NULL;
    pen_dataset_opts full;
    pen_source_kind kind;
    int rc = complete_opts(&full, opts, err);
    if (rc == 0 && (!spec || !*spec))
        rc = pen__fail(err, PEN_EINVAL, -1, "no dataset given: the path is empty");
    if (rc == 0)
        rc = classify(spec, &kind, err);
    if (rc != 0)
        return rc;
    pen_dataset *ds = create(kind);
    if (!ds)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    return finish(ds, ds->source->open(ds, spec, &full, err), &full, out, err);
}

int pen_dataset_from_list(pen_dataset **out, const char *root, const char *const *paths,
                          const int64_t *labels, int64_t n, const char *const *classes,
                          int64_t n_classes, const pen_dataset_opts *opts, pen_error *err)
{
    *out = NULL;
    pen_dataset_opts full;
    int rc = complete_opts(&full, opts, err);
    if (rc != 0)
        return rc;
    pen_dataset *ds = create(PEN_SOURCE_LIST);
    if (!ds)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    const pen__list list = {root, paths, labels, n, classes, n_classes};
    return finish(ds, pen__list_fill(ds, &list, &full, err), &full, out, err);
}

pen_dataset *pen_dataset_ref(pen_dataset *ds)
{
    atomic_fetch_add_explicit(&ds->refs, 1, memory_order_relaxed);
    return ds;
}

void pen_dataset_unref(pen_dataset *ds)
{
    if (!ds || atomic_fetch_sub_explicit(&ds->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (ds->source->close)
        ds->source->close(ds);
    pen__index_fini(&ds->index);
    pen__intern_fini(&ds->classes);
    pen__free(ds->cache);
    pen__free(ds->headers);
    if (ds->root_fd >= 0)
        close(ds->root_fd);
    pen__free(ds->root);
    pen__free(ds);
}

int pen__dataset_open_root(pen_dataset *ds, const char *path, size_t len, pen_error *err)
{
    ds->root = pen__malloc(len + 1);
    if (!ds->root)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    memcpy(ds->root, path, len);
    ds->root[len] = '\0';
    ds->root_fd = open(ds->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pen__shown shown;
    return ds->root_fd >= 0
               ? 0
               : pen__fail_errno(err, errno, "open directory", pen__show(&shown, path, len));
}

static const pen__entry *entry_of(const pen_dataset *ds, int64_t id)
{
    return id >= 0 && id < (int64_t)ds->index.n ? &ds->index.entries[id] : NULL;
}

uint64_t pen__file_stamp(const struct stat *st)
{
    enum { JUST_NOW_S = 2 };
    if (st->st_mtim.tv_sec > pen__file_clock_s() - JUST_NOW_S)
        return 0;
    const int64_t facts[] = {st->st_size, st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
                             st->st_ctim.tv_sec, st->st_ctim.tv_nsec};
    return pen__hash64(facts, sizeof facts) | 1;
}

void pen__opened_close(const pen__opened *opened)
{
    if (opened->is_own)
        close(opened->fd);
}

int64_t pen__opened_read(const pen__opened *from, uint8_t *dst, size_t len)
{
    uint8_t sum[4];
    if (!from->is_summed)
        return pen__pread_full(from->fd, dst, len, from->at);
    int64_t got = pen__pread_two(from->fd, dst, len, sum, sizeof sum, from->at);
    if (got < 0)
        return got;
    if ((uint64_t)got < len)
        return got;
    const bool is_right =
        (uint64_t)got == len + sizeof sum && pen__crc32c(0, dst, len) == pen__le32(sum);
    return is_right ? (int64_t)len : -EBADMSG;
}

int pen__changed_code(const pen_dataset *ds)
{
    return ds->is_confined ? PEN_ENOTFOUND : PEN_EIO;
}

static int explain_length(const pen_dataset *ds, const char *path, size_t n, size_t len,
                          int64_t has, pen_error *err)
{
    pen__shown shown;
    return pen__fail(err, pen__changed_code(ds), -1,
                     "'%s' changed since it was indexed: it had %zu bytes and has %lld",
                     pen__show(&shown, path, n), len, (long long)has);
}

/* The file of an entry; its path, of *n bytes, for messages. */
static int open_file(const pen_dataset *ds, const pen__entry *entry, size_t len,
                     char path[PEN_KEY_MAX], size_t *n, pen__opened *out, pen_error *err)
{
    pen__shown shown;
    struct stat st;
    *n = pen__index_path(&ds->index, entry, strlen(pen__index_name(&ds->index, entry)), path);
    int fd = (ds->is_confined ? pen__open_beneath : pen__open_regular)(ds->root_fd, path, &st, err);
    if (fd < 0) {
        if (!ds->is_confined) /* strangers are not told where it lies */
            pen__fail_prefix(err, "in '%s'", pen__show(&shown, ds->root, strlen(ds->root)));
        return fd;
    }
    if ((uint64_t)st.st_size != len) {
        close(fd);
        return explain_length(ds, path, *n, len, st.st_size, err);
    }
    *out = (pen__opened){.fd = fd, .is_own = true, .stamp = pen__file_stamp(&st)};
    return 0;
}

int pen__dataset_open_file(const pen_dataset *ds, const pen__entry *entry, uint32_t block,
                           size_t len, pen__opened *out, pen_error *err)
{
    (void)block;
    char path[PEN_KEY_MAX];
    size_t n;
    return open_file(ds, entry, len, path, &n, out, err);
}

int pen__dataset_read_file(const pen_dataset *ds, const pen__entry *entry, uint32_t block,
                           uint8_t *dst, size_t len, pen_error *err)
{
    (void)block;
    char path[PEN_KEY_MAX];
    size_t n;
    pen__shown shown;
    pen__opened file = {.fd = -1};
    int rc = open_file(ds, entry, len, path, &n, &file, err);
    if (rc)
        return rc;
    int64_t got = pen__pread_full(file.fd, dst, len, 0);
    pen__opened_close(&file);
    if (got < 0)
        return pen__fail_errno(err, (int)-got, "read", pen__show(&shown, path, n));
    return (uint64_t)got == len ? 0 : explain_length(ds, path, n, len, got, err);
}

int pen__dataset_open_sample(const pen_dataset *ds, int64_t id, pen__opened *out, pen_error *err)
{
    const pen__entry *entry = entry_of(ds, id);
    if (!entry)
        return pen__fail(err, PEN_EINVAL, -1, "no such sample");
    if (!ds->source->open_field)
        return PEN_EUNSUPPORTED;
    return ds->source->open_field(ds, entry, entry->block, entry->length, out, err);
}

void pen_dataset_jpeg_index(const pen_dataset *ds, int64_t *n_samples, int64_t *n_bytes)
{
    pen__sidecar_size size = pen__sidecar_look(ds);
    *n_samples = size.n_blocks;
    *n_bytes = size.bytes;
}

pen_source_kind pen_dataset_kind(const pen_dataset *ds)
{
    return ds->kind;
}

const char *pen_source_kind_name(pen_source_kind kind)
{
    size_t n = sizeof sources / sizeof sources[0];
    return (size_t)kind < n ? sources[kind]->name : "unknown";
}

int64_t pen_dataset_count(const pen_dataset *ds)
{
    return (int64_t)ds->index.n;
}

int64_t pen_dataset_bytes(const pen_dataset *ds)
{
    return ds->index.total_bytes;
}

const char *pen_dataset_hash(const pen_dataset *ds)
{
    return ds->hash;
}

int64_t pen_dataset_index_bytes(const pen_dataset *ds)
{
    return (int64_t)(sizeof *ds + ds->state_bytes) + pen__index_bytes(&ds->index) +
           (int64_t)(ds->classes.cap * sizeof *ds->classes.items) +
           (ds->headers ? (int64_t)(ds->index.n * sizeof *ds->headers) : 0);
}

int64_t pen_dataset_key(const pen_dataset *ds, int64_t id, char *dst, size_t dst_cap)
{
    const pen__entry *entry = entry_of(ds, id);
    if (!entry)
        return PEN_EINVAL;
    size_t dir_len = pen__intern_len(&ds->index.dirs, entry->dir);
    size_t part = pen__index_key_part(&ds->index, entry);
    if ((dir_len ? dir_len + 1 : 0) + part >= dst_cap)
        return PEN_ENOSPC;
    return (int64_t)pen__index_path(&ds->index, entry, part, dst);
}

int64_t pen_dataset_find(const pen_dataset *ds, const char *key)
{
    return key ? pen__index_find(&ds->index, key, strlen(key)) : PEN_ENOTFOUND;
}

int64_t pen_dataset_label(const pen_dataset *ds, int64_t id)
{
    const pen__entry *entry = entry_of(ds, id);
    return entry ? entry->label : -1;
}

int64_t pen_dataset_length(const pen_dataset *ds, int64_t id)
{
    return pen_dataset_field_length(ds, id, PEN_FIELD_IMAGE);
}

int64_t pen_dataset_class_count(const pen_dataset *ds)
{
    return (int64_t)ds->classes.n;
}

const char *pen_dataset_class_name(const pen_dataset *ds, int64_t label)
{
    return label >= 0 && label < (int64_t)ds->classes.n
               ? pen__intern_text(&ds->classes, (size_t)label)
               : NULL;
}

const char *pen_field_name(pen_field field)
{
    static const char *const names[PEN_FIELD_COUNT] = {"image", "cls", "json", "txt"};
    return (unsigned)field < PEN_FIELD_COUNT ? names[field] : NULL;
}

/* Where a field of `id` is.  0, PEN_EINVAL or PEN_ENOTFOUND. */
static int locate(const pen_dataset *ds, int64_t id, pen_field field, pen__field_at *out)
{
    const pen__entry *entry = entry_of(ds, id);
    if (!entry || (int)field < 0 || field >= PEN_FIELD_COUNT)
        return PEN_EINVAL;
    if (field == PEN_FIELD_IMAGE) {
        *out = (pen__field_at){.block = entry->block, .length = entry->length};
        return 0;
    }
    const pen__field_at *at = pen__index_field(&ds->index, entry, field);
    if (!at)
        return PEN_ENOTFOUND;
    *out = *at;
    return 0;
}

int64_t pen_dataset_field_length(const pen_dataset *ds, int64_t id, pen_field field)
{
    pen__field_at at;
    int rc = locate(ds, id, field, &at);
    return rc == 0 ? (int64_t)at.length : rc;
}

int64_t pen_dataset_read(const pen_dataset *ds, int64_t id, uint8_t *dst, size_t dst_cap,
                         pen_error *err)
{
    return pen_dataset_field_read(ds, id, PEN_FIELD_IMAGE, dst, dst_cap, err);
}

/* The same, with a reason. */
static int find_field(const pen_dataset *ds, int64_t id, pen_field field, pen__field_at *out,
                      pen_error *err)
{
    int rc = locate(ds, id, field, out);
    if (rc == PEN_ENOTFOUND)
        pen__fail(err, rc, -1, "sample %lld has no such field", (long long)id);
    else if (rc != 0)
        pen__fail(err, rc, -1, "no sample %lld: there are %zu", (long long)id, ds->index.n);
    return rc;
}

int64_t pen_dataset_field_read(const pen_dataset *ds, int64_t id, pen_field field, uint8_t *dst,
                               size_t dst_cap, pen_error *err)
{
    pen__field_at at;
    int rc = find_field(ds, id, field, &at, err);
    if (rc != 0)
        return rc;
    if (at.length > dst_cap)
        return pen__fail(err, PEN_ENOSPC, -1, "sample %lld has %u bytes, the destination %zu",
                         (long long)id, at.length, dst_cap);
    rc = ds->source->read(ds, &ds->index.entries[id], at.block, dst, at.length, err);
    return rc == 0 ? (int64_t)at.length : rc;
}

/* One after the other. */
static int read_each(const pen_dataset *ds, const pen__field_read *reads, int n, pen_error *err)
{
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = ds->source->read(ds, reads[i].entry, reads[i].at.block, reads[i].dst,
                              reads[i].at.length, err);
    return rc;
}

int pen_dataset_fields_read(const pen_dataset *ds, const int64_t *ids, int64_t n, pen_field field,
                            uint8_t *const *dst, pen_error *err)
{
    pen__field_read reads[PEN__FIELD_READS];
    const bool is_many = ds->source->read_many && field != PEN_FIELD_IMAGE;
    for (int64_t i = 0; i < n;) {
        int n_reads = 0, rc = 0;
        for (; i < n && n_reads < PEN__FIELD_READS && rc == 0; i++) {
            if (!dst[i])
                continue;
            reads[n_reads].dst = dst[i];
            rc = find_field(ds, ids[i], field, &reads[n_reads].at, err);
            reads[n_reads++].entry = entry_of(ds, ids[i]);
        }
        if (rc == 0 && n_reads > 0)
            rc = (is_many ? ds->source->read_many : read_each)(ds, reads, n_reads, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}
