/* parcel.h - one sample as it crosses the network: a head and a payload in one of several forms.
 *
 * All forms are exact: whatever a storage node chooses, the tensor is the same to the byte.  The
 * client says which (sample, epoch, occurrence) it wants of which pipeline; both sides draw the
 * same parameters, because randomness has no state.
 *
 *     pack.c     the storage node's side: the smallest allowed form of a file
 *     unpack.c   the client's side: from a parcel to what a plan begins with
 *     parcel.c   the head
 *
 * A parcel is never larger than pen__parcel_bound, so that memory is taken before it is asked for.
 */
#ifndef PEN_ENGINE_PARCEL_H
#define PEN_ENGINE_PARCEL_H

#include <penstock/pipeline.h>

#include "codec/bytes.h"
#include "ops/image.h"

typedef enum pen__form {
    PEN__FORM_RAW = 0,      /* the file */
    PEN__FORM_JPEG_CUT,     /* a JPEG file of the part that the plan's window needs */
    PEN__FORM_PIXELS,       /* the image at a cut of the line */
    PEN__FORM_PIXELS_CODED, /* the same, coded by codec/pixel_code.h */
    PEN__FORM_ZSTD,         /* the file, coded: one that is not compressed by itself */
    PEN__FORM_LZ4,
    PEN__FORM_SNAPPY,
    PEN__FORM_COUNT
} pen__form;

/* A mask of forms has the bit 1 << form. */
#define PEN__FORMS_ALL ((1U << PEN__FORM_COUNT) - 1)
/* What is stored, coded. */
#define PEN__FORMS_CODED_BYTES (1U << PEN__FORM_ZSTD | 1U << PEN__FORM_LZ4 | 1U << PEN__FORM_SNAPPY)
/* Beside them in a mask: plain pixels are taken at the furthest cut allowed, not at the one where
 * they are fewest, and grey ones have all channels of the tensor, as other loaders hold them.  For
 * policies that are compared with. */
#define PEN__FORMS_AT_FURTHEST (1U << 16)

/* Is the form what is stored, coded?  Then *codec says how. */
bool pen__form_codec(pen__form form, pen__bytes_codec *codec);

enum { PEN__PARCEL_HEAD = 48, PEN__PARCEL_VERSION = 1 };

typedef struct pen__parcel {
    pen__form form;
    int cut;             /* operations of the line done; 0 but for pixels */
    pen_image_info info; /* of the stored file; of a raw one that is no image all zero */
    pen__rect kept;      /* JPEG_CUT: which part of the stored image; pixels: their size, at 0, 0 */
    int channels;        /* of pixels: 1 or 3; else 0 */
    size_t raw_len;      /* of the stored file */
    const uint8_t *data;
    size_t len;
} pen__parcel;

/* Bytes of a parcel at most, for a file of `len` bytes: raw or, where a policy insists, its
 * finished pixels.  `pipe` may be NULL. */
size_t pen__parcel_bound(const pen_pipeline *pipe, size_t len);

/* Is this an image that can be decoded, going by what a probe said?  Others travel raw, and nothing
 * is said of them. */
bool pen__parcel_takes(const pen_image_info *info);

void pen__parcel_write_head(const pen__parcel *p, uint8_t head[PEN__PARCEL_HEAD]);

/* Read a parcel that is the `len` bytes at src; p->data points into them.  Every field is
 * checked: sizes are within the limits of images and agree with each other, but the payload is
 * not looked at.  Never reads past src+len.  0 or PEN_ECORRUPT. */
int pen__parcel_read(pen__parcel *p, const uint8_t *src, size_t len, pen_error *err);

/* The bytes of a parcel that was read before, from its head. */
size_t pen__parcel_length(const uint8_t head[PEN__PARCEL_HEAD]);

#endif
