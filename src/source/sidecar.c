/* sidecar.c - the file, the table in memory, and how both stay whole.
 *
 * File: header, table of one word a sample, blocks.  The checksum covers header and
 * table; a block is its owner's to check.  It is read with pread, not mapped, because
 * a mapped file that someone shortens would end the process.
 *
 * The table in memory has for each sample which open file, where, and how long, in one
 * atomic word: readers see the old place or the new one, and both are valid, since no
 * file is ever changed where it has been written, nor closed before the end.
 *
 * Saving copies everything into a new file and renames it.  A lock file makes those
 * who save take turns, so that each adds to what the one before has written.
 */
#include "source/sidecar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/mem.h"
#include "source/cachedir.h"
#include "source/fileio.h"

enum {
    FORMAT_VERSION = 1,
    BYTE_ORDER_MARK = 0x01020304,
    FILE_BITS = 4,
    OFFSET_BITS = 40,
    LENGTH_BITS = 20,
    FRESH = 1, /* the file without a name; 0 is none at all */
    MAX_FILES = 1 << FILE_BITS,
    WORTH_SAVING = 8, /* one new block among so many */
    COPY_BYTES = 1 << 20,
};

/* In the machine's byte order: another machine's file is just not accepted. */
typedef struct file_header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t checksum; /* of everything behind this field, and the table */
    char dataset[PEN__DIGEST_TEXT + 7];
    uint64_t n_samples, n_blocks, bytes;
} file_header;
_Static_assert(sizeof(file_header) == 88, "no padding in what is hashed and written");

static const char magic[8] = {'P', 'E', 'N', 'S', 'I', 'D', 'E', 'C'};

struct pen__sidecar {
    int64_t n_samples;
    int64_t max_bytes;
    char dataset[PEN__DIGEST_TEXT];
    char path[PATH_MAX];
    _Atomic uint64_t *where; /* file, offset, length of each sample's block; 0: none */
    int fds[MAX_FILES];      /* set before a word that names it, and then never again */
    int n_files;
    _Atomic int64_t fresh_end; /* of the file without a name */
    _Atomic int64_t n_blocks, bytes, n_new;
};

/* --- places --- */

static uint64_t pack(int file, uint64_t offset, size_t len)
{
    return (uint64_t)file << (OFFSET_BITS + LENGTH_BITS) | offset << LENGTH_BITS | len;
}

static int file_of(uint64_t place)
{
    return (int)(place >> (OFFSET_BITS + LENGTH_BITS));
}

static uint64_t offset_of(uint64_t place)
{
    return place >> LENGTH_BITS & ((UINT64_C(1) << OFFSET_BITS) - 1);
}

static size_t length_of(uint64_t place)
{
    return (size_t)(place & ((1U << LENGTH_BITS) - 1));
}

static uint64_t data_begin(int64_t n_samples)
{
    return sizeof(file_header) + (uint64_t)n_samples * sizeof(uint64_t);
}

static size_t read_place(const pen__sidecar *s, uint64_t place, void *dst, size_t cap)
{
    size_t len = length_of(place);
    if (len == 0 || len > cap)
        return 0;
    return pen__pread_full(s->fds[file_of(place)], dst, len, offset_of(place)) == (int64_t)len ? len
                                                                                               : 0;
}

/* --- files --- */

static bool set_path(char dst[PATH_MAX], const pen_dataset *ds)
{
    int n = ds->cache ? snprintf(dst, PATH_MAX, "%s/%s.marks", ds->cache, ds->hash) : -1;
    return n > 0 && n < PATH_MAX - 8;
}

/* Only a file that nobody else could have written counts: what it says is checked, but not
 * against somebody who means harm. */
static int open_own_file(const char *path, struct stat *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -1;
    if (fstat(fd, st) == 0 && S_ISREG(st->st_mode) && st->st_uid == geteuid() &&
        (st->st_mode & (S_IWGRP | S_IWOTH)) == 0)
        return fd;
    close(fd);
    return -1;
}

static uint64_t check_of(const file_header *h, const uint64_t *table)
{
    enum { FROM = offsetof(file_header, dataset) };
    uint64_t sums[2] = {pen__hash64((const char *)h + FROM, sizeof *h - FROM),
                        pen__hash64(table, (size_t)h->n_samples * sizeof *table)};
    return pen__hash64(sums, sizeof sums);
}

static bool header_is_ours(const file_header *h, const char *dataset, int64_t n_samples)
{
    return memcmp(h->magic, magic, sizeof magic) == 0 && h->version == FORMAT_VERSION &&
           h->byte_order == BYTE_ORDER_MARK && h->n_samples == (uint64_t)n_samples &&
           strncmp(h->dataset, dataset, sizeof h->dataset) == 0;
}

static bool places_are_within(const uint64_t *table, int64_t n, uint64_t file_bytes)
{
    for (int64_t i = 0; i < n; i++)
        if (file_of(table[i]) != 0 || offset_of(table[i]) + length_of(table[i]) > file_bytes)
            return false;
    return true;
}

/* The table of the file at `path`, n words for the caller to free, and its descriptor; NULL if
 * there is no such file, or it is not one of ours. */
static uint64_t *load_table(const char *path, const char *dataset, int64_t n, int *fd_out,
                            file_header *h)
{
    struct stat st;
    int fd = open_own_file(path, &st);
    if (fd < 0)
        return NULL;
    size_t table_bytes = (size_t)n * sizeof(uint64_t);
    uint64_t *table = pen__malloc(table_bytes);
    if (table && pen__pread_full(fd, h, sizeof *h, 0) == (int64_t)sizeof *h &&
        header_is_ours(h, dataset, n) &&
        pen__pread_full(fd, table, table_bytes, sizeof *h) == (int64_t)table_bytes &&
        h->checksum == check_of(h, table) && places_are_within(table, n, (uint64_t)st.st_size)) {
        *fd_out = fd;
        return table;
    }
    pen__free(table);
    close(fd);
    return NULL;
}

/* --- life --- */

/* Take a file's blocks over where they know more, that is: are longer.  What is new here
 * stays, since it may be there because the file's was of no use. */
static void adopt(pen__sidecar *s, int fd, const uint64_t *table)
{
    int64_t n_adopted = 0;
    s->fds[s->n_files] = fd;
    for (int64_t i = 0; i < s->n_samples; i++) {
        uint64_t mine = atomic_load_explicit(&s->where[i], memory_order_relaxed);
        size_t len = length_of(table[i]), len_now = length_of(mine);
        if (file_of(mine) == FRESH || len <= len_now ||
            !atomic_compare_exchange_strong(&s->where[i], &mine,
                                            pack(s->n_files, offset_of(table[i]), len)))
            continue;
        n_adopted++;
        atomic_fetch_add(&s->n_blocks, len_now == 0);
        atomic_fetch_add(&s->bytes, (int64_t)len - (int64_t)len_now);
    }
    if (n_adopted > 0)
        s->n_files++;
    else
        close(fd);
}

/* A file for new blocks, that is gone when its descriptor is. */
static int create_fresh(const pen__sidecar *s)
{
    char temporary[PEN__CACHE_TEMPORARY];
    int fd = pen__cache_create(s->path, temporary);
    if (fd >= 0)
        unlink(temporary);
    return fd;
}

/* What the file may take if nobody says. */
static int64_t usual_limit(const pen_dataset *ds)
{
    enum { SHARE = 25 };
    const int64_t share = pen_dataset_bytes(ds) / SHARE, most = INT64_C(4) << 30;
    return share < most ? share : most;
}

pen__sidecar *pen__sidecar_open(const pen_dataset *ds, int64_t max_bytes)
{
    int64_t n = pen_dataset_count(ds);
    pen__sidecar *s = pen__calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->n_samples = n;
    s->max_bytes = max_bytes ? max_bytes : usual_limit(ds);
    s->n_files = FRESH;
    memcpy(s->dataset, ds->hash, sizeof s->dataset);
    s->where = pen__calloc((size_t)n, sizeof *s->where);
    int fresh = -1;
    if (s->where && set_path(s->path, ds) && pen__cache_make_dir(ds->cache))
        fresh = create_fresh(s);
    if (fresh < 0) {
        pen__sidecar_free(s);
        return NULL;
    }
    s->fds[s->n_files++] = fresh;
    file_header h;
    int fd;
    uint64_t *table = load_table(s->path, s->dataset, n, &fd, &h);
    if (table)
        adopt(s, fd, table);
    pen__free(table);
    return s;
}

void pen__sidecar_free(pen__sidecar *s)
{
    if (!s)
        return;
    for (int i = FRESH; i < s->n_files; i++)
        close(s->fds[i]);
    pen__free(s->where);
    pen__free(s);
}

size_t pen__sidecar_get(const pen__sidecar *s, int64_t id, void *dst, size_t cap)
{
    uint64_t place = atomic_load_explicit(&s->where[id], memory_order_acquire);
    return place ? read_place(s, place, dst, cap) : 0;
}

bool pen__sidecar_put(pen__sidecar *s, int64_t id, const void *block, size_t len)
{
    if (len == 0 || len > PEN__SIDECAR_MAX_BLOCK ||
        atomic_load(&s->bytes) + (int64_t)len > s->max_bytes)
        return false;
    int64_t at = atomic_fetch_add(&s->fresh_end, (int64_t)len);
    if ((at + (int64_t)len) >> OFFSET_BITS != 0)
        return false;
    ssize_t put;
    do
        put = pwrite(s->fds[FRESH], block, len, at);
    while (put < 0 && errno == EINTR);
    if (put != (ssize_t)len) /* the disk is full */
        return false;
    uint64_t before = atomic_exchange_explicit(&s->where[id], pack(FRESH, (uint64_t)at, len),
                                               memory_order_acq_rel);
    atomic_fetch_add(&s->bytes, (int64_t)len - (int64_t)length_of(before));
    atomic_fetch_add(&s->n_blocks, before == 0);
    atomic_fetch_add(&s->n_new, 1);
    return true;
}

/* --- saving --- */

typedef struct copier {
    int fd;
    uint64_t end; /* where the next block goes */
    uint8_t *buffer;
    size_t n; /* waiting in the buffer, which ends at `end` */
    bool failed;
} copier;

static void flush(copier *c)
{
    c->failed |= pen__write_full(c->fd, c->buffer, c->n) != 0;
    c->n = 0;
}

/* Append the block at `place`; returns where it is now, or 0. */
static uint64_t copy_block(copier *c, const pen__sidecar *s, uint64_t place)
{
    if (c->n + length_of(place) > COPY_BYTES)
        flush(c);
    size_t len = read_place(s, place, c->buffer + c->n, COPY_BYTES - c->n);
    if (len == 0 || (c->end + len) >> OFFSET_BITS != 0)
        return 0;
    uint64_t now = pack(0, c->end, len);
    c->n += len;
    c->end += len;
    return now;
}

/* All blocks and the table; fills *h. */
static bool write_file(const pen__sidecar *s, int fd, uint64_t *table, file_header *h)
{
    copier c = {.fd = fd, .end = data_begin(s->n_samples), .buffer = pen__malloc(COPY_BYTES)};
    *h = (file_header){.version = FORMAT_VERSION,
                       .byte_order = BYTE_ORDER_MARK,
                       .n_samples = (uint64_t)s->n_samples};
    memcpy(h->magic, magic, sizeof magic);
    memcpy(h->dataset, s->dataset, sizeof s->dataset);
    if (!c.buffer || lseek(fd, (off_t)c.end, SEEK_SET) < 0)
        c.failed = true;
    for (int64_t i = 0; i < s->n_samples && !c.failed; i++) {
        table[i] = copy_block(&c, s, atomic_load_explicit(&s->where[i], memory_order_acquire));
        h->n_blocks += table[i] != 0;
        h->bytes += length_of(table[i]);
    }
    if (!c.failed)
        flush(&c);
    h->checksum = check_of(h, table);
    c.failed = c.failed || lseek(fd, 0, SEEK_SET) < 0 || pen__write_full(fd, h, sizeof *h) != 0 ||
               pen__write_full(fd, table, (size_t)s->n_samples * sizeof *table) != 0;
    pen__free(c.buffer);
    return !c.failed;
}

/* What others have written since we looked. */
static void adopt_saved(pen__sidecar *s)
{
    file_header h;
    int fd;
    uint64_t *table =
        s->n_files < MAX_FILES ? load_table(s->path, s->dataset, s->n_samples, &fd, &h) : NULL;
    if (table)
        adopt(s, fd, table);
    pen__free(table);
}

static void save_locked(pen__sidecar *s)
{
    char temporary[PEN__CACHE_TEMPORARY];
    adopt_saved(s);
    uint64_t *table = pen__malloc((size_t)s->n_samples * sizeof *table);
    int fd = table ? pen__cache_create(s->path, temporary) : -1;
    if (fd >= 0) {
        file_header h;
        int64_t n_new = atomic_load(&s->n_new);
        bool ok = write_file(s, fd, table, &h);
        ok = close(fd) == 0 && ok;
        if (ok && rename(temporary, s->path) == 0)
            atomic_fetch_sub(&s->n_new, n_new);
        else
            unlink(temporary); /* another time, perhaps the disk has room */
    }
    pen__free(table);
}

bool pen__sidecar_has_news(const pen__sidecar *s)
{
    int64_t n_new = atomic_load(&s->n_new);
    return n_new > 0 && n_new >= atomic_load(&s->n_blocks) / WORTH_SAVING;
}

void pen__sidecar_save(pen__sidecar *s)
{
    if (!pen__sidecar_has_news(s))
        return;
    int lock = pen__cache_lock(s->path);
    if (lock < 0)
        return;
    save_locked(s);
    pen__cache_unlock(lock);
}

/* --- sizes --- */

pen__sidecar_size pen__sidecar_size_of(const pen__sidecar *s)
{
    return (pen__sidecar_size){atomic_load(&s->n_blocks), atomic_load(&s->bytes)};
}

pen__sidecar_size pen__sidecar_look(const pen_dataset *ds)
{
    char path[PATH_MAX];
    file_header h;
    int fd;
    uint64_t *table =
        set_path(path, ds) ? load_table(path, ds->hash, pen_dataset_count(ds), &fd, &h) : NULL;
    if (!table)
        return (pen__sidecar_size){0};
    pen__free(table);
    close(fd);
    return (pen__sidecar_size){(int64_t)h.n_blocks, (int64_t)h.bytes};
}

int64_t pen__sidecar_memory(const pen_dataset *ds)
{
    int64_t table_bytes = pen_dataset_count(ds) * (int64_t)sizeof(uint64_t);
    return 2 * table_bytes + COPY_BYTES + (int64_t)sizeof(pen__sidecar); /* one while saving */
}
