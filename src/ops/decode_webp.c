/* decode_webp.c - WebP to pixels by libwebp: lossy, lossless, or an animation's first frame.
 *
 * Alpha is dropped, not blended: Pillow's convert("RGB") keeps the colour under
 * transparent pixels.  An animation's first frame may be smaller than the
 * canvas; what it leaves open is black.
 *
 * A window.  libwebp can crop, but its fancy upsampling takes the crop's edge for the
 * image's edge.  As with JPEG, a margin is decoded and cut off; it is even on
 * the left and on top, since libwebp moves odd crops to the even pixel before.
 * Rows below the crop are not decoded; libwebp's call cannot be interrupted, so
 * cancelling is noticed before it only.
 */
#include <pthread.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

#include "base/mem.h"
#include "ops/decode_formats.h"
#include "ops/exif.h"

enum { MARGIN = 2, RIFF_HEADER_BYTES = 12, CHUNK_HEADER_BYTES = 8 };
enum { FLAG_ANIMATION = 0x02, FLAG_XMP = 0x04, FLAG_EXIF = 0x08, FLAG_ALPHA = 0x10 };

static uint32_t le16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t le24(const uint8_t *p)
{
    return le16(p) | (uint32_t)p[2] << 16;
}

static uint32_t le32(const uint8_t *p)
{
    return le16(p) | le16(p + 2) << 16;
}

static int corrupt(pen_error *err, int64_t at, const char *what)
{
    return pen__fail(err, PEN_ECORRUPT, at, "WebP: %s", what);
}

/* --- probe --- */

/* The data of the first chunk called `name`, or NULL. */
static const uint8_t *find_chunk(const uint8_t *src, size_t len, const char *name, size_t *length)
{
    size_t at = RIFF_HEADER_BYTES;
    while (len - at >= CHUNK_HEADER_BYTES) {
        size_t left = len - at - CHUNK_HEADER_BYTES, claimed = le32(src + at + 4);
        if (claimed > left)
            break;
        if (memcmp(src + at, name, 4) == 0) {
            *length = claimed;
            return src + at + CHUNK_HEADER_BYTES;
        }
        size_t padded = claimed + (claimed & 1);
        if (padded > left)
            break;
        at += CHUNK_HEADER_BYTES + padded;
    }
    return NULL;
}

static void read_orientation(const uint8_t *src, size_t len, int flags, pen_image_info *info)
{
    size_t n = 0;
    int orientation = 0;
    const uint8_t *exif = flags & FLAG_EXIF ? find_chunk(src, len, "EXIF", &n) : NULL;
    if (exif)
        orientation = pen__exif_orientation(exif, n);
    const uint8_t *xmp =
        flags & FLAG_XMP && orientation == 0 ? find_chunk(src, len, "XMP ", &n) : NULL;
    if (xmp)
        orientation = pen__xmp_orientation(xmp, n);
    info->orientation = (uint8_t)(orientation ? orientation : 1);
}

int pen__webp_probe(const uint8_t *src, size_t len, pen_image_info *info, pen_error *err)
{
    info->bits = 8;
    info->channels = 3;
    if (len < 30)
        return corrupt(err, (int64_t)len, "ends inside the header");
    switch (src[15]) { /* the letter after "VP8" */
    case ' ':
        if (memcmp(src + 23, "\x9d\x01\x2a", 3) != 0)
            return corrupt(err, 23, "no key frame");
        info->width = (int32_t)(le16(src + 26) & 0x3FFF);
        info->height = (int32_t)(le16(src + 28) & 0x3FFF);
        return 0;
    case 'L':
        if (src[20] != 0x2F)
            return corrupt(err, 20, "no lossless signature");
        info->width = (int32_t)(le32(src + 21) & 0x3FFF) + 1;
        info->height = (int32_t)(le32(src + 21) >> 14 & 0x3FFF) + 1;
        info->channels = le32(src + 21) >> 28 & 1 ? 4 : 3;
        return 0;
    case 'X':
        info->width = (int32_t)le24(src + 24) + 1;
        info->height = (int32_t)le24(src + 27) + 1;
        info->channels = src[20] & FLAG_ALPHA ? 4 : 3;
        info->is_animated = src[20] & FLAG_ANIMATION;
        read_orientation(src, len, src[20], info);
        return 0;
    default:
        return pen__fail(err, PEN_EUNSUPPORTED, 12, "WebP: unknown kind of image");
    }
}

/* --- decode --- */

/* Lossless files are kept whole as ARGB (4 bytes a pixel), with transforms beside;
 * alpha of lossy ones is such an image and a plane of bytes.  Measured, that
 * is up to 6 bytes a pixel; rows and tables come on top, and our own part, the
 * margin's pixels.  libwebp allocates by itself and cannot be bounded: a
 * hostile lossless file can make it take up to 12 KiB for each 4x4 pixels in
 * Huffman tables, where real ones use a few hundred tables in all; the constant
 * has room for 1024. */
size_t pen__webp_bound(const pen_image_info *info, pen__rect window)
{
    size_t w = (size_t)info->width, h = (size_t)info->height;
    size_t cut = ((size_t)window.w + 2 * MARGIN) * ((size_t)window.h + 2 * MARGIN) * 3;
    return w * h * 7 + w * 256 + ((size_t)13 << 20) + cut;
}

static pen__rect intersect(pen__rect a, pen__rect b)
{
    int32_t x = a.x > b.x ? a.x : b.x, y = a.y > b.y ? a.y : b.y;
    int32_t right = a.x + a.w < b.x + b.w ? a.x + a.w : b.x + b.w;
    int32_t bottom = a.y + a.h < b.y + b.h ? a.y + a.h : b.y + b.h;
    return (pen__rect){x, y, right > x ? right - x : 0, bottom > y ? bottom - y : 0};
}

/* `part` and its margin, within a frame of w x h. */
static pen__rect with_margin(pen__rect part, int32_t w, int32_t h)
{
    pen__rect grown = {(part.x & ~1) - MARGIN, (part.y & ~1) - MARGIN, 0, 0};
    grown.w = part.x + part.w + MARGIN - grown.x;
    grown.h = part.y + part.h + MARGIN - grown.y;
    return intersect(grown, (pen__rect){0, 0, w, h});
}

/* libwebp takes a lock of its own in every decode.  A fork in that moment would leave it
 * locked for ever in the child, so forking waits until no decode is under way. */
static pthread_rwlock_t fork_gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_once_t fork_gate_once = PTHREAD_ONCE_INIT;

static void shut_fork_gate(void)
{
    pthread_rwlock_wrlock(&fork_gate);
}

static void open_fork_gate(void)
{
    pthread_rwlock_unlock(&fork_gate);
}

/* In the child the lock still counts readers that were waiting in the parent: a new one. */
static void renew_fork_gate(void)
{
    fork_gate = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
}

static void set_up_fork_gate(void)
{
    pthread_atfork(shut_fork_gate, open_fork_gate, renew_fork_gate);
}

static VP8StatusCode decode_unforked(const WebPIterator *frame, WebPDecoderConfig *config)
{
    pthread_once(&fork_gate_once, set_up_fork_gate);
    pthread_rwlock_rdlock(&fork_gate);
    VP8StatusCode status = WebPDecode(frame->fragment.bytes, frame->fragment.size, config);
    pthread_rwlock_unlock(&fork_gate);
    return status;
}

/* Decode the rectangle `crop` of a frame to `out`, rows of `stride` bytes. */
static int run_library(const pen__decode_job *job, const WebPIterator *frame, pen__rect crop,
                       uint8_t *out, size_t stride)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return pen__fail(job->err, PEN_EUNSUPPORTED, -1, "WebP: the library does not match");
    config.options.use_cropping = crop.w != frame->width || crop.h != frame->height;
    config.options.crop_left = crop.x;
    config.options.crop_top = crop.y;
    config.options.crop_width = crop.w;
    config.options.crop_height = crop.h;
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = (WebPRGBABuffer){out, (int)stride, stride * (size_t)crop.h};
    VP8StatusCode status = decode_unforked(frame, &config);
    int64_t at = frame->fragment.bytes - job->src;
    switch (status) {
    case VP8_STATUS_OK:
        return 0;
    case VP8_STATUS_OUT_OF_MEMORY:
        return pen__fail(job->err, PEN_ENOMEM, -1, "WebP: out of memory");
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
        return corrupt(job->err, (int64_t)job->len, "the image data end too early");
    default:
        return corrupt(job->err, at, "broken image data");
    }
}

/* Rows of `crop` (as decoded) to where `part` of them belongs in the window. */
static void copy_part(const pen__decode_job *job, const uint8_t *decoded, pen__rect crop,
                      pen__rect part, int32_t frame_x, int32_t frame_y)
{
    const pen__rect *window = &job->window;
    for (int32_t y = 0; y < part.h; y++) {
        const uint8_t *from =
            decoded +
            ((size_t)(part.y - crop.y + y) * (size_t)crop.w + (size_t)(part.x - crop.x)) * 3;
        size_t to_x = (size_t)(part.x + frame_x - window->x);
        size_t to_y = (size_t)(part.y + frame_y - window->y + y);
        memcpy(job->dst + (to_y * (size_t)window->w + to_x) * 3, from, (size_t)part.w * 3);
    }
}

static int decode_frame(const pen__decode_job *job, const WebPIterator *frame)
{
    const pen__rect *window = &job->window;
    pen__rect place = {frame->x_offset, frame->y_offset, frame->width, frame->height};
    pen__rect part = intersect(*window, place); /* still on the canvas */
    size_t window_bytes = (size_t)window->w * (size_t)window->h * 3;
    bool is_covered = part.w == window->w && part.h == window->h;
    if (!is_covered)
        memset(job->dst, 0, window_bytes);
    if (part.w == 0 || part.h == 0) /* Pillow would find a broken frame all the same */
        part = (pen__rect){place.x, place.y, 0, 0};
    part.x -= place.x;
    part.y -= place.y;
    pen__rect crop = with_margin(part, place.w, place.h);
    if (is_covered && crop.w == window->w && crop.h == window->h)
        return run_library(job, frame, crop, job->dst, (size_t)crop.w * 3);
    uint8_t *decoded = pen__malloc((size_t)crop.w * (size_t)crop.h * 3);
    if (!decoded)
        return pen__fail(job->err, PEN_ENOMEM, -1, "WebP: out of memory");
    int rc = run_library(job, frame, crop, decoded, (size_t)crop.w * 3);
    if (rc == 0)
        copy_part(job, decoded, crop, part, place.x, place.y);
    pen__free(decoded);
    return rc;
}

int pen__webp_decode(const pen__decode_job *job)
{
    WebPData data = {job->src, job->len};
    WebPDemuxer *demuxer = WebPDemux(&data);
    if (!demuxer)
        return corrupt(job->err, -1, "broken or truncated container");
    WebPIterator frame;
    int rc = PEN_ECORRUPT;
    if (!WebPDemuxGetFrame(demuxer, 1, &frame)) {
        corrupt(job->err, -1, "no frame");
    } else {
        bool fits = frame.complete && frame.x_offset + frame.width <= job->info->width &&
                    frame.y_offset + frame.height <= job->info->height;
        rc = fits ? decode_frame(job, &frame) : corrupt(job->err, -1, "frame outside the canvas");
        WebPDemuxReleaseIterator(&frame);
    }
    WebPDemuxDelete(demuxer);
    return rc;
}
