/* pictures.h - small JPEG and PNG files and folders of them, made on the spot. */
#ifndef PEN_TESTS_PICTURES_H
#define PEN_TESTS_PICTURES_H

#include <stdio.h>

#include <jpeglib.h>
#include <png.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "testing.h"

/* A smooth picture with some texture: (h, w, 3), the caller frees. */
static inline uint8_t *picture_pixels(int w, int h, uint64_t seed)
{
    uint8_t *px = malloc((size_t)w * (size_t)h * 3);
    pen__rng rng;
    pen__rng_init(&rng, seed, PEN__RNG_OP, 0, 0, 0, 0);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++)
                px[(y * w + x) * 3 + c] = (uint8_t)(x * (3 + c) + y * (5 - c) + (int)seed * 17 +
                                                    (int)(pen__rng_u32(&rng) >> 27));
    return px;
}

static inline void write_jpeg(const char *path, int w, int h, uint64_t seed)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    uint8_t *px = picture_pixels(w, h, seed);
    c.err = jpeg_std_error(&e);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, file);
    c.image_width = (JDIMENSION)w;
    c.image_height = (JDIMENSION)h;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 85, TRUE);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < h; y++) {
        JSAMPROW row = px + (size_t)y * (size_t)w * 3;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(px);
    fclose(file);
}

static inline void write_png(const char *path, int w, int h, uint64_t seed)
{
    uint8_t *px = picture_pixels(w, h, seed);
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)w,
                       .height = (png_uint_32)h,
                       .format = PNG_FORMAT_RGB};
    assert_int_equal(png_image_write_to_file(&image, path, 0, px, 0, NULL), 1);
    free(px);
}

/* A class-per-directory folder of n pictures below a new temporary directory. */
static inline void make_folder(char dir[64], int n)
{
    strcpy(dir, "/tmp/penstock-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (int c = 0; c < 2; c++) {
        char path[128];
        snprintf(path, sizeof path, "%s/class%d", dir, c);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    for (int i = 0; i < n; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/class%d/%04d.%s", dir, i % 2, i,
                 i % 5 == 4 ? "png" : "jpg");
        (i % 5 == 4 ? write_png : write_jpeg)(path, 40 + i * 3 % 50, 30 + i * 7 % 60, (uint64_t)i);
    }
}

static inline void remove_folder(const char *dir)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

#endif
