/* decode.h - encoded bytes to pixels, whole or a window.
 *
 * Formats are found by content.  Pixels equal Pillow's
 * Image.open(f).convert("RGB") to the bit, for any window.  Every decoder is
 * safe on hostile input: no read past the source, no write past the
 * destination, limits before allocation, and no endless loop.
 *
 * decode.c sniffs and dispatches; decode_jpeg.c, decode_png.c and
 * decode_webp.c each wrap one library; exif.c finds the orientation.  Ordinary JPEG
 * files do not reach libjpeg: jpeg_window.c decodes them (docs/decode.md).
 *
 * Tested with Pillow 13.0.0 (libjpeg-turbo 3.2.0, libwebp 1.6.0 inside) on one side and
 * libjpeg-turbo 2.1.5, libpng 1.6.39, libwebp 1.2.4 on ours.
 */
#ifndef PEN_OPS_DECODE_H
#define PEN_OPS_DECODE_H

#include <penstock/image.h>

#include <stdatomic.h>
#include <stdbool.h>

#include "ops/image.h"

/* One thread's decoder state, reused from sample to sample so that the hot path
 * allocates as little as the libraries allow. */
typedef struct pen__decoder pen__decoder;

/* An idle decoder keeps at most this much memory from the last sample. */
#define PEN__DECODER_KEEPS ((size_t)4 << 20)

/* `cancel` may be NULL; once it is true a decode under way ends with
 * PEN_ECANCELED at the next row, so that closing never waits for a huge image.
 * (libwebp cannot be interrupted: a WebP file notices before it starts only.) */
int pen__decoder_create(pen__decoder **out, const atomic_bool *cancel);
/* The flag it was made with, for others who work on the same sample. */
const atomic_bool *pen__decoder_cancel(const pen__decoder *dec);
void pen__decoder_free(pen__decoder *dec);

/* Keep at most this many bytes from one image to the next; PEN__DECODER_KEEPS at first. */
void pen__decoder_set_keep(pen__decoder *dec, size_t n_bytes);

/* Which way JPEG files went so far. */
typedef struct pen__jpeg_counts {
    int64_t n_own;     /* decoded by our own code (jpeg_window.c) */
    int64_t n_indexed; /* of those, with marks that were given */
    int64_t n_guessed; /* of those, with marks that were found ahead (jpeg_guess.c) */
    int64_t n_foreign; /* left to libjpeg because of their headers: unusual files */
    int64_t n_flawed;  /* tried, and left to libjpeg because something was not in order */
} pen__jpeg_counts;

pen__jpeg_counts pen__decoder_jpeg_counts(const pen__decoder *dec);

/* Marks: an entry that says where parts of a JPEG file begin (jpeg_marks.h), which makes the
 * next decode of any of its windows quicker.  Before a decode, tell what is known of the
 * file; NULL and 0 if that is nothing.  It holds for the next decode only.  Without this
 * call none are gathered.  Pixels are the same whatever the entry says. */
void pen__decoder_give_marks(pen__decoder *dec, const void *entry, size_t len);
/* After that, about the same decode: the file's stamp, to be kept with marks that are gathered, and
 * whether there is no more of it than jpeg_extent.h said of its marks.  Then PEN_AGAIN means that
 * they are of no use, and all of the file is needed. */
void pen__decoder_give_stamp(pen__decoder *dec, uint64_t stamp, bool is_partial);
/* What the last decode found out beyond what it was given: *entry, the decoder's until its next
 * decode.  Returns the length, 0 if there is nothing new. */
size_t pen__decoder_take_marks(const pen__decoder *dec, const void **entry);
enum { PEN__DECODE_MARKS_MAX = 32 << 10 }; /* bytes of an entry */

/* Tests and measurements: false sends every JPEG file through libjpeg.  Results are the
 * same.  A decoder starts with true, unless PENSTOCK_JPEG=libjpeg is in the environment. */
void pen__decoder_use_own_jpeg(pen__decoder *dec, bool use_own);

/* Channels that come out: 1 for grey files (info->is_grey), else 3. */
static inline int pen__decode_channels(const pen_image_info *info)
{
    return info->is_grey ? 1 : 3;
}

/* Who wants a window's rows as they are decoded, instead of all pixels at the end: rows
 * y, y + 1, ... of the window, `stride` bytes apart, four at a time but for the last,
 * with PEN__DECODE_SLACK readable bytes behind each.  They are gone after the call.
 * A decoder may start again from row 0; earlier rows do not count then. */
typedef struct pen__row_sink {
    void (*take)(void *ctx, int32_t y, const uint8_t *rows, size_t stride, int32_t n_rows);
    void *ctx;
} pen__row_sink;

enum { PEN__DECODE_SLACK = 16 };

/* Can files of this format be decoded into a sink?  JPEG files can. */
bool pen__decode_has_rows(const pen_image_info *info);

/* Bytes a decode of this window takes beside its destination, the library's own
 * memory included: an upper bound computed from the header alone.  The memory
 * budget counts on it. */
size_t pen__decode_memory(const pen_image_info *info, pen__rect window);

/* Decode `window` of the stored image (no EXIF turn) into dst->px, which has room
 * for window.w * window.h * pen__decode_channels(info) bytes; sets dst->w, h, ch.
 * `info` is what pen_image_probe said of the same bytes.
 * Bytes that only concern pixels below the window are not read, so damage there is
 * not reported.
 * 0, PEN_ECORRUPT, PEN_EUNSUPPORTED, PEN_ELIMIT, PEN_ENOMEM, PEN_ECANCELED. */
int pen__decode(pen__decoder *dec, const uint8_t *src, size_t len, const pen_image_info *info,
                pen__rect window, pen__image *dst, pen_error *err);

/* The same into a sink, for images that pen__decode_has_rows. */
int pen__decode_rows(pen__decoder *dec, const uint8_t *src, size_t len, const pen_image_info *info,
                     pen__rect window, const pen__row_sink *sink, pen_error *err);

#endif
