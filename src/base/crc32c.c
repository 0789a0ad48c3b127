/* crc32c.c - CRC-32C with the processor's own instruction, or with eight tables.
 *
 * The instruction takes eight bytes and three cycles; eight tables take eight bytes at a time, too
 * (table k is the effect of a byte that has k more behind it), at about a fifth of the speed.
 */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#include "base/cpu.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

enum { POLYNOMIAL = (int)0x82F63B78 }; /* bits reversed: the lowest comes first */

static uint32_t tables[8][256];

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) ? (uint32_t)POLYNOMIAL : 0);
        tables[0][i] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            tables[k][i] = tables[k - 1][i] >> 8 ^ tables[0][tables[k - 1][i] & 0xFF];
}

uint32_t pen__crc32c_c(uint32_t crc, const void *data, size_t len)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_tables);
    const uint8_t *p = data;
    crc = ~crc;
    for (; len >= 8; len -= 8, p += 8) {
        const uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                                    (uint32_t)p[3] << 24);
        crc = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^ tables[5][low >> 16 & 0xFF] ^
              tables[4][low >> 24] ^ tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^
              tables[0][p[7]];
    }
    for (; len > 0; len--, p++)
        crc = crc >> 8 ^ tables[0][(crc ^ *p) & 0xFF];
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const uint8_t *p,
                                                               size_t len)
{
    uint64_t sum = (uint32_t)~crc;
    for (; len >= 8; len -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        sum = _mm_crc32_u64(sum, word);
    }
    for (; len > 0; len--, p++)
        sum = _mm_crc32_u8((uint32_t)sum, *p);
    return ~(uint32_t)sum;
}
#endif

uint32_t pen__crc32c(uint32_t crc, const void *data, size_t len)
{
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX2) /* no processor has AVX2 and not SSE 4.2 */
        return crc32c_sse42(crc, data, len);
#endif
    return pen__crc32c_c(crc, data, len);
}
