/* fuzz_jpeg.c - libFuzzer target for JPEG files; seeds come from scripts/make-fuzz-corpus. */
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_image(data, size, PEN_FORMAT_JPEG);
}
