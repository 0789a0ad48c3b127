/* parcel.c - the head of a parcel: 48 bytes, little endian.
 *
 *      0  u8   version, form, cut, channels
 *      4  u32  length of the payload, which follows the head
 *      8  i32  kept: x, y, w, h
 *     24  u64  length of the stored file
 *     32  u8   of the file: format, channels, bits, orientation, flags (1 progressive, 2 grey,
 *              4 animated), sampling_h, sampling_v, 0
 *     40  i32  of the file: width, height
 *
 * What a form does not use is 0, so that a parcel is written in one way only.
 */
#include "engine/parcel.h"

#include "base/fail.h"
#include "base/little_endian.h"
#include "engine/pipeline.h"

enum { IS_PROGRESSIVE = 1, IS_GREY = 2, IS_ANIMATED = 4, ALL_FLAGS = 7 };

bool pen__form_codec(pen__form form, pen__bytes_codec *codec)
{
    if (form < PEN__FORM_ZSTD || form > PEN__FORM_SNAPPY)
        return false;
    *codec = form == PEN__FORM_ZSTD  ? PEN__BYTES_ZSTD
             : form == PEN__FORM_LZ4 ? PEN__BYTES_LZ4
                                     : PEN__BYTES_SNAPPY;
    return true;
}

/* ---- writing ------------------------------------------------------------------------ */

size_t pen__parcel_bound(const pen_pipeline *pipe, size_t len)
{
    size_t pixels =
        pipe ? (size_t)pipe->shape.width * (size_t)pipe->shape.height * (size_t)pipe->shape.channels
             : 0;
    return PEN__PARCEL_HEAD + (len > pixels ? len : pixels);
}

void pen__parcel_write_head(const pen__parcel *p, uint8_t head[PEN__PARCEL_HEAD])
{
    const pen_image_info *info = &p->info;
    const int32_t kept[4] = {p->kept.x, p->kept.y, p->kept.w, p->kept.h};
    head[0] = PEN__PARCEL_VERSION;
    head[1] = (uint8_t)p->form;
    head[2] = (uint8_t)p->cut;
    head[3] = (uint8_t)p->channels;
    pen__le_put(head + 4, p->len, 4);
    for (int i = 0; i < 4; i++)
        pen__le_put(head + 8 + 4 * i, (uint32_t)kept[i], 4);
    pen__le_put(head + 24, p->raw_len, 8);
    head[32] = (uint8_t)info->format;
    head[33] = info->channels;
    head[34] = info->bits;
    head[35] = info->orientation;
    head[36] = (uint8_t)((info->is_progressive ? IS_PROGRESSIVE : 0) |
                         (info->is_grey ? IS_GREY : 0) | (info->is_animated ? IS_ANIMATED : 0));
    head[37] = info->sampling_h;
    head[38] = info->sampling_v;
    head[39] = 0;
    pen__le_put(head + 40, (uint32_t)info->width, 4);
    pen__le_put(head + 44, (uint32_t)info->height, 4);
}

/* ---- reading ------------------------------------------------------------------------ */

static bool size_is_possible(int32_t w, int32_t h)
{
    return w >= 1 && h >= 1 && w <= PEN_IMAGE_MAX_SIDE && h <= PEN_IMAGE_MAX_SIDE &&
           (int64_t)w * h <= PEN_IMAGE_MAX_PIXELS;
}

static bool is_all_zero(const uint8_t *at, size_t n)
{
    while (n > 0 && at[n - 1] == 0)
        n--;
    return n == 0;
}

bool pen__parcel_takes(const pen_image_info *info)
{
    const unsigned depths = 1U << 1 | 1U << 2 | 1U << 4 | 1U << 8 | 1U << 12 | 1U << 16;
    return info->format > PEN_FORMAT_UNKNOWN && info->format < PEN_FORMAT_COUNT &&
           info->channels >= 1 && info->channels <= 4 && info->bits <= 16 &&
           (depths >> info->bits & 1) && info->orientation >= 1 && info->orientation <= 8 &&
           info->sampling_h >= 1 && info->sampling_h <= 4 && info->sampling_v >= 1 &&
           info->sampling_v <= 4 && size_is_possible(info->width, info->height);
}

static void read_info(pen_image_info *info, const uint8_t *head)
{
    *info = (pen_image_info){.format = (pen_format)head[32],
                             .channels = head[33],
                             .bits = head[34],
                             .orientation = head[35],
                             .is_progressive = head[36] & IS_PROGRESSIVE,
                             .is_grey = head[36] & IS_GREY,
                             .is_animated = head[36] & IS_ANIMATED,
                             .sampling_h = head[37],
                             .sampling_v = head[38],
                             .width = pen__le_i32(head + 40),
                             .height = pen__le_i32(head + 44)};
}

static bool lies_inside(pen__rect r, const pen_image_info *info)
{
    return r.x >= 0 && r.y >= 0 && r.w >= 1 && r.h >= 1 && r.w <= info->width &&
           r.h <= info->height && r.x <= info->width - r.w && r.y <= info->height - r.h;
}

static bool pixels_are_possible(const pen__parcel *p)
{
    return p->cut >= 1 && p->cut <= PEN_PIPELINE_MAX_OPS &&
           (p->channels == 1 || p->channels == 3) && p->kept.x == 0 && p->kept.y == 0 &&
           size_is_possible(p->kept.w, p->kept.h);
}

/* NULL, or what is wrong with a head whose numbers were read. */
static const char *fault_of(const pen__parcel *p, const uint8_t *head)
{
    const bool is_image = pen__parcel_takes(&p->info);
    const bool has_pixels = p->form == PEN__FORM_PIXELS || p->form == PEN__FORM_PIXELS_CODED;
    if (head[39] != 0 || head[36] > ALL_FLAGS)
        return "bits that mean nothing";
    if (!is_image && !(p->form == PEN__FORM_RAW && is_all_zero(head + 32, 16)))
        return "an impossible image";
    if (p->raw_len > UINT32_MAX)
        return "a file that is too large";
    if (!has_pixels && (p->cut != 0 || p->channels != 0))
        return "a cut where there are no pixels";
    switch (p->form) {
    case PEN__FORM_RAW:
        return p->len == p->raw_len && is_all_zero(head + 8, 16) ? NULL : "another length";
    case PEN__FORM_ZSTD:
    case PEN__FORM_LZ4:
    case PEN__FORM_SNAPPY:
        return p->len > 0 && p->raw_len > 0 && is_all_zero(head + 8, 16) ? NULL : "no bytes";
    case PEN__FORM_JPEG_CUT:
        return p->info.format == PEN_FORMAT_JPEG && lies_inside(p->kept, &p->info)
                   ? NULL
                   : "an impossible part of a JPEG file";
    case PEN__FORM_PIXELS:
        return pixels_are_possible(p) &&
                       p->len == (size_t)p->kept.w * (size_t)p->kept.h * (size_t)p->channels
                   ? NULL
                   : "pixels of another size";
    default:
        return pixels_are_possible(p) && p->len > 0 ? NULL : "pixels of an impossible size";
    }
}

size_t pen__parcel_length(const uint8_t head[PEN__PARCEL_HEAD])
{
    return PEN__PARCEL_HEAD + (size_t)pen__le32(head + 4);
}

int pen__parcel_read(pen__parcel *p, const uint8_t *src, size_t len, pen_error *err)
{
    if (len < PEN__PARCEL_HEAD || pen__parcel_length(src) != len)
        return pen__fail(err, PEN_ECORRUPT, -1, "a parcel of %zu bytes is cut short, or too long",
                         len);
    if (src[0] != PEN__PARCEL_VERSION || src[1] >= PEN__FORM_COUNT)
        return pen__fail(err, PEN_ECORRUPT, 0, "a parcel of version %d and form %d", src[0],
                         src[1]);
    *p = (pen__parcel){.form = (pen__form)src[1],
                       .cut = src[2],
                       .channels = src[3],
                       .kept = {pen__le_i32(src + 8), pen__le_i32(src + 12), pen__le_i32(src + 16),
                                pen__le_i32(src + 20)},
                       .raw_len = pen__le64(src + 24),
                       .data = src + PEN__PARCEL_HEAD,
                       .len = len - PEN__PARCEL_HEAD};
    read_info(&p->info, src);
    const char *fault = fault_of(p, src);
    return fault ? pen__fail(err, PEN_ECORRUPT, 0, "a parcel with %s", fault) : 0;
}
