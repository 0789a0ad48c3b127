/* tar_cache.c - a shard's index on disk, so that headers are read once.
 *
 * One file a shard, named by a hash of the shard's real path: a changed shard
 * overwrites its old index, and sets of shards that overlap share theirs.  The
 * file is the header below, the records, the names.  It is written beside and
 * renamed, so ranks that start together each see a whole file or none; it is
 * not synced, since a torn file fails its checksum and is built again.
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
#define FORMAT_VERSION  1
#define BYTE_ORDER_MARK 0x01020304U

/* In the machine's byte order: another machine's file is just not accepted. */
typedef struct cache_header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t checksum; /* XXH3 of everything behind this field */
    pen__tar_stamp stamp;
    uint64_t n_records, n_names, n_other;
} cache_header;
_Static_assert(sizeof(cache_header) == 80, "no padding in what is hashed and written");

static const char magic[8] = {'P', 'E', 'N', 'T', 'A', 'R', 'I', 'X'};
#define HASHED_FROM offsetof(cache_header, stamp)

/* Is [block, block + length) within the shard, behind at least one header? */
static bool lies_within(const pen__field_at *at, uint64_t shard_size)
{
    uint64_t from = (uint64_t)at->block * PEN__BLOCK;
    return at->block > 0 && from <= shard_size && at->length <= shard_size - from;
}

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

static bool record_is_sound(const pen__tar_index *index, const pen__tar_record *record,
                            uint64_t shard_size)
{
    pen__field_at image = {record->block, record->length};
    if (record->name >= index->n_names || record->label < -1 || !lies_within(&image, shard_size))
        return false;
    for (int i = 0; i < PEN_FIELD_COUNT - 1; i++)
        if (record->fields[i].block != 0 && !lies_within(&record->fields[i], shard_size))
            return false;
    const char *name = index->names + record->name;
    return name_is_sound(name, strlen(name));
}

static bool key_ascends(const char *before, const char *after)
{
    return pen__bytes_compare(before, pen__path_stem(before, strlen(before)), after,
                              pen__path_stem(after, strlen(after))) < 0;
}

static bool all_sound(const pen__tar_index *index, uint64_t shard_size)
{
    if (index->n_names > 0 && index->names[index->n_names - 1] != '\0')
        return false;
    for (size_t i = 0; i < index->n; i++) {
        const pen__tar_record *record = &index->records[i];
        if (!record_is_sound(index, record, shard_size) ||
            (i > 0 && !key_ascends(index->names + record[-1].name, index->names + record->name)))
            return false;
    }
    return true;
}

static bool header_is_ours(const cache_header *h, const uint8_t *bytes, size_t len,
                           const pen__tar_stamp *stamp)
{
    if (memcmp(h->magic, magic, sizeof magic) != 0 || h->version != FORMAT_VERSION ||
        h->byte_order != BYTE_ORDER_MARK || memcmp(&h->stamp, stamp, sizeof *stamp) != 0)
        return false;
    uint64_t body = len - sizeof *h;
    if (h->n_records > body / sizeof(pen__tar_record) || h->n_names > body ||
        h->n_records * sizeof(pen__tar_record) + h->n_names != body)
        return false;
    return XXH3_64bits(bytes + HASHED_FROM, len - HASHED_FROM) == h->checksum;
}

bool pen__tar_cache_parse(pen__tar_index *index, const void *bytes, size_t len,
                          const pen__tar_stamp *stamp)
{
    cache_header h;
    if (len < sizeof h)
        return false;
    memcpy(&h, bytes, sizeof h);
    if (!header_is_ours(&h, bytes, len, stamp))
        return false;
    size_t n_records = (size_t)h.n_records, n_names = (size_t)h.n_names;
    pen__tar_index loaded = {.n = n_records,
                             .cap = n_records,
                             .n_names = n_names,
                             .cap_names = n_names,
                             .n_other = h.n_other};
    loaded.records = pen__calloc(n_records, sizeof *loaded.records);
    loaded.names = pen__malloc(n_names);
    bool ok = loaded.records && loaded.names;
    if (ok) {
        const uint8_t *body = (const uint8_t *)bytes + sizeof h;
        memcpy(loaded.records, body, n_records * sizeof *loaded.records);
        memcpy(loaded.names, body + n_records * sizeof *loaded.records, n_names);
        ok = all_sound(&loaded, stamp->size);
    }
    if (ok)
        *index = loaded;
    else
        pen__tar_index_fini(&loaded);
    return ok;
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

bool pen__tar_cache_load(pen__tar_index *index, const char *dir, const char *shard,
                         const pen__tar_stamp *stamp)
{
    char path[PATH_MAX], *bytes = NULL;
    if (!cache_path(path, dir, shard))
        return false;
    int64_t len = pen__read_file(AT_FDCWD, path, MAX_CACHE_BYTES, &bytes, NULL);
    bool ok = len >= 0 && pen__tar_cache_parse(index, bytes, (size_t)len, stamp);
    pen__free(bytes);
    return ok;
}

static bool write_file(int fd, const pen__tar_index *index, const pen__tar_stamp *stamp)
{
    cache_header h = {.version = FORMAT_VERSION,
                      .byte_order = BYTE_ORDER_MARK,
                      .stamp = *stamp,
                      .n_records = index->n,
                      .n_names = index->n_names,
                      .n_other = index->n_other};
    memcpy(h.magic, magic, sizeof magic);
    size_t records_bytes = index->n * sizeof *index->records;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return false;
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, (const uint8_t *)&h + HASHED_FROM, sizeof h - HASHED_FROM);
    if (index->n > 0) {
        XXH3_64bits_update(state, index->records, records_bytes);
        XXH3_64bits_update(state, index->names, index->n_names);
    }
    h.checksum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return pen__write_full(fd, &h, sizeof h) == 0 &&
           pen__write_full(fd, index->records, records_bytes) == 0 &&
           pen__write_full(fd, index->names, index->n_names) == 0;
}

void pen__tar_cache_store(const pen__tar_index *index, const char *dir, const char *shard,
                          const pen__tar_stamp *stamp)
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
