/* image.h - one encoded image: what is it, and its pixels.
 *
 * The type is found by content, never by name.  Pixels are those of Pillow's
 * Image.open(f).convert("RGB") (or "L"), to the bit.
 */
#ifndef PENSTOCK_IMAGE_H
#define PENSTOCK_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

typedef enum pen_format {
    PEN_FORMAT_UNKNOWN = 0,
    PEN_FORMAT_JPEG,
    PEN_FORMAT_PNG,
    PEN_FORMAT_WEBP,
    PEN_FORMAT_COUNT
} pen_format;

/* "jpeg", "png", "webp", "unknown". */
PEN_API const char *pen_format_name(pen_format format);

/* No image larger than this is decoded, whatever its header claims. */
#define PEN_IMAGE_MAX_PIXELS ((int64_t)178956970) /* Pillow's warning level times two */
#define PEN_IMAGE_MAX_SIDE   65535

typedef struct pen_image_info {
    pen_format format;
    int32_t width, height; /* as stored, before any EXIF rotation */
    uint8_t channels;      /* as stored: 1 grey, 2 grey+alpha, 3 (also palette), 4 (RGBA or CMYK) */
    uint8_t bits;          /* per channel: 1, 2, 4, 8, 12 or 16 */
    uint8_t orientation;   /* EXIF, 1..8; 1 when absent or nonsense */
    bool is_progressive;   /* JPEG: in several scans; PNG: interlaced */
    bool is_grey;          /* decodes to one channel: all three would be equal */
    bool is_animated;      /* WebP, APNG: the first frame is what counts */
    uint8_t sampling_h, sampling_v; /* JPEG: largest chroma subsampling factors, 1 if none */
} pen_image_info;

/* Read the header only.  Never reads past src+len.
 * Returns 0, PEN_EUNSUPPORTED (not an image we know), PEN_ECORRUPT or PEN_ELIMIT. */
PEN_API int pen_image_probe(const uint8_t *src, size_t len, pen_image_info *info, pen_error *err);

/* Decode the rectangle (x, y, w, h) of the stored image into `dst`, rows of
 * w*channels bytes without gaps, channels being 3 (RGB) or 1 (L).  Pixels equal
 * those of a full decode that is cut afterwards.  The rectangle must lie inside.
 * Never reads past src+len nor writes past dst+dst_cap, whatever the input.
 * Returns bytes written, or PEN_ECORRUPT, PEN_EUNSUPPORTED, PEN_ELIMIT,
 * PEN_EINVAL, PEN_ENOSPC, PEN_ENOMEM. */
PEN_API int64_t pen_image_decode(const uint8_t *src, size_t len, int32_t x, int32_t y, int32_t w,
                                 int32_t h, int channels, uint8_t *dst, size_t dst_cap,
                                 pen_error *err);

#endif
