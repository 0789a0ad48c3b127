/* digest.c - XXH3 as hex. */
#include "base/digest.h"

#include <stdint.h>
#include <stdio.h>
#include <xxhash.h>

void pen__digest(const void *data, size_t len, char out[PEN__DIGEST_TEXT])
{
    XXH128_hash_t h = XXH3_128bits(data, len);
    snprintf(out, PEN__DIGEST_TEXT, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
}

uint64_t pen__hash64(const void *data, size_t len)
{
    return XXH3_64bits(data, len);
}
