/* pixel_shapes.h - the fixed distributions of residuals, and tables to code with them.
 *
 * Private to pixel_*.c, and part of the format.  A shape gives each residual up to some size a
 * share of 4096, the same to both signs; all others share the escape, behind which the residual
 * follows as it is.
 *
 * Coding is rANS: a state of 31 bits that grows by a symbol's bits and gives off 16 bits when
 * it has too many.
 */
#ifndef PEN_CODEC_PIXEL_SHAPES_H
#define PEN_CODEC_PIXEL_SHAPES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PEN__PIXELS_SHAPES = 24,
    PEN__RANS_BITS = 12, /* of a share */
    PEN__RANS_TOTAL = 1 << PEN__RANS_BITS,
    PEN__RANS_LOW = 1 << 15, /* a state below this takes 16 bits more */
    PEN__PIXELS_ESCAPE = -128,
    PEN__PIXELS_SIZES = 129,    /* of residuals: 0 to 128 */
    PEN__PIXELS_COST_ONE = 256, /* of a bit */
};

/* How to add a symbol to a state: state + bias + (state * inverse >> 32 >> shift) * rest is
 * (state / share) * 4096 + first + state % share without a division. */
typedef struct pen__rans_symbol {
    uint32_t most; /* a state from here on gives off 16 bits before */
    uint32_t inverse, bias;
    uint16_t rest;
    uint8_t shift;
    bool is_direct; /* false: the escape, and the residual follows */
} pen__rans_symbol;

typedef struct pen__pixel_shapes {
    /* For the lowest 12 bits of a state, see below. */
    uint32_t slots[PEN__PIXELS_SHAPES][PEN__RANS_TOTAL];
    pen__rans_symbol symbols[PEN__PIXELS_SHAPES][256]; /* of a residual, or the escape */
    uint32_t costs[PEN__PIXELS_SHAPES]
                  [PEN__PIXELS_SIZES]; /* of a residual of this size, escape included */
} pen__pixel_shapes;

/* An entry of slots: add << 20 | residual << 12 | share.  The state becomes
 * (state >> 12) * share + add. */
static inline uint32_t pen__rans_entry(int residual, uint32_t share, uint32_t add)
{
    return add << 20 | (uint32_t)(uint8_t)residual << 12 | share;
}

static inline int pen__rans_residual(uint32_t entry)
{
    return (int8_t)(entry >> 12);
}

static inline uint32_t pen__rans_share(uint32_t entry)
{
    return entry & (PEN__RANS_TOTAL - 1);
}

static inline uint32_t pen__rans_add(uint32_t entry)
{
    return entry >> 20;
}

/* Built at the first call, for all threads. */
const pen__pixel_shapes *pen__pixel_shapes_get(void);

/* A residual behind an escape: any of 256, each with the same share. */
pen__rans_symbol pen__rans_plain_symbol(uint8_t residual);

#endif
