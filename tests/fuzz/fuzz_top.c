/* fuzz_top.c - what a stranger may answer to `penstock top`: any bytes, drawn or refused. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "top.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[TOP_WHY_CAP];
    json_t *status = top_parse((const char *)data, size, why);
    if (!status)
        return 0;
    char *frame = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&frame, &len);
    if (out) {
        top_frame(out, status, NULL, (top_style){80, true});
        top_frame(out, status, status, (top_style){40, false});
        fclose(out);
        for (size_t i = 0; i < len; i++)
            if ((unsigned char)frame[i] < ' ' && frame[i] != '\n')
                abort(); /* a control code would reach the terminal */
    }
    free(frame);
    json_decref(status);
    return 0;
}
