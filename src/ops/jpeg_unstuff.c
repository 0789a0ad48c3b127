/* jpeg_unstuff.c - stuffing, taken out and counted. */
#include "ops/jpeg_unstuff.h"

#include <string.h>

uint8_t *pen__jpeg_unstuff(uint8_t *dst, const uint8_t *dst_end, const uint8_t **src_at,
                           const uint8_t *src_end, bool *is_at_marker)
{
    const uint8_t *src = *src_at;
    *is_at_marker = false;
    while (dst < dst_end) {
        size_t n = (size_t)(src_end - src), room = (size_t)(dst_end - dst);
        n = n < room ? n : room;
        const uint8_t *ff = memchr(src, 0xFF, n);
        size_t n_plain = ff ? (size_t)(ff - src) : n;
        memcpy(dst, src, n_plain);
        dst += n_plain;
        src += n_plain;
        if (src_end - src < 2) /* no marker before the end */
            return NULL;
        if (!ff)
            break;
        if (src[1] != 0) {
            *is_at_marker = true;
            break;
        }
        *dst++ = 0xFF;
        src += 2;
    }
    *src_at = src;
    return *is_at_marker && src[1] == 0xFF ? NULL : dst;
}

size_t pen__jpeg_stuffed_bytes(const uint8_t *bytes, size_t n)
{
    size_t total = n;
    while (n > 0) {
        uint8_t n_stuffed = 0; /* narrow, so that compilers count many bytes at once */
        size_t n_here = n < UINT8_MAX ? n : UINT8_MAX;
        for (size_t i = 0; i < n_here; i++)
            n_stuffed = (uint8_t)(n_stuffed + (bytes[i] == 0xFF));
        total += n_stuffed;
        bytes += n_here;
        n -= n_here;
    }
    return total;
}
