/* resize_taps.c - the filters, and their weights rounded to fixed point.
 *
 * Every step is the double arithmetic Pillow does, in its order, because the
 * rounding to 22 bits shows the difference.  Sine and cosine (Lanczos, Hamming)
 * are our own, so that weights do not depend on the host's libm: they lie within
 * an ulp of libm's, a hundred million times finer than the 22 bits kept.
 *
 * Weights that round to zero at either end are dropped: they add nothing.
 */
#include "ops/resize_taps.h"

#include <math.h>

#define pi 0x1.921fb54442d18p+1

/* ---- sine and cosine, |a| < 16 ------------------------------------------ */

/* sin(r) for |r| <= pi/2 and a little: the series to r^21/21!. */
static double sine_series(double r)
{
    static const double term[10] = {1.0 / 51090942171709440000.0,
                                    -1.0 / 121645100408832000.0,
                                    1.0 / 355687428096000.0,
                                    -1.0 / 1307674368000.0,
                                    1.0 / 6227020800.0,
                                    -1.0 / 39916800.0,
                                    1.0 / 362880.0,
                                    -1.0 / 5040.0,
                                    1.0 / 120.0,
                                    -1.0 / 6.0};
    double r2 = r * r, sum = term[0];
    for (int i = 1; i < 10; i++)
        sum = sum * r2 + term[i];
    return r + r * (r2 * sum);
}

/* a - n * pi/2 for a small whole n.  pi/2 comes in three parts, the first two
 * short enough that n times them is exact. */
static double less_quarters(double a, double n)
{
    return ((a - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
}

static int nearest_int(double x)
{
    return (int)(x + copysign(0.5, x));
}

/* Both turn to the nearest zero of the function, where it is plus or minus a sine;
 * no branch for the processor to guess wrong. */
static double sine(double a)
{
    int half = nearest_int(a * (1.0 / pi));
    return (1 - 2 * (half & 1)) * sine_series(less_quarters(a, 2.0 * half));
}

static double cosine(double a)
{
    int half = nearest_int(a * (1.0 / pi) - 0.5);
    return (2 * (half & 1) - 1) * sine_series(less_quarters(a, 2.0 * half + 1.0));
}

/* ---- the filters --------------------------------------------------------- */

static inline double box_filter(double x)
{
    return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
}

static inline double bilinear_filter(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static inline double hamming_filter(double x)
{
    x = fabs(x);
    if (x == 0.0)
        return 1.0;
    if (x >= 1.0)
        return 0.0;
    double a = x * pi;
    return sine(a) / a * (0.54F + 0.46F * cosine(a)); /* Pillow's constants are floats */
}

/* Keys' cubic with a = -1/2. */
static inline double bicubic_filter(double x)
{
    x = fabs(x);
    if (x < 1.0)
        return (1.5 * x - 2.5) * x * x + 1.0;
    if (x < 2.0)
        return (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5;
    return 0.0;
}

static inline double sinc(double x)
{
    if (x == 0.0)
        return 1.0;
    double a = x * pi;
    return sine(a) / a;
}

static inline double lanczos_filter(double x)
{
    return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3.0) : 0.0;
}

/* Half the filter's width, in output pixels when shrinking. */
static double filter_support(pen_filter filter)
{
    switch (filter) {
    case PEN_FILTER_BOX:
        return 0.5;
    case PEN_FILTER_BICUBIC:
        return 2.0;
    case PEN_FILTER_LANCZOS:
        return 3.0;
    default: /* bilinear and Hamming */
        return 1.0;
    }
}

/* ---- an axis -------------------------------------------------------------- */

/* Numbers that hold for all outputs of an axis. */
typedef struct geometry {
    double scale;   /* inputs an output */
    double shrink;  /* max(scale, 1): how much wider the filter gets */
    double support; /* in inputs */
} geometry;

static geometry axis_geometry(const pen__axis *axis)
{
    geometry g;
    g.scale = (double)axis->in_size / axis->out_size;
    g.shrink = g.scale < 1.0 ? 1.0 : g.scale;
    g.support = filter_support(axis->filter) * g.shrink;
    return g;
}

/* The inputs [*from, *to) under the filter of output i; returns its centre. */
static double output_bounds(const pen__axis *axis, const geometry *g, int32_t i, int32_t *from,
                            int32_t *to)
{
    double center = (i + 0.5) * g->scale;
    *from = (int32_t)(center - g->support + 0.5);
    *to = (int32_t)(center + g->support + 0.5);
    if (*from < 0)
        *from = 0;
    if (*to > axis->in_size)
        *to = axis->in_size;
    return center;
}

void pen__axis_needs(const pen__axis *axis, int32_t first, int32_t count, int32_t *from,
                     int32_t *to)
{
    geometry g = axis_geometry(axis);
    int32_t unused;
    output_bounds(axis, &g, first, from, &unused);
    output_bounds(axis, &g, first + count - 1, &unused, to);
}

/* The unnormalised weights of inputs [from, from + n); returns their sum. */
static inline double weigh(double (*filter)(double), int32_t from, int32_t n, double center,
                           double inverse, double *real)
{
    double sum = 0.0;
    for (int32_t t = 0; t < n; t++) {
        real[t] = filter((t + from - center + 0.5) * inverse);
        sum += real[t];
    }
    return sum;
}

/* One call a filter, so that each gets inlined into a loop of its own. */
static double weigh_by_name(pen_filter filter, int32_t from, int32_t n, double center,
                            double inverse, double *real)
{
    switch (filter) {
    case PEN_FILTER_BOX:
        return weigh(box_filter, from, n, center, inverse, real);
    case PEN_FILTER_BICUBIC:
        return weigh(bicubic_filter, from, n, center, inverse, real);
    case PEN_FILTER_LANCZOS:
        return weigh(lanczos_filter, from, n, center, inverse, real);
    case PEN_FILTER_HAMMING:
        return weigh(hamming_filter, from, n, center, inverse, real);
    default:
        return weigh(bilinear_filter, from, n, center, inverse, real);
    }
}

/* Half away from zero. */
static int32_t to_fixed(double value)
{
    double scaled = value * (1 << PEN__TAPS_BITS);
    return (int32_t)(value < 0 ? -0.5 + scaled : 0.5 + scaled);
}

static int32_t taps_stride(const pen__axis *axis)
{
    geometry g = axis_geometry(axis);
    int32_t stride = (int32_t)ceil(g.support) * 2 + 1;
    return (stride + 7) & ~7; /* SIMD forms work on up to eight at a time */
}

static size_t round_up_64(size_t n_bytes)
{
    return (n_bytes + 63) & ~(size_t)63;
}

/* Weights as they are; or for every five outputs 64 bytes, and 192 for every four of their
 * taps, which is the most that a kernel makes of them. */
static size_t packed_bytes(size_t count, size_t stride)
{
    size_t n_bytes = count * stride * sizeof(int32_t);
    size_t grouped = (count / 5 + 1) * (64 + 192 * (stride / 4));
    return round_up_64(stride <= PEN__TAPS_MAX_GROUPED && grouped > n_bytes ? grouped : n_bytes);
}

size_t pen__taps_bytes(const pen__axis *axis, int32_t count)
{
    size_t stride = (size_t)taps_stride(axis), n = (size_t)count;
    size_t weights = round_up_64(n * stride * sizeof(int32_t));
    return 3 * round_up_64(n * sizeof(int32_t)) + weights + packed_bytes(n, stride) +
           round_up_64(stride * sizeof(double));
}

static void taps_place(pen__taps *taps, void *memory)
{
    size_t n = (size_t)taps->count, stride = (size_t)taps->stride;
    uint8_t *at = memory;
    taps->packed = at;
    at += packed_bytes(n, stride);
    taps->weight = (int32_t *)(void *)at;
    at += round_up_64(n * stride * sizeof(int32_t));
    taps->real = (double *)(void *)at;
    at += round_up_64(stride * sizeof(double));
    taps->start = (int32_t *)(void *)at;
    at += round_up_64(n * sizeof(int32_t));
    taps->used = (int32_t *)(void *)at;
    at += round_up_64(n * sizeof(int32_t));
    taps->packed_start = (int32_t *)(void *)at;
}

/* Round n real weights, drop zeros at the ends, and store output i. */
static void taps_store(pen__taps *taps, int32_t i, int32_t from, int32_t n, double sum)
{
    int32_t *weight = taps->weight + (size_t)i * (size_t)taps->stride, kept = 0;
    for (int32_t t = 0; t < n; t++) {
        int32_t w = to_fixed(sum != 0.0 ? taps->real[t] / sum : taps->real[t]);
        if (w == 0 && kept == 0 && t + 1 < n)
            from++;
        else
            weight[kept++] = w;
    }
    while (kept > 1 && weight[kept - 1] == 0)
        kept--;
    taps->start[i] = from;
    taps->used[i] = kept;
    if (kept > taps->widest)
        taps->widest = kept;
}

void pen__taps_init(pen__taps *taps, const pen__axis *axis, int32_t first, int32_t count,
                    int32_t origin, int32_t extent, void *memory)
{
    taps->count = count;
    taps->stride = taps_stride(axis);
    taps->widest = 1;
    taps->extent = extent;
    taps_place(taps, memory);
    geometry g = axis_geometry(axis);
    double inverse = 1.0 / g.shrink;
    for (int32_t i = 0; i < count; i++) {
        int32_t from, to;
        double center = output_bounds(axis, &g, first + i, &from, &to);
        double sum = weigh_by_name(axis->filter, from, to - from, center, inverse, taps->real);
        taps_store(taps, i, from - origin, to - from, sum);
    }
}
