/* fuzz_bytes.c - libFuzzer target for coded bytes: zstd, lz4, snappy.
 *
 * The first byte chooses the codec, the next two the length of what comes out.  The rest is decoded
 * as it is; and coded, which must come back, and decoded once more with some of its bytes changed.
 */
#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Into a place of its own, so that a write past it is seen. */
static void decode(pen__bytes_coder *coder, pen__bytes_codec codec, const uint8_t *src, size_t len,
                   size_t dst_len)
{
    uint8_t *dst = malloc(dst_len ? dst_len : 1);
    const int rc = pen__bytes_decode(coder, codec, src, len, dst, dst_len, NULL);
    if (rc != 0 && rc != PEN_ECORRUPT)
        abort();
    free(dst);
}

static void travel(pen__bytes_coder *coder, pen__bytes_codec codec, const uint8_t *src, size_t len)
{
    const size_t cap = len + len / 4 + 64;
    uint8_t *coded = malloc(cap), *again = malloc(len);
    const size_t n = pen__bytes_encode(coder, codec, src, len, coded, cap);
    if (n == 0 || n > cap || pen__bytes_decode(coder, codec, coded, n, again, len, NULL) != 0 ||
        memcmp(again, src, len) != 0)
        abort();
    for (size_t i = 0; i < n; i += 1 + src[i % len] % 16)
        coded[i] ^= src[i % len];
    decode(coder, codec, coded, n, len);
    free(coded), free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pen__bytes_coder *coder;
    if (size < 4 || (!coder && pen__bytes_coder_create(&coder) != 0))
        return 0;
    const pen__bytes_codec codec = (pen__bytes_codec)(data[0] % PEN__BYTES_COUNT);
    const size_t len = size - 3;
    uint8_t *src = malloc(len); /* of their own: a read past them is seen */
    memcpy(src, data + 3, len);
    decode(coder, codec, src, len, (size_t)data[1] << 8 | data[2]);
    travel(coder, codec, src, len);
    free(src);
    return 0;
}
