/* digest.h - 128-bit hashes as hex text: identities of datasets and pipelines; and 64-bit
 * ones as numbers, which guard what is kept on disk. */
#ifndef PEN_BASE_DIGEST_H
#define PEN_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define PEN__DIGEST_TEXT 33 /* 32 hex digits and a NUL */

/* XXH3, 128 bits: not cryptographic; it finds differences, not attackers. */
void pen__digest(const void *data, size_t len, char out[PEN__DIGEST_TEXT]);

/* XXH3, 64 bits. */
uint64_t pen__hash64(const void *data, size_t len);

#endif
