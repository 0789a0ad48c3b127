/* fuzz_jpeg.c - libFuzzer target for JPEG files; seeds come from scripts/make-fuzz-corpus.
 *
 * Two decoders see each input, one that uses our own code where it can and one that
 * always asks libjpeg: verdict and pixels must be the same.
 */
#include "fuzz_image.h"

static void decode_both(pen__decoder *dec[2], const uint8_t *data, size_t size,
                        const pen_image_info *info, pen__rect window)
{
    size_t n = (size_t)window.w * (size_t)window.h * (size_t)pen__decode_channels(info);
    pen__image image[2] = {{.px = malloc(n)}, {.px = malloc(n)}};
    pen_error err[2];
    int rc[2];
    for (int i = 0; i < 2; i++)
        rc[i] = pen__decode(dec[i], data, size, info, window, &image[i], &err[i]);
    if (rc[0] != rc[1])
        abort();
    if (rc[0] == 0 && memcmp(image[0].px, image[1].px, n) != 0)
        abort();
    free(image[0].px);
    free(image[1].px);
}

static void compare(const uint8_t *data, size_t size)
{
    enum { MAX_PIXELS = 1 << 18 };
    static pen__decoder *dec[2];
    for (int i = 0; i < 2; i++)
        if (!dec[i] && pen__decoder_create(&dec[i], NULL) < 0)
            return;
    pen__decoder_use_own_jpeg(dec[1], false);
    pen_image_info info;
    if (pen_image_probe(data, size, &info, NULL) < 0 || info.format != PEN_FORMAT_JPEG ||
        (int64_t)info.width * info.height > MAX_PIXELS)
        return;
    decode_both(dec, data, size, &info, (pen__rect){0, 0, info.width, info.height});
    decode_both(dec, data, size, &info, pick_window(&info, data, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    compare(data, size);
    return fuzz_image(data, size, PEN_FORMAT_JPEG);
}
