/* fuzz_remote_page.c - any bytes as a page of a manifest: records within it, or an error; and as a
 * description, with little memory.  Checksums are made right first, or nothing behind them would
 * ever be reached. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "remote/remote_part.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void seal(uint8_t *page, size_t len)
{
    uint32_t crc = pen__crc32c(0, page, len - 4);
    for (int i = 0; i < 4; i++)
        page[len - 4 + (size_t)i] = (uint8_t)(crc >> (8 * i));
}

static void describe(const char *bytes, size_t len, bool is_sealed)
{
    char *text = malloc(len + 32);
    memcpy(text, bytes, len);
    if (is_sealed && len > 0 && text[len - 1] == '}')
        len--; /* which the seal ends in */
    if (is_sealed)
        len += (size_t)snprintf(text + len, 32, ", \"crc32c\": \"%08x\"}\n",
                                pen__crc32c(0, text, len));
    pen_error err = {0};
    pen__part part = {.max_bytes = 64 << 10};
    int rc = pen__part_describe(&part, text, len, &err);
    if (rc != err.code || (rc == PEN_EIO && is_sealed))
        abort();
    pen__part_fini(&part);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t *page = malloc(len + 1);
    memcpy(page, data, len);
    if (len >= 28)
        seal(page, len);
    pen_error err = {0};
    pen__part part = {.count = len >= 20 ? pen__le32(page + 16) % 1000 : 1, .page = 1000};
    int rc = pen__part_add_page(&part, page, len, &err);
    if (rc != err.code || (rc == 0 && (int64_t)part.index.n != part.count))
        abort();
    if (rc == 0 && part.index.n > 0)
        pen__part_finish(&part, &err);
    pen__part_fini(&part);
    free(page);
    describe((const char *)data, len, false);
    describe((const char *)data, len, true);
    return 0;
}
