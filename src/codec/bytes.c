/* bytes.c - zstd and lz4, with their state kept from one call to the next. */
#include "codec/bytes.h"

#include <limits.h>
#include <lz4.h>
#include <zstd.h>

#include "base/fail.h"
#include "base/mem.h"

enum {
    ZSTD_LEVEL = 1,        /* a storage node's time is dear, and higher levels give little more */
    PIECE = 16 << 10,      /* what is looked at */
    LOOSE_SHARE = 8,       /* one part of so many has to go */
    MAX_LEN = INT_MAX / 2, /* what both take */
};

struct pen__bytes_coder {
    ZSTD_CCtx *zstd_in;
    ZSTD_DCtx *zstd_out;
    void *lz4_in;
    char piece[PIECE];
};

int pen__bytes_coder_create(pen__bytes_coder **out)
{
    *out = pen__calloc(1, sizeof **out);
    return *out ? 0 : PEN_ENOMEM;
}

void pen__bytes_coder_free(pen__bytes_coder *coder)
{
    if (!coder)
        return;
    ZSTD_freeCCtx(coder->zstd_in);
    ZSTD_freeDCtx(coder->zstd_out);
    pen__free(coder->lz4_in);
    pen__free(coder);
}

static size_t encode_zstd(pen__bytes_coder *coder, const uint8_t *src, size_t len, uint8_t *dst,
                          size_t dst_cap)
{
    if (!coder->zstd_in)
        coder->zstd_in = ZSTD_createCCtx();
    if (!coder->zstd_in)
        return 0;
    size_t n = ZSTD_compressCCtx(coder->zstd_in, dst, dst_cap, src, len, ZSTD_LEVEL);
    return ZSTD_isError(n) ? 0 : n;
}

static size_t encode_lz4(pen__bytes_coder *coder, const uint8_t *src, size_t len, void *dst,
                         size_t dst_cap)
{
    if (!coder->lz4_in)
        coder->lz4_in = pen__malloc((size_t)LZ4_sizeofState());
    if (!coder->lz4_in)
        return 0;
    int cap = dst_cap < INT_MAX ? (int)dst_cap : INT_MAX;
    int n = LZ4_compress_fast_extState(coder->lz4_in, (const char *)src, dst, (int)len, cap, 1);
    return n > 0 ? (size_t)n : 0;
}

size_t pen__bytes_encode(pen__bytes_coder *coder, pen__bytes_codec codec, const uint8_t *src,
                         size_t len, uint8_t *dst, size_t dst_cap)
{
    if (len < 1 || len > MAX_LEN || dst_cap < 1)
        return 0;
    return codec == PEN__BYTES_ZSTD ? encode_zstd(coder, src, len, dst, dst_cap)
                                    : encode_lz4(coder, src, len, dst, dst_cap);
}

int pen__bytes_decode(pen__bytes_coder *coder, pen__bytes_codec codec, const uint8_t *src,
                      size_t len, uint8_t *dst, size_t dst_len, pen_error *err)
{
    bool is_right;
    if (len > MAX_LEN || dst_len > MAX_LEN)
        return pen__fail(err, PEN_ECORRUPT, -1, "more coded bytes than there may be");
    if (codec == PEN__BYTES_ZSTD) {
        if (!coder->zstd_out)
            coder->zstd_out = ZSTD_createDCtx();
        if (!coder->zstd_out)
            return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
        is_right = ZSTD_decompressDCtx(coder->zstd_out, dst, dst_len, src, len) == dst_len;
    } else {
        is_right = LZ4_decompress_safe((const char *)src, (char *)dst, (int)len, (int)dst_len) ==
                   (int)dst_len;
    }
    return is_right ? 0 : pen__fail(err, PEN_ECORRUPT, -1, "coded bytes are damaged");
}

bool pen__bytes_look_loose(pen__bytes_coder *coder, const uint8_t *src, size_t len)
{
    size_t n = len < PIECE ? len : PIECE, start = (len - n) / 2; /* headers are at the front */
    void *piece = coder->piece;
    return n > 0 && encode_lz4(coder, src + start, n, piece, n - n / LOOSE_SHARE) > 0;
}
