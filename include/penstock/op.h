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
 *
 * A group (RandomApply, RandomChoice, RandomOrder, Compose) is followed by its
 * members, each an operation or a group with members of its own, so that nesting
 * needs no pointers:
 *
 *     pen_op ops[] = {pen_op_random_apply(0.8F, 1), pen_op_color_jitter(0.4F, 0, 0, 0),
 *                     pen_op_hflip(0.5F)};
 */
#ifndef PENSTOCK_OP_H
#define PENSTOCK_OP_H

#include <stdbool.h>
#include <stdint.h>

#include <penstock/visibility.h>

/* kind, torchvision's name */
#define PEN_OPS(X)                               \
    X(DECODE, "Decode")                          \
    X(RESIZE, "Resize")                          \
    X(CENTER_CROP, "CenterCrop")                 \
    X(RANDOM_CROP, "RandomCrop")                 \
    X(RANDOM_RESIZED_CROP, "RandomResizedCrop")  \
    X(HFLIP, "RandomHorizontalFlip")             \
    X(VFLIP, "RandomVerticalFlip")               \
    X(COLOR_JITTER, "ColorJitter")               \
    X(GRAYSCALE, "Grayscale")                    \
    X(TO_TENSOR, "ToTensor")                     \
    X(NORMALIZE, "Normalize")                    \
    X(RANDOM_ERASING, "RandomErasing")           \
    X(PAD, "Pad")                                \
    X(RANDOM_GRAYSCALE, "RandomGrayscale")       \
    X(RANDOM_INVERT, "RandomInvert")             \
    X(RANDOM_POSTERIZE, "RandomPosterize")       \
    X(RANDOM_SOLARIZE, "RandomSolarize")         \
    X(RANDOM_SHARPNESS, "RandomAdjustSharpness") \
    X(RANDOM_AUTOCONTRAST, "RandomAutocontrast") \
    X(RANDOM_EQUALIZE, "RandomEqualize")         \
    X(RANDOM_ROTATION, "RandomRotation")         \
    X(RANDOM_AFFINE, "RandomAffine")             \
    X(RANDOM_PERSPECTIVE, "RandomPerspective")   \
    X(GAUSSIAN_BLUR, "GaussianBlur")             \
    X(AUTO_AUGMENT, "AutoAugment")               \
    X(RAND_AUGMENT, "RandAugment")               \
    X(TRIVIAL_AUGMENT, "TrivialAugmentWide")     \
    X(AUG_MIX, "AugMix")                         \
    X(RANDOM_APPLY, "RandomApply")               \
    X(RANDOM_CHOICE, "RandomChoice")             \
    X(RANDOM_ORDER, "RandomOrder")               \
    X(COMPOSE, "Compose")

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

typedef enum pen_policy { /* AutoAugment's, by the dataset they were learned on */
                          PEN_POLICY_IMAGENET = 0,
                          PEN_POLICY_CIFAR10,
                          PEN_POLICY_SVHN,
} pen_policy;

#define PEN_MAX_CHANNELS 3
#define PEN_MAX_MEMBERS  32 /* of a group */

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
            /* RandomCrop and Pad only: left, top, right, bottom */
            int32_t pad[4];
            bool pad_if_needed; /* RandomCrop only */
            pen_padding padding_mode;
            uint8_t fill[PEN_MAX_CHANNELS];
        } crop; /* CENTER_CROP, RANDOM_CROP, PAD (which has no h, w) */
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
            int32_t bits;    /* RANDOM_POSTERIZE only: 0 to 8 */
            float threshold; /* RANDOM_SOLARIZE only */
            float factor;    /* RANDOM_SHARPNESS only: 0 smooths, 1 changes nothing */
        } chance; /* flips, RANDOM_GRAYSCALE, _INVERT to _EQUALIZE: happens with probability p */
        struct {  /* factors are drawn from [min, max]; min == max == neutral: off */
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
        struct {
            float degrees[2];    /* drawn from [min, max] */
            double translate[2]; /* RANDOM_AFFINE only: share of width and height, at most */
            float scale[2];      /* RANDOM_AFFINE only */
            float shear[4];      /* RANDOM_AFFINE only, degrees: x from [0, 1], y from [2, 3] */
            bool expand;         /* RANDOM_ROTATION only: grow to hold all of the image */
            bool has_center;
            double center[2];           /* x, y; without it the image's middle */
            double distortion_scale, p; /* RANDOM_PERSPECTIVE only */
            pen_filter filter;          /* nearest, bilinear, bicubic */
            uint8_t fill[PEN_MAX_CHANNELS];
        } warp; /* RANDOM_ROTATION, RANDOM_AFFINE, RANDOM_PERSPECTIVE */
        struct {
            int32_t kernel_w, kernel_h; /* odd */
            float sigma[2];             /* drawn from [min, max] */
        } blur;
        struct {
            pen_policy policy;               /* AUTO_AUGMENT only */
            int32_t num_ops, magnitude;      /* RAND_AUGMENT only */
            int32_t num_magnitude_bins;      /* RAND_AUGMENT, TRIVIAL_AUGMENT */
            int32_t severity, mixture_width; /* AUG_MIX only: 1 to 10, 1 to PEN_MAX_CHAINS */
            int32_t chain_depth;             /* AUG_MIX only; not positive: drawn from 1 to 3 */
            float alpha;                     /* AUG_MIX only */
            bool all_ops;                    /* AUG_MIX only */
            pen_filter filter;               /* nearest, bilinear, bicubic */
            uint8_t fill[PEN_MAX_CHANNELS];
        } augment; /* AUTO_AUGMENT, RAND_AUGMENT, TRIVIAL_AUGMENT, AUG_MIX */
        struct {
            int32_t n; /* members that follow, 1 to PEN_MAX_MEMBERS; COMPOSE may have none */
            float p;   /* RANDOM_APPLY only */
            float weights[PEN_MAX_MEMBERS]; /* RANDOM_CHOICE only: all the same for equal chances */
        } group;                            /* RANDOM_APPLY, RANDOM_CHOICE, RANDOM_ORDER, COMPOSE */
    };
} pen_op;

/* What AutoAugment and its relatives are made of: torchvision's names. */
#define PEN_AUGMENTS(X)              \
    X(IDENTITY, "Identity")          \
    X(SHEAR_X, "ShearX")             \
    X(SHEAR_Y, "ShearY")             \
    X(TRANSLATE_X, "TranslateX")     \
    X(TRANSLATE_Y, "TranslateY")     \
    X(ROTATE, "Rotate")              \
    X(BRIGHTNESS, "Brightness")      \
    X(COLOR, "Color")                \
    X(CONTRAST, "Contrast")          \
    X(SHARPNESS, "Sharpness")        \
    X(POSTERIZE, "Posterize")        \
    X(SOLARIZE, "Solarize")          \
    X(AUTO_CONTRAST, "AutoContrast") \
    X(EQUALIZE, "Equalize")          \
    X(INVERT, "Invert")

typedef enum pen_augment {
#define PEN_AUGMENT_ENUM(kind, name) PEN_AUGMENT_##kind,
    PEN_AUGMENTS(PEN_AUGMENT_ENUM)
#undef PEN_AUGMENT_ENUM
        PEN_AUGMENT_COUNT
} pen_augment;

#define PEN_MAX_AUGMENTS 32 /* of one operation on one sample */
#define PEN_MAX_CHAINS   8  /* of AugMix */

PEN_API const char *pen_op_name(pen_op_kind kind);
PEN_API const char *pen_augment_name(pen_augment kind);
/* Is it followed by members? */
PEN_API bool pen_op_is_group(pen_op_kind kind);

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
PEN_API pen_op pen_op_pad(int32_t each_side);
PEN_API pen_op pen_op_random_grayscale(float p);
PEN_API pen_op pen_op_random_invert(float p);
PEN_API pen_op pen_op_random_posterize(int32_t bits, float p);
PEN_API pen_op pen_op_random_solarize(float threshold, float p);
PEN_API pen_op pen_op_random_sharpness(float factor, float p);
PEN_API pen_op pen_op_random_autocontrast(float p);
PEN_API pen_op pen_op_random_equalize(float p);
/* From [-degrees, degrees]. */
PEN_API pen_op pen_op_random_rotation(float degrees);
PEN_API pen_op pen_op_random_affine(float degrees);
PEN_API pen_op pen_op_random_perspective(double distortion_scale, double p);
PEN_API pen_op pen_op_gaussian_blur(int32_t kernel_w, int32_t kernel_h);
PEN_API pen_op pen_op_auto_augment(pen_policy policy);
PEN_API pen_op pen_op_rand_augment(int32_t num_ops, int32_t magnitude);
PEN_API pen_op pen_op_trivial_augment(void);
PEN_API pen_op pen_op_aug_mix(void);
PEN_API pen_op pen_op_random_apply(float p, int32_t n_members);
/* Equal chances, or chances in proportion to n_members weights. */
PEN_API pen_op pen_op_random_choice(int32_t n_members, const float *weights);
PEN_API pen_op pen_op_random_order(int32_t n_members);
PEN_API pen_op pen_op_compose(int32_t n_members);

#endif
