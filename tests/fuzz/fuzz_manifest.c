/* fuzz_manifest.c - any bytes as a manifest: rows within it, or an error.
 * The first byte chooses the syntax. */
#include <stdlib.h>
#include <string.h>

#include "source/manifest.h"
#include "source/names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static int take_row(void *ctx, const pen__row *row, pen_error *err)
{
    (void)ctx, (void)err;
    char path[4096];
    const char *why;
    int32_t label;
    pen__path_clean(row->path, row->path_len, false, path, sizeof path, &why);
    pen__path_clean(row->path, row->path_len, true, path, sizeof path, &why);
    if (row->label)
        pen__parse_label(row->label, row->label_len, &label);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len == 0)
        return 0;
    bool is_csv = *data & 1;
    char *text = malloc(len);
    memcpy(text, data + 1, --len);
    pen_error err = {0};
    int rc = is_csv ? pen__csv_parse(text, len, take_row, NULL, &err)
                    : pen__jsonl_parse(text, len, take_row, NULL, &err);
    if (rc != err.code)
        abort();
    free(text);
    return 0;
}
