/* rng.h - counter-based randomness: Philox4x32-10.
 *
 * No generator state travels with a sample: every number is a function of a
 * 64-bit key (the seed) and a 128-bit counter whose layout is fixed here for
 * ever, because it is part of what makes a stream reproducible:
 *
 *     word 0   sample id, bits 0..31
 *     word 1   sample id, bits 32..39 | draw << 8         (24 bits of draw)
 *     word 2   epoch                                      (32 bits)
 *     word 3   occurrence (16 bits) | op << 16 | domain << 24
 *
 * `op` is the operation's place in the user's list, before any fusion.  `draw`
 * counts blocks of four words within it.
 */
#ifndef PEN_BASE_RNG_H
#define PEN_BASE_RNG_H

#include <stdint.h>

/* Who draws: keeps a crop from ever sharing numbers with a shuffle. */
typedef enum pen__rng_domain {
    PEN__RNG_OP = 0,
    PEN__RNG_ORDER = 1,
    PEN__RNG_REPLACE = 2,
    PEN__RNG_BATCH = 3, /* what mixes a batch: the global batch stands for the sample */
} pen__rng_domain;

typedef struct pen__rng {
    uint64_t key;
    uint32_t counter[4];
    uint32_t block[4];
    int n_left; /* unused words in block, taken from the end */
} pen__rng;

/* Ten Philox rounds over one counter. */
void pen__philox(const uint32_t counter[4], uint64_t key, uint32_t out[4]);

void pen__rng_init(pen__rng *rng, uint64_t seed, pen__rng_domain domain, int64_t sample,
                   int64_t epoch, int32_t occurrence, int op);
uint32_t pen__rng_u32(pen__rng *rng);
uint64_t pen__rng_u64(pen__rng *rng);
/* [0, 1), 32 bits. */
double pen__rng_unit(pen__rng *rng);
/* [lo, hi). */
double pen__rng_range(pen__rng *rng, double lo, double hi);
/* 0..n-1, n >= 1. */
uint32_t pen__rng_below(pen__rng *rng, uint32_t n);
/* Two independent standard normals. */
void pen__rng_normal2(pen__rng *rng, float out[2]);

#endif
