/* crc32c.h - the checksum of what crosses the network: CRC-32C (Castagnoli), as iSCSI, ext4 and
 * gRPC have it. */
#ifndef PEN_BASE_CRC32C_H
#define PEN_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what was summed before (`crc`, 0 at first) followed by `len` bytes of `data`:
 *     pen__crc32c(pen__crc32c(0, a, n), b, m) == that of a and b in one piece.
 * The checksum of "123456789" is 0xE3069283. */
uint32_t pen__crc32c(uint32_t crc, const void *data, size_t len);

/* The same without SIMD: for tests. */
uint32_t pen__crc32c_c(uint32_t crc, const void *data, size_t len);

#endif
