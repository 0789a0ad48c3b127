/* little_endian.h - numbers as they are stored and cross the network: lowest byte first, at any
 * address. */
#ifndef PEN_BASE_LITTLE_ENDIAN_H
#define PEN_BASE_LITTLE_ENDIAN_H

#include <stdint.h>
#include <string.h>

static inline uint64_t pen__le_get(const uint8_t *src, int n_bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < n_bytes; i++)
        value |= (uint64_t)src[i] << (8 * i);
    return value;
}

static inline void pen__le_put(uint8_t *dst, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        dst[i] = (uint8_t)(value >> (8 * i));
}

static inline uint16_t pen__le16(const uint8_t *src)
{
    return (uint16_t)pen__le_get(src, 2);
}

static inline uint32_t pen__le32(const uint8_t *src)
{
    return (uint32_t)pen__le_get(src, 4);
}

static inline int32_t pen__le_i32(const uint8_t *src)
{
    const uint32_t bits = pen__le32(src);
    int32_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t pen__le64(const uint8_t *src)
{
    return pen__le_get(src, 8);
}

#endif
