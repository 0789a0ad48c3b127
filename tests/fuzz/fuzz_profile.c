/* fuzz_profile.c - any bytes as what was learned of a dataset: refused, or nothing but estimates.
 *
 * The fields that are compared and the checksum are made right first, as a forger would. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "engine/allow.h"
#include "engine/pipeline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { N = 8, CHECKSUM_AT = 28, SUMMED_AT = 32, HASHES = 64 };

static const char dataset[] = "0123456789abcdef0123456789abcdef";

static pen_pipeline *make_line(void)
{
    const pen_op ops[] = {pen_op_random_resized_crop(24, 20), pen_op_hflip(0.5F)};
    pen_pipeline *pipe = NULL;
    if (pen_pipeline_create(&pipe, ops, 2, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, NULL) != 0)
        abort();
    return pipe;
}

/* What was taken over is used. */
static void use(pen__allow *allow)
{
    pen__allow_set_share(allow, 0.5);
    for (int64_t i = 0; i < N; i++) {
        pen_image_info info;
        pen__foreseen foreseen;
        const pen_key key = {.seed = 1, .sample = i};
        if (pen__headers_get(&allow->headers, i, &info) && !pen__parcel_takes(&info))
            abort();
        pen__allow_choose(allow, &key, 100000, &foreseen);
        if (foreseen.is_estimated &&
            !(pen__estimate_cost(&foreseen.estimate, foreseen.choice.forms) >= 0))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static pen_pipeline *pipe;
    size_t n_bytes;
    pipe = pipe ? pipe : make_line();
    pen__allow *allow = calloc(1, sizeof *allow);
    if (!allow || pen__allow_init(allow, PEN_OFFLOAD_AUTO, pipe, N) != 0)
        abort();
    const pen__learned learned = {&allow->headers, &allow->traits, &allow->typical, pipe->hash};
    /* as it is */
    if (pen__profile_parse(&learned, dataset, data, len) != PEN__PROFILE_NONE)
        use(allow);
    /* behind a head that is right */
    uint8_t *bytes = pen__profile_write(&learned, dataset, &n_bytes);
    if (!bytes)
        abort();
    const size_t at = SUMMED_AT + HASHES, room = n_bytes - at;
    memcpy(bytes + at, data, len < room ? len : room);
    const uint32_t crc = pen__crc32c(0, bytes + SUMMED_AT, n_bytes - SUMMED_AT);
    memcpy(bytes + CHECKSUM_AT, &crc, sizeof crc);
    if (pen__profile_parse(&learned, dataset, bytes, n_bytes) != PEN__PROFILE_ALL)
        abort();
    use(allow);
    pen__free(bytes);
    pen__allow_fini(allow);
    free(allow);
    return 0;
}
