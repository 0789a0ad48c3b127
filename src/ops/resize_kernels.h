/* resize_kernels.h - the two passes of a resize, scalar and SIMD twins.
 *
 * All twins give the same bytes.  One table a CPU level; pen__resize_kernels
 * picks.
 */
#ifndef PEN_OPS_RESIZE_KERNELS_H
#define PEN_OPS_RESIZE_KERNELS_H

#include "ops/resize.h"

typedef struct pen__resize_kernels {
    /* Put the weights in the form a pass wants (taps->packed), before it. */
    void (*prepare_horizontal)(pen__taps *taps, int ch);
    void (*prepare_vertical)(pen__taps *taps);
    /* Rows of taps->extent pixels at src, with PEN__RESIZE_SLACK bytes to read behind each, to
     * rows of taps->count pixels at dst; strides in bytes. */
    void (*horizontal)(const pen__taps *taps, const uint8_t *src, size_t src_stride, int32_t n_rows,
                       int ch, uint8_t *dst, size_t dst_stride);
    /* Output row i of n_bytes, from taps->used[i] rows of which the first is at src. */
    void (*vertical)(const pen__taps *taps, int32_t i, const uint8_t *src, size_t src_stride,
                     size_t n_bytes, uint8_t *dst);
} pen__resize_kernels;

extern const pen__resize_kernels pen__resize_kernels_c;
#if defined(__x86_64__)
extern const pen__resize_kernels pen__resize_kernels_avx2, pen__resize_kernels_avx512;
#endif

/* The kernels for this CPU. */
const pen__resize_kernels *pen__resize_kernels_pick(void);

static inline uint8_t pen__taps_clip(int32_t sum)
{
    int32_t value = sum >> PEN__TAPS_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

#endif
