/* shard_index.c - the list of a shard's samples: growing it, writing it, doubting it. */
#include "source/shard_index.h"

#include <string.h>

#include "base/fail.h"
#include "base/little_endian.h"
#include "base/mem.h"
#include "source/grow.h"

int pen__shard_index_add(pen__shard_index *index, const pen__shard_record *record, const char *name,
                         size_t len, pen_error *err)
{
    size_t end = index->n_names + len + 1;
    pen__shard_record *records =
        pen__grow(index->records, &index->cap, index->n + 1, sizeof *records);
    if (records)
        index->records = records;
    char *names = records ? pen__grow(index->names, &index->cap_names, end, 1) : NULL;
    if (names)
        index->names = names;
    if (!names || end > UINT32_MAX)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory after %zu samples", index->n);
    memcpy(names + index->n_names, name, len);
    names[end - 1] = '\0';
    records[index->n] = *record;
    records[index->n++].name = (uint32_t)index->n_names;
    index->n_names = end;
    return 0;
}

void pen__shard_index_fini(pen__shard_index *index)
{
    pen__free(index->records);
    pen__free(index->names);
    memset(index, 0, sizeof *index);
}

size_t pen__shard_index_bytes(const pen__shard_index *index)
{
    return index->n * PEN__SHARD_RECORD + index->n_names;
}

static void put_record(const pen__shard_record *record, uint8_t *dst)
{
    pen__le_put(dst, record->name, 4);
    pen__le_put(dst + 4, record->block, 4);
    pen__le_put(dst + 8, record->length, 4);
    pen__le_put(dst + 12, (uint32_t)record->label, 4);
    for (int i = 0; i < PEN_FIELD_COUNT - 1; i++) {
        pen__le_put(dst + 16 + 8 * i, record->fields[i].block, 4);
        pen__le_put(dst + 20 + 8 * i, record->fields[i].length, 4);
    }
}

static void get_record(pen__shard_record *record, const uint8_t *src)
{
    record->name = pen__le32(src);
    record->block = pen__le32(src + 4);
    record->length = pen__le32(src + 8);
    record->label = pen__le_i32(src + 12);
    for (int i = 0; i < PEN_FIELD_COUNT - 1; i++)
        record->fields[i] =
            (pen__field_at){pen__le32(src + 16 + 8 * i), pen__le32(src + 20 + 8 * i)};
}
_Static_assert(16 + 8 * (PEN_FIELD_COUNT - 1) == PEN__SHARD_RECORD, "the format has three fields");

void pen__shard_index_put(const pen__shard_index *index, uint8_t *dst)
{
    for (size_t i = 0; i < index->n; i++, dst += PEN__SHARD_RECORD)
        put_record(&index->records[i], dst);
    if (index->n_names > 0)
        memcpy(dst, index->names, index->n_names);
}

/* Behind the first block, and before `end`? */
static bool lies_within(const pen__field_at *at, uint64_t end)
{
    uint64_t from = (uint64_t)at->block * PEN__BLOCK;
    return at->block > 0 && from <= end && at->length <= end - from;
}

static bool record_is_sound(const pen__shard_record *record, size_t n_names, uint64_t end)
{
    pen__field_at image = {record->block, record->length};
    if (record->name >= n_names || record->label < -1 || !lies_within(&image, end))
        return false;
    for (int i = 0; i < PEN_FIELD_COUNT - 1; i++)
        if (record->fields[i].block != 0 && !lies_within(&record->fields[i], end))
            return false;
    return true;
}

static int take_all(pen__shard_index *index, const uint8_t *src, uint64_t end, pen_error *err)
{
    for (size_t i = 0; i < index->n; i++, src += PEN__SHARD_RECORD) {
        get_record(&index->records[i], src);
        if (!record_is_sound(&index->records[i], index->n_names, end))
            return pen__fail(err, PEN_ECORRUPT, -1,
                             "sample %zu of the index has a label that is none, or lies outside",
                             i);
    }
    if (index->n_names == 0)
        return 0;
    memcpy(index->names, src, index->n_names);
    return index->names[index->n_names - 1] == '\0'
               ? 0
               : pen__fail(err, PEN_ECORRUPT, -1, "the index ends within a name");
}

int pen__shard_index_get(pen__shard_index *index, const uint8_t *src, size_t len,
                         uint64_t n_records, uint64_t n_names, uint64_t end, pen_error *err)
{
    if (n_records > len / PEN__SHARD_RECORD || n_names != len - n_records * PEN__SHARD_RECORD)
        return pen__fail(err, PEN_ECORRUPT, -1, "the index has another length than its samples");
    pen__shard_index found = {.n = (size_t)n_records,
                              .cap = (size_t)n_records,
                              .n_names = (size_t)n_names,
                              .cap_names = (size_t)n_names};
    found.records = pen__calloc(found.n, sizeof *found.records);
    found.names = pen__malloc(found.n_names);
    int rc = found.records && found.names
                 ? take_all(&found, src, end, err)
                 : pen__fail(err, PEN_ENOMEM, -1, "out of memory for %zu samples", found.n);
    if (rc == 0)
        *index = found;
    else
        pen__shard_index_fini(&found);
    return rc;
}

pen__shard_stamp pen__shard_stamp_of(const struct stat *st)
{
    return (pen__shard_stamp){
        .size = (uint64_t)st->st_size,
        .inode = (uint64_t)st->st_ino,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
        .ctime_ns = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec,
    };
}
