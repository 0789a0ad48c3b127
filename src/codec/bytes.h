/* bytes.h - lossless coding of any bytes, for what is not compressed by itself: zstd, lz4, snappy.
 *
 * One thread's coder makes what the libraries keep from one call to the next when it is first
 * needed; what that takes is theirs.  Decoding is safe on hostile input: the length of the result
 * is known beforehand, and no library writes past it nor reads past the source.
 */
#ifndef PEN_CODEC_BYTES_H
#define PEN_CODEC_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

typedef enum pen__bytes_codec {
    PEN__BYTES_ZSTD,
    PEN__BYTES_LZ4,    /* a block, without its length */
    PEN__BYTES_SNAPPY, /* raw, not framed: its length, then the block */
    PEN__BYTES_COUNT
} pen__bytes_codec;

typedef struct pen__bytes_coder pen__bytes_coder;

/* The most that a coder takes for decoding with zstd, whatever is decoded; others take nothing. */
#define PEN__BYTES_ZSTD_MEMORY ((size_t)192 << 10)

int pen__bytes_coder_create(pen__bytes_coder **out);
void pen__bytes_coder_free(pen__bytes_coder *coder);

/* Code `len` bytes, 1 to INT_MAX / 2 of them; returns the length, or 0: it does not fit, or there
 * is no memory. */
size_t pen__bytes_encode(pen__bytes_coder *coder, pen__bytes_codec codec, const uint8_t *src,
                         size_t len, uint8_t *dst, size_t dst_cap);

/* Decode to exactly dst_len bytes.  0, PEN_ECORRUPT, PEN_ENOMEM. */
int pen__bytes_decode(pen__bytes_coder *coder, pen__bytes_codec codec, const uint8_t *src,
                      size_t len, uint8_t *dst, size_t dst_len, pen_error *err);

/* Is it likely that coding saves something worth having?  Asks lz4, which is quick, about a
 * piece of it. */
bool pen__bytes_look_loose(pen__bytes_coder *coder, const uint8_t *src, size_t len);

#endif
