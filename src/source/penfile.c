/* penfile.c - the header and index of a .pen file, written and doubted.
 *
 * Two checksums find accidents.  Against design every number is checked again as if there were
 * none: whatever is accepted could have come from penfile_write.c.  In particular fields follow
 * each other in order of id, so none overlaps another, and names follow each other, so looking at
 * all of them takes time in proportion to the file.
 */
#include "source/penfile.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "base/little_endian.h"
#include "source/names.h"

/* Places in the header. */
enum {
    AT_VERSION = 8,
    AT_FLAGS = 12,
    AT_N_RECORDS = 16,
    AT_FIRST_ID = 24,
    AT_N_ALL = 32,
    AT_INDEX = 40,
    AT_N_NAMES = 48,
    AT_N_CLASSES = 56,
    AT_N_CLASS_NAMES = 64,
    AT_INDEX_SUM = 72,
    AT_ID = 76,
    AT_RESERVED = AT_ID + PEN__PENFILE_ID,
    AT_SUM = PEN__PENFILE_HEAD - 4,
};

static const char magic[AT_VERSION] = {'P', 'E', 'N', 'P', 'A', 'C', 'K', '\n'};

bool pen__penfile_takes_key(const char *key, size_t len, const char **why)
{
    char clean[PEN_KEY_MAX];
    int64_t n = pen__path_clean(key, len, false, clean, sizeof clean, why);
    if (n == (int64_t)len)
        return true;
    if (n >= 0)
        *why = "has an empty component, or '.'";
    else if (len > 0 && len < PEN_KEY_MAX && *key == '/')
        *why = "is absolute";
    return false;
}

/* ---- the header ---- */

void pen__penfile_put_head(const pen__penfile_head *head, uint8_t dst[PEN__PENFILE_HEAD])
{
    memset(dst, 0, PEN__PENFILE_HEAD);
    memcpy(dst, magic, sizeof magic);
    pen__le_put(dst + AT_VERSION, PEN__PENFILE_VERSION, 4);
    pen__le_put(dst + AT_N_RECORDS, head->n_records, 8);
    pen__le_put(dst + AT_FIRST_ID, head->first_id, 8);
    pen__le_put(dst + AT_N_ALL, head->n_all, 8);
    pen__le_put(dst + AT_INDEX, head->index_at, 8);
    pen__le_put(dst + AT_N_NAMES, head->n_names, 8);
    pen__le_put(dst + AT_N_CLASSES, head->n_classes, 8);
    pen__le_put(dst + AT_N_CLASS_NAMES, head->n_class_names, 8);
    pen__le_put(dst + AT_INDEX_SUM, head->index_sum, 4);
    memcpy(dst + AT_ID, head->id, PEN__PENFILE_ID);
    pen__le_put(dst + AT_SUM, pen__crc32c(0, dst, AT_SUM), 4);
}

static int check_seal(const uint8_t *src, size_t len, pen_error *err)
{
    if (len < PEN__PENFILE_HEAD || memcmp(src, magic, sizeof magic) != 0)
        return pen__fail(err, PEN_ECORRUPT, 0, "it is no pack: it does not begin like one");
    /* What a newer version means by its other bytes, the checksum's place too, is not known. */
    const uint32_t version = pen__le32(src + AT_VERSION);
    if (version > PEN__PENFILE_VERSION)
        return pen__fail(err, PEN_EUNSUPPORTED, AT_VERSION,
                         "a pack of version %u, and this penstock reads up to version %d", version,
                         PEN__PENFILE_VERSION);
    if (pen__crc32c(0, src, AT_SUM) != pen__le32(src + AT_SUM))
        return pen__fail(err, PEN_ECORRUPT, AT_SUM, "the checksum of its header differs");
    if (version == 0 || pen__le32(src + AT_FLAGS) != 0)
        return pen__fail(err, PEN_ECORRUPT, AT_VERSION, "its header has an impossible version");
    for (int i = AT_RESERVED; i < AT_SUM; i++)
        if (src[i] != 0)
            return pen__fail(err, PEN_ECORRUPT, i, "its header has bytes that nobody knows");
    return 0;
}

static bool is_hex(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
            return false;
    return true;
}

/* Do the numbers agree with each other and with the file?  Each is bounded before it is used. */
static int check_numbers(const pen__penfile_head *h, uint64_t size, pen_error *err)
{
    if (h->n_records < 1 || h->n_records > UINT32_MAX || h->n_all > UINT32_MAX ||
        h->first_id > h->n_all || h->n_records > h->n_all - h->first_id)
        return pen__fail(err, PEN_ECORRUPT, AT_N_RECORDS, "its header has no sensible samples");
    if (h->n_names > UINT32_MAX || h->n_class_names > UINT32_MAX ||
        h->n_classes > h->n_class_names || h->n_classes > PEN__PENFILE_MAX_CLASSES)
        return pen__fail(err, PEN_ECORRUPT, AT_N_NAMES, "its header has no sensible names");
    if (h->index_at % PEN__BLOCK != 0 || h->index_at < PEN__PENFILE_HEAD || h->index_at > size)
        return pen__fail(err, PEN_ECORRUPT, AT_INDEX, "its index is outside of the file");
    if (pen__penfile_index_bytes(h) > PEN__PENFILE_MAX_INDEX)
        return pen__fail(err, PEN_ELIMIT, AT_N_RECORDS, "its index has more than %llu bytes",
                         (unsigned long long)PEN__PENFILE_MAX_INDEX);
    const uint64_t end = h->index_at + pen__penfile_index_bytes(h);
    if (end != size)
        return pen__fail(err, PEN_ECORRUPT, AT_INDEX,
                         "it has %llu bytes and should have %llu: it was cut or added to",
                         (unsigned long long)size, (unsigned long long)end);
    return 0;
}

int pen__penfile_get_head(pen__penfile_head *head, const uint8_t *src, size_t len, uint64_t size,
                          pen_error *err)
{
    int rc = check_seal(src, len, err);
    if (rc)
        return rc;
    *head = (pen__penfile_head){
        .n_records = pen__le64(src + AT_N_RECORDS),
        .first_id = pen__le64(src + AT_FIRST_ID),
        .n_all = pen__le64(src + AT_N_ALL),
        .index_at = pen__le64(src + AT_INDEX),
        .n_names = pen__le64(src + AT_N_NAMES),
        .n_classes = pen__le64(src + AT_N_CLASSES),
        .n_class_names = pen__le64(src + AT_N_CLASS_NAMES),
        .index_sum = pen__le32(src + AT_INDEX_SUM),
    };
    memcpy(head->id, src + AT_ID, PEN__PENFILE_ID);
    if (!is_hex(head->id, PEN__PENFILE_ID))
        return pen__fail(err, PEN_ECORRUPT, AT_ID, "its header has no identity");
    return check_numbers(head, size, err);
}

/* ---- the index ---- */

/* Does the field begin at `*block` or behind it, and end in front of the index?  *block goes behind
 * it. */
static bool follows(const pen__field_at *at, uint64_t *block, uint64_t end)
{
    if (at->block < *block)
        return false;
    *block = at->block + pen__penfile_blocks(at->length);
    return *block <= end;
}

static int check_record(const pen__shard_index *index, size_t i, const pen__penfile_head *head,
                        uint64_t *block, pen_error *err)
{
    const pen__shard_record *record = &index->records[i];
    const uint64_t end = head->index_at / PEN__BLOCK;
    pen__field_at image = {record->block, record->length};
    bool is_right = follows(&image, block, end);
    for (int k = 0; k < PEN_FIELD_COUNT - 1; k++) {
        const pen__field_at *at = &record->fields[k];
        is_right = is_right && (at->block ? follows(at, block, end) : at->length == 0);
    }
    if (!is_right)
        return pen__fail(err, PEN_ECORRUPT, -1,
                         "sample %zu of its index lies outside, or where another one does", i);
    if (head->n_classes > 0 && record->label >= (int64_t)head->n_classes)
        return pen__fail(err, PEN_ECORRUPT, -1,
                         "sample %zu of its index has label %d, and there are %llu classes", i,
                         record->label, (unsigned long long)head->n_classes);
    return 0;
}

/* The key of record i begins at *at; *at goes behind it. */
static int check_key(const pen__shard_index *index, size_t i, size_t *at, pen_error *err)
{
    const char *why = "is not where it should be", *key = index->names + *at;
    size_t len = 0;
    if (*at < index->n_names && index->records[i].name == *at) {
        len = strlen(key);
        *at += len + 1;
        if (pen__penfile_takes_key(key, len, &why))
            return 0;
    }
    pen__shown shown;
    return pen__fail(err, PEN_ECORRUPT, -1, "the key of sample %zu of its index, '%s', %s", i,
                     pen__show(&shown, key, len), why);
}

static int check_index(const pen__shard_index *index, const pen__penfile_head *head, pen_error *err)
{
    uint64_t block = 1;
    size_t name = 0;
    int rc = 0;
    for (size_t i = 0; i < index->n && rc == 0; i++) {
        rc = check_record(index, i, head, &block, err);
        if (rc == 0)
            rc = check_key(index, i, &name, err);
    }
    if (rc == 0 && name != index->n_names)
        rc = pen__fail(err, PEN_ECORRUPT, -1, "its index has names of no sample");
    return rc;
}

/* They fill `len` bytes, and no two are alike. */
static int take_classes(pen__intern *classes, const char *names, size_t len, uint64_t n,
                        pen_error *err)
{
    size_t at = 0;
    for (uint64_t i = 0; i < n; i++) {
        const char *end = memchr(names + at, '\0', len - at);
        if (!end || end - (names + at) >= PEN_KEY_MAX)
            return pen__fail(err, PEN_ECORRUPT, -1, "a name of its classes has no end");
        int64_t number = pen__intern_put(classes, names + at, (size_t)(end - (names + at)));
        if (number < 0)
            return pen__fail(err, PEN_ENOMEM, -1, "out of memory for %llu classes",
                             (unsigned long long)n);
        if ((uint64_t)number != i)
            return pen__fail(err, PEN_ECORRUPT, -1, "two of its classes have one name");
        at = (size_t)(end - names) + 1;
    }
    return at == len ? 0 : pen__fail(err, PEN_ECORRUPT, -1, "its index has names of no class");
}

int pen__penfile_get_index(pen__shard_index *index, pen__intern *classes,
                           const pen__penfile_head *head, const uint8_t *src, pen_error *err)
{
    const size_t n_all = (size_t)pen__penfile_index_bytes(head),
                 n_own = n_all - (size_t)head->n_class_names;
    if (pen__crc32c(0, src, n_all) != head->index_sum)
        return pen__fail(err, PEN_ECORRUPT, (int64_t)head->index_at,
                         "the checksum of its index differs");
    pen__shard_index found = {0};
    int rc = pen__shard_index_get(&found, src, n_own, head->n_records, head->n_names,
                                  head->index_at, err);
    if (rc == 0)
        rc = check_index(&found, head, err);
    if (rc == 0)
        rc = take_classes(classes, (const char *)src + n_own, (size_t)head->n_class_names,
                          head->n_classes, err);
    if (rc == 0)
        *index = found;
    else
        pen__shard_index_fini(&found);
    return rc;
}
