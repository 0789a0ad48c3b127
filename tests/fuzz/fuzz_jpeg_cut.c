/* fuzz_jpeg_cut.c - libFuzzer target for cutting windows out of JPEG files.
 *
 * What is not declined must decode, and to the pixels that libjpeg gives for the file; with marks
 * that decoding the file gives, the cut must be the same.
 */
#include "fuzz_image.h"

#include "ops/jpeg_cut.h"

enum { MAX_PIXELS = 1 << 18 };

typedef struct bench {
    const uint8_t *data;
    size_t size;
    pen_image_info info;
    pen__rect window, kept;
    uint8_t *cut;
    size_t n_cut;
} bench;

static pen__decoder *own, *library;
static pen__jpeg_cutter *cutter;

static bool make_tools(void)
{
    if (cutter)
        return true;
    if (pen__decoder_create(&own, NULL) || pen__decoder_create(&library, NULL) ||
        pen__jpeg_cutter_create(&cutter))
        return false;
    pen__decoder_use_own_jpeg(library, false);
    return true;
}

static void check_pixels(const bench *b)
{
    size_t n = (size_t)b->window.w * (size_t)b->window.h * (size_t)pen__decode_channels(&b->info);
    pen__image want = {.px = malloc(n)}, got = {.px = malloc(n)};
    pen__rect shifted = {b->window.x - b->kept.x, b->window.y - b->kept.y, b->window.w,
                         b->window.h};
    pen_image_info info;
    if (pen__decode(library, b->data, b->size, &b->info, b->window, &want, NULL) != 0 ||
        pen_image_probe(b->cut, b->n_cut, &info, NULL) != 0 ||
        pen__decode(own, b->cut, b->n_cut, &info, shifted, &got, NULL) != 0 ||
        memcmp(want.px, got.px, n) != 0 ||
        pen__decode(library, b->cut, b->n_cut, &info, shifted, &got, NULL) != 0 ||
        memcmp(want.px, got.px, n) != 0)
        abort();
    free(want.px);
    free(got.px);
}

static void check_marks(const bench *b)
{
    const void *marks;
    size_t n = (size_t)b->window.w * (size_t)b->window.h * (size_t)pen__decode_channels(&b->info);
    pen__image image = {.px = malloc(n)};
    pen__decoder_give_marks(own, NULL, 0);
    pen__decode(own, b->data, b->size, &b->info, b->window, &image, NULL);
    free(image.px);
    size_t n_marks = pen__decoder_take_marks(own, &marks);
    if (n_marks == 0)
        return;
    uint8_t *again = malloc(b->n_cut);
    pen__rect kept;
    int64_t len =
        pen__jpeg_cut(cutter, b->data, b->size, b->window, marks, n_marks, again, b->n_cut, &kept);
    if (len != (int64_t)b->n_cut || memcmp(again, b->cut, b->n_cut) != 0)
        abort();
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bench b = {.data = data, .size = size};
    if (!make_tools() || pen_image_probe(data, size, &b.info, NULL) < 0 ||
        b.info.format != PEN_FORMAT_JPEG || (int64_t)b.info.width * b.info.height > MAX_PIXELS)
        return 0;
    b.window = pick_window(&b.info, data, size);
    b.cut = malloc(size + 1024);
    int64_t len = pen__jpeg_cut(cutter, data, size, b.window, NULL, 0, b.cut, size + 1024, &b.kept);
    if (len > 0) {
        b.n_cut = (size_t)len;
        check_pixels(&b);
        check_marks(&b);
    }
    free(b.cut);
    return 0;
}
