/* bytes.c - zstd, lz4 and snappy, with their state kept from one call to the next. */
#include "codec/bytes.h"

#include <limits.h>
#include <lz4.h>
#include <snappy-c.h>
#include <string.h>
#include <zstd.h>

#include "base/fail.h"
#include "base/mem.h"

enum {
    ZSTD_LEVEL = 1,         /* a storage node's time is dear, and higher levels give little more */
    PIECE = 16 << 10,       /* what is looked at */
    LOOSE_SHARE = 8,        /* one part of so many has to go */
    MAX_LEN = INT_MAX / 2,  /* what all of them take */
    SNAPPY_OWN = 256 << 10, /* more than snappy takes for itself while it encodes */
    KEEP_BYTES = 1 << 20,   /* of a place for its output */
};

struct pen__bytes_coder {
    ZSTD_CCtx *zstd_in;
    ZSTD_DCtx *zstd_out;
    void *lz4_in;
    char *snappy_out; /* it wants more room than it needs in the end */
    size_t snappy_cap;
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
    pen__free(coder->snappy_out);
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

/* Snappy is C++, and throws where it gets no memory, which would end the process: so it is found
 * out before whether there is some. */
static bool has_memory_for_snappy(void)
{
    void *probe = pen__malloc(SNAPPY_OWN);
    pen__free(probe);
    return probe != NULL;
}

static char *snappy_room(pen__bytes_coder *coder, size_t n)
{
    if (n > coder->snappy_cap) {
        pen__free(coder->snappy_out);
        coder->snappy_out = pen__malloc(n);
        coder->snappy_cap = coder->snappy_out ? n : 0;
    }
    return coder->snappy_out;
}

static size_t encode_snappy(pen__bytes_coder *coder, const uint8_t *src, size_t len, uint8_t *dst,
                            size_t dst_cap)
{
    size_t n = snappy_max_compressed_length(len);
    char *room = snappy_room(coder, n);
    if (!room || !has_memory_for_snappy() ||
        snappy_compress((const char *)src, len, room, &n) != SNAPPY_OK || n > dst_cap)
        n = 0;
    if (n > 0)
        memcpy(dst, room, n);
    if (coder->snappy_cap > KEEP_BYTES) {
        pen__free(coder->snappy_out);
        coder->snappy_out = NULL;
        coder->snappy_cap = 0;
    }
    return n;
}

size_t pen__bytes_encode(pen__bytes_coder *coder, pen__bytes_codec codec, const uint8_t *src,
                         size_t len, uint8_t *dst, size_t dst_cap)
{
    if (len < 1 || len > MAX_LEN || dst_cap < 1)
        return 0;
    switch (codec) {
    case PEN__BYTES_ZSTD:
        return encode_zstd(coder, src, len, dst, dst_cap);
    case PEN__BYTES_LZ4:
        return encode_lz4(coder, src, len, dst, dst_cap);
    default:
        return encode_snappy(coder, src, len, dst, dst_cap);
    }
}

static bool decode_lz4(const uint8_t *src, size_t len, uint8_t *dst, size_t dst_len)
{
    return LZ4_decompress_safe((const char *)src, (char *)dst, (int)len, (int)dst_len) ==
           (int)dst_len;
}

/* The length it begins with is looked at before anything is written. */
static bool decode_snappy(const uint8_t *src, size_t len, uint8_t *dst, size_t dst_len)
{
    size_t n = 0;
    return snappy_uncompressed_length((const char *)src, len, &n) == SNAPPY_OK && n == dst_len &&
           snappy_uncompress((const char *)src, len, (char *)dst, &n) == SNAPPY_OK && n == dst_len;
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
        is_right = codec == PEN__BYTES_LZ4 ? decode_lz4(src, len, dst, dst_len)
                                           : decode_snappy(src, len, dst, dst_len);
    }
    return is_right ? 0 : pen__fail(err, PEN_ECORRUPT, -1, "coded bytes are damaged");
}

bool pen__bytes_look_loose(pen__bytes_coder *coder, const uint8_t *src, size_t len)
{
    size_t n = len < PIECE ? len : PIECE, start = (len - n) / 2; /* headers are at the front */
    void *piece = coder->piece;
    return n > 0 && encode_lz4(coder, src + start, n, piece, n - n / LOOSE_SHARE) > 0;
}
