/* journeys.h - pipelines and files between them with all that a sample may meet on its way. */
#ifndef PEN_TESTS_JOURNEYS_H
#define PEN_TESTS_JOURNEYS_H

#include "testing.h"

#include <png.h>
#include <webp/encode.h>

#include "images.h"
#include "lines.h"

enum { N_LINES = 14, N_FILES = 13 };

/* The operations of line `which`; returns how many. */
static inline size_t line_of(int which, pen_op ops[PEN_PIPELINE_MAX_OPS])
{
    static const float mean[3] = {0.485F, 0.456F, 0.406F}, std[3] = {0.229F, 0.224F, 0.225F};
    pen_op turned = pen_op_decode(), grey = pen_op_decode(), squeezed = pen_op_resize(30);
    turned.decode.use_exif = true;
    grey.decode.channels = 1;
    grey.decode.use_exif = true;
    squeezed.resize.w = 44;
    pen_op red_rotation = pen_op_random_rotation(40), wide = pen_op_center_crop(200, 40);
    red_rotation.warp.fill[0] = 200;
    pen_op small = pen_op_random_resized_crop(40, 36), padded = pen_op_random_crop(70, 60);
    padded.crop.pad_if_needed = true;
    padded.crop.fill[1] = 90;
    const pen_op jitter = pen_op_color_jitter(0.4F, 0.4F, 0.4F, 0.1F), tensor = pen_op_to_tensor();
    const pen_op lines[N_LINES][12] = {
        {small, pen_op_hflip(0.5F), jitter, tensor, pen_op_normalize(mean, std, 3),
         pen_op_random_erasing(0.9F)},
        {pen_op_resize(60), pen_op_center_crop(50, 48), tensor},
        {pen_op_random_crop(33, 37), pen_op_hflip(0.5F), pen_op_vflip(0.5F), tensor},
        {turned, small, pen_op_hflip(0.5F), tensor},
        {grey, pen_op_resize(64), pen_op_center_crop(40, 40), tensor},
        {squeezed, pen_op_random_grayscale(0.6F), red_rotation, pen_op_grayscale(3), tensor},
        {small, pen_op_auto_augment(PEN_POLICY_IMAGENET), tensor},
        {pen_op_random_apply(0.8F, 2), jitter, pen_op_random_grayscale(0.5F), small, tensor},
        {wide, pen_op_rand_augment(2, 9), pen_op_trivial_augment()},
        {pen_op_resize(50), pen_op_random_crop(40, 40), pen_op_aug_mix(), tensor},
        {turned, small, pen_op_grayscale(1), pen_op_gaussian_blur(3, 5)},
        {pen_op_hflip(0.5F), padded, pen_op_random_perspective(0.5, 0.9), tensor},
        {turned, pen_op_random_choice(2, (float[]){1, 1}), small, squeezed, squeezed, tensor},
    };
    if (which == N_LINES - 1)
        return everything(ops);
    static const size_t lengths[N_LINES] = {6, 3, 4, 4, 4, 5, 3, 5, 3, 4, 4, 4, 6};
    memcpy(ops, lines[which], lengths[which] * sizeof *ops);
    return lengths[which];
}

static inline pen_pipeline *pipeline_of(int which)
{
    pen_op ops[PEN_PIPELINE_MAX_OPS];
    const size_t n = line_of(which, ops);
    return make(ops, n);
}

static inline file with_orientation(file plain, int orientation)
{
    static const char exif[] =
        "\xFF\xE1\0\x22"
        "Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x01\0\0\0\0\0";
    const size_t n = 36;
    file out = {malloc(plain.len + n), plain.len + n};
    memcpy(out.data, plain.data, 2);
    memcpy(out.data + 2, exif, n);
    out.data[2 + 4 + 6 + 19] = (uint8_t)orientation;
    memcpy(out.data + 2 + n, plain.data + 2, plain.len - 2);
    free(plain.data);
    return out;
}

static inline file png_of(const uint8_t *px, int w, int h, int ch, bool is_stored)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)w,
                       .height = (png_uint_32)h,
                       .format = ch == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY,
                       .flags = is_stored ? PNG_IMAGE_FLAG_FAST : 0};
    png_alloc_size_t len = 0;
    assert_true(png_image_write_get_memory_size(image, len, 0, px, 0, NULL));
    file f = {malloc(len), len};
    assert_true(png_image_write_to_memory(&image, f.data, &len, 0, px, 0, NULL));
    f.len = len;
    return f;
}

static inline file webp_of(const uint8_t *px, int w, int h)
{
    uint8_t *out = NULL;
    file f = {.len = WebPEncodeLosslessRGB(px, w, h, w * 3, &out)};
    f.data = malloc(f.len);
    memcpy(f.data, out, f.len);
    WebPFree(out);
    return f;
}

/* Zeros behind the end: bytes that anything compresses. */
static inline file with_tail(file plain, size_t n)
{
    file out = {calloc(1, plain.len + n), plain.len + n};
    memcpy(out.data, plain.data, plain.len);
    free(plain.data);
    return out;
}

/* File `which`, w by h; the caller frees. */
static inline file file_of(int which, int w, int h)
{
    static const jpeg_kind progressive = COLOUR("progressive", 0x22, .is_progressive = true);
    static const jpeg_kind cmyk = {
        .name = "CMYK", .channels = 4, .sampling = {0x11, 0x11, 0x11, 0x11}, .as = JCS_CMYK};
    const jpeg_kind *kind = which < 6    ? &sampled_kinds[which]
                            : which == 6 ? &progressive
                            : which == 7 ? &cmyk
                                         : &sampled_kinds[4];
    const int ch = which < 10 ? kind->channels : which == 11 ? 1 : 3;
    uint8_t *px = make_picture(w, h, ch, (uint64_t)which + 1);
    file f = which == 10   ? png_of(px, w, h, 3, false)
             : which == 11 ? png_of(px, w, h, 1, true)
             : which == 12 ? webp_of(px, w, h)
                           : encode_jpeg(kind, px, w, h, 85);
    free(px);
    if (which == 5 || which == 8)
        f = with_orientation(f, which == 5 ? 3 : 6);
    return which == 9 ? with_tail(f, 30000) : f;
}

#endif
