/* order.c - keyed permutations in O(1) memory.
 *
 * A Feistel network over the smallest power of two that holds `count` is a
 * permutation of that range; walking the cycle until the value falls below
 * `count` makes it one of 0..count-1 (two steps on average at the worst).
 * Every round takes its function from Philox, keyed by seed and epoch.
 *
 * The block order shuffles whole blocks of neighbouring samples, then mixes
 * the samples of `window` consecutive blocks.  Data is first rotated by a random
 * amount, so that the short last block is another part of the data each epoch.
 */
#include <penstock/order.h>

#include "base/rng.h"

enum { FEISTEL_ROUNDS = 8 };

/* Which permutation: several are needed in one epoch (blocks, groups). */
typedef struct permutation {
    uint64_t seed;
    int64_t epoch;
    uint32_t tweak;
} permutation;

static uint32_t round_value(const permutation *perm, int round, uint32_t half)
{
    uint32_t counter[4] = {half, perm->tweak, (uint32_t)perm->epoch,
                           (uint32_t)round << 16 | (uint32_t)PEN__RNG_ORDER << 24};
    uint32_t out[4];
    pen__philox(counter, perm->seed, out);
    return out[0];
}

static int bits_for(uint64_t count)
{
    int bits = 2;
    while (bits < 62 && (uint64_t)1 << bits < count)
        bits++;
    return bits;
}

/* The image of `x` among 0..count-1. */
static int64_t permute(const permutation *perm, int64_t count, int64_t x)
{
    int bits = bits_for((uint64_t)count), low_bits = bits / 2, high_bits = bits - low_bits;
    uint64_t value = (uint64_t)x;
    do {
        /* Unbalanced halves swap their widths each round, an even number of times. */
        int left_bits = high_bits, right_bits = low_bits;
        for (int round = 0; round < FEISTEL_ROUNDS; round++) {
            uint64_t left = value >> right_bits;
            uint64_t right = value & (((uint64_t)1 << right_bits) - 1);
            uint64_t mixed = (left ^ round_value(perm, round, (uint32_t)right)) &
                             (((uint64_t)1 << left_bits) - 1);
            value = right << left_bits | mixed;
            int swap = left_bits;
            left_bits = right_bits;
            right_bits = swap;
        }
    } while (value >= (uint64_t)count);
    return (int64_t)value;
}

static int64_t block_order_at(const pen_order *order, int64_t epoch, int64_t position)
{
    int64_t n_blocks = order->count / order->block; /* whole ones; the rest comes last */
    int64_t whole = n_blocks * order->block;
    permutation blocks = {order->seed, epoch, 1};
    int64_t place = position;
    if (position < whole) {
        int64_t group_size = (int64_t)order->block * order->window;
        int64_t group = position / group_size, first = group * group_size;
        int64_t in_group = whole - first < group_size ? whole - first : group_size;
        permutation mix = {order->seed, epoch, (uint32_t)(2 + group)};
        int64_t mixed = permute(&mix, in_group, position - first);
        int64_t block = permute(&blocks, n_blocks, group * order->window + mixed / order->block);
        place = block * order->block + mixed % order->block;
    }
    pen__rng rng;
    pen__rng_init(&rng, order->seed, PEN__RNG_ORDER, 0, epoch, 0, 0xFF);
    int64_t rotation = (int64_t)(pen__rng_u64(&rng) % (uint64_t)order->count);
    return (place + rotation) % order->count;
}

int64_t pen_order_at(const pen_order *order, int64_t epoch, int64_t position)
{
    if (position < 0 || position >= order->count || epoch < 0 || epoch > UINT32_MAX)
        return PEN_EINVAL;
    if (order->kind == PEN_ORDER_SEQUENTIAL)
        return position;
    if (order->kind == PEN_ORDER_BLOCK && order->block > 0 && order->window > 0)
        return block_order_at(order, epoch, position);
    if (order->kind != PEN_ORDER_SHUFFLE)
        return PEN_EINVAL;
    permutation all = {order->seed, epoch, 0};
    return permute(&all, order->count, position);
}
