/* rng.c - Philox4x32-10 (Salmon et al., SC '11) and the draws made from it.
 *
 * The draws use fmath.h, never libm, so they are the same on every host.
 */
#include "base/rng.h"

#include "base/fmath.h"

void pen__philox(const uint32_t counter[4], uint64_t key, uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53U * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57U * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void pen__rng_init(pen__rng *rng, uint64_t seed, pen__rng_domain domain, int64_t sample,
                   int64_t epoch, int32_t occurrence, int op)
{
    rng->key = seed;
    rng->counter[0] = (uint32_t)sample;
    rng->counter[1] = (uint32_t)((uint64_t)sample >> 32) & 0xFFU;
    rng->counter[2] = (uint32_t)epoch;
    rng->counter[3] =
        ((uint32_t)occurrence & 0xFFFFU) | ((uint32_t)op & 0xFFU) << 16 | (uint32_t)domain << 24;
    rng->n_left = 0;
}

uint32_t pen__rng_u32(pen__rng *rng)
{
    if (rng->n_left == 0) {
        pen__philox(rng->counter, rng->key, rng->block);
        rng->counter[1] += 1U << 8;
        rng->n_left = 4;
    }
    return rng->block[--rng->n_left];
}

uint64_t pen__rng_u64(pen__rng *rng)
{
    uint64_t high = pen__rng_u32(rng);
    return high << 32 | pen__rng_u32(rng);
}

double pen__rng_unit(pen__rng *rng)
{
    return pen__rng_u32(rng) * 0x1p-32;
}

double pen__rng_range(pen__rng *rng, double lo, double hi)
{
    return lo + (hi - lo) * pen__rng_unit(rng);
}

uint32_t pen__rng_below(pen__rng *rng, uint32_t n)
{
    /* Fixed-point multiply instead of rejection: one draw always, and a bias
     * below 2^-32 that no dataset can show. */
    uint64_t r = pen__rng_u64(rng);
    uint64_t low = (r & 0xFFFFFFFFU) * n;
    uint64_t high = (r >> 32) * n + (low >> 32);
    return (uint32_t)(high >> 32);
}

void pen__rng_normal2(pen__rng *rng, float out[2])
{
    double u = (pen__rng_u32(rng) + 0.5) * 0x1p-32; /* never 0: its log is finite */
    double turn = pen__rng_unit(rng);
    double radius = pen__sqrt(-2.0 * pen__log(u));
    double sine, cosine;
    pen__sincos_turn(turn, &sine, &cosine);
    out[0] = (float)(radius * cosine);
    out[1] = (float)(radius * sine);
}
