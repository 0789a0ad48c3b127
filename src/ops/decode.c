/* decode.c - which format is it, and off to that format's file.
 *
 * Here are the limits that hold for every format, the public one-shot calls, and
 * nothing that knows a format beyond its first bytes.
 *
 * Pixels were compared with Pillow 13.0.0 (which brings libjpeg-turbo 3.2.0 and
 * libwebp 1.6.0), ours coming from libjpeg-turbo 2.1.5, libpng 1.6.39 and
 * libwebp 1.2.4.  Other versions should agree as long as libjpeg-turbo is 2.1 or newer:
 * 2.1 changed the block smoothing of incomplete progressive files.
 */
#include "ops/decode.h"

#include <string.h>

#include "base/mem.h"
#include "ops/color.h"
#include "ops/decode_formats.h"
#include "ops/jpeg_window.h"

struct pen__decoder {
    const atomic_bool *cancel;
    pen__jpeg *jpeg;
};

const char *pen_format_name(pen_format format)
{
    static const char *const names[PEN_FORMAT_COUNT] = {"unknown", "jpeg", "png", "webp"};
    return (unsigned)format < PEN_FORMAT_COUNT ? names[format] : names[PEN_FORMAT_UNKNOWN];
}

/* The same first bytes that Pillow goes by. */
static pen_format sniff(const uint8_t *src, size_t len)
{
    if (len >= 3 && memcmp(src, "\xff\xd8\xff", 3) == 0)
        return PEN_FORMAT_JPEG;
    if (len >= 8 && memcmp(src, "\x89PNG\r\n\x1a\n", 8) == 0)
        return PEN_FORMAT_PNG;
    if (len >= 16 && memcmp(src, "RIFF", 4) == 0 && memcmp(src + 8, "WEBPVP8", 7) == 0)
        return PEN_FORMAT_WEBP;
    return PEN_FORMAT_UNKNOWN;
}

static int check_limits(const pen_image_info *info, pen_error *err)
{
    int64_t w = info->width, h = info->height;
    if (w < 1 || h < 1)
        return pen__fail(err, PEN_ECORRUPT, -1, "image of %dx%d pixels", (int)w, (int)h);
    if (w > PEN_IMAGE_MAX_SIDE || h > PEN_IMAGE_MAX_SIDE || w * h > PEN_IMAGE_MAX_PIXELS)
        return pen__fail(err, PEN_ELIMIT, -1, "image of %dx%d pixels is over the limit", (int)w,
                         (int)h);
    return 0;
}

int pen_image_probe(const uint8_t *src, size_t len, pen_image_info *info, pen_error *err)
{
    *info = (pen_image_info){
        .format = sniff(src, len), .orientation = 1, .sampling_h = 1, .sampling_v = 1};
    int rc;
    switch (info->format) {
    case PEN_FORMAT_JPEG:
        rc = pen__jpeg_probe(src, len, info, err);
        break;
    case PEN_FORMAT_PNG:
        rc = pen__png_probe(src, len, info, err);
        break;
    case PEN_FORMAT_WEBP:
        rc = pen__webp_probe(src, len, info, err);
        break;
    default:
        rc = pen__fail(err, PEN_EUNSUPPORTED, 0, "not a JPEG, PNG or WebP file");
    }
    return rc < 0 ? rc : check_limits(info, err);
}

int pen__decoder_create(pen__decoder **out, const atomic_bool *cancel)
{
    *out = NULL;
    pen__decoder *dec = pen__calloc(1, sizeof *dec);
    if (!dec)
        return PEN_ENOMEM;
    dec->cancel = cancel;
    int rc = pen__jpeg_create(&dec->jpeg);
    if (rc < 0) {
        pen__decoder_free(dec);
        return rc;
    }
    *out = dec;
    return 0;
}

const atomic_bool *pen__decoder_cancel(const pen__decoder *dec)
{
    return dec->cancel;
}

void pen__decoder_free(pen__decoder *dec)
{
    if (!dec)
        return;
    pen__jpeg_free(dec->jpeg);
    pen__free(dec);
}

pen__jpeg_counts pen__decoder_jpeg_counts(const pen__decoder *dec)
{
    return pen__jpeg_counts_of(dec->jpeg);
}

void pen__decoder_give_marks(pen__decoder *dec, const void *entry, size_t len)
{
    pen__jpeg_give_marks(dec->jpeg, entry, len);
}

void pen__decoder_give_stamp(pen__decoder *dec, uint64_t stamp, bool is_partial)
{
    pen__jpeg_give_stamp(dec->jpeg, stamp, is_partial);
}

size_t pen__decoder_take_marks(const pen__decoder *dec, const void **entry)
{
    return pen__jpeg_take_marks(dec->jpeg, entry);
}

void pen__decoder_set_keep(pen__decoder *dec, size_t n_bytes)
{
    pen__jpeg_set_keep(dec->jpeg, n_bytes);
}

void pen__decoder_use_own_jpeg(pen__decoder *dec, bool use_own)
{
    pen__jpeg_use_own(dec->jpeg, use_own);
}

size_t pen__decode_memory(const pen_image_info *info, pen__rect window)
{
    enum { ALLOCATOR_BYTES = 4 << 10 }; /* headers and rounding of the blocks themselves */
    switch (info->format) {
    case PEN_FORMAT_JPEG:
        return pen__jpeg_bound(info) + sizeof(pen__jpeg_window) + ALLOCATOR_BYTES;
    case PEN_FORMAT_PNG:
        return pen__png_bound(info) + ALLOCATOR_BYTES;
    case PEN_FORMAT_WEBP:
        return pen__webp_bound(info, window) + ALLOCATOR_BYTES;
    default:
        return 0;
    }
}

static bool is_inside(const pen_image_info *info, pen__rect r)
{
    return r.x >= 0 && r.y >= 0 && r.w > 0 && r.h > 0 && r.w <= info->width &&
           r.h <= info->height && r.x <= info->width - r.w && r.y <= info->height - r.h;
}

bool pen__decode_has_rows(const pen_image_info *info)
{
    return info->format == PEN_FORMAT_JPEG;
}

static int check_job(const pen__decode_job *job)
{
    const pen__rect *w = &job->window;
    if (!is_inside(job->info, *w))
        return pen__fail(job->err, PEN_EINVAL, -1, "window %d,%d %dx%d is not inside %dx%d", w->x,
                         w->y, w->w, w->h, job->info->width, job->info->height);
    int rc = check_limits(job->info, job->err);
    if (rc == 0 && pen__job_cancelled(job))
        rc = pen__fail(job->err, PEN_ECANCELED, -1, "cancelled");
    return rc;
}

int pen__decode(pen__decoder *dec, const uint8_t *src, size_t len, const pen_image_info *info,
                pen__rect window, pen__image *dst, pen_error *err)
{
    const pen__decode_job job = {src, len, info, window, dst->px, dec->cancel, err, NULL};
    int rc = check_job(&job);
    if (rc < 0)
        return rc;
    dst->w = window.w;
    dst->h = window.h;
    dst->ch = pen__decode_channels(info);
    switch (info->format) {
    case PEN_FORMAT_JPEG:
        return pen__jpeg_decode(dec->jpeg, &job);
    case PEN_FORMAT_PNG:
        return pen__png_decode(&job);
    case PEN_FORMAT_WEBP:
        return pen__webp_decode(&job);
    default:
        return pen__fail(err, PEN_EUNSUPPORTED, 0, "not a JPEG, PNG or WebP file");
    }
}

int pen__decode_rows(pen__decoder *dec, const uint8_t *src, size_t len, const pen_image_info *info,
                     pen__rect window, const pen__row_sink *sink, pen_error *err)
{
    const pen__decode_job job = {src, len, info, window, NULL, dec->cancel, err, sink};
    int rc = check_job(&job);
    return rc < 0 ? rc : pen__jpeg_decode(dec->jpeg, &job);
}

/* In place from the back, so that no byte is overwritten before it is read. */
static void spread_grey(uint8_t *px, size_t n_pixels)
{
    for (size_t i = n_pixels; i-- > 0;)
        px[3 * i] = px[3 * i + 1] = px[3 * i + 2] = px[i];
}

/* Decode with a decoder of the moment, in the channels that the file gives. */
static int decode_once(const uint8_t *src, size_t len, const pen_image_info *info, pen__rect window,
                       uint8_t *px, pen_error *err)
{
    pen__decoder *dec;
    if (pen__decoder_create(&dec, NULL) < 0)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory for a decoder");
    pen__image image = {.px = px};
    int rc = pen__decode(dec, src, len, info, window, &image, err);
    pen__decoder_free(dec);
    return rc;
}

/* A colour file wanted as grey needs the colour pixels somewhere first. */
static int decode_folded(const uint8_t *src, size_t len, const pen_image_info *info,
                         pen__rect window, uint8_t *dst, pen_error *err)
{
    size_t n_pixels = (size_t)window.w * (size_t)window.h;
    uint8_t *rgb = pen__malloc(n_pixels * 3);
    if (!rgb)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory for %zu pixels", n_pixels);
    int rc = decode_once(src, len, info, window, rgb, err);
    pen__image colour = {rgb, window.w, window.h, 3}, grey = {.px = dst};
    if (rc == 0)
        pen__to_grey(&colour, &grey);
    pen__free(rgb);
    return rc;
}

int64_t pen_image_decode(const uint8_t *src, size_t len, int32_t x, int32_t y, int32_t w, int32_t h,
                         int channels, uint8_t *dst, size_t dst_cap, pen_error *err)
{
    if (channels != 1 && channels != 3)
        return pen__fail(err, PEN_EINVAL, -1, "channels is %d, not 1 or 3", channels);
    pen_image_info info;
    int rc = pen_image_probe(src, len, &info, err);
    if (rc < 0)
        return rc;
    pen__rect window = {x, y, w, h};
    if (!is_inside(&info, window))
        return pen__fail(err, PEN_EINVAL, -1, "window %d,%d %dx%d is not inside %dx%d", x, y, w, h,
                         info.width, info.height);
    size_t n_pixels = (size_t)w * (size_t)h, n_bytes = n_pixels * (size_t)channels;
    if (dst_cap < n_bytes)
        return pen__fail(err, PEN_ENOSPC, -1, "%zu bytes of pixels do not fit into %zu", n_bytes,
                         dst_cap);
    if (channels == 1 && !info.is_grey)
        rc = decode_folded(src, len, &info, window, dst, err);
    else
        rc = decode_once(src, len, &info, window, dst, err);
    if (rc < 0)
        return rc;
    if (channels == 3 && info.is_grey)
        spread_grey(dst, n_pixels);
    return (int64_t)n_bytes;
}
