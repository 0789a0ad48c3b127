/* pixel_decode.c - bytes to pixels.
 *
 * A sample needs its left neighbour before its own residual can be taken: prediction, context,
 * shape and state follow each other, some twenty cycles.  The planes of a colour image are three
 * such chains that a processor has under way at once, so they are decoded pixel by pixel, not plane
 * by plane.  Whatever follows from the row above is worked out before, for the whole row.
 *
 * Bytes are not checked one by one: before each row there are as many as a row can take, or a copy
 * of the last ones with zeros behind.  Whether zeros were taken is asked after the row.
 */
#include <string.h>

#include "base/cpu.h"
#include "base/fail.h"
#include "base/little_endian.h"
#include "codec/pixel_code.h"
#include "codec/pixel_model.h"
#include "codec/pixel_shapes.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    STORED = 0,
    CODED = 1,
    MARGIN = PEN__PIXELS_ROW_MARGIN,
    MAX_SAMPLE_BYTES = 4, /* two units: a residual behind an escape */
};

/* Activities are not cut off at 255 here, which saves asking. */
enum { N_ACTIVITIES = (2 + 1) * 255 + (3 + 2 + 1) * 128 + 1 };
typedef const uint32_t *slots_of_activity[N_ACTIVITIES];

typedef struct decoder {
    int32_t w;
    int ch;
    pen__pixel_row rows[2];
    pen__pixel_above above;
    uint8_t *tail;
    const uint8_t *at, *end; /* units */
    uint32_t states[PEN__PIXELS_PLANES];
    slots_of_activity slots[PEN__PIXELS_PLANES];
} decoder;

/* Scratch is reckoned with the encoder's state, which has a histogram for each context. */
_Static_assert(sizeof(decoder) <=
                   sizeof(uint32_t) * 256 * PEN__PIXELS_CONTEXTS * PEN__PIXELS_PLANES,
               "no larger than the encoder's");

static size_t row_units_bytes(const decoder *d)
{
    return (size_t)d->w * (size_t)d->ch * MAX_SAMPLE_BYTES;
}

/* Ten rows, and a tail of up to nine: pen__pixels_scratch has room for 24. */
static void place(decoder *d, uint8_t *at)
{
    size_t n = (size_t)d->w * (size_t)d->ch + 2 * MARGIN;
    n += n & 1;
    d->above.slope = (int16_t *)(void *)at;
    d->above.calm = (int16_t *)(void *)(at + 2 * n);
    d->above.low = at + 4 * n;
    d->above.high = at + 5 * n;
    at += 6 * n;
    for (int i = 0; i < 2; i++, at += 2 * n)
        d->rows[i] = (pen__pixel_row){at + MARGIN, at + n + MARGIN};
    d->tail = at;
}

/* --- one sample --- */

/* A plane's way along a row. */
typedef struct chain {
    uint32_t state;
    int left, size, size_before; /* the last sample, its residual's size, and that before */
} chain;

/* No branches, and nothing that compilers turn into one: it would often be wrong. */
ALWAYS_INLINE uint32_t take_unit(uint32_t state, const uint8_t **at)
{
    uint32_t unit = (uint32_t)((*at)[0] | (*at)[1] << 8);
    uint32_t takes = (state - PEN__RANS_LOW) >> 31;
    *at += 2 * takes;
    return state << (16 * takes) | (unit & (0 - takes));
}

/* A residual behind an escape.  By value, so that nothing of a row must be kept in memory. */
typedef struct plain {
    const uint8_t *at;
    uint32_t state;
    int residual;
} plain;

static __attribute__((noinline)) plain take_plain(uint32_t state, const uint8_t *at)
{
    enum { SHARE = PEN__RANS_TOTAL / 256 };
    uint32_t slot = state % PEN__RANS_TOTAL;
    plain p = {.at = at, .residual = (int8_t)(slot / SHARE)};
    p.state = take_unit((state >> PEN__RANS_BITS) * SHARE + slot % SHARE, &p.at);
    return p;
}

ALWAYS_INLINE int take_residual(chain *now, const uint32_t *slots, const uint8_t **at)
{
    uint32_t entry = slots[now->state % PEN__RANS_TOTAL];
    int residual = pen__rans_residual(entry);
    uint32_t state = (now->state >> PEN__RANS_BITS) * pen__rans_share(entry) + pen__rans_add(entry);
    now->state = take_unit(state, at);
    if (__builtin_expect(residual == PEN__PIXELS_ESCAPE, 0)) {
        const plain p = take_plain(now->state, *at);
        *at = p.at;
        now->state = p.state;
        residual = p.residual;
    }
    return residual;
}

/* --- a row --- */

/* What a row needs, by value: stores of bytes may change anything that is reached by a pointer. */
typedef struct row_view {
    const int16_t *slope, *calm;
    const uint8_t *low, *high, *above; /* above[i] is N, so NW is `ch` before */
    uint8_t *samples, *sizes;
} row_view;

/* Sample number i of the row. */
ALWAYS_INLINE chain take_sample(chain now, const row_view *v, const slots_of_activity slots, int ch,
                                int32_t i, bool is_first, const uint8_t **at)
{
    int guess = now.left;
    unsigned activity = (unsigned)(2 * now.size + now.size_before);
    if (!is_first) {
        int across = now.left - v->above[i - ch];
        activity += (unsigned)(v->calm[i] + (across < 0 ? -across : across));
        guess = pen__pixels_predict(now.left, v->slope[i], v->low[i], v->high[i]);
    }
    int residual = take_residual(&now, slots[activity], at);
    now.size_before = now.size;
    now.size = residual < 0 ? -residual : residual;
    now.left = (guess + residual) & 255;
    v->samples[i] = (uint8_t)now.left;
    v->sizes[i] = (uint8_t)now.size;
    return now;
}

ALWAYS_INLINE void take_row(decoder *d, int ch, int y, bool is_first)
{
    const pen__pixel_row *row = &d->rows[y & 1], *above = &d->rows[!(y & 1)];
    const row_view v = {d->above.slope, d->above.calm, d->above.low, d->above.high,
                        above->samples, row->samples,  row->sizes};
    const uint8_t *at = d->at;
    int32_t n = d->w * ch;
    chain chains[PEN__PIXELS_PLANES];
    for (int c = 0; c < ch; c++)
        chains[c] = (chain){d->states[c], is_first ? PEN__PIXELS_FIRST : above->samples[c], 0, 0};
    chain a = chains[0], b = chains[ch / 2], c = chains[ch - 1];
    for (int32_t i = 0; i < n; i += ch) {
        a = take_sample(a, &v, d->slots[0], ch, i, is_first, &at);
        if (ch == 3) {
            b = take_sample(b, &v, d->slots[1], ch, i + 1, is_first, &at);
            c = take_sample(c, &v, d->slots[2], ch, i + 2, is_first, &at);
        }
    }
    d->states[0] = a.state;
    d->states[1] = b.state;
    d->states[2] = c.state;
    d->at = at;
}

ALWAYS_INLINE void take_any_row(decoder *d, int y)
{
    if (y == 0)
        d->ch == 1 ? take_row(d, 1, y, true) : take_row(d, 3, y, true);
    else
        d->ch == 1 ? take_row(d, 1, y, false) : take_row(d, 3, y, false);
}

#if defined(__x86_64__)
/* The same with shifts that do not go through the flags. */
__attribute__((target("bmi2"))) static void take_any_row_bmi2(decoder *d, int y)
{
    take_any_row(d, y);
}
#endif

static void decode_row(decoder *d, int y)
{
    if (y > 0)
        pen__pixels_look_above(&d->rows[!(y & 1)], d->w, d->ch, &d->above);
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX2) {
        take_any_row_bmi2(d, y);
        return;
    }
#endif
    take_any_row(d, y);
}

/* Make sure that a row can be taken without asking. */
static void fill_up(decoder *d)
{
    size_t n_left = (size_t)(d->end - d->at), n_row = row_units_bytes(d);
    if (n_left >= n_row + 2)
        return;
    memmove(d->tail, d->at, n_left);
    memset(d->tail + n_left, 0, n_row + 2);
    d->at = d->tail;
    d->end = d->tail + n_left;
}

/* --- the whole --- */

/* Shapes and states; false if they are not sound. */
static bool begin(decoder *d, const uint8_t *src, size_t len)
{
    const pen__pixel_shapes *shapes = pen__pixel_shapes_get();
    size_t n_shapes = (size_t)d->ch * PEN__PIXELS_CONTEXTS;
    if (len < 1 + n_shapes + 4 * (size_t)d->ch)
        return false;
    const uint8_t *shape_of = src + 1, *states = shape_of + n_shapes;
    for (size_t i = 0; i < n_shapes; i++)
        if (shape_of[i] >= PEN__PIXELS_SHAPES)
            return false;
    for (int c = 0; c < d->ch; c++, shape_of += PEN__PIXELS_CONTEXTS) {
        for (int i = 0; i < N_ACTIVITIES; i++)
            d->slots[c][i] = shapes->slots[shape_of[pen__pixels_context_of[i < 255 ? i : 255]]];
        d->states[c] = pen__le32(states + 4 * c);
    }
    d->at = states + 4 * d->ch;
    d->end = src + len;
    return true;
}

static bool is_at_end(const decoder *d)
{
    bool is_sound = d->at == d->end;
    for (int c = 0; c < d->ch; c++)
        is_sound &= d->states[c] == PEN__RANS_LOW;
    return is_sound;
}

static bool decode_rows(decoder *d, int32_t h, uint8_t *px)
{
    for (int32_t y = 0; y < h; y++) {
        fill_up(d);
        decode_row(d, y);
        if (d->at > d->end)
            return false;
        pen__pixels_end_row(&d->rows[y & 1], d->w, d->ch);
        pen__pixels_join(d->rows[y & 1].samples, d->w, d->ch, px);
        px += (size_t)d->w * (size_t)d->ch;
    }
    return is_at_end(d);
}

int pen__pixels_decode(const uint8_t *src, size_t len, int32_t w, int32_t h, int ch, void *scratch,
                       uint8_t *px, pen_error *err)
{
    if (len == pen__pixels_bound(w, h, ch) && src[0] == STORED) {
        memcpy(px, src + 1, len - 1);
        return 0;
    }
    decoder *d = scratch;
    d->w = w;
    d->ch = ch;
    place(d, (uint8_t *)scratch + sizeof *d);
    if (len < 1 || src[0] != CODED || !begin(d, src, len) || !decode_rows(d, h, px))
        return pen__fail(err, PEN_ECORRUPT, -1, "pixels: not what the encoder wrote");
    return 0;
}
