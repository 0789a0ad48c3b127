/* grow.h - arrays that double. */
#ifndef PEN_SOURCE_GROW_H
#define PEN_SOURCE_GROW_H

#include <stdint.h>

#include "base/mem.h"

/* The block with room for `need` items of `item_bytes`: `block` itself, or moved.
 * NULL when memory is out or the size overflows; then `block` is still valid. */
static inline void *pen__grow(void *block, size_t *cap, size_t need, size_t item_bytes)
{
    if (need <= *cap && block)
        return block;
    size_t wanted = *cap + *cap / 2 + 16;
    if (wanted < need)
        wanted = need;
    if (wanted > SIZE_MAX / 2 / item_bytes)
        return NULL;
    void *moved = pen__realloc(block, wanted * item_bytes);
    if (moved)
        *cap = wanted;
    return moved;
}

/* The block without spare room; as it was when that cannot be had. */
static inline void *pen__trim(void *block, size_t *cap, size_t n, size_t item_bytes)
{
    void *moved = block && n < *cap ? pen__realloc(block, n * item_bytes) : NULL;
    if (!moved)
        return block;
    *cap = n;
    return moved;
}

#endif
