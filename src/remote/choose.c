/* choose.c - how far storage nodes may go. */
#include "remote/choose.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "engine/parcel.h"
#include "source/names.h"

int pen__offload_read(pen__offload *out, pen_error *err)
{
    const char *text = getenv("PENSTOCK_OFFLOAD");
    *out = PEN__OFFLOAD_ALL;
    if (!text || !*text || strcmp(text, "all") == 0)
        return 0;
    *out = PEN__OFFLOAD_NONE;
    if (strcmp(text, "none") == 0)
        return 0;
    pen__shown shown;
    return pen__fail(err, PEN_EINVAL, -1, "PENSTOCK_OFFLOAD is '%s': give 'none' or 'all'",
                     pen__show(&shown, text, strlen(text)));
}

pen__choice pen__choose(pen__offload offload, const pen_pipeline *pipe, const pen_key *key)
{
    (void)key;
    if (offload == PEN__OFFLOAD_NONE || !pipe)
        return (pen__choice){.max_cut = 0, .forms = 1U << PEN__FORM_RAW};
    return (pen__choice){.max_cut = (int)pen_pipeline_op_count(pipe),
                         .forms = (1U << PEN__FORM_COUNT) - 1};
}
