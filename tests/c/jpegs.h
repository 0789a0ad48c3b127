/* jpegs.h - what tests of our own JPEG code share: both ways to decode, files, and marks. */
#ifndef PEN_TESTS_JPEGS_H
#define PEN_TESTS_JPEGS_H

#include "decoding.h"

#include "base/digest.h"

/* A decoder of each way. */
typedef struct jpeg_ways {
    pen__decoder *own, *library;
} jpeg_ways;

static inline int jpeg_ways_init(jpeg_ways *ways)
{
    if (pen__decoder_create(&ways->own, NULL) || pen__decoder_create(&ways->library, NULL))
        return -1;
    pen__decoder_use_own_jpeg(ways->own, true);
    pen__decoder_use_own_jpeg(ways->library, false);
    return 0;
}

static inline void jpeg_ways_fini(jpeg_ways *ways)
{
    pen__decoder_free(ways->own);
    pen__decoder_free(ways->library);
}

/* Files that our own code leaves to libjpeg. */
static const jpeg_kind unusual_kinds[] = {
    COLOUR("4:1:1", 0x41, .restart_mcus = 0),
    COLOUR("progressive", 0x22, .is_progressive = true),
    COLOUR("arithmetic", 0x22, .is_arithmetic = true),
    COLOUR("in scans", 0x22, .is_in_scans = true),
    {.name = "RGB", .channels = 3, .sampling = {0x11, 0x11, 0x11}, .as = JCS_RGB},
    {.name = "CMYK", .channels = 4, .sampling = {0x11, 0x11, 0x11, 0x11}, .as = JCS_CMYK},
};
enum { N_UNUSUAL_KINDS = sizeof unusual_kinds / sizeof unusual_kinds[0] };

/* Too narrow to be interpolated, which is left to libjpeg as well. */
static inline bool is_narrow(const jpeg_kind *kind, int w)
{
    return w <= 4 && kind->channels == 3 && kind->sampling[0] >> 4 == 2;
}

static inline file make_jpeg(const jpeg_kind *kind, int w, int h, uint64_t seed, int quality)
{
    uint8_t *px = make_picture(w, h, kind->channels, seed);
    file f = encode_jpeg(kind, px, w, h, quality);
    free(px);
    return f;
}

/* A picture of which marks are worth their room: not small, and with some detail. */
static inline file marked_file(const jpeg_kind *kind, int w, int h, uint64_t seed)
{
    uint8_t *px = make_picture(w, h, kind->channels, seed);
    for (size_t i = 0; i < (size_t)(w * h * kind->channels); i++)
        px[i] = (uint8_t)(px[i] ^ (roll(&seed) & 31));
    file f = encode_jpeg(kind, px, w, h, 92);
    free(px);
    return f;
}

static const file no_marks = {0};

/* A copy of what a decode of `window` finds out beyond `known`. */
static inline file gather(pen__decoder *dec, file f, file known, pen__rect window)
{
    uint8_t *px = malloc((size_t)window.w * (size_t)window.h * 3);
    pen__decoder_give_marks(dec, known.data, known.len);
    assert_int_equal(decode_into(dec, f, window, px, NULL), 0);
    const void *entry;
    size_t n = pen__decoder_take_marks(dec, &entry);
    free(px);
    return copy_of(entry, n);
}

/* Some bytes of an entry changed, at random or by one, and its checksum put right. */
static inline file forge(file entry, bool is_random, uint64_t *dice)
{
    file bad = copy_of(entry.data, entry.len);
    for (int n = roll_between(dice, 1, 4); n > 0; n--) {
        size_t at = 8 + roll(dice) % (bad.len - 8);
        bad.data[at] = (uint8_t)(is_random ? roll(dice) : bad.data[at] + 1U);
    }
    uint64_t check = pen__hash64(bad.data + 8, bad.len - 8);
    memcpy(bad.data, &check, sizeof check);
    return bad;
}

#endif
