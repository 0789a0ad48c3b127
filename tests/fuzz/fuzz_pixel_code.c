/* fuzz_pixel_code.c - libFuzzer target for coded pixels.
 *
 * The first three bytes give width, height and channels.  What follows is decoded as it is; and,
 * taken as pixels, coded, which must come back, and decoded once more with its first bytes changed.
 */
#include <stdlib.h>
#include <string.h>

#include "codec/pixel_code.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    int32_t w = 1 + data[0] % 96, h = 1 + data[1] % 96;
    int ch = data[2] % 2 ? 3 : 1;
    size_t n = (size_t)(w * h * ch), bound = pen__pixels_bound(w, h, ch), n_rest = size - 3;
    uint8_t *px = malloc(n), *again = malloc(n), *code = malloc(bound);
    void *scratch = aligned_alloc(64, (pen__pixels_scratch(w, h, ch) + 63) / 64 * 64);
    pen__pixels_decode(data + 3, n_rest, w, h, ch, scratch, again, NULL);
    for (size_t i = 0; i < n; i++)
        px[i] = data[3 + i % n_rest];
    int64_t len = pen__pixels_encode(px, w, h, ch, scratch, code, bound);
    if (len <= 0 || pen__pixels_decode(code, (size_t)len, w, h, ch, scratch, again, NULL) != 0 ||
        memcmp(px, again, n) != 0)
        abort();
    for (size_t i = 0; i < n_rest && i < (size_t)len; i += 7)
        code[i] ^= data[3 + i];
    pen__pixels_decode(code, (size_t)len, w, h, ch, scratch, again, NULL);
    free(px), free(again), free(code), free(scratch);
    return 0;
}
