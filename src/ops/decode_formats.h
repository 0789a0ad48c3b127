/* decode_formats.h - what decode.c asks of each format's file.
 *
 * Private to src/ops/decode*.c.  A format has a probe (header to pen_image_info),
 * a memory bound, and a decode that carries out one job.
 */
#ifndef PEN_OPS_DECODE_FORMATS_H
#define PEN_OPS_DECODE_FORMATS_H

#include "base/fail.h"
#include "ops/decode.h"

/* One decode under way.  decode.c has checked that the window lies inside the
 * image and that the image is within the limits. */
typedef struct pen__decode_job {
    const uint8_t *src;
    size_t len;
    const pen_image_info *info;
    pen__rect window;
    uint8_t *dst; // (window.h, window.w, pen__decode_channels(info))
    const atomic_bool *cancel;
    pen_error *err;
    const pen__row_sink *sink; /* NULL, or JPEG only and instead of dst */
} pen__decode_job;

static inline bool pen__job_cancelled(const pen__decode_job *job)
{
    return job->cancel && atomic_load_explicit(job->cancel, memory_order_relaxed);
}

static inline uint32_t pen__be16(const uint8_t *p)
{
    return (uint32_t)p[0] << 8 | p[1];
}

static inline uint32_t pen__be32(const uint8_t *p)
{
    return pen__be16(p) << 16 | pen__be16(p + 2);
}

/* decode_jpeg_header.c */
int pen__jpeg_probe(const uint8_t *src, size_t len, pen_image_info *info, pen_error *err);

/* decode_jpeg.c.  One pen__jpeg a thread; it lives from sample to sample. */
typedef struct pen__jpeg pen__jpeg;
int pen__jpeg_create(pen__jpeg **out);
void pen__jpeg_free(pen__jpeg *jpeg);
size_t pen__jpeg_bound(const pen_image_info *info);
int pen__jpeg_decode(pen__jpeg *jpeg, const pen__decode_job *job);
/* See decode.h. */
void pen__jpeg_set_keep(pen__jpeg *jpeg, size_t n_bytes);
void pen__jpeg_use_own(pen__jpeg *jpeg, bool use_own);
pen__jpeg_counts pen__jpeg_counts_of(const pen__jpeg *jpeg);
void pen__jpeg_give_marks(pen__jpeg *jpeg, const void *entry, size_t len);
void pen__jpeg_give_stamp(pen__jpeg *jpeg, uint64_t stamp, bool is_partial);
size_t pen__jpeg_take_marks(const pen__jpeg *jpeg, const void **entry);

/* decode_png.c */
int pen__png_probe(const uint8_t *src, size_t len, pen_image_info *info, pen_error *err);
size_t pen__png_bound(const pen_image_info *info);
int pen__png_decode(const pen__decode_job *job);

/* decode_webp.c */
int pen__webp_probe(const uint8_t *src, size_t len, pen_image_info *info, pen_error *err);
size_t pen__webp_bound(const pen_image_info *info, pen__rect window);
int pen__webp_decode(const pen__decode_job *job);

#endif
