/* fuzz_webp.c - libFuzzer target for WebP files; seeds come from scripts/make-fuzz-corpus. */
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_image(data, size, PEN_FORMAT_WEBP);
}
