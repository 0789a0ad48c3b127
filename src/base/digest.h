/* digest.h - 128-bit hashes as hex text: identities of datasets and pipelines. */
#ifndef PEN_BASE_DIGEST_H
#define PEN_BASE_DIGEST_H

#include <stddef.h>

#define PEN__DIGEST_TEXT 33 /* 32 hex digits and a NUL */

/* XXH3, 128 bits: not cryptographic; it finds differences, not attackers. */
void pen__digest(const void *data, size_t len, char out[PEN__DIGEST_TEXT]);

#endif
