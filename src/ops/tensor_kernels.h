/* tensor_kernels.h - SIMD parts of tensor.c. */
#ifndef PEN_OPS_TENSOR_KERNELS_H
#define PEN_OPS_TENSOR_KERNELS_H

#include "ops/tensor.h"

#if defined(__x86_64__)
/* Do what pen__to_tensor does for as many pixels from the start as whole vectors
 * and the end of `src` allow; returns how many.  The table is not looked at: a
 * float dtype needs formula.is_exact. */
size_t pen__to_tensor_avx2(const pen__tensor_table *table, const pen__image *src, pen_layout layout,
                           void *dst);
size_t pen__to_tensor_avx512(const pen__tensor_table *table, const pen__image *src,
                             pen_layout layout, void *dst);

/* Can float32 go around the cache?  Every plane starts and ends on a line's border. */
static inline bool pen__tensor_can_stream(const pen__image *src, const void *dst)
{
    return (uintptr_t)dst % 64 == 0 && (size_t)src->w * (size_t)src->h % 16 == 0;
}
#endif

#endif
