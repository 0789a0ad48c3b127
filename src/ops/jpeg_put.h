/* jpeg_put.h - writing the bits of a scan: the opposite of jpeg_bits.h.
 *
 * Bits collect in a word; whole words go out with stuffing behind each 0xFF.  What does not fit
 * is dropped and remembered.
 */
#ifndef PEN_OPS_JPEG_PUT_H
#define PEN_OPS_JPEG_PUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pen__jpeg_put {
    uint64_t word; /* the top n_bits are pending, the rest is zero */
    int n_bits;    /* 0 to 63 */
    uint8_t *at, *end;
    bool is_full; /* something was dropped */
} pen__jpeg_put;

/* The lowest n bits of `bits`, 0 to 32 of them; those above are zero. */
void pen__jpeg_put_bits(pen__jpeg_put *put, uint32_t bits, int n);

/* Bits [from, to) of `src`, counted from its first byte's highest.  Up to nine bytes behind
 * the last bit's are read and not used. */
void pen__jpeg_put_copy(pen__jpeg_put *put, const uint8_t *src, int64_t from, int64_t to);

/* Fill up the last byte with ones and write all that is pending. */
void pen__jpeg_put_end(pen__jpeg_put *put);

#endif
