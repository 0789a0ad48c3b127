/* geometry_kernels.h - reversing a row of pixels in place, scalar and SIMD. */
#ifndef PEN_OPS_GEOMETRY_KERNELS_H
#define PEN_OPS_GEOMETRY_KERNELS_H

#include <stdint.h>

void pen__hflip_row_c(uint8_t *row, int32_t w, int ch);
#if defined(__x86_64__)
void pen__hflip_row_avx2(uint8_t *row, int32_t w, int ch);
#endif

#endif
