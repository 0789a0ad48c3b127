/* fuzz_tar_cache.c - any bytes as a cached index: refused, or within the shard.
 *
 * The checksum and the shard's stamp are taken from the input itself, as a forger
 * would, so that what lies behind them is reached.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "source/tar_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { CHECKSUM_AT = 16, HASHED_AT = 24 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    pen__shard_stamp stamp = {0};
    if (len < HASHED_AT + sizeof stamp)
        return 0;
    uint8_t *bytes = malloc(len);
    memcpy(bytes, data, len);
    memcpy(&stamp, bytes + HASHED_AT, sizeof stamp);
    uint64_t sum = XXH3_64bits(bytes + HASHED_AT, len - HASHED_AT);
    memcpy(bytes + CHECKSUM_AT, &sum, sizeof sum);
    pen__shard_index index = {0};
    if (pen__tar_cache_parse(&index, bytes, len, &stamp))
        for (size_t i = 0; i < index.n; i++)
            if ((uint64_t)index.records[i].block * 512 + index.records[i].length > stamp.size)
                abort();
    pen__shard_index_fini(&index);
    free(bytes);
    return 0;
}
