/* lines.h - pipelines and image headers for tests. */
#ifndef PEN_TESTS_LINES_H
#define PEN_TESTS_LINES_H

#include <penstock/penstock.h>

#include "testing.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline pen_pipeline *make(const pen_op *ops, size_t n)
{
    pen_pipeline *pipe;
    pen_error err;
    if (pen_pipeline_create(&pipe, ops, n, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, &err))
        fail_msg("%s", err.text);
    return pipe;
}

/* The line cannot be made, and the reason has this word. */
static inline void refuse(const pen_op *ops, size_t n, pen_dtype dtype, const char *word)
{
    pen_pipeline *pipe = (pen_pipeline *)1;
    pen_error err;
    assert_int_equal(pen_pipeline_create(&pipe, ops, n, dtype, PEN_LAYOUT_NCHW, &err), PEN_EINVAL);
    assert_null(pipe);
    if (!strstr(err.text, word))
        fail_msg("'%s' does not mention '%s'", err.text, word);
}

static inline pen_image_info image(int32_t w, int32_t h)
{
    return (pen_image_info){.format = PEN_FORMAT_JPEG,
                            .width = w,
                            .height = h,
                            .channels = 3,
                            .bits = 8,
                            .orientation = 1,
                            .sampling_h = 1,
                            .sampling_v = 1};
}

/* As cameras make them, with chroma at half resolution. */
static inline pen_image_info photo(int32_t w, int32_t h)
{
    pen_image_info info = image(w, h);
    info.sampling_h = info.sampling_v = 2;
    return info;
}

/* One of each operation on images, groups in groups among them. */
static inline size_t everything(pen_op ops[PEN_PIPELINE_MAX_OPS])
{
    pen_op affine = pen_op_random_affine(20);
    affine.warp.translate[0] = 0.2;
    affine.warp.shear[3] = 9;
    affine.warp.fill[1] = 200;
    pen_op expand = pen_op_random_rotation(45);
    expand.warp.expand = true;
    pen_op jitter = pen_op_color_jitter(0.4F, 0.4F, 0.4F, 0.1F);
    const pen_op line[] = {
        pen_op_pad(3),
        pen_op_random_apply(0.8F, 2),
        jitter,
        pen_op_random_grayscale(0.2F),
        pen_op_random_choice(3, (float[]){1, 2, 3}),
        pen_op_random_rotation(30),
        pen_op_compose(2),
        affine,
        pen_op_random_order(2),
        pen_op_random_perspective(0.5, 0.7),
        pen_op_gaussian_blur(3, 5),
        pen_op_random_sharpness(2, 0.5F),
        pen_op_random_invert(0.3F),
        pen_op_random_posterize(3, 0.3F),
        pen_op_random_solarize(100, 0.3F),
        pen_op_random_autocontrast(0.5F),
        pen_op_random_equalize(0.5F),
        pen_op_auto_augment(PEN_POLICY_SVHN),
        pen_op_rand_augment(2, 9),
        pen_op_trivial_augment(),
        pen_op_aug_mix(),
        expand,
        pen_op_random_resized_crop(24, 20),
        pen_op_hflip(0.5F),
        pen_op_vflip(0.5F),
    };
    memcpy(ops, line, sizeof line);
    return COUNT(line);
}

#endif
