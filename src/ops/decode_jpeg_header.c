/* decode_jpeg_header.c - a JPEG's size and layout, by walking its markers.
 *
 * libjpeg could tell the same, but its set-up costs more than this whole walk, and
 * the walk runs once for every sample.  It goes the way Pillow's own
 * marker loop goes, so that a file with junk between segments is taken or refused
 * alike: bytes that are not 0xFF between segments are passed over, fill bytes
 * are eaten, a marker below 0xC0 ends it, and the last frame header before
 * the first scan counts.
 */
#include <string.h>

#include "ops/decode_formats.h"
#include "ops/exif.h"

enum {
    M_DHT = 0xC4,
    M_JPG = 0xC8,
    M_DAC = 0xCC,
    M_RST0 = 0xD0,
    M_EOI = 0xD9,
    M_SOS = 0xDA,
    M_APP1 = 0xE1,
    M_JPG0 = 0xF0,
    M_JPG13 = 0xFD,
};

/* Both with their final NUL. */
static const char EXIF_ID[] = "Exif\0";
static const char XMP_ID[] = "http://ns.adobe.com/xap/1.0/";

typedef struct walk {
    const uint8_t *src;
    size_t len, at;
    pen_image_info *info;
    bool has_frame, has_exif, is_progressive;
    int exif_orientation, xmp_orientation; /* 0: not found */
    pen_error *err;
} walk;

static int corrupt(const walk *w, const char *what)
{
    return pen__fail(w->err, PEN_ECORRUPT, (int64_t)w->at, "JPEG: %s", what);
}

static bool has_no_payload(int marker)
{
    return (marker >= M_RST0 && marker <= M_EOI) || marker == M_JPG ||
           (marker >= M_JPG0 && marker <= M_JPG13);
}

static bool is_frame(int marker)
{
    return marker >= 0xC0 && marker <= 0xCF && marker != M_DHT && marker != M_JPG &&
           marker != M_DAC;
}

/* Move to the next marker and return it, 0 at the end of the data, or an error. */
static int next_marker(walk *w)
{
    while (w->at + 1 < w->len) {
        if (w->src[w->at] != 0xFF) {
            w->at += 1;
            continue;
        }
        int marker = w->src[w->at + 1];
        if (marker == 0xFF) { /* a fill byte: this one may start a marker */
            w->at += 1;
            continue;
        }
        w->at += 2;
        if (marker == 0)
            continue;
        return marker >= 0xC0 ? marker : corrupt(w, "no marker where one should be");
    }
    return 0;
}

static uint8_t ratio(int largest, int own)
{
    return (uint8_t)((largest + own - 1) / own);
}

/* precision, height, width, n components, then (id, sampling, table) for each. */
static int read_frame(walk *w, int marker, const uint8_t *body, size_t n_body)
{
    pen_image_info *info = w->info;
    if (n_body < 6 || n_body < 6 + 3 * (size_t)body[5])
        return corrupt(w, "short frame header");
    info->bits = body[0];
    info->height = (int32_t)pen__be16(body + 1);
    info->width = (int32_t)pen__be16(body + 3);
    info->channels = body[5];
    info->is_grey = info->channels == 1;
    int max_h = 1, max_v = 1, min_h = 4, min_v = 4;
    for (int c = 0; c < info->channels; c++) {
        int h = body[7 + 3 * c] >> 4, v = body[7 + 3 * c] & 15;
        if (h < 1 || h > 4 || v < 1 || v > 4)
            return corrupt(w, "impossible sampling factors");
        max_h = h > max_h ? h : max_h;
        max_v = v > max_v ? v : max_v;
        min_h = h < min_h ? h : min_h;
        min_v = v < min_v ? v : min_v;
    }
    if (info->channels > 1) {
        info->sampling_h = ratio(max_h, min_h);
        info->sampling_v = ratio(max_v, min_v);
    }
    w->has_frame = true;
    w->is_progressive = (marker & 3) == 2; /* SOF2, 6, 10, 14 */
    return 0;
}

/* The first EXIF block counts, and the last XMP block, as in Pillow. */
static void read_app1(walk *w, const uint8_t *body, size_t n_body)
{
    if (n_body >= 6 && memcmp(body, EXIF_ID, 6) == 0) {
        if (!w->has_exif)
            w->exif_orientation = pen__exif_orientation(body, n_body);
        w->has_exif = true;
    } else if (n_body >= sizeof XMP_ID && memcmp(body, XMP_ID, sizeof XMP_ID) == 0) {
        w->xmp_orientation = pen__xmp_orientation(body + sizeof XMP_ID, n_body - sizeof XMP_ID);
    }
}

static int read_segment(walk *w, int marker)
{
    if (w->len - w->at < 2)
        return corrupt(w, "ends inside a segment's length");
    size_t length = pen__be16(w->src + w->at);
    size_t n_body = length > 2 ? length - 2 : 0;
    w->at += 2;
    if (w->len - w->at < n_body)
        return corrupt(w, "ends inside a segment");
    const uint8_t *body = w->src + w->at;
    int rc = 0;
    if (is_frame(marker))
        rc = read_frame(w, marker, body, n_body);
    else if (marker == M_APP1)
        read_app1(w, body, n_body);
    else if (marker == M_SOS && n_body > 0 && body[0] < w->info->channels)
        w->is_progressive = true; /* one scan does not hold all components */
    w->at += n_body;
    return rc;
}

int pen__jpeg_probe(const uint8_t *src, size_t len, pen_image_info *info, pen_error *err)
{
    walk w = {.src = src, .len = len, .at = 2, .info = info, .err = err};
    int marker;
    do {
        marker = next_marker(&w);
        if (marker < 0)
            return marker;
        if (marker == 0)
            return corrupt(&w, "ends before the first scan");
        int rc = has_no_payload(marker) ? 0 : read_segment(&w, marker);
        if (rc < 0)
            return rc;
    } while (marker != M_SOS);
    if (!w.has_frame)
        return corrupt(&w, "has a scan but no frame header");
    info->is_progressive = w.is_progressive;
    int orientation = w.exif_orientation ? w.exif_orientation : w.xmp_orientation;
    info->orientation = (uint8_t)(orientation ? orientation : 1);
    return 0;
}
