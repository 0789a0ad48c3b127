/* pixel_encode.c - pixels to bytes.
 *
 * Forwards over the image: residuals, contexts and their histograms.  Then the best shape for each
 * context, and backwards over the residuals with rANS, because what is put last is taken first.
 * Units are written from the end of a buffer towards its beginning.
 *
 * The format: a byte that says how (0: pixels as they are, 1: coded).  Coded: the shape of each
 * context of each plane, a byte each; a state for each plane, 32 bits; then units of 16 bits,
 * shared by the states.  Little endian.  A decoder that has taken all units is left with the states
 * that the encoder began with.
 */
#include <string.h>

#include "base/little_endian.h"
#include "codec/pixel_code.h"
#include "codec/pixel_model.h"
#include "codec/pixel_shapes.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { STORED = 0, CODED = 1, MARGIN = PEN__PIXELS_ROW_MARGIN };

typedef uint32_t histogram[256];

typedef struct encoder {
    int32_t w, h;
    int ch;
    uint8_t *residuals, *contexts; // (h, w, ch), each
    uint8_t *units, *units_end;
    pen__pixel_row rows[2];
    histogram counts[PEN__PIXELS_PLANES][PEN__PIXELS_CONTEXTS];
    uint8_t shape_of[PEN__PIXELS_PLANES][PEN__PIXELS_CONTEXTS];
} encoder;

static size_t n_samples(int32_t w, int32_t h, int ch)
{
    return (size_t)w * (size_t)h * (size_t)ch;
}

static size_t row_bytes(int32_t w, int ch)
{
    return (size_t)w * (size_t)ch + 2 * MARGIN;
}

/* Units that a row of residuals gives off at most, two for each: the residual, and the escape. */
static size_t row_units_bytes(int32_t w, int ch)
{
    return 4 * (size_t)w * (size_t)ch;
}

size_t pen__pixels_bound(int32_t w, int32_t h, int ch)
{
    return 1 + n_samples(w, h, ch);
}

/* The decoder takes less: see place() there. */
size_t pen__pixels_scratch(int32_t w, int32_t h, int ch)
{
    return sizeof(encoder) + 3 * n_samples(w, h, ch) + 24 * row_bytes(w, ch) + 64;
}

static void place(encoder *e, uint8_t *at)
{
    size_t n = n_samples(e->w, e->h, e->ch);
    for (int i = 0; i < 2; i++, at += 2 * row_bytes(e->w, e->ch))
        e->rows[i] = (pen__pixel_row){at + MARGIN, at + row_bytes(e->w, e->ch) + MARGIN};
    e->residuals = at;
    e->contexts = at + n;
    e->units = at + 2 * n;
    e->units_end = e->units + n + row_units_bytes(e->w, e->ch);
}

/* --- forwards --- */

/* Activities become contexts. */
static void count_row(encoder *e, const uint8_t *residuals, uint8_t *contexts)
{
    int32_t n = e->w * e->ch;
    for (int c = 0; c < e->ch; c++)
        for (int32_t i = c; i < n; i += e->ch) {
            uint8_t context = pen__pixels_context_of[contexts[i]];
            contexts[i] = context;
            e->counts[c][context][residuals[i]]++;
        }
}

static void model(encoder *e, const uint8_t *px)
{
    size_t n = (size_t)e->w * (size_t)e->ch, at = 0;
    for (int32_t y = 0; y < e->h; y++, at += n) {
        const pen__pixel_row *row = &e->rows[y & 1], *above = &e->rows[!(y & 1)];
        pen__pixels_split(px + at, e->w, e->ch, row->samples);
        pen__pixels_model(above, row, e->w, e->ch, y == 0, e->residuals + at, e->contexts + at);
        pen__pixels_end_row(row, e->w, e->ch);
        count_row(e, e->residuals + at, e->contexts + at);
    }
}

/* The shape in which the residuals take fewest bits.  Where there are very many, some may be left
 * out. */
static uint8_t best_shape(const histogram counts, const pen__pixel_shapes *shapes)
{
    enum { MANY = 1 << 19 }; /* times the highest cost is still a number of 32 bits */
    uint32_t of_size[PEN__PIXELS_SIZES], best = UINT32_MAX;
    uint64_t n = 0;
    uint8_t found = 0;
    for (int i = 0; i < 256; i++)
        n += counts[i];
    int shift = 0;
    while (n >> shift > MANY)
        shift++;
    of_size[0] = counts[0] >> shift;
    of_size[128] = counts[128] >> shift;
    for (int size = 1; size < 128; size++)
        of_size[size] = (counts[size] >> shift) + (counts[256 - size] >> shift);
    for (int shape = 0; shape < PEN__PIXELS_SHAPES && n > 0; shape++) {
        uint32_t cost = 0;
        for (int size = 0; size < PEN__PIXELS_SIZES; size++)
            cost += of_size[size] * shapes->costs[shape][size];
        if (cost < best) {
            best = cost;
            found = (uint8_t)shape;
        }
    }
    return found;
}

static void choose_shapes(encoder *e, const pen__pixel_shapes *shapes)
{
    for (int c = 0; c < e->ch; c++)
        for (int i = 0; i < PEN__PIXELS_CONTEXTS; i++)
            e->shape_of[c][i] = best_shape(e->counts[c][i], shapes);
}

/* --- backwards --- */

/* The new state; units are written below *at. */
ALWAYS_INLINE uint32_t put_symbol(uint8_t **at, uint32_t state, const pen__rans_symbol *symbol)
{
    uint32_t gives = state >= symbol->most; /* no branch: it would often be wrong */
    (*at)[-1] = (uint8_t)(state >> 8);
    (*at)[-2] = (uint8_t)state;
    *at -= 2 * gives;
    state >>= 16 * gives;
    uint32_t quotient = (uint32_t)((uint64_t)state * symbol->inverse >> 32) >> symbol->shift;
    return state + symbol->bias + quotient * symbol->rest;
}

typedef const pen__rans_symbol *symbols_of_context[PEN__PIXELS_CONTEXTS];

ALWAYS_INLINE uint32_t put_residual(uint8_t **at, uint32_t state, const symbols_of_context symbols,
                                    uint8_t context, uint8_t residual)
{
    const pen__rans_symbol *symbol = &symbols[context][residual];
    if (__builtin_expect(!symbol->is_direct, 0)) {
        const pen__rans_symbol plain = pen__rans_plain_symbol(residual);
        state = put_symbol(at, state, &plain);
    }
    return put_symbol(at, state, symbol);
}

/* A row's residuals, the last one first.  Returns where the units begin. */
ALWAYS_INLINE uint8_t *put_row(const encoder *e, symbols_of_context *symbols, int ch, size_t first,
                               uint32_t states[PEN__PIXELS_PLANES], uint8_t *at)
{
    const uint8_t *residuals = e->residuals + first, *contexts = e->contexts + first;
    uint32_t s0 = states[0], s1 = states[1], s2 = states[2];
    for (int32_t i = (e->w - 1) * ch; i >= 0; i -= ch) {
        if (ch == 3) {
            s2 = put_residual(&at, s2, symbols[2], contexts[i + 2], residuals[i + 2]);
            s1 = put_residual(&at, s1, symbols[1], contexts[i + 1], residuals[i + 1]);
        }
        s0 = put_residual(&at, s0, symbols[0], contexts[i], residuals[i]);
    }
    states[0] = s0;
    states[1] = s1;
    states[2] = s2;
    return at;
}

/* Returns where the units begin, NULL where they are not worth it. */
static uint8_t *put_rows(const encoder *e, const pen__pixel_shapes *shapes,
                         uint32_t states[PEN__PIXELS_PLANES])
{
    symbols_of_context symbols[PEN__PIXELS_PLANES] = {{0}};
    size_t n_row = (size_t)e->w * (size_t)e->ch, n_most = row_units_bytes(e->w, e->ch);
    uint8_t *at = e->units_end;
    for (int c = 0; c < e->ch; c++)
        for (int i = 0; i < PEN__PIXELS_CONTEXTS; i++)
            symbols[c][i] = shapes->symbols[e->shape_of[c][i]];
    for (size_t y = (size_t)e->h; y-- > 0;) {
        if ((size_t)(at - e->units) < n_most + 2)
            return NULL;
        at = e->ch == 1 ? put_row(e, symbols, 1, y * n_row, states, at)
                        : put_row(e, symbols, 3, y * n_row, states, at);
    }
    return at;
}

/* The length; 0 where it would be more than n_most. */
static size_t code(const encoder *e, const pen__pixel_shapes *shapes, uint8_t *dst, size_t n_most)
{
    size_t n_shapes = (size_t)e->ch * PEN__PIXELS_CONTEXTS,
           n_head = 1 + n_shapes + 4 * (size_t)e->ch;
    uint32_t states[PEN__PIXELS_PLANES] = {PEN__RANS_LOW, PEN__RANS_LOW, PEN__RANS_LOW};
    const uint8_t *units = n_head <= n_most ? put_rows(e, shapes, states) : NULL;
    if (!units || (size_t)(e->units_end - units) > n_most - n_head)
        return 0;
    size_t n_units = (size_t)(e->units_end - units);
    dst[0] = CODED;
    memcpy(dst + 1, e->shape_of, n_shapes);
    for (int c = 0; c < e->ch; c++)
        pen__le_put(dst + 1 + n_shapes + 4 * (size_t)c, states[c], 4);
    memcpy(dst + n_head, units, n_units);
    return n_head + n_units;
}

int64_t pen__pixels_encode(const uint8_t *px, int32_t w, int32_t h, int ch, void *scratch,
                           uint8_t *dst, size_t dst_cap)
{
    const pen__pixel_shapes *shapes = pen__pixel_shapes_get();
    size_t n_stored = pen__pixels_bound(w, h, ch);
    encoder *e = scratch;
    memset(e, 0, sizeof *e);
    e->w = w;
    e->h = h;
    e->ch = ch;
    place(e, (uint8_t *)scratch + sizeof *e);
    model(e, px);
    choose_shapes(e, shapes);
    size_t n_coded = code(e, shapes, dst, dst_cap < n_stored ? dst_cap : n_stored - 1);
    if (n_coded > 0)
        return (int64_t)n_coded;
    if (dst_cap < n_stored)
        return 0;
    dst[0] = STORED;
    memcpy(dst + 1, px, n_stored - 1);
    return (int64_t)n_stored;
}
