/* kernels.c - how fast each image kernel is, at each CPU level.
 *
 *     meson setup build -Dbench=true && ninja -C build bench-kernels
 *
 * One line a kernel and level: nanoseconds an output pixel, bytes read and
 * written a second, and how many times the scalar twin's speed.  The levels take
 * turns, CPU time is what is measured and the median of the rounds counts, so
 * that a busy machine spoils both alike.  Trust the ratios.
 */
#include <stdio.h> /* before jpeglib.h, which needs it */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "ops/augmix_ops.h"
#include "ops/color.h"
#include "ops/decode.h"
#include "ops/filter.h"
#include "ops/geometry.h"
#include "ops/jpeg_kernels.h"
#include "ops/resize.h"
#include "ops/tensor.h"
#include "ops/tone.h"
#include "ops/warp.h"

enum { ROUNDS = 9, SIDE = 224, SLOTS = 256 };

/* What a kernel works on.  `slab` is larger than the cache, as batches are. */
typedef struct bench {
    uint8_t *src, *dst, *slab;
    void *scratch;
    pen__resize_spec spec;
    pen__tensor_table table;
    pen_layout layout;
    int ch;
    size_t slot;
    struct photo {
        unsigned char *file; /* malloc's, from libjpeg */
        unsigned long len;
        pen_image_info info;
        pen__decoder *dec;
        uint8_t marks[PEN__DECODE_MARKS_MAX];
        size_t n_marks;
    } photo;
} bench;

typedef struct job {
    const char *name;
    void (*set_up)(bench *b);
    void (*run)(bench *b);
    double out_px, moved_bytes; /* a call */
} job;

static pen__image image(uint8_t *px, int32_t w, int32_t h, int32_t ch)
{
    return (pen__image){px, w, h, ch};
}

/* ---- the jobs ----------------------------------------------------------------- */

static void run_resize(bench *b)
{
    pen__image src = image(b->src, b->spec.in_w, b->spec.in_h, b->ch), dst = {.px = b->dst};
    pen__rect all = {0, 0, src.w, src.h};
    pen__resize(&b->spec, &src, all, &dst, b->scratch);
}

static void set_resize(bench *b, int32_t w, int32_t h, pen_filter filter, int ch)
{
    b->spec = (pen__resize_spec){w, h, SIDE, SIDE, filter, {0, 0, SIDE, SIDE}};
    b->ch = ch;
}

static void set_bilinear(bench *b)
{
    set_resize(b, 300, 250, PEN_FILTER_BILINEAR, 3);
}

static void set_bilinear_large(bench *b)
{
    set_resize(b, 500, 375, PEN_FILTER_BILINEAR, 3);
}

static void set_bilinear_up(bench *b)
{
    set_resize(b, 150, 120, PEN_FILTER_BILINEAR, 3);
}

static void set_bicubic(bench *b)
{
    set_resize(b, 300, 250, PEN_FILTER_BICUBIC, 3);
}

static void set_lanczos(bench *b)
{
    set_resize(b, 300, 250, PEN_FILTER_LANCZOS, 3);
}

/* The longer side of a photograph. */
static void set_bilinear_photo(bench *b)
{
    set_resize(b, 800, 400, PEN_FILTER_BILINEAR, 3);
}

static void set_grey_photo(bench *b)
{
    set_resize(b, 800, 600, PEN_FILTER_BILINEAR, 1);
}

static void set_grey(bench *b)
{
    set_resize(b, 300, 250, PEN_FILTER_BILINEAR, 1);
}

static void set_nearest(bench *b)
{
    set_resize(b, 300, 250, PEN_FILTER_NEAREST, 3);
}

static void run_hflip(bench *b)
{
    pen__image im = image(b->src, SIDE, SIDE, 3);
    pen__hflip(&im);
}

static void run_vflip(bench *b)
{
    pen__image im = image(b->src, SIDE, SIDE, 3);
    pen__vflip(&im);
}

static void run_crop(bench *b)
{
    static const uint8_t fill[3] = {0};
    pen__image src = image(b->src, SIDE, SIDE, 3), dst = {.px = b->dst};
    pen__crop(&src, (pen__rect){-4, 3, SIDE, SIDE}, PEN_PADDING_REFLECT, fill, &dst);
}

static void run_turn(bench *b)
{
    pen__image src = image(b->src, SIDE, SIDE, 3), dst = {.px = b->dst};
    pen__orient(&src, 6, &dst);
}

static void run_brightness(bench *b)
{
    pen__image im = image(b->src, SIDE, SIDE, 3);
    pen__brightness(&im, 1.01F);
}

static void run_contrast(bench *b)
{
    pen__image im = image(b->src, SIDE, SIDE, 3);
    pen__contrast(&im, 1.01F);
}

static void run_saturation(bench *b)
{
    pen__image im = image(b->src, SIDE, SIDE, 3);
    pen__saturation(&im, 1.01F);
}

static void run_hue(bench *b)
{
    pen__image im = image(b->src, SIDE, SIDE, 3);
    pen__hue(&im, 0.07F);
}

static void run_grey(bench *b)
{
    pen__image src = image(b->src, SIDE, SIDE, 3), dst = {.px = b->dst};
    pen__to_grey(&src, &dst);
}

static void run_equalize(bench *b)
{
    pen__image im = image(b->src, SIDE, SIDE, 3);
    pen__equalize(&im);
}

static void run_sharpness(bench *b)
{
    pen__image im = image(b->src, SIDE, SIDE, 3);
    pen__sharpness(&im, 1.3F, b->scratch);
}

static void run_blur(bench *b)
{
    const pen__blur blur = {9, 9, 1.1F, 1.1F};
    pen__image src = image(b->src, SIDE, SIDE, 3), dst = {.px = b->dst};
    pen__gaussian_blur(&src, &blur, &dst, b->scratch, NULL);
}

static void rotate_image(bench *b, pen_filter filter)
{
    static const uint8_t black[3] = {0};
    pen__image src = image(b->src, SIDE, SIDE, 3), dst = {.px = b->dst};
    pen__rotate(&src, 17.0, false, NULL, filter, black, &dst);
}

static void run_rotate_nearest(bench *b)
{
    rotate_image(b, PEN_FILTER_NEAREST);
}

static void run_rotate_bilinear(bench *b)
{
    rotate_image(b, PEN_FILTER_BILINEAR);
}

static void run_rotate_bicubic(bench *b)
{
    rotate_image(b, PEN_FILTER_BICUBIC);
}

static void run_tensor_affine(bench *b)
{
    static const double m[6] = {0.956, 0.292, 3.0, -0.292, 0.956, 1.0};
    pen__image src = image(b->src, SIDE, SIDE, 3), dst = {.px = b->dst};
    pen__tensor_path_affine(&src, m, PEN_FILTER_BILINEAR, &dst);
}

static void set_tensor(bench *b, pen_dtype dtype, pen_layout layout)
{
    pen_op norm = {.kind = PEN_OP_NORMALIZE,
                   .normalize = {{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}}};
    pen__tensor_table_init(&b->table, dtype, 3, PEN_SCALING_DIVIDE, &norm, 1);
    b->layout = layout;
}

static void set_tensor_f32(bench *b)
{
    set_tensor(b, PEN_DTYPE_FLOAT32, PEN_LAYOUT_NCHW);
}

static void set_tensor_f32_nhwc(bench *b)
{
    set_tensor(b, PEN_DTYPE_FLOAT32, PEN_LAYOUT_NHWC);
}

static void set_tensor_f16(bench *b)
{
    set_tensor(b, PEN_DTYPE_FLOAT16, PEN_LAYOUT_NCHW);
}

static void set_tensor_bf16(bench *b)
{
    set_tensor(b, PEN_DTYPE_BFLOAT16, PEN_LAYOUT_NCHW);
}

static void set_tensor_u8(bench *b)
{
    set_tensor(b, PEN_DTYPE_UINT8, PEN_LAYOUT_NCHW);
}

static void run_tensor(bench *b)
{
    pen__image src = image(b->src, SIDE, SIDE, 3);
    b->slot = (b->slot + 1) % SLOTS;
    pen__to_tensor(&b->table, &src, b->layout, b->slab + b->slot * SIDE * SIDE * 3 * 4);
}

/* A row of blocks from the noise: all coefficients, or the first ten in zigzag order. */
static void transform_blocks(bench *b, int n_coefs)
{
    enum { N = SIDE / 8 };
    static uint16_t quant[64];
    pen__jpeg_idct_job jobs[N];
    for (int i = 0; i < N; i++)
        jobs[i] = (pen__jpeg_idct_job){(const int16_t *)(const void *)(b->src + 128 * i), quant,
                                       b->dst + 8 * i, SIDE, n_coefs};
    for (int y = 0; y < SIDE; y += 8)
        pen__jpeg_kernels_get()->idct(jobs, N);
}

static void run_idct(bench *b)
{
    transform_blocks(b, 64);
}

static void run_idct_low(bench *b)
{
    transform_blocks(b, 10);
}

static void run_upsample(bench *b)
{
    for (int y = 0; y < SIDE; y++) {
        const uint8_t *near = b->src + 64 + 4 * SIDE * y;
        pen__jpeg_kernels_get()->upsample_h2v2(near, near + SIDE, b->dst, SIDE / 2);
    }
}

static void run_upsample_h2v1(bench *b)
{
    for (int y = 0; y < SIDE; y++)
        pen__jpeg_kernels_get()->upsample_h2v1(b->src + 64 + 4 * SIDE * y, b->dst, SIDE / 2);
}

static void run_upsample_h1v2(bench *b)
{
    for (int y = 0; y < SIDE; y++) {
        const uint8_t *near = b->src + 64 + 4 * SIDE * y;
        pen__jpeg_kernels_get()->upsample_h1v2(near, near + SIDE, b->dst, SIDE, 1 + y % 2);
    }
}

static void run_ycc(bench *b)
{
    for (int y = 0; y < SIDE; y++) {
        const uint8_t *luma = b->src + 4 * SIDE * y;
        pen__jpeg_kernels_get()->ycc_to_rgb(luma, luma + SIDE, luma + 2 * SIDE,
                                            b->dst + 3 * SIDE * y, SIDE);
    }
}

/* In one go where there is a kernel for it, else one after the other. */
static void run_h2v2_to_rgb(bench *b)
{
    const pen__jpeg_kernels *k = pen__jpeg_kernels_get();
    uint8_t *up = b->dst + 3 * SIDE * SIDE;
    for (int y = 0; y < SIDE; y++) {
        const uint8_t *luma = b->src + 64 + 4 * SIDE * y;
        const pen__jpeg_chroma cb = {luma + SIDE, luma + SIDE * 3 / 2},
                               cr = {luma + SIDE * 2, luma + SIDE * 5 / 2};
        if (k->h2v2_to_rgb) {
            k->h2v2_to_rgb(luma, cb, cr, b->dst + 3 * SIDE * y, SIDE, 0);
            continue;
        }
        k->upsample_h2v2(cb.near, cb.far, up, SIDE / 2);
        k->upsample_h2v2(cr.near, cr.far, up + 2 * SIDE, SIDE / 2);
        k->ycc_to_rgb(luma, up, up + 2 * SIDE, b->dst + 3 * SIDE * y, SIDE);
    }
}

/* A file of 512x512 pixels, 4:2:0, of which the window in the middle is wanted. */
enum { PHOTO = 512 };
static const pen__rect middle = {(PHOTO - SIDE) / 2, (PHOTO - SIDE) / 2, SIDE, SIDE};

/* Shapes, and some noise from b->src: about as many bits a pixel as a photograph has. */
static void write_photo(bench *b)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &b->photo.file, &b->photo.len);
    c.image_width = c.image_height = PHOTO;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 90, TRUE);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < PHOTO; y++) {
        uint8_t row[3 * PHOTO], *at = row;
        for (int x = 0; x < PHOTO; x++)
            for (int ch = 0; ch < 3; ch++)
                *at++ = (uint8_t)(((x * (ch + 1) ^ y) & 64) + x / 4 +
                                  b->src[3 * (y * PHOTO + x) + ch] / 16);
        JSAMPROW rows[] = {row};
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
}

static void decode_photo(bench *b, pen__rect window)
{
    pen__image out = {.px = b->dst};
    pen__decode(b->photo.dec, b->photo.file, b->photo.len, &b->photo.info, window, &out, NULL);
}

/* The processor's level is looked at when a decoder is made. */
static void set_decode(bench *b)
{
    struct photo *p = &b->photo;
    if (!p->file) {
        write_photo(b);
        pen_image_probe(p->file, p->len, &p->info, NULL);
    }
    pen__decoder_free(p->dec);
    if (pen__decoder_create(&p->dec, NULL) != 0)
        exit(1);
}

/* Without room for lanes. */
static void set_decode_in_one_stream(bench *b)
{
    set_decode(b);
    pen__decoder_set_keep(b->photo.dec, 1 << 20);
}

static void set_decode_by_libjpeg(bench *b)
{
    set_decode(b);
    pen__decoder_use_own_jpeg(b->photo.dec, false);
}

static void set_decode_with_marks(bench *b)
{
    set_decode(b);
    const void *entry;
    pen__decoder_give_marks(b->photo.dec, NULL, 0);
    decode_photo(b, (pen__rect){0, 0, PHOTO, PHOTO});
    b->photo.n_marks = pen__decoder_take_marks(b->photo.dec, &entry);
    memcpy(b->photo.marks, entry, b->photo.n_marks);
}

static void run_decode(bench *b)
{
    decode_photo(b, middle);
}

static void run_decode_with_marks(bench *b)
{
    pen__decoder_give_marks(b->photo.dec, b->photo.marks, b->photo.n_marks);
    decode_photo(b, middle);
}

#define OUT ((double)SIDE * SIDE)
static const job jobs[] = {
    {"resize bilinear 300x250 rgb", set_bilinear, run_resize, OUT, 3 * (300 * 250 + OUT)},
    {"resize bilinear 500x375 rgb", set_bilinear_large, run_resize, OUT, 3 * (500 * 375 + OUT)},
    {"resize bilinear 800x400 rgb", set_bilinear_photo, run_resize, OUT, 3 * (800 * 400 + OUT)},
    {"resize bilinear 150x120 rgb", set_bilinear_up, run_resize, OUT, 3 * (150 * 120 + OUT)},
    {"resize bicubic  300x250 rgb", set_bicubic, run_resize, OUT, 3 * (300 * 250 + OUT)},
    {"resize lanczos  300x250 rgb", set_lanczos, run_resize, OUT, 3 * (300 * 250 + OUT)},
    {"resize bilinear 300x250 grey", set_grey, run_resize, OUT, 300 * 250 + OUT},
    {"resize bilinear 800x600 grey", set_grey_photo, run_resize, OUT, 800 * 600 + OUT},
    {"resize nearest  300x250 rgb", set_nearest, run_resize, OUT, 6 * OUT},
    {"hflip rgb", NULL, run_hflip, OUT, 6 * OUT},
    {"vflip rgb", NULL, run_vflip, OUT, 6 * OUT},
    {"crop with overhang rgb", NULL, run_crop, OUT, 6 * OUT},
    {"quarter turn rgb", NULL, run_turn, OUT, 6 * OUT},
    {"brightness", NULL, run_brightness, OUT, 6 * OUT},
    {"contrast", NULL, run_contrast, OUT, 9 * OUT},
    {"saturation", NULL, run_saturation, OUT, 6 * OUT},
    {"hue", NULL, run_hue, OUT, 6 * OUT},
    {"equalize", NULL, run_equalize, OUT, 9 * OUT},
    {"sharpness", NULL, run_sharpness, OUT, 6 * OUT},
    {"gaussian blur 9x9", NULL, run_blur, OUT, 6 * OUT},
    {"rotate nearest", NULL, run_rotate_nearest, OUT, 6 * OUT},
    {"rotate bilinear", NULL, run_rotate_bilinear, OUT, 6 * OUT},
    {"rotate bicubic", NULL, run_rotate_bicubic, OUT, 6 * OUT},
    {"augmix affine bilinear", NULL, run_tensor_affine, OUT, 6 * OUT},
    {"jpeg window, by libjpeg", set_decode_by_libjpeg, run_decode, OUT, 3 * OUT},
    {"jpeg window, one stream", set_decode_in_one_stream, run_decode, OUT, 3 * OUT},
    {"jpeg window, guessed", set_decode, run_decode, OUT, 3 * OUT},
    {"jpeg window, marks", set_decode_with_marks, run_decode_with_marks, OUT, 3 * OUT},
    {"jpeg idct", NULL, run_idct, OUT, 3 * OUT},
    {"jpeg idct, low frequencies", NULL, run_idct_low, OUT, 3 * OUT},
    {"jpeg upsample h2v2", NULL, run_upsample, OUT, 2 * OUT},
    {"jpeg upsample h2v1", NULL, run_upsample_h2v1, OUT, 2 * OUT},
    {"jpeg upsample h1v2", NULL, run_upsample_h1v2, OUT, 3 * OUT},
    {"jpeg ycc to rgb", NULL, run_ycc, OUT, 6 * OUT},
    {"jpeg h2v2 to rgb", NULL, run_h2v2_to_rgb, OUT, 5 * OUT},
    {"to grey", NULL, run_grey, OUT, 4 * OUT},
    {"tensor float32 nchw", set_tensor_f32, run_tensor, OUT, 15 * OUT},
    {"tensor float32 nhwc", set_tensor_f32_nhwc, run_tensor, OUT, 15 * OUT},
    {"tensor float16 nchw", set_tensor_f16, run_tensor, OUT, 9 * OUT},
    {"tensor bfloat16 nchw", set_tensor_bf16, run_tensor, OUT, 9 * OUT},
    {"tensor uint8 nchw", set_tensor_u8, run_tensor, OUT, 6 * OUT},
};

/* ---- timing --------------------------------------------------------------------- */

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Time this thread ran: what other programs take does not count. */
static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Nanoseconds a call, over n calls. */
static double time_calls(const job *j, bench *b, int n)
{
    double begin = cpu_ns();
    for (int i = 0; i < n; i++)
        j->run(b);
    return (cpu_ns() - begin) / n;
}

static int calls_for_two_ms(const job *j, bench *b)
{
    double once = time_calls(j, b, 2);
    return 1 + (int)(2e6 / once);
}

enum { N_LEVELS = 3 };
static const unsigned level_masks[N_LEVELS] = {0, PEN__CPU_AVX2, ~0U};
static const char *const level_names[N_LEVELS] = {"scalar", "avx2", "avx512"};

/* How many the processor has. */
static int count_levels(void)
{
    unsigned flags = pen__cpu_flags();
    return flags & PEN__CPU_AVX512 ? 3 : flags & PEN__CPU_AVX2 ? 2 : 1;
}

/* Median time of a call at each of the levels, taking turns. */
static void measure(const job *j, bench *b, int n_levels, double median_ns[N_LEVELS])
{
    double times[N_LEVELS][ROUNDS];
    for (int round = 0; round < ROUNDS; round++)
        for (int k = 0; k < n_levels; k++) {
            pen__cpu_mask(level_masks[k]);
            if (j->set_up)
                j->set_up(b);
            times[k][round] = time_calls(j, b, calls_for_two_ms(j, b));
        }
    for (int k = 0; k < n_levels; k++) {
        qsort(times[k], ROUNDS, sizeof times[k][0], compare_times);
        median_ns[k] = times[k][ROUNDS / 2];
    }
}

static void report(const job *j, const char *level, double ns, double scalar_ns)
{
    printf("%-30s %-7s %7.1f us  %6.2f ns/px  %6.2f GB/s  %5.2fx\n", j->name, level, ns / 1e3,
           ns / j->out_px, j->moved_bytes / ns, scalar_ns / ns);
}

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 ? argv[1] : "";
    bench b = {0};
    b.src = pen__aligned(64, 1U << 20);
    b.dst = pen__aligned(64, 1U << 20);
    b.scratch = pen__aligned(64, 16U << 20);
    b.slab = pen__aligned(64, (size_t)SLOTS * SIDE * SIDE * 3 * 4);
    if (!b.src || !b.dst || !b.scratch || !b.slab)
        return 1;
    for (uint32_t i = 0, r = 1; i < 1U << 20; i++, r = r * 1664525 + 1013904223)
        b.src[i] = (uint8_t)(r >> 24);
    memset(b.slab, 0, (size_t)SLOTS * SIDE * SIDE * 3 * 4);
    int n_levels = count_levels();
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        if (!strstr(jobs[i].name, wanted))
            continue;
        double ns[N_LEVELS];
        measure(&jobs[i], &b, n_levels, ns);
        for (int k = 0; k < n_levels; k++)
            report(&jobs[i], level_names[k], ns[k], ns[0]);
    }
    pen__free(b.src);
    pen__free(b.dst);
    pen__free(b.scratch);
    pen__free(b.slab);
    pen__decoder_free(b.photo.dec);
    free(b.photo.file);
    return 0;
}
