/* order.h - which sample stands at which position of which epoch.
 *
 * A keyed permutation evaluated in O(1) time and memory: the whole future is
 * known, and a position is one integer.
 */
#ifndef PENSTOCK_ORDER_H
#define PENSTOCK_ORDER_H

#include <stdint.h>

#include <penstock/error.h>

typedef enum pen_order_kind {
    PEN_ORDER_SEQUENTIAL = 0,
    PEN_ORDER_SHUFFLE, /* every permutation position independent */
    PEN_ORDER_BLOCK, /* blocks of neighbours, shuffled within a window of blocks: for slow disks */
    PEN_ORDER_FED,   /* the caller says what each batch is: pen_loader_feed */
} pen_order_kind;

/* Kind, block and window are part of a stream's identity, never knobs. */
typedef struct pen_order {
    pen_order_kind kind;
    int32_t block;  /* PEN_ORDER_BLOCK: samples a block, default 256 */
    int32_t window; /* PEN_ORDER_BLOCK: blocks mixed with each other, default 16 */
    uint64_t seed;
    int64_t count;
} pen_order;

/* The sample at `position` (0..count-1) of `epoch`; PEN_EINVAL outside, and for a fed
 * order, which is no function. */
PEN_API int64_t pen_order_at(const pen_order *order, int64_t epoch, int64_t position);

#endif
