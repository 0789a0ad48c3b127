/* headers.c - an image's header in a word.
 *
 *     bits  0..15  width        16..31  height      32..33  format     34..36  channels
 *          37..41  bits         42..45  orientation 46..48  progressive, grey, animated
 *          49..51  sampling_h   52..54  sampling_v  63      known
 */
#include "engine/headers.h"

#include "base/mem.h"
#include "engine/parcel.h"

enum { KNOWN = 63 };

int pen__headers_init(pen__headers *headers, int64_t n)
{
    headers->n = n;
    headers->words = pen__calloc((size_t)(n > 0 ? n : 1), sizeof *headers->words);
    return headers->words ? 0 : PEN_ENOMEM;
}

void pen__headers_fini(pen__headers *headers)
{
    pen__free((void *)headers->words);
    *headers = (pen__headers){0};
}

int64_t pen__headers_memory(int64_t n)
{
    return n * (int64_t)sizeof(uint64_t);
}

static bool fits(uint64_t value, int n_bits)
{
    return value >> n_bits == 0;
}

/* What no word holds is no image that could be decoded: 0, not known. */
uint64_t pen__headers_pack(const pen_image_info *info)
{
    const struct {
        uint64_t value;
        int at, n_bits;
    } parts[] = {
        {(uint32_t)info->width, 0, 16},
        {(uint32_t)info->height, 16, 16},
        {(uint32_t)info->format, 32, 2},
        {info->channels, 34, 3},
        {info->bits, 37, 5},
        {info->orientation, 42, 4},
        {info->is_progressive, 46, 1},
        {info->is_grey, 47, 1},
        {info->is_animated, 48, 1},
        {info->sampling_h, 49, 3},
        {info->sampling_v, 52, 3},
        {1, KNOWN, 1},
    };
    uint64_t word = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!fits(parts[i].value, parts[i].n_bits))
            return 0;
        word |= parts[i].value << parts[i].at;
    }
    return info->width > 0 && info->height > 0 ? word : 0;
}

static uint32_t part(uint64_t word, int at, int n_bits)
{
    return (uint32_t)(word >> at & ((UINT64_C(1) << n_bits) - 1));
}

static pen_image_info take_apart(uint64_t word)
{
    return (pen_image_info){
        .format = (pen_format)part(word, 32, 2),
        .width = (int32_t)part(word, 0, 16),
        .height = (int32_t)part(word, 16, 16),
        .channels = (uint8_t)part(word, 34, 3),
        .bits = (uint8_t)part(word, 37, 5),
        .orientation = (uint8_t)part(word, 42, 4),
        .is_progressive = part(word, 46, 1),
        .is_grey = part(word, 47, 1),
        .is_animated = part(word, 48, 1),
        .sampling_h = (uint8_t)part(word, 49, 3),
        .sampling_v = (uint8_t)part(word, 52, 3),
    };
}

bool pen__headers_unpack(uint64_t word, pen_image_info *info)
{
    *info = take_apart(word);
    return pen__parcel_takes(info) && pen__headers_pack(info) == word;
}

void pen__headers_put(pen__headers *headers, int64_t sample, const pen_image_info *info)
{
    const uint64_t word = pen__headers_pack(info);
    if (headers->words && word && sample >= 0 && sample < headers->n)
        atomic_store_explicit(&headers->words[sample], word, memory_order_relaxed);
}

uint64_t pen__headers_word(const pen__headers *headers, int64_t sample)
{
    if (!headers->words || sample < 0 || sample >= headers->n)
        return 0;
    return atomic_load_explicit(&headers->words[sample], memory_order_relaxed);
}

void pen__headers_restore(pen__headers *headers, int64_t sample, uint64_t word)
{
    pen_image_info info;
    if (pen__headers_word(headers, sample) == 0 && pen__headers_unpack(word, &info))
        pen__headers_put(headers, sample, &info);
}

bool pen__headers_get(const pen__headers *headers, int64_t sample, pen_image_info *info)
{
    const uint64_t word = pen__headers_word(headers, sample);
    *info = take_apart(word);
    return word >> KNOWN;
}
