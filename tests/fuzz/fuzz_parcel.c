/* fuzz_parcel.c - libFuzzer target for parcels: what a stranger sends in a sample's place is run
 * through a pipeline.
 *
 * The first byte chooses the pipeline, the rest is the parcel.  The length of the file is taken
 * from the head, as if the dataset agreed with it, within what a small block holds.
 */
#include <stdlib.h>
#include <string.h>

#include <penstock/pipeline.h>

#include "engine/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_PIPELINES = 4, MAX_PIXELS = 1 << 18, MAX_FILE = 1 << 20 };

static pen_pipeline *pipelines[N_PIPELINES];

static int make_pipelines(void)
{
    pen_op turned = pen_op_decode();
    turned.decode.use_exif = true;
    const pen_op jitter = pen_op_color_jitter(0.4F, 0.4F, 0.4F, 0.1F), tensor = pen_op_to_tensor();
    const pen_op lines[N_PIPELINES][5] = {
        {pen_op_random_resized_crop(24, 20), pen_op_hflip(0.5F), jitter, tensor},
        {pen_op_resize(20), pen_op_center_crop(16, 16), tensor},
        {turned, pen_op_random_resized_crop(16, 16), pen_op_random_grayscale(0.5F), tensor},
        {pen_op_center_crop(30, 30), pen_op_rand_augment(2, 9), tensor},
    };
    static const size_t lengths[N_PIPELINES] = {4, 3, 4, 3};
    for (int i = 0; i < N_PIPELINES; i++)
        if (pen_pipeline_create(&pipelines[i], lines[i], lengths[i], PEN_DTYPE_AUTO,
                                PEN_LAYOUT_NCHW, NULL) != 0)
            return -1;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t dst[30 * 30 * 3 * sizeof(float)];
    if ((!pipelines[0] && make_pipelines() != 0) || size < 1)
        return 0;
    const pen_pipeline *pipe = pipelines[data[0] % N_PIPELINES];
    const size_t len = size - 1;
    uint8_t *bytes = malloc(len ? len : 1); /* of their own: a read past them is seen */
    memcpy(bytes, data + 1, len);
    pen__parcel p;
    const pen_key key = {1, 2, 3, 0};
    if (pen__parcel_read(&p, bytes, len, NULL) == 0 && p.raw_len <= MAX_FILE &&
        (int64_t)p.info.width * p.info.height <= MAX_PIXELS) {
        uint8_t head[PEN__PARCEL_HEAD];
        pen__parcel_write_head(&p, head);
        if (memcmp(head, bytes, sizeof head) != 0) /* a head is written in one way only */
            abort();
        pen__unpack_run(pipe, &key, bytes, len, p.raw_len, dst, NULL);
    }
    free(bytes);
    return 0;
}
