/* remote_page.c - taking a page of a manifest apart, every byte of it doubted. */
#include "remote/remote_page.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "base/little_endian.h"
#include "engine/headers.h"

enum {
    HEAD = 24,
    RECORD = 18,
    IMAGE_HEADER = 12,
    TRAILER = 4,
    VERSION = 1,
    HAS_HEADERS = 1,
    HAS_FIELDS = 2,
    MOST_FIELDS = 8,
};

static int corrupt(pen_error *err, size_t at, const char *what)
{
    return pen__fail(err, PEN_ECORRUPT, (int64_t)at, "the manifest is wrong at byte %zu: %s", at,
                     what);
}

bool pen__page_is_intact(const uint8_t *src, size_t len)
{
    return len >= TRAILER && pen__crc32c(0, src, len - TRAILER) == pen__le32(src + len - TRAILER);
}

static int check_head(const uint8_t *src, size_t len, uint64_t first, uint32_t n, pen_error *err)
{
    if (len < HEAD + TRAILER || memcmp(src, "PENM", 4) != 0)
        return corrupt(err, 0, "it does not begin like one");
    if (!pen__page_is_intact(src, len))
        return corrupt(err, len - TRAILER, "its checksum differs");
    if (pen__le32(src + 4) != VERSION)
        return corrupt(err, 4, "it has another version than 1");
    if (pen__le64(src + 8) != first || pen__le32(src + 16) != n)
        return corrupt(err, 8, "these are other samples than those asked for");
    if (pen__le32(src + 20) & ~(uint32_t)(HAS_HEADERS | HAS_FIELDS))
        return corrupt(err, 20, "it has flags that nobody knows");
    return 0;
}

/* The fields of a record, at `at`; their length in bytes, or PEN_ECORRUPT. */
static int64_t take_fields(const uint8_t *src, size_t at, size_t end, pen__page_record *record,
                           pen_error *err)
{
    if (end - at < 1)
        return corrupt(err, at, "it ends within a record");
    const unsigned mask = src[at];
    size_t size = 1;
    if (mask & 1U << PEN_FIELD_IMAGE)
        return corrupt(err, at, "an image beside the image");
    for (int i = 1; i < MOST_FIELDS; i++) {
        if (!(mask >> i & 1))
            continue;
        if (end - at < size + 4)
            return corrupt(err, at, "it ends within a record");
        if (i < PEN_FIELD_COUNT) {
            record->fields |= 1U << i;
            record->field_length[i] = pen__le32(src + at + size);
        }
        size += 4;
    }
    return (int64_t)size;
}

/* The record at `at`; its length in bytes, or PEN_ECORRUPT. */
static int64_t take(const uint8_t *src, size_t at, size_t end, uint32_t flags,
                    pen__page_record *record, pen_error *err)
{
    const size_t header = flags & HAS_HEADERS ? IMAGE_HEADER : 0;
    *record = (pen__page_record){0};
    if (end - at < RECORD + header)
        return corrupt(err, at, "it ends within a record");
    int64_t fields =
        flags & HAS_FIELDS ? take_fields(src, at + RECORD + header, end, record, err) : 0;
    if (fields < 0)
        return fields;
    uint64_t length = pen__le64(src + at);
    int64_t label = (int64_t)pen__le64(src + at + 8);
    size_t key_len = pen__le16(src + at + 16), key_at = RECORD + header + (size_t)fields;
    size_t size = key_at + key_len;
    if (end - at < size)
        return corrupt(err, at, "it ends within a key");
    if (length > UINT32_MAX)
        return corrupt(err, at, "a sample of 4 GiB or more");
    if (label < -1 || label > INT32_MAX)
        return corrupt(err, at + 8, "a label that is none");
    const char *key = (const char *)src + at + key_at;
    if (key_len == 0 || key_len >= PEN_KEY_MAX || memchr(key, '\0', key_len) ||
        key[key_len - 1] == '/')
        return corrupt(err, at + 16, "a key that is none");
    record->length = (uint32_t)length;
    record->label = (int32_t)label;
    record->key = key;
    record->key_len = key_len;
    record->header = header ? src + at + RECORD : NULL;
    return (int64_t)size;
}

uint64_t pen__page_header(const uint8_t h[12])
{
    const pen_image_info info = {
        .format = (pen_format)h[0],
        .width = pen__le16(h + 8),
        .height = pen__le16(h + 10),
        .channels = h[1],
        .bits = h[2],
        .orientation = h[3],
        .is_progressive = h[4] & 1,
        .is_grey = h[4] >> 1 & 1,
        .is_animated = h[4] >> 2 & 1,
        .sampling_h = h[5],
        .sampling_v = h[6],
    };
    pen_image_info sane;
    const uint64_t word = pen__headers_pack(&info);
    return pen__headers_unpack(word, &sane) ? word : 0;
}

int pen__page_parse(const uint8_t *src, size_t len, uint64_t first, uint32_t n, pen__page_sink sink,
                    void *ctx, pen_error *err)
{
    int rc = check_head(src, len, first, n, err);
    if (rc)
        return rc;
    const uint32_t flags = pen__le32(src + 20);
    size_t at = HEAD, end = len - TRAILER;
    for (uint32_t i = 0; i < n; i++) {
        pen__page_record record;
        int64_t size = take(src, at, end, flags, &record, err);
        if (size < 0)
            return (int)size;
        rc = sink(ctx, &record, err);
        if (rc)
            return rc;
        at += (size_t)size;
    }
    return at == end ? 0 : corrupt(err, at, "there is more than its records");
}
