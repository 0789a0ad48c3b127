/* tar_cache.c - a shard's index on disk, so that headers are read once.
 *
 * One file a shard, named by a hash of the shard's real path: a changed shard
 * overwrites its old index, and sets of shards that overlap share theirs.  The
 * file is the header below, then records and names as shard_index.c writes them.  It is written
 * beside and renamed, so ranks that start together each see a whole file or none; it is not synced,
 * since a torn file fails its checksum and is built again.
 *
 * The file may hold anything.  A checksum finds accidents; against design every
 * number is checked again as if there were none: whatever is accepted could
 * have come from pen__tar_index_build on some shard of that size.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/digest.h"
#include "base/mem.h"
#include "source/cachedir.h"
#include "source/fileio.h"
#include "source/names.h"
#include "source/tar_index.h"

#define MAX_CACHE_BYTES (UINT64_C(8) << 30)
#define FORMAT_VERSION  2
#define BYTE_ORDER_MARK 0x01020304U

/* The header is in the machine's byte order: another machine's file is just not accepted. */
typedef struct cache_header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t checksum; /* XXH3 of everything behind this field */
    pen__shard_stamp stamp;
    uint64_t n_records, n_names, n_other;
} cache_header;
_Static_assert(sizeof(cache_header) == 80, "no padding in what is hashed and written");

static const char magic[8] = {'P', 'E', 'N', 'T', 'A', 'R', 'I', 'X'};
#define HASHED_FROM offsetof(cache_header, stamp)

/* Would the walker have handed out this name, and does it name an image? */
static bool name_is_sound(const char *name, size_t len)
{
    char clean[PEN_KEY_MAX];
    const char *why;
    if (pen__path_clean(name, len, false, clean, sizeof clean, &why) != (int64_t)len)
        return false;
    size_t stem = pen__path_stem(name, len);
    return stem < len && name[pen__leaf_start(name, len)] != '.' &&
           pen__is_image_extension(name + stem + 1, len - stem - 1);
}

static bool key_ascends(const char *before, const char *after)
{
    return pen__bytes_compare(before, pen__path_stem(before, strlen(before)), after,
                              pen__path_stem(after, strlen(after))) < 0;
}

static bool names_are_sound(const pen__shard_index *index)
{
    for (size_t i = 0; i < index->n; i++) {
        const char *name = index->names + index->records[i].name;
        if (!name_is_sound(name, strlen(name)) ||
            (i > 0 && !key_ascends(index->names + index->records[i - 1].name, name)))
            return false;
    }
    return true;
}

static bool header_is_ours(const cache_header *h, const uint8_t *bytes, size_t len,
                           const pen__shard_stamp *stamp)
{
    if (memcmp(h->magic, magic, sizeof magic) != 0 || h->version != FORMAT_VERSION ||
        h->byte_order != BYTE_ORDER_MARK || memcmp(&h->stamp, stamp, sizeof *stamp) != 0)
        return false;
    return XXH3_64bits(bytes + HASHED_FROM, len - HASHED_FROM) == h->checksum;
}

bool pen__tar_cache_parse(pen__shard_index *index, const void *bytes, size_t len,
                          const pen__shard_stamp *stamp)
{
    cache_header h;
    if (len < sizeof h)
        return false;
    memcpy(&h, bytes, sizeof h);
    if (!header_is_ours(&h, bytes, len, stamp))
        return false;
    pen__shard_index loaded = {0};
    const uint8_t *body = (const uint8_t *)bytes + sizeof h;
    if (pen__shard_index_get(&loaded, body, len - sizeof h, h.n_records, h.n_names, stamp->size,
                             NULL) != 0)
        return false;
    loaded.n_other = h.n_other;
    if (!names_are_sound(&loaded)) {
        pen__shard_index_fini(&loaded);
        return false;
    }
    *index = loaded;
    return true;
}

/* "<dir>/<hash of the shard's real path>.tarindex" */
static bool cache_path(char dst[PATH_MAX], const char *dir, const char *shard)
{
    char real[PATH_MAX], digest[PEN__DIGEST_TEXT];
    if (!realpath(shard, real))
        return false;
    pen__digest(real, strlen(real), digest);
    int n = snprintf(dst, PATH_MAX, "%s/%s.tarindex", dir, digest);
    return n > 0 && n < PATH_MAX;
}

bool pen__tar_cache_load(pen__shard_index *index, const char *dir, const char *shard,
                         const pen__shard_stamp *stamp)
{
    char path[PATH_MAX], *bytes = NULL;
    if (!cache_path(path, dir, shard))
        return false;
    int64_t len = pen__read_file(AT_FDCWD, path, MAX_CACHE_BYTES, &bytes, NULL);
    bool ok = len >= 0 && pen__tar_cache_parse(index, bytes, (size_t)len, stamp);
    pen__free(bytes);
    return ok;
}

static bool write_file(int fd, const pen__shard_index *index, const pen__shard_stamp *stamp)
{
    cache_header h = {.version = FORMAT_VERSION,
                      .byte_order = BYTE_ORDER_MARK,
                      .stamp = *stamp,
                      .n_records = index->n,
                      .n_names = index->n_names,
                      .n_other = index->n_other};
    memcpy(h.magic, magic, sizeof magic);
    const size_t len = sizeof h + pen__shard_index_bytes(index);
    uint8_t *bytes = pen__malloc(len);
    if (!bytes)
        return false;
    memcpy(bytes, &h, sizeof h);
    pen__shard_index_put(index, bytes + sizeof h);
    h.checksum = XXH3_64bits(bytes + HASHED_FROM, len - HASHED_FROM);
    memcpy(bytes, &h, sizeof h);
    const bool ok = pen__write_full(fd, bytes, len) == 0;
    pen__free(bytes);
    return ok;
}

void pen__tar_cache_store(const pen__shard_index *index, const char *dir, const char *shard,
                          const pen__shard_stamp *stamp)
{
    char path[PATH_MAX], temporary[PEN__CACHE_TEMPORARY];
    if (!pen__cache_make_dir(dir) || !cache_path(path, dir, shard))
        return;
    int fd = pen__cache_create(path, temporary);
    if (fd < 0)
        return;
    bool ok = write_file(fd, index, stamp);
    ok = close(fd) == 0 && ok;
    if (!ok || rename(temporary, path) != 0)
        unlink(temporary);
}
