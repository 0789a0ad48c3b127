/* profile_file.c - the file: head, headers, traits, in the machine's byte order.
 *
 * Another machine's file is just not accepted.  The checksum finds damage, not malice: so each
 * field is checked as well, and files that others may write to are not read.
 */
#include "engine/profile_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/profile.h>

#include "base/crc32c.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/mem.h"
#include "source/cachedir.h"
#include "source/fileio.h"

enum { VERSION = 2, BYTE_ORDER_MARK = 0x01020304 };

static const char magic[8] = {'P', 'E', 'N', 'P', 'R', 'O', 'F', 'L'};

typedef struct file_head {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t n_samples;
    uint32_t n_forms;  /* that corrections are for */
    uint32_t checksum; /* CRC-32C of everything behind it */
    char dataset[PEN__DIGEST_TEXT - 1], pipeline[PEN__DIGEST_TEXT - 1];
    uint64_t typical; /* a header's word */
    double bytes_per_pixel;
    pen__corrections corrections;
} file_head;
_Static_assert(sizeof(file_head) ==
                   8 + 8 + 8 + 8 + 64 + 16 + (2 * PEN__FORM_COUNT + 1) * sizeof(double),
               "no padding in what is summed and written");

enum { SUMMED_FROM = offsetof(file_head, dataset) };

int64_t pen__profile_bytes(int64_t n_samples)
{
    return (int64_t)sizeof(file_head) + n_samples * (int64_t)(sizeof(uint64_t) + sizeof(uint32_t));
}

/* ---- reading ---- */

static bool head_is_ours(const file_head *h, const pen__learned *learned, const char *dataset)
{
    return memcmp(h->magic, magic, sizeof magic) == 0 && h->version == VERSION &&
           h->byte_order == BYTE_ORDER_MARK && h->n_forms == PEN__FORM_COUNT &&
           h->n_samples == (uint64_t)learned->headers->n &&
           memcmp(h->dataset, dataset, sizeof h->dataset) == 0;
}

/* 0: not known. */
static double ratio_or_none(double ratio)
{
    return ratio >= PEN__LEAST_CORRECTION && ratio <= PEN__MOST_CORRECTION ? ratio : 0;
}

static void take_typical(pen__typical *typical, const file_head *h)
{
    pen_image_info info;
    if (pen__headers_unpack(h->typical, &info))
        typical->info = info;
    if (h->bytes_per_pixel >= PEN__LEAST_DETAIL && h->bytes_per_pixel <= PEN__MOST_DETAIL)
        typical->bytes_per_pixel = h->bytes_per_pixel;
    for (int i = 0; i < PEN__FORM_COUNT; i++) {
        typical->corrections.bytes[i] = ratio_or_none(h->corrections.bytes[i]);
        typical->corrections.cpu[i] = ratio_or_none(h->corrections.cpu[i]);
    }
    typical->corrections.both_cpu = ratio_or_none(h->corrections.both_cpu);
}

pen__profile_use pen__profile_parse(const pen__learned *learned, const char *dataset,
                                    const uint8_t *src, size_t len)
{
    file_head h;
    const int64_t n = learned->headers->n;
    if (len < sizeof h || len != (size_t)pen__profile_bytes(n))
        return PEN__PROFILE_NONE;
    memcpy(&h, src, sizeof h);
    if (!head_is_ours(&h, learned, dataset) ||
        pen__crc32c(0, src + SUMMED_FROM, len - SUMMED_FROM) != h.checksum)
        return PEN__PROFILE_NONE;
    const bool is_same_line = memcmp(h.pipeline, learned->pipeline, sizeof h.pipeline) == 0;
    const uint8_t *words = src + sizeof h, *traits = words + (size_t)n * sizeof(uint64_t);
    for (int64_t i = 0; i < n; i++) {
        uint64_t word;
        uint32_t trait;
        memcpy(&word, words + (size_t)i * sizeof word, sizeof word);
        memcpy(&trait, traits + (size_t)i * sizeof trait, sizeof trait);
        pen__headers_restore(learned->headers, i, word);
        if (is_same_line)
            pen__traits_restore(learned->traits, i, trait);
    }
    if (is_same_line && learned->typical)
        take_typical(learned->typical, &h);
    return is_same_line ? PEN__PROFILE_ALL : PEN__PROFILE_HEADERS;
}

/* ---- writing ---- */

uint8_t *pen__profile_write(const pen__learned *learned, const char *dataset, size_t *len)
{
    const int64_t n = learned->headers->n;
    *len = (size_t)pen__profile_bytes(n);
    uint8_t *out = pen__malloc(*len);
    if (!out)
        return NULL;
    file_head h = {.version = VERSION,
                   .byte_order = BYTE_ORDER_MARK,
                   .n_samples = (uint64_t)n,
                   .n_forms = PEN__FORM_COUNT,
                   .typical = pen__headers_pack(&learned->typical->info),
                   .bytes_per_pixel = learned->typical->bytes_per_pixel,
                   .corrections = learned->typical->corrections};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.dataset, dataset, sizeof h.dataset);
    memcpy(h.pipeline, learned->pipeline, sizeof h.pipeline);
    uint8_t *words = out + sizeof h, *traits = words + (size_t)n * sizeof(uint64_t);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t word = pen__headers_word(learned->headers, i);
        const uint32_t trait = pen__traits_word(learned->traits, i);
        memcpy(words + (size_t)i * sizeof word, &word, sizeof word);
        memcpy(traits + (size_t)i * sizeof trait, &trait, sizeof trait);
    }
    memcpy(out, &h, sizeof h);
    h.checksum = pen__crc32c(0, out + SUMMED_FROM, *len - SUMMED_FROM);
    memcpy(out, &h, sizeof h);
    return out;
}

/* ---- files ---- */

static bool set_path(char dst[PATH_MAX], const pen_dataset *ds)
{
    int n = ds->cache ? snprintf(dst, PATH_MAX, "%s/%s.profile", ds->cache, ds->hash) : -1;
    return n > 0 && n < PATH_MAX;
}

/* The file's bytes, for the caller to free; NULL if there is none of the right length. */
static uint8_t *read_own_file(const char *path, size_t len)
{
    struct stat st;
    uint8_t *bytes = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        (st.st_mode & (S_IWGRP | S_IWOTH)) == 0 && (uint64_t)st.st_size == len)
        bytes = pen__malloc(len);
    if (bytes && pen__pread_full(fd, bytes, len, 0) != (int64_t)len) {
        pen__free(bytes);
        bytes = NULL;
    }
    close(fd);
    return bytes;
}

pen__profile_use pen__profile_load(const pen__learned *learned, const pen_dataset *ds)
{
    char path[PATH_MAX];
    const size_t len = (size_t)pen__profile_bytes(learned->headers->n);
    uint8_t *bytes = set_path(path, ds) ? read_own_file(path, len) : NULL;
    const pen__profile_use use =
        bytes ? pen__profile_parse(learned, ds->hash, bytes, len) : PEN__PROFILE_NONE;
    pen__free(bytes);
    return use;
}

static void count_known(const pen__learned *learned, pen_profile_kept *out)
{
    for (int64_t i = 0; i < learned->headers->n; i++) {
        out->n_headers += pen__headers_word(learned->headers, i) != 0;
        out->n_ratios += pen__traits_word(learned->traits, i) != 0;
    }
}

/* Read as a loader of the pipeline that it is of would read it. */
static void look_into(pen__learned *learned, const pen_dataset *ds, const pen_pipeline *pipe,
                      const uint8_t *bytes, size_t len, pen_profile_kept *out)
{
    file_head h;
    memcpy(&h, bytes, sizeof h);
    learned->pipeline = h.pipeline;
    if (pen__profile_parse(learned, ds->hash, bytes, len) == PEN__PROFILE_NONE)
        return;
    out->bytes = (int64_t)len;
    out->is_this_pipeline = memcmp(h.pipeline, pen_pipeline_hash(pipe), sizeof h.pipeline) == 0;
    count_known(learned, out);
}

int pen_profile_find_kept(pen_profile_kept *out, const pen_dataset *ds, const pen_pipeline *pipe,
                          pen_error *err)
{
    char path[PATH_MAX];
    pen__headers headers = {0};
    pen__traits traits = {0};
    pen__learned learned = {.headers = &headers, .traits = &traits};
    const int64_t n = pen_dataset_count(ds);
    const size_t len = (size_t)pen__profile_bytes(n);
    *out = (pen_profile_kept){0};
    uint8_t *bytes = set_path(path, ds) ? read_own_file(path, len) : NULL;
    if (!bytes)
        return 0;
    int rc = pen__headers_init(&headers, n);
    if (rc == 0)
        rc = pen__traits_init(&traits, n);
    if (rc == 0)
        look_into(&learned, ds, pipe, bytes, len, out);
    else
        pen__fail(err, rc, -1, "out of memory for what is known of %lld samples", (long long)n);
    pen__headers_fini(&headers);
    pen__traits_fini(&traits);
    pen__free(bytes);
    return rc;
}

/* 0 or an errno. */
static int write_whole(const char *path, const uint8_t *bytes, size_t len)
{
    char temporary[PEN__CACHE_TEMPORARY];
    int fd = pen__cache_create(path, temporary);
    if (fd < 0)
        return errno;
    int fault = -pen__write_full(fd, bytes, len);
    if (close(fd) != 0 && !fault)
        fault = errno;
    if (!fault && rename(temporary, path) != 0)
        fault = errno;
    if (fault)
        unlink(temporary);
    return fault;
}

/* With what others have written meanwhile. */
static int save_locked(const pen__learned *learned, const pen_dataset *ds, const char *path,
                       pen_error *err)
{
    size_t len;
    pen__learned others = *learned;
    others.typical = NULL;
    pen__profile_load(&others, ds);
    uint8_t *bytes = pen__profile_write(learned, ds->hash, &len);
    if (!bytes)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory for a profile of %zu bytes", len);
    const int fault = write_whole(path, bytes, len);
    pen__free(bytes);
    return fault ? pen__fail_errno(err, fault, "write", path) : 0;
}

int pen__profile_save(const pen__learned *learned, const pen_dataset *ds, pen_error *err)
{
    char path[PATH_MAX];
    if (!set_path(path, ds))
        return 0; /* nothing is kept */
    if (!pen__cache_make_dir(ds->cache))
        return pen__fail_errno(err, errno, "make", ds->cache);
    const int lock = pen__cache_lock(path);
    if (lock < 0)
        return pen__fail_errno(err, errno, "write", path);
    const int rc = save_locked(learned, ds, path, err);
    pen__cache_unlock(lock);
    return rc;
}
