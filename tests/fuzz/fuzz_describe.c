/* fuzz_describe.c - any bytes as the description of a pipeline: refused with a reason, or a
 * pipeline that describes itself with the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "engine/describe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char *text = malloc(len ? len : 1);
    if (len)
        memcpy(text, data, len);
    pen_pipeline *pipe;
    pen_error err = {0};
    int rc = pen__describe_read(&pipe, text, len, &err);
    if (rc != err.code || (rc == 0) != (pipe != NULL))
        abort();
    if (pipe && (strlen(pen_pipeline_describe(pipe)) != len ||
                 memcmp(pen_pipeline_describe(pipe), text, len) != 0))
        abort();
    pen_pipeline_unref(pipe);
    free(text);
    return 0;
}
