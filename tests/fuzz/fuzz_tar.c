/* fuzz_tar.c - any bytes as a shard: an index within the shard, or an error.
 *
 * Headers get a right checksum first; without that, hardly an input would pass
 * the first header.  The first byte says whether to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source/tar_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void seal_headers(uint8_t *bytes, size_t len)
{
    for (size_t at = 0; at + 512 <= len; at += 512) {
        if (memcmp(bytes + at + 257, "ustar", 5) != 0)
            continue;
        memset(bytes + at + 148, ' ', 8);
        unsigned sum = 0;
        for (int i = 0; i < 512; i++)
            sum += bytes[at + i];
        snprintf((char *)bytes + at + 148, 8, "%06o", sum);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len == 0)
        return 0;
    bool must_seal = *data & 1;
    uint8_t *bytes = malloc(len);
    memcpy(bytes, data + 1, --len);
    if (must_seal)
        seal_headers(bytes, len);
    pen__shard_index index = {0};
    pen__tar_bytes in = {.fd = -1, .mem = bytes, .size = len};
    pen_error err = {0};
    int rc = pen__tar_index_build(&index, &in, NULL, NULL, &err);
    if (rc != err.code)
        abort();
    for (size_t i = 0; rc == 0 && i < index.n; i++)
        if ((uint64_t)index.records[i].block * 512 + index.records[i].length > len)
            abort();
    pen__shard_index_fini(&index);
    free(bytes);
    return 0;
}
