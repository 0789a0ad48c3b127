/* op.h - what happens to a sample, as data.
 *
 * An operation is a kind and its settings; names, meaning and defaults are
 * torchvision's, results those of its PIL path.  The constructors return the
 * defaults, to be changed field by field:
 *
 *     pen_op crop = pen_op_random_resized_crop(224, 224);
 *     crop.area.scale_min = 0.35F;
 *
 * Decode stands first in every pipeline; where it is left out, it is added.
 */
#ifndef PENSTOCK_OP_H
#define PENSTOCK_OP_H

#include <stdbool.h>
#include <stdint.h>

#include <penstock/visibility.h>

/* kind, torchvision's name */
#define PEN_OPS(X)                              \
    X(DECODE, "Decode")                         \
    X(RESIZE, "Resize")                         \
    X(CENTER_CROP, "CenterCrop")                \
    X(RANDOM_CROP, "RandomCrop")                \
    X(RANDOM_RESIZED_CROP, "RandomResizedCrop") \
    X(HFLIP, "RandomHorizontalFlip")            \
    X(VFLIP, "RandomVerticalFlip")              \
    X(COLOR_JITTER, "ColorJitter")              \
    X(GRAYSCALE, "Grayscale")                   \
    X(TO_TENSOR, "ToTensor")                    \
    X(NORMALIZE, "Normalize")                   \
    X(RANDOM_ERASING, "RandomErasing")

typedef enum pen_op_kind {
#define PEN_OP_ENUM(kind, name) PEN_OP_##kind,
    PEN_OPS(PEN_OP_ENUM)
#undef PEN_OP_ENUM
        PEN_OP_COUNT
} pen_op_kind;

typedef enum pen_filter { /* Pillow's numbers */
                          PEN_FILTER_NEAREST = 0,
                          PEN_FILTER_LANCZOS = 1,
                          PEN_FILTER_BILINEAR = 2,
                          PEN_FILTER_BICUBIC = 3,
                          PEN_FILTER_BOX = 4,
                          PEN_FILTER_HAMMING = 5,
} pen_filter;

typedef enum pen_padding {
    PEN_PADDING_CONSTANT = 0,
    PEN_PADDING_EDGE,
    PEN_PADDING_REFLECT,
    PEN_PADDING_SYMMETRIC,
} pen_padding;

/* How ToTensor makes a float of a byte v.  The first two differ in the last bit of some results. */
typedef enum pen_scaling {
    PEN_SCALING_DIVIDE = 0, /* v / 255: torchvision's ToTensor */
    PEN_SCALING_MULTIPLY,   /* v * (1/255 as a float): its v2.ToDtype(scale=True) */
    PEN_SCALING_NONE,       /* v: its v2.ToDtype(scale=False) */
} pen_scaling;

typedef enum pen_fill { PEN_FILL_VALUE = 0, PEN_FILL_RANDOM } pen_fill;

#define PEN_MAX_CHANNELS 3

typedef struct pen_op {
    pen_op_kind kind;
    union {
        struct {
            int channels;  /* 3: convert("RGB"), 1: convert("L") */
            bool use_exif; /* turn the image as its EXIF orientation says */
        } decode;
        struct {
            int32_t h, w;     /* w == 0: h is the length of the shorter side */
            int32_t max_size; /* 0: none; with w == 0, the longer side is at most this */
            pen_filter filter;
        } resize;
        struct {
            int32_t h, w;
            /* RandomCrop only: left, top, right, bottom */
            int32_t pad[4];
            bool pad_if_needed;
            pen_padding padding_mode;
            uint8_t fill[PEN_MAX_CHANNELS];
        } crop; /* CENTER_CROP, RANDOM_CROP */
        struct {
            int32_t h, w;               /* RANDOM_RESIZED_CROP only */
            float scale_min, scale_max; /* share of the area */
            float ratio_min, ratio_max; /* aspect; RandomErasing: h / w */
            pen_filter filter;          /* RANDOM_RESIZED_CROP only */
            float p;                    /* RANDOM_ERASING only */
            pen_fill fill_mode;         /* RANDOM_ERASING only */
            float value[PEN_MAX_CHANNELS];
        } area; /* RANDOM_RESIZED_CROP, RANDOM_ERASING */
        struct {
            float p;
        } flip;
        struct { /* factors are drawn from [min, max]; min == max == neutral: off */
            float brightness[2], contrast[2], saturation[2]; /* neutral 1 */
            float hue[2];                                    /* neutral 0, within [-0.5, 0.5] */
        } jitter;
        struct {
            int channels; /* 1 or 3 */
        } grayscale;
        struct {
            pen_scaling scaling;
        } to_tensor;
        struct {
            float mean[PEN_MAX_CHANNELS], std[PEN_MAX_CHANNELS];
        } normalize;
    };
} pen_op;

PEN_API const char *pen_op_name(pen_op_kind kind);

PEN_API pen_op pen_op_decode(void);
PEN_API pen_op pen_op_resize(int32_t shorter_side);
PEN_API pen_op pen_op_center_crop(int32_t h, int32_t w);
PEN_API pen_op pen_op_random_crop(int32_t h, int32_t w);
PEN_API pen_op pen_op_random_resized_crop(int32_t h, int32_t w);
PEN_API pen_op pen_op_hflip(float p);
PEN_API pen_op pen_op_vflip(float p);
/* As torchvision's numbers: brightness 0.4 draws from [0.6, 1.4]. */
PEN_API pen_op pen_op_color_jitter(float brightness, float contrast, float saturation, float hue);
PEN_API pen_op pen_op_grayscale(int channels);
PEN_API pen_op pen_op_to_tensor(void);
PEN_API pen_op pen_op_normalize(const float *mean, const float *std, int n_channels);
PEN_API pen_op pen_op_random_erasing(float p);

#endif
