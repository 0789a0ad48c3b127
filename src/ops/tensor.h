/* tensor.h - uint8 pixels to the batch: ToTensor, Normalize, dtype and layout.
 *
 * ToTensor and every Normalize after it act on each value alone, and a pixel
 * has 256 values, so the whole chain is a table of 256 results a channel,
 * computed once with torchvision's float32 operations in torchvision's order.
 * Conversion to float16 or bfloat16 (round to nearest even) is in the table too.
 */
#ifndef PEN_OPS_TENSOR_H
#define PEN_OPS_TENSOR_H

#include <penstock/pipeline.h>

#include <stdbool.h>

#include "base/rng.h"
#include "ops/image.h"

/* The same chain as arithmetic, which SIMD does faster than it looks up:
 *     x = v * scale,  y = (x - mean) * (1/std)
 * with scale (1/255, mostly) and 1/std in two floats.  Division rounds once and this rounds
 * three times, so it counts only where all 256 results proved equal. */
typedef struct pen__tensor_formula {
    bool is_exact; /* checked against the table, on the CPU level in use */
    float scale, scale_rest;
    float mean[PEN_MAX_CHANNELS];
    float inverse[PEN_MAX_CHANNELS], inverse_rest[PEN_MAX_CHANNELS]; /* of std */
} pen__tensor_formula;

typedef struct pen__tensor_table {
    pen_dtype dtype; /* UINT8: the identity */
    int channels;    /* of the output: 1 or 3 */
    float f32[PEN_MAX_CHANNELS][256];
    uint16_t f16[PEN_MAX_CHANNELS][256]; /* FLOAT16 or BFLOAT16 bits */
    pen__tensor_formula formula;
} pen__tensor_table;

/* `norms`: n_norms Normalize settings, applied in turn to the scaled value. */
void pen__tensor_table_init(pen__tensor_table *table, pen_dtype dtype, int channels,
                            pen_scaling scaling, const pen_op *norms, int n_norms);

/* Write `src` (ch == table->channels, or 1 to be spread) to dst as NCHW or NHWC. */
void pen__to_tensor(const pen__tensor_table *table, const pen__image *src, pen_layout layout,
                    void *dst);

/* Round-to-nearest-even conversions, NaN kept quiet. */
uint16_t pen__f32_to_f16(float value);
uint16_t pen__f32_to_bf16(float value);

/* RandomErasing on a finished tensor: fill box with value[c], or with standard
 * normals drawn from rng in (c, y, x) order when rng is not NULL; each value then
 * goes through `norms` (the Normalizes that stand after the erasing) and to dtype. */
void pen__erase(void *tensor, const pen_shape *shape, pen__rect box, const float *value,
                pen__rng *rng, const pen_op *norms, int n_norms);

#endif
