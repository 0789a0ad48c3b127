/* decode_png.c - PNG to pixels by libpng.
 *
 * libpng is fed chunk by chunk (its "progressive" reader) and hands back every row
 * as soon as it is inflated and unfiltered, untransformed.  The conversion to
 * one or three channels is ours, because it must be Pillow's: alpha and tRNS are
 * dropped, 16-bit colour keeps its high byte, 16-bit grey is clipped (not scaled) to
 * 255, and palette indexes beyond the palette are black.  Gamma and colour
 * profiles are ignored.  Rows below the window are never inflated, except in
 * interlaced files, which are put together as a whole first.
 *
 * Verdicts are Pillow's, too: checksums count in chunks before the image data, not
 * in the data itself; the file may end anywhere after the last row's
 * bytes, but a chunk that begins there must be whole (checked when the
 * window reaches the last row).
 */
#include <setjmp.h>
#include <string.h>

#include <png.h>

#include "base/mem.h"
#include "ops/decode_formats.h"
#include "ops/exif.h"

enum { GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGB_ALPHA = 6 }; /* IHDR's colour types */
enum { SIGNATURE_BYTES = 8, IHDR_BYTES = 13 };

/* --- chunks --- */

typedef struct chunk {
    size_t start;        /* of its length field */
    size_t length;       /* of its data, as it claims */
    const uint8_t *name; /* four letters */
    const uint8_t *data;
    size_t n_there; /* bytes of data before the end of the file, at most `length` */
} chunk;

static bool is_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The chunk at `at`.  False where no header with a chunk-like name begins. */
static bool chunk_at(const uint8_t *src, size_t len, size_t at, chunk *c)
{
    if (at > len || len - at < 8)
        return false;
    size_t left = len - at - 8;
    *c = (chunk){at, pen__be32(src + at), src + at + 4, src + at + 8, 0};
    c->n_there = c->length < left ? c->length : left;
    return is_letter(c->name[0]) && is_letter(c->name[1]) && is_letter(c->name[2]) &&
           is_letter(c->name[3]);
}

static bool is_named(const chunk *c, const char *name)
{
    return memcmp(c->name, name, 4) == 0;
}

static size_t chunk_end(const chunk *c)
{
    return c->start + 12 + c->length;
}

/* --- probe --- */

static int corrupt(pen_error *err, size_t at, const char *what)
{
    return pen__fail(err, PEN_ECORRUPT, (int64_t)at, "PNG: %s", what);
}

static bool is_possible(int colour, int bits)
{
    switch (colour) {
    case GREY:
        return bits == 1 || bits == 2 || bits == 4 || bits == 8 || bits == 16;
    case PALETTE:
        return bits == 1 || bits == 2 || bits == 4 || bits == 8;
    case RGB:
    case GREY_ALPHA:
    case RGB_ALPHA:
        return bits == 8 || bits == 16;
    default:
        return false;
    }
}

static int read_ihdr(const chunk *c, pen_image_info *info, pen_error *err)
{
    static const uint8_t channels[] = {
        [GREY] = 1, [RGB] = 3, [PALETTE] = 3, [GREY_ALPHA] = 2, [RGB_ALPHA] = 4};
    if (!is_named(c, "IHDR") || c->length != IHDR_BYTES || c->n_there < IHDR_BYTES)
        return corrupt(err, c->start, "no header chunk");
    const uint8_t *d = c->data;
    uint32_t width = pen__be32(d), height = pen__be32(d + 4);
    if (!is_possible(d[9], d[8]))
        return corrupt(err, c->start, "impossible colour type");
    info->width = width <= INT32_MAX ? (int32_t)width : INT32_MAX; /* over the limit either way */
    info->height = height <= INT32_MAX ? (int32_t)height : INT32_MAX;
    info->bits = d[8];
    info->channels = channels[d[9]];
    info->is_grey = d[9] == GREY || d[9] == GREY_ALPHA;
    info->is_progressive = d[12] != 0;
    return 0;
}

int pen__png_probe(const uint8_t *src, size_t len, pen_image_info *info, pen_error *err)
{
    chunk c;
    bool has_data = false;
    if (!chunk_at(src, len, SIGNATURE_BYTES, &c))
        return corrupt(err, SIGNATURE_BYTES, "no header chunk");
    int rc = read_ihdr(&c, info, err);
    /* EXIF may stand behind the image data, so all chunk headers are visited. */
    while (rc == 0 && chunk_at(src, len, chunk_end(&c), &c) && !is_named(&c, "IEND")) {
        has_data |= is_named(&c, "IDAT");
        if (c.n_there < c.length) {
            if (!has_data)
                rc = corrupt(err, c.start, "ends inside a chunk");
            break;
        }
        info->is_animated |= is_named(&c, "acTL");
        if (is_named(&c, "eXIf")) {
            int orientation = pen__exif_orientation(c.data, c.length);
            info->orientation = (uint8_t)(orientation ? orientation : 1);
        }
    }
    if (rc == 0 && !has_data)
        return corrupt(err, c.start, "no image data");
    return rc;
}

/* --- decode --- */

typedef struct reader {
    const pen__decode_job *job;
    png_structp png;
    png_infop info;
    int colour, bits;
    uint8_t palette[256][3]; /* black where the file has no entry */
    uint8_t *whole;          /* interlaced: all rows as stored; else NULL */
    size_t row_bytes;        /* of a row as stored */
    size_t at;               /* start of the chunk being fed */
    bool is_done, is_out_of_memory;
    int code;
    jmp_buf escape;
} reader;

static _Noreturn void escape(reader *r, int code)
{
    r->code = code;
    longjmp(r->escape, 1);
}

static void on_error(png_structp png, png_const_charp text)
{
    reader *r = png_get_error_ptr(png);
    if (r->is_out_of_memory)
        escape(r, pen__fail(r->job->err, PEN_ENOMEM, -1, "PNG: out of memory"));
    escape(r, pen__fail(r->job->err, PEN_ECORRUPT, (int64_t)r->at, "PNG: %s", text));
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
}

static png_voidp allocate(png_structp png, png_alloc_size_t n_bytes)
{
    reader *r = png_get_mem_ptr(png);
    void *block = pen__malloc(n_bytes);
    r->is_out_of_memory |= !block;
    return block;
}

static void release(png_structp png, png_voidp block)
{
    (void)png;
    pen__free(block);
}

static int packed_sample(const uint8_t *row, int32_t x, int bits)
{
    int at = x * bits;
    return row[at >> 3] >> (8 - bits - (at & 7)) & ((1 << bits) - 1);
}

static void convert_grey(const reader *r, const uint8_t *row, int32_t x, int32_t w, uint8_t *out)
{
    int step = r->bits / 8 * (r->colour == GREY_ALPHA ? 2 : 1), scale = 255 / ((1 << r->bits) - 1);
    if (r->bits < 8)
        for (int32_t i = 0; i < w; i++)
            out[i] = (uint8_t)(packed_sample(row, x + i, r->bits) * scale);
    else if (r->bits == 16 && r->colour == GREY)
        for (int32_t i = 0; i < w; i++)
            out[i] = row[2 * (x + i)] ? 255 : row[2 * (x + i) + 1];
    else
        for (int32_t i = 0; i < w; i++)
            out[i] = row[step * (x + i)];
}

static void convert_colour(const reader *r, const uint8_t *row, int32_t x, int32_t w, uint8_t *out)
{
    int sample = r->bits / 8, step = sample * (r->colour == RGB_ALPHA ? 4 : 3);
    if (r->colour == PALETTE)
        for (int32_t i = 0; i < w; i++, out += 3)
            memcpy(out, r->palette[packed_sample(row, x + i, r->bits)], 3);
    else if (step == 3)
        memcpy(out, row + 3 * (size_t)x, 3 * (size_t)w);
    else
        for (int32_t i = 0; i < w; i++, out += 3) {
            const uint8_t *in = row + (size_t)step * (size_t)(x + i);
            out[0] = in[0];
            out[1] = in[sample];
            out[2] = in[2 * sample];
        }
}

/* One stored row, which lies in the window, to its place. */
static void convert_row(const reader *r, const uint8_t *row, int32_t y)
{
    const pen__rect *window = &r->job->window;
    bool is_grey = r->job->info->is_grey;
    uint8_t *out = r->job->dst + (size_t)(y - window->y) * (size_t)window->w * (is_grey ? 1u : 3u);
    (is_grey ? convert_grey : convert_colour)(r, row, window->x, window->w, out);
}

static void finish(reader *r)
{
    r->is_done = true;
    escape(r, 0);
}

static void on_row(png_structp png, png_bytep row, png_uint_32 row_number, int pass)
{
    reader *r = png_get_progressive_ptr(png);
    const pen__rect *window = &r->job->window;
    int32_t y = (int32_t)row_number;
    if (pen__job_cancelled(r->job))
        escape(r, pen__fail(r->job->err, PEN_ECANCELED, -1, "PNG: cancelled"));
    if (!r->whole) {
        if (y >= window->y)
            convert_row(r, row, y);
        if (y == window->y + window->h - 1)
            finish(r);
        return;
    }
    if (row)
        png_progressive_combine_row(png, r->whole + row_number * r->row_bytes, row);
    if (pass == 6 && y == r->job->info->height - 1) {
        for (y = window->y; y < window->y + window->h; y++)
            convert_row(r, r->whole + (size_t)y * r->row_bytes, y);
        finish(r);
    }
}

static void load_palette(reader *r)
{
    png_colorp entries = NULL;
    int n = 0;
    memset(r->palette, 0, sizeof r->palette);
    if (png_get_PLTE(r->png, r->info, &entries, &n))
        for (int i = 0; i < n && i < 256; i++) {
            r->palette[i][0] = entries[i].red;
            r->palette[i][1] = entries[i].green;
            r->palette[i][2] = entries[i].blue;
        }
}

/* All chunks before the image data have been read. */
static void on_info(png_structp png, png_infop info)
{
    reader *r = png_get_progressive_ptr(png);
    r->colour = png_get_color_type(png, info);
    r->bits = png_get_bit_depth(png, info);
    load_palette(r);
    png_set_crc_action(png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
    int n_passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    r->row_bytes = png_get_rowbytes(png, info);
    if (n_passes == 1)
        return;
    r->whole = pen__calloc((size_t)r->job->info->height, r->row_bytes);
    if (!r->whole)
        escape(r, pen__fail(r->job->err, PEN_ENOMEM, -1, "PNG: out of memory"));
}

static void set_up(reader *r)
{
    png_set_progressive_read_fn(r->png, r, on_info, on_row, NULL);
    png_set_user_limits(r->png, PEN_IMAGE_MAX_SIDE, PEN_IMAGE_MAX_SIDE);
    png_set_benign_errors(r->png, 1);
    png_set_crc_action(r->png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    /* No chunk matters to pixels but the critical ones: the others are passed over,
     * so there is no text to inflate and no profile to parse. */
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
}

/* Feed the file until on_row says that it has enough. */
static void feed_all(reader *r)
{
    const pen__decode_job *job = r->job;
    uint8_t *src = (uint8_t *)(uintptr_t)job->src; /* libpng only reads it */
    chunk c;
    png_process_data(r->png, r->info, src, SIGNATURE_BYTES);
    for (r->at = SIGNATURE_BYTES; chunk_at(job->src, job->len, r->at, &c); r->at = chunk_end(&c)) {
        size_t n_left = job->len - r->at;
        png_process_data(r->png, r->info, src + r->at,
                         c.length + 12 < n_left ? c.length + 12 : n_left);
    }
    corrupt(job->err, job->len, "the image data end too early");
    escape(r, PEN_ECORRUPT);
}

/* Chunks that begin after the one at r->at must be whole, up to IEND. */
static int check_tail(const reader *r)
{
    const pen__decode_job *job = r->job;
    chunk c;
    if (!chunk_at(job->src, job->len, r->at, &c))
        return 0;
    while (chunk_at(job->src, job->len, chunk_end(&c), &c)) {
        if (is_named(&c, "IEND") || (is_named(&c, "fcTL") && job->info->is_animated))
            return 0;
        if (c.n_there < c.length)
            return corrupt(job->err, c.start, "ends inside a chunk");
    }
    return 0;
}

/* Stored rows: libpng keeps three (being read, the one above, a spare), zlib its window
 * and tables, libpng its structs and input buffers. */
size_t pen__png_bound(const pen_image_info *info)
{
    size_t row_bytes = (size_t)info->width * 8 + 64; /* 16-bit RGBA at the widest */
    size_t bytes = (128 << 10) + 3 * row_bytes;
    if (info->is_progressive)
        bytes += ((size_t)info->width * info->channels * info->bits + 7) / 8 * (size_t)info->height;
    return bytes;
}

int pen__png_decode(const pen__decode_job *job)
{
    reader *r = pen__calloc(1, sizeof *r);
    if (!r)
        return pen__fail(job->err, PEN_ENOMEM, -1, "PNG: out of memory");
    r->job = job;
    if (setjmp(r->escape) == 0) {
        r->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, r, on_error, on_warning, r,
                                          allocate, release);
        r->info = r->png ? png_create_info_struct(r->png) : NULL;
        if (!r->info)
            escape(r, pen__fail(job->err, PEN_ENOMEM, -1, "PNG: out of memory"));
        set_up(r);
        feed_all(r);
    }
    int code = r->code;
    if (r->is_done && job->window.y + job->window.h == job->info->height)
        code = check_tail(r);
    png_destroy_read_struct(&r->png, &r->info, NULL);
    pen__free(r->whole);
    pen__free(r);
    return code;
}
