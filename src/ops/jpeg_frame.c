/* jpeg_frame.c - strict reading of JPEG headers.
 *
 * The rules are libjpeg's where it accepts; where it would warn, guess, repair or
 * fail, the answer is no.  Whatever this accepts must mean to libjpeg what it means here:
 * segments follow each other without a byte between them, the last definition of
 * a table before the scan counts, and the colour space is found as in libjpeg.
 */
#include "ops/jpeg_frame.h"

#include <string.h>

enum {
    M_SOF0 = 0xC0, /* baseline */
    M_SOF1 = 0xC1, /* the same with more tables */
    M_DHT = 0xC4,
    M_SOI = 0xD8,
    M_SOS = 0xDA,
    M_DQT = 0xDB,
    M_DRI = 0xDD,
    M_APP0 = 0xE0,
    M_APP14 = 0xEE,
    M_APP15 = 0xEF,
    M_COM = 0xFE,
    N_TABLES = 4,
    MAX_SIDE = 65500, /* libjpeg's */
};

const uint8_t pen__jpeg_natural_order[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/* What the segments so far have said. */
typedef struct reader {
    pen__jpeg_frame *frame;
    const uint8_t *quant[N_TABLES]; /* NULL: not seen */
    bool is_wide[N_TABLES];         /* 16-bit entries */
    pen__jpeg_code codes[2][N_TABLES];
    bool has_frame, has_jfif, has_adobe;
    uint8_t adobe_transform;
} reader;

static int be16(const uint8_t *p)
{
    return p[0] << 8 | p[1];
}

static bool read_quant(reader *r, const uint8_t *body, size_t n)
{
    while (n > 0) {
        int index = body[0] & 15, precision = body[0] >> 4;
        size_t n_values = precision ? 128 : 64;
        if (index >= N_TABLES || precision > 1 || n < 1 + n_values)
            return false;
        r->quant[index] = body + 1;
        r->is_wide[index] = precision == 1;
        body += 1 + n_values;
        n -= 1 + n_values;
    }
    return true;
}

static bool read_codes(reader *r, const uint8_t *body, size_t n)
{
    while (n > 0) {
        if (n < 17)
            return false;
        int kind = body[0] >> 4, index = body[0] & 15, n_symbols = 0;
        for (int i = 1; i <= 16; i++)
            n_symbols += body[i];
        if (kind > 1 || index >= N_TABLES || n_symbols > 256 || n < 17 + (size_t)n_symbols)
            return false;
        r->codes[kind][index] = (pen__jpeg_code){body + 1, n_symbols};
        body += 17 + n_symbols;
        n -= 17 + (size_t)n_symbols;
    }
    return true;
}

/* precision, height, width, n components, then (id, sampling, table) for each. */
static bool read_frame(reader *r, const uint8_t *body, size_t n)
{
    pen__jpeg_frame *f = r->frame;
    if (r->has_frame || n < 6 || body[0] != 8)
        return false;
    r->has_frame = true;
    f->height = be16(body + 1);
    f->width = be16(body + 3);
    f->n_components = body[5];
    if (f->height < 1 || f->width < 1 || f->height > MAX_SIDE || f->width > MAX_SIDE ||
        (f->n_components != 1 && f->n_components != 3) || n != 6 + 3 * (size_t)f->n_components)
        return false;
    for (int c = 0; c < f->n_components; c++, body += 3)
        f->components[c] =
            (pen__jpeg_component){.id = body[6], .sampling = body[7], .quant_index = body[8]};
    return true;
}

/* All components in the frame's order, and the parameters of a sequential scan. */
static bool read_scan(reader *r, const uint8_t *body, size_t n)
{
    pen__jpeg_frame *f = r->frame;
    size_t n_components = (size_t)f->n_components;
    if (!r->has_frame || n != 4 + 2 * n_components || body[0] != n_components)
        return false;
    for (size_t c = 0; c < n_components; c++) {
        pen__jpeg_component *comp = &f->components[c];
        int dc = body[2 + 2 * c] >> 4, ac = body[2 + 2 * c] & 15;
        if (body[1 + 2 * c] != comp->id || dc >= N_TABLES || ac >= N_TABLES)
            return false;
        comp->dc = r->codes[0][dc];
        comp->ac = r->codes[1][ac];
        if (!comp->dc.counts || !comp->ac.counts)
            return false;
    }
    return memcmp(body + 1 + 2 * n_components, "\0\x3f\0", 3) == 0;
}

static void read_app(reader *r, int marker, const uint8_t *body, size_t n)
{
    if (marker == M_APP0 && n >= 14 && memcmp(body, "JFIF", 5) == 0)
        r->has_jfif = true;
    if (marker == M_APP14 && n >= 12 && memcmp(body, "Adobe", 5) == 0) {
        r->has_adobe = true;
        r->adobe_transform = body[11];
    }
}

static bool read_segment(reader *r, int marker, const uint8_t *body, size_t n)
{
    switch (marker) {
    case M_SOF0:
    case M_SOF1:
        return read_frame(r, body, n);
    case M_DHT:
        return read_codes(r, body, n);
    case M_DQT:
        return read_quant(r, body, n);
    case M_DRI:
        if (n == 2)
            r->frame->restart_interval = be16(body);
        return n == 2;
    case M_SOS:
        return read_scan(r, body, n);
    default:
        read_app(r, marker, body, n);
        return (marker >= M_APP0 && marker <= M_APP15) || marker == M_COM;
    }
}

static bool is_ycc(const reader *r)
{
    const pen__jpeg_component *c = r->frame->components;
    if (r->has_jfif)
        return true;
    if (r->has_adobe)
        return r->adobe_transform == 1;
    return c[0].id == 1 && c[1].id == 2 && c[2].id == 3;
}

static bool set_layout(const reader *r)
{
    pen__jpeg_frame *f = r->frame;
    const pen__jpeg_component *c = f->components;
    int h = c[0].sampling >> 4, v = c[0].sampling & 15;
    f->mcu_h = f->mcu_v = f->group_v = 1;
    if (f->n_components == 1) { /* one component alone has MCUs of one block */
        f->group_v = v;
        return h >= 1 && h <= 4 && v >= 1 && v <= 4;
    }
    f->mcu_h = h;
    f->mcu_v = v;
    /* a plane of one or two samples is not interpolated: leave that to libjpeg */
    bool is_interpolated = h == 1 || f->width > 4;
    return h >= 1 && h <= 2 && v >= 1 && v <= 2 && c[1].sampling == 0x11 && c[2].sampling == 0x11 &&
           is_interpolated && is_ycc(r) && c[0].id != c[1].id && c[0].id != c[2].id &&
           c[1].id != c[2].id;
}

static bool set_quants(const reader *r)
{
    for (int c = 0; c < r->frame->n_components; c++) {
        pen__jpeg_component *comp = &r->frame->components[c];
        int index = comp->quant_index;
        if (index >= N_TABLES || !r->quant[index])
            return false;
        const uint8_t *values = r->quant[index];
        for (int k = 0; k < 64; k++)
            comp->quant[pen__jpeg_natural_order[k]] =
                (uint16_t)(r->is_wide[index] ? be16(values + 2 * k) : values[k]);
    }
    return true;
}

bool pen__jpeg_frame_read(pen__jpeg_frame *frame, const uint8_t *src, size_t len)
{
    reader r = {.frame = frame};
    frame->restart_interval = 0;
    if (len < 4 || src[0] != 0xFF || src[1] != M_SOI)
        return false;
    for (size_t at = 2; len - at >= 4;) {
        int marker = src[at + 1];
        size_t n = (size_t)be16(src + at + 2);
        if (src[at] != 0xFF || n < 2 || n > len - at - 2 ||
            !read_segment(&r, marker, src + at + 4, n - 2))
            return false;
        at += 2 + n;
        if (marker == M_SOS) {
            frame->scan_at = at;
            return set_layout(&r) && set_quants(&r);
        }
    }
    return false;
}
