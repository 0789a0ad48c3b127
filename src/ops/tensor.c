/* tensor.c - tables of results, and writing pixels through them.
 *
 * The table is the definition.  SIMD kernels compute instead of looking up;
 * when a table is made, they are run over all 256 values and used only if
 * every bit agrees.
 */
#include "ops/tensor.h"

#include <string.h>

#include "base/cpu.h"
#include "ops/tensor_kernels.h"

/* ---- narrow floats -------------------------------------------------------------- */

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Drop the low `n` bits of `bits`, 1 <= n <= 31, rounding to nearest even. */
static uint32_t shift_even(uint32_t bits, int n)
{
    uint32_t kept = bits >> n, rest = bits & ((1U << n) - 1), half = 1U << (n - 1);
    return kept + (rest > half || (rest == half && (kept & 1)));
}

uint16_t pen__f32_to_f16(float value)
{
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) /* NaN: quiet, upper payload kept */
        return (uint16_t)(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
    if (magnitude >= 0x477FF000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7C00);
    if (magnitude >= 0x38800000) /* normal: rebias; a carry may go up to the exponent */
        return (uint16_t)(sign | shift_even(magnitude - (112U << 23), 13));
    int exponent = (int)(magnitude >> 23);
    if (exponent < 102) /* below half of the smallest subnormal, 2^-25 */
        return (uint16_t)sign;
    uint32_t mantissa = (magnitude & 0x7FFFFF) | 0x800000;
    return (uint16_t)(sign | shift_even(mantissa, 126 - exponent));
}

uint16_t pen__f32_to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)shift_even(bits, 16);
}

/* ---- the table ------------------------------------------------------------------- */

#define INVERSE_255 (1.0F / 255.0F)

static float scale(int value, pen_scaling scaling)
{
    if (scaling == PEN_SCALING_NONE)
        return (float)value;
    return scaling == PEN_SCALING_MULTIPLY ? (float)value * INVERSE_255 : (float)value / 255.0F;
}

static float normalize(float value, const pen_op *norms, int n_norms, int c)
{
    for (int i = 0; i < n_norms; i++)
        value = (value - norms[i].normalize.mean[c]) / norms[i].normalize.std[c];
    return value;
}

static uint16_t to_narrow(float value, pen_dtype dtype)
{
    return dtype == PEN_DTYPE_BFLOAT16 ? pen__f32_to_bf16(value) : pen__f32_to_f16(value);
}

/* As many pixels as SIMD does. */
static size_t compute(const pen__tensor_table *table, const pen__image *src, pen_layout layout,
                      void *dst)
{
    size_t done = 0;
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX512)
        done = pen__to_tensor_avx512(table, src, layout, dst);
    if (done == 0 && (pen__cpu_flags() & PEN__CPU_AVX2))
        done = pen__to_tensor_avx2(table, src, layout, dst);
#else
    (void)table, (void)src, (void)layout, (void)dst;
#endif
    return done;
}

/* Does the kernel for this layout give the table's bits for every value of every channel? */
static bool is_layout_exact(const pen__tensor_table *table, pen_layout layout)
{
    enum { N = 256, SPARE = 16 }; /* spare pixels, so that the kernel does all 256 */
    uint8_t ramp[(N + SPARE) * PEN_MAX_CHANNELS];
    union {
        float f32[(N + SPARE) * PEN_MAX_CHANNELS];
        uint16_t f16[(N + SPARE) * PEN_MAX_CHANNELS];
    } got;
    int n_ch = table->channels;
    for (int i = 0; i < (N + SPARE) * n_ch; i++)
        ramp[i] = (uint8_t)(i / n_ch);
    pen__image image = {ramp, N + SPARE, 1, n_ch};
    if (compute(table, &image, layout, &got) < N)
        return false;
    for (int i = 0; i < N * n_ch; i++) {
        int c = i % n_ch, v = i / n_ch;
        int at = layout == PEN_LAYOUT_NCHW ? c * (N + SPARE) + v : i;
        if (table->dtype == PEN_DTYPE_FLOAT32 ? bits_of(got.f32[at]) != bits_of(table->f32[c][v])
                                              : got.f16[at] != table->f16[c][v])
            return false;
    }
    return true;
}

static bool is_formula_exact(const pen__tensor_table *table)
{
    return is_layout_exact(table, PEN_LAYOUT_NCHW) && is_layout_exact(table, PEN_LAYOUT_NHWC);
}

static void init_formula(pen__tensor_table *table, pen_scaling scaling, const pen_op *norms,
                         int n_norms)
{
    pen__tensor_formula *formula = &table->formula;
    formula->scale = scaling == PEN_SCALING_NONE ? 1.0F : INVERSE_255;
    if (scaling == PEN_SCALING_DIVIDE)
        formula->scale_rest = (float)(1.0 / 255.0 - (double)INVERSE_255);
    for (int c = 0; c < table->channels; c++) {
        formula->mean[c] = n_norms ? norms[0].normalize.mean[c] : 0.0F;
        double inverse = n_norms ? 1.0 / (double)norms[0].normalize.std[c] : 1.0;
        formula->inverse[c] = (float)inverse;
        formula->inverse_rest[c] = (float)(inverse - (double)formula->inverse[c]);
    }
    bool is_float = table->dtype != PEN_DTYPE_UINT8;
    formula->is_exact = is_float && n_norms <= 1 && is_formula_exact(table);
}

void pen__tensor_table_init(pen__tensor_table *table, pen_dtype dtype, int channels,
                            pen_scaling scaling, const pen_op *norms, int n_norms)
{
    memset(table, 0, sizeof *table);
    table->dtype = dtype;
    table->channels = channels;
    for (int c = 0; c < channels; c++)
        for (int v = 0; v < 256; v++) {
            table->f32[c][v] = normalize(scale(v, scaling), norms, n_norms, c);
            table->f16[c][v] = to_narrow(table->f32[c][v], dtype);
        }
    init_formula(table, scaling, norms, n_norms);
}

/* ---- writing a tensor -------------------------------------------------------------- */

/* Channel c's 256 results, one after another. */
static const void *results(const pen__tensor_table *table, int c, const uint8_t *identity)
{
    if (table->dtype == PEN_DTYPE_UINT8)
        return identity;
    return table->dtype == PEN_DTYPE_FLOAT32 ? (const void *)table->f32[c] : table->f16[c];
}

/* Pixels [first, n) through the table; `size` is a constant in every call. */
static inline void look_up(const pen__tensor_table *table, const pen__image *src, pen_layout layout,
                           size_t first, uint8_t *dst, const uint8_t *identity, const size_t size)
{
    size_t n = (size_t)src->w * (size_t)src->h, n_ch = (size_t)table->channels;
    size_t src_step = (size_t)src->ch;
    for (size_t c = 0; c < n_ch; c++) {
        const uint8_t *in = src->px + (src->ch == 1 ? 0 : c);
        const uint8_t *from = results(table, (int)c, identity);
        size_t step = layout == PEN_LAYOUT_NCHW ? size : n_ch * size;
        uint8_t *out = dst + (layout == PEN_LAYOUT_NCHW ? c * n : c) * size;
        for (size_t i = first; i < n; i++)
            memcpy(out + i * step, from + in[i * src_step] * size, size);
    }
}

void pen__to_tensor(const pen__tensor_table *table, const pen__image *src, pen_layout layout,
                    void *dst)
{
    bool is_computed = table->dtype == PEN_DTYPE_UINT8 || table->formula.is_exact;
    size_t done = is_computed ? compute(table, src, layout, dst) : 0;
    if (table->dtype == PEN_DTYPE_FLOAT32) {
        look_up(table, src, layout, done, dst, NULL, 4);
    } else if (table->dtype != PEN_DTYPE_UINT8) {
        look_up(table, src, layout, done, dst, NULL, 2);
    } else if (layout == PEN_LAYOUT_NHWC && src->ch == table->channels) {
        memcpy(dst, src->px, pen__image_bytes(src));
    } else {
        uint8_t identity[256];
        for (int v = 0; v < 256; v++)
            identity[v] = (uint8_t)v;
        look_up(table, src, layout, done, dst, identity, 1);
    }
}

/* ---- erasing ------------------------------------------------------------------------- */

static void put(void *tensor, pen_dtype dtype, size_t at, float value)
{
    switch (dtype) {
    case PEN_DTYPE_UINT8:
        ((uint8_t *)tensor)[at] = (uint8_t)(value <= 0.0F     ? 0.0F
                                            : value >= 255.0F ? 255.0F
                                                              : value);
        break;
    case PEN_DTYPE_FLOAT32:
        ((float *)tensor)[at] = value;
        break;
    default:
        ((uint16_t *)tensor)[at] = to_narrow(value, dtype);
    }
}

/* Normals come in twos; this hands them out one by one. */
typedef struct normals {
    pen__rng *rng;
    float pair[2];
    bool has_second;
} normals;

static float next_normal(normals *from)
{
    from->has_second = !from->has_second;
    if (!from->has_second)
        return from->pair[1];
    pen__rng_normal2(from->rng, from->pair);
    return from->pair[0];
}

void pen__erase(void *tensor, const pen_shape *shape, pen__rect box, const float *value,
                pen__rng *rng, const pen_op *norms, int n_norms)
{
    normals noise = {.rng = rng};
    size_t w = (size_t)shape->width, h = (size_t)shape->height, n_ch = (size_t)shape->channels;
    bool is_planar = shape->layout == PEN_LAYOUT_NCHW;
    for (size_t c = 0; c < n_ch; c++) {
        float fixed = rng ? 0.0F : normalize(value[c], norms, n_norms, (int)c);
        for (size_t y = (size_t)box.y; y < (size_t)(box.y + box.h); y++)
            for (size_t x = (size_t)box.x; x < (size_t)(box.x + box.w); x++) {
                size_t at = is_planar ? (c * h + y) * w + x : (y * w + x) * n_ch + c;
                float v = rng ? normalize(next_normal(&noise), norms, n_norms, (int)c) : fixed;
                put(tensor, shape->dtype, at, v);
            }
    }
}
