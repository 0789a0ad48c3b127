/* fuzz_jpeg_index.c - libFuzzer target for marks of whole JPEG files, made without decoding them.
 *
 * The same with lanes and without; those that decoding the file gathers, where our decoder takes
 * it; accepted when they are given; and a cut with them is the cut without.
 */
#include "base/cpu.h"
#include "fuzz_image.h"
#include "ops/jpeg_cut.h"
#include "ops/jpeg_index.h"

enum { MAX_PIXELS = 1 << 18, LANES = 0, SINGLE = 1 };

static pen__jpeg_indexer *indexers[2];
static pen__jpeg_cutter *cutter;
static pen__decoder *dec;

static bool make_tools(void)
{
    if (dec)
        return true;
    if (pen__jpeg_cutter_create(&cutter) || pen__jpeg_indexer_create(&indexers[LANES], NULL))
        return false;
    pen__cpu_mask(PEN__CPU_AVX2);
    int rc = pen__jpeg_indexer_create(&indexers[SINGLE], NULL);
    pen__cpu_mask(~0U);
    return rc == 0 && pen__decoder_create(&dec, NULL) == 0;
}

static bool is_entry(const pen__jpeg_indexed *found, const void *entry, size_t n)
{
    return found->marks && found->n_bytes == n && memcmp(found->marks->bytes, entry, n) == 0;
}

static void check_decoder(const uint8_t *data, size_t size, const pen_image_info *info,
                          const pen__jpeg_indexed *found)
{
    const pen__rect all = {0, 0, info->width, info->height};
    const void *entry;
    pen__image image = {.px = malloc((size_t)info->width * (size_t)info->height * 3)};
    pen__decoder_give_marks(dec, NULL, 0);
    pen__decode(dec, data, size, info, all, &image, NULL);
    size_t n = pen__decoder_take_marks(dec, &entry);
    if (n > 0 && !is_entry(found, entry, n))
        abort();
    free(image.px);
}

static void check_cut(const uint8_t *data, size_t size, pen__rect window,
                      const pen__jpeg_marks *marks)
{
    uint8_t *cut[2] = {malloc(size + 1024), malloc(size + 1024)};
    pen__rect kept;
    int64_t n[2];
    for (int i = 0; i < 2; i++)
        n[i] = pen__jpeg_cut_known(cutter, data, size, window, i ? marks : NULL, cut[i],
                                   size + 1024, &kept);
    if (n[0] != n[1] || memcmp(cut[0], cut[1], (size_t)n[0]) != 0)
        abort();
    free(cut[0]);
    free(cut[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pen_image_info info;
    if (!make_tools() || pen_image_probe(data, size, &info, NULL) < 0 ||
        info.format != PEN_FORMAT_JPEG || (int64_t)info.width * info.height > MAX_PIXELS)
        return 0;
    pen__jpeg_indexed found = pen__jpeg_index(indexers[LANES], data, size, NULL, 0);
    pen__jpeg_indexed single = pen__jpeg_index(indexers[SINGLE], data, size, NULL, 0);
    if (found.state != single.state || !found.marks != (found.state == PEN__INDEX_HOPELESS))
        abort();
    check_decoder(data, size, &info, &found);
    if (!found.marks)
        return 0;
    if (!is_entry(&single, found.marks->bytes, found.n_bytes))
        abort();
    check_cut(data, size, pick_window(&info, data, size), found.marks);
    single = pen__jpeg_index(indexers[SINGLE], data, size, found.marks->bytes, found.n_bytes);
    if (single.state != PEN__INDEX_KNOWN || !is_entry(&single, found.marks->bytes, found.n_bytes))
        abort();
    return 0;
}
