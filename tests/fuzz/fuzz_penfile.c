/* fuzz_penfile.c - any bytes as header and index of a pack: refused, or fields within the file,
 * none over another.
 *
 * The input is a header and an index.  The file they would be of is as long as the header wants it,
 * and both checksums are made right, as a forger would, so that what lies behind them is reached.
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "source/penfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { INDEX_AT = 40, INDEX_SUM = 72, SUM = 508 };

/* Fields one behind the other, each with its checksum, up to `end`. */
static void check_places(const pen__shard_index *index, uint64_t end)
{
    uint64_t at = 512;
    for (size_t i = 0; i < index->n; i++)
        for (int k = -1; k < PEN_FIELD_COUNT - 1; k++) {
            const pen__shard_record *record = &index->records[i];
            const pen__field_at field =
                k < 0 ? (pen__field_at){record->block, record->length} : record->fields[k];
            if (k >= 0 && field.block == 0)
                continue;
            if ((uint64_t)field.block * 512 < at)
                abort();
            at = (uint64_t)field.block * 512 + field.length + 4;
            if (at > end)
                abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t head_bytes[PEN__PENFILE_HEAD];
    pen__penfile_head head = {0};
    pen_error err = {0};
    if (len < sizeof head_bytes) {
        if (pen__penfile_get_head(&head, data, len, len, &err) == 0 || err.code == 0)
            abort();
        return 0;
    }
    memcpy(head_bytes, data, sizeof head_bytes);
    const size_t n = len - sizeof head_bytes;
    uint8_t *index_bytes = malloc(n ? n : 1);
    memcpy(index_bytes, data + sizeof head_bytes, n);
    pen__le_put(head_bytes + INDEX_SUM, pen__crc32c(0, index_bytes, n), 4);
    pen__le_put(head_bytes + SUM, pen__crc32c(0, head_bytes, SUM), 4);
    const uint64_t size = (pen__le64(head_bytes + INDEX_AT) & INT64_MAX / 2) + n;
    pen__shard_index index = {0};
    pen__intern classes = {0};
    int rc = pen__penfile_get_head(&head, head_bytes, sizeof head_bytes, size, &err);
    if (rc == 0 && pen__penfile_index_bytes(&head) != n)
        abort();
    if (rc == 0)
        rc = pen__penfile_get_index(&index, &classes, &head, index_bytes, &err);
    if (rc != err.code)
        abort();
    if (rc == 0 && (classes.n != head.n_classes || index.n != head.n_records))
        abort();
    check_places(&index, head.index_at);
    pen__shard_index_fini(&index);
    pen__intern_fini(&classes);
    free(index_bytes);
    return 0;
}
