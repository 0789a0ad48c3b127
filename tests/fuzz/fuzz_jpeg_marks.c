/* fuzz_jpeg_marks.c - libFuzzer target for marks of JPEG files: entries that are changed
 * here and there.
 *
 * The input is a JPEG file; its last bytes, which may lie behind the end marker, say what is
 * changed in the entry that decoding it gives.  Changed by accident, an entry must not change a
 * pixel.  Changed on purpose, with its checksum put right, it may be believed, but must
 * do no harm and not turn a good file into a bad one.
 */
#include "base/digest.h"
#include "fuzz_image.h"

enum { MAX_PIXELS = 1 << 18, MAX_CHANGES = 16 };

typedef struct bench {
    const uint8_t *data;
    size_t size;
    pen_image_info info;
    pen__decoder *dec;
} bench;

/* Decode a window with an entry, NULL for none: the verdict, and new pixels for the caller. */
static int decode(const bench *b, pen__rect window, const uint8_t *entry, size_t len, uint8_t **px,
                  size_t *n)
{
    *n = (size_t)window.w * (size_t)window.h * (size_t)pen__decode_channels(&b->info);
    *px = malloc(*n);
    pen__image image = {.px = *px};
    pen__decoder_give_marks(b->dec, entry, len);
    return pen__decode(b->dec, b->data, b->size, &b->info, window, &image, NULL);
}

static void compare(const bench *b, pen__rect window, const uint8_t *entry, size_t len,
                    bool is_forged)
{
    uint8_t *px[2];
    size_t n;
    int rc[2] = {decode(b, window, NULL, 0, &px[0], &n), decode(b, window, entry, len, &px[1], &n)};
    if (rc[0] == 0 ? rc[1] != 0 : rc[1] != rc[0] && !is_forged)
        abort();
    if (rc[0] == 0 && !is_forged && memcmp(px[0], px[1], n) != 0)
        abort();
    free(px[0]);
    free(px[1]);
}

/* Returns the number of changes. */
static size_t change(uint8_t *entry, size_t len, const uint8_t *data, size_t size)
{
    size_t n = data[size - 1] % (MAX_CHANGES + 1);
    n = n < (size - 1) / 3 ? n : (size - 1) / 3;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *change = data + size - 1 - 3 * (i + 1);
        entry[((size_t)change[0] << 8 | change[1]) % len] ^= change[2];
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pen__decoder *dec;
    if (!dec && pen__decoder_create(&dec, NULL) < 0)
        return 0;
    bench b = {.data = data, .size = size, .dec = dec};
    if (pen_image_probe(data, size, &b.info, NULL) < 0 || b.info.format != PEN_FORMAT_JPEG ||
        (int64_t)b.info.width * b.info.height > MAX_PIXELS)
        return 0;
    const pen__rect all = {0, 0, b.info.width, b.info.height},
                    part = pick_window(&b.info, data, size);
    uint8_t *px;
    size_t n;
    int rc = decode(&b, all, NULL, 0, &px, &n);
    free(px);
    const void *found;
    size_t len = pen__decoder_take_marks(dec, &found);
    if (rc != 0 || len == 0)
        return 0;
    uint8_t *entry = malloc(len);
    memcpy(entry, found, len);
    compare(&b, part, entry, len, false);
    if (change(entry, len, data, size) > 0) {
        compare(&b, part, entry, len, false);
        uint64_t check = pen__hash64(entry + sizeof check, len - sizeof check);
        memcpy(entry, &check, sizeof check);
        compare(&b, part, entry, len, true);
        compare(&b, all, entry, len, true);
    }
    free(entry);
    return 0;
}
