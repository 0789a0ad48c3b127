/* fuzz_image.h - one round of the image fuzzers: probe, decode, decode a window.
 *
 * Beyond what the sanitizers see: a window of a file that decodes as a whole must
 * decode, too, and to the same bytes.
 */
#ifndef PEN_FUZZ_IMAGE_H
#define PEN_FUZZ_IMAGE_H

#include <stdlib.h>
#include <string.h>

#include "ops/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A window that depends on the input alone, so that a crash can be repeated. */
static pen__rect pick_window(const pen_image_info *info, const uint8_t *data, size_t size)
{
    uint64_t dice = size;
    for (size_t i = 0; i < size; i++)
        dice = (dice ^ data[i]) * 0x100000001B3u;
    pen__rect r;
    r.w = 1 + (int32_t)(dice % (uint64_t)info->width);
    r.h = 1 + (int32_t)((dice >> 16) % (uint64_t)info->height);
    r.x = (int32_t)((dice >> 32) % (uint64_t)(info->width - r.w + 1));
    r.y = (int32_t)((dice >> 40) % (uint64_t)(info->height - r.h + 1));
    return r;
}

static void check_window(const pen__image *whole, const pen__image *part, pen__rect window)
{
    size_t row_bytes = (size_t)part->w * (size_t)part->ch;
    for (int32_t y = 0; y < window.h; y++) {
        size_t at = (size_t)(window.y + y) * (size_t)whole->w + (size_t)window.x;
        if (memcmp(part->px + (size_t)y * row_bytes, whole->px + at * (size_t)whole->ch,
                   row_bytes) != 0)
            abort();
    }
}

static inline int fuzz_image(const uint8_t *data, size_t size, pen_format format)
{
    enum { MAX_PIXELS = 1 << 18 }; /* larger ones only take time */
    static pen__decoder *dec;
    if (!dec && pen__decoder_create(&dec, NULL) < 0)
        return 0;
    pen_image_info info;
    pen_error err;
    if (pen_image_probe(data, size, &info, &err) < 0 || info.format != format ||
        (int64_t)info.width * info.height > MAX_PIXELS)
        return 0;
    pen__rect all = {0, 0, info.width, info.height}, window = pick_window(&info, data, size);
    size_t ch = (size_t)pen__decode_channels(&info);
    pen__image whole = {.px = malloc((size_t)all.w * (size_t)all.h * ch)};
    pen__image part = {.px = malloc((size_t)window.w * (size_t)window.h * ch)};
    int whole_rc = pen__decode(dec, data, size, &info, all, &whole, &err);
    int part_rc = pen__decode(dec, data, size, &info, window, &part, &err);
    if (whole_rc == 0 && part_rc != 0)
        abort();
    if (whole_rc == 0)
        check_window(&whole, &part, window);
    free(whole.px);
    free(part.px);
    return 0;
}

#endif
