/* jpeg_stretches.c - from marks to lanes and back. */
#include "ops/jpeg_stretches.h"

#include <string.h>

#include "base/cpu.h"

bool pen__jpeg_stretches_are_possible(void)
{
    return pen__cpu_flags() & PEN__CPU_AVX512;
}

bool pen__jpeg_stretches_start(pen__jpeg_stretches *all, const pen__jpeg_frame *frame,
                               pen__jpeg_lane_tables *tables, const uint8_t *src, size_t len,
                               pen__jpeg_stretch_room *room)
{
    if (!pen__jpeg_stretches_are_possible() || frame->restart_interval > 0 ||
        !pen__jpeg_lane_codes_set(&all->codes, frame, tables))
        return false;
    int n_luma = frame->mcu_h * frame->mcu_v;
    for (int b = 0; b < PEN__JPEG_MAX_BLOCKS; b++)
        all->component_of[b] = (uint8_t)(b < n_luma ? 0 : b - n_luma + 1);
    all->src = src;
    all->len = len;
    all->room = room;
    pen__jpeg_stretches_clear(all);
    return true;
}

void pen__jpeg_stretches_clear(pen__jpeg_stretches *all)
{
    pen__jpeg_stretches_back_to(all, (pen__jpeg_stretches_count){0});
}

pen__jpeg_stretches_count pen__jpeg_stretches_counted(const pen__jpeg_stretches *all)
{
    return (pen__jpeg_stretches_count){all->n, all->n_bytes, all->n_blocks};
}

void pen__jpeg_stretches_back_to(pen__jpeg_stretches *all, pen__jpeg_stretches_count count)
{
    all->n = count.n;
    all->n_bytes = count.n_bytes;
    all->n_blocks = count.n_blocks;
}

static bool has_room(const pen__jpeg_stretches *all, const pen__jpeg_mark *begin,
                     const pen__jpeg_mark *end, int32_t n_mcus)
{
    size_t n_bytes = end->at - begin->at + 1 + PEN__JPEG_LANE_ZEROS;
    uint32_t n_blocks = (uint32_t)(n_mcus * all->codes.n_blocks) + 1;
    return all->n < PEN__JPEG_MAX_STRETCHES && n_bytes <= PEN__JPEG_STRETCH_BYTES - all->n_bytes &&
           n_blocks <= PEN__JPEG_STRETCH_BLOCKS - all->n_blocks;
}

/* The bytes from src to `end` without stuffing, and the one at `end`; returns its place.  NULL if
 * there is a marker among them, or `end` is within stuffing.  There is a byte behind. */
static uint8_t *unstuff(uint8_t *dst, const uint8_t *src, const uint8_t *end, bool uses_last)
{
    while (src < end) {
        size_t n_left = (size_t)(end - src);
        const uint8_t *ff = memchr(src, 0xFF, n_left);
        size_t n_plain = ff ? (size_t)(ff - src) : n_left;
        memcpy(dst, src, n_plain);
        dst += n_plain;
        src += n_plain;
        if (ff) {
            if (src[1] != 0)
                return NULL;
            *dst++ = 0xFF;
            src += 2;
        }
    }
    if (src != end || (uses_last && src[0] == 0xFF && src[1] != 0))
        return NULL;
    *dst = *src;
    return dst;
}

int pen__jpeg_stretches_add(pen__jpeg_stretches *all, const pen__jpeg_mark *begin,
                            const pen__jpeg_mark *end, int32_t n_mcus, bool is_cut)
{
    if (begin->at > end->at || end->at + 1 >= all->len)
        return -1;
    if (!has_room(all, begin, end, n_mcus))
        return 0;
    uint8_t *bytes = all->room->bytes, *from = bytes + all->n_bytes;
    uint8_t *to = unstuff(from, all->src + begin->at, all->src + end->at, end->n_bits > 0);
    if (!to)
        return -1;
    int i = all->n++;
    uint32_t n_blocks = (uint32_t)(n_mcus * all->codes.n_blocks);
    all->list[i] = (pen__jpeg_stretch){
        .first_bit = (uint32_t)(from - bytes) * 8 + (uint32_t)begin->n_bits,
        .end_bit = (uint32_t)(to - bytes) * 8 + (uint32_t)end->n_bits,
        .first_coef = 64 * all->n_blocks,
        .n_coefs = 64 * n_blocks,
        .is_cut = is_cut,
    };
    all->begin[i] = *begin;
    all->end[i] = *end;
    memset(to + 1, 0, PEN__JPEG_LANE_ZEROS);
    all->n_bytes = (size_t)(to + 1 + PEN__JPEG_LANE_ZEROS - bytes);
    all->n_blocks += n_blocks + 1;
    return 1;
}

/* The longest first, so that lanes end at about the same time.  Lengths count roughly. */
static void set_order(pen__jpeg_stretches *all)
{
    enum { N_CLASSES = 64, CLASS_BITS = 512 };
    int n_longer[N_CLASSES + 1] = {0}, of[PEN__JPEG_MAX_STRETCHES];
    for (int i = 0; i < all->n; i++) {
        uint32_t size = (all->list[i].end_bit - all->list[i].first_bit) / CLASS_BITS;
        of[i] = size < N_CLASSES ? N_CLASSES - 1 - (int)size : 0;
        n_longer[of[i] + 1]++;
    }
    for (int i = 0; i < N_CLASSES; i++)
        n_longer[i + 1] += n_longer[i];
    for (int i = 0; i < all->n; i++)
        all->order[n_longer[of[i]]++] = (uint16_t)i;
}

bool pen__jpeg_stretches_decode(pen__jpeg_stretches *all)
{
#if defined(__x86_64__)
    pen__jpeg_stretch_room *room = all->room;
    uint32_t spare = 64 * all->n_blocks;
    memset(room->coefs, 0, (spare + 64) * sizeof *room->coefs);
    set_order(all);
    if (!pen__jpeg_lanes_avx512(&all->codes, room->bytes, all->list, all->order, all->n,
                                room->coefs, spare))
        return false;
    for (int i = 0; i < all->n; i++) {
        const pen__jpeg_stretch *s = &all->list[i];
        int32_t dc[PEN__JPEG_MAX_COMPONENTS];
        memcpy(dc, all->begin[i].dc, sizeof dc);
        if (!pen__jpeg_lanes_finish_avx512(all->component_of, all->codes.n_blocks,
                                           room->coefs + s->first_coef, s->n_coefs / 64, dc,
                                           room->n_coefs + s->first_coef / 64) ||
            (!s->is_cut && memcmp(dc, all->end[i].dc, sizeof dc) != 0))
            return false;
    }
    return true;
#else
    (void)all;
    return false;
#endif
}
