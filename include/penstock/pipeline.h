/* pipeline.h - a line of operations from encoded bytes to a tensor.
 *
 * Immutable once created, shared by threads.  Parameters (a crop box, a flip)
 * are drawn from a key and the image's header alone, so anyone can ask for
 * them without touching a pixel, and run the same operations elsewhere.
 */
#ifndef PENSTOCK_PIPELINE_H
#define PENSTOCK_PIPELINE_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>
#include <penstock/image.h>
#include <penstock/op.h>

#define PEN_PIPELINE_MAX_OPS 64 /* groups and their members all count */

typedef struct pen_pipeline pen_pipeline;

typedef enum pen_dtype {
    PEN_DTYPE_AUTO = 0, /* float32 after ToTensor, else uint8 */
    PEN_DTYPE_UINT8,
    PEN_DTYPE_FLOAT32,
    PEN_DTYPE_FLOAT16,
    PEN_DTYPE_BFLOAT16,
} pen_dtype;

typedef enum pen_layout { PEN_LAYOUT_NCHW = 0, PEN_LAYOUT_NHWC } pen_layout;

typedef struct pen_shape {
    int32_t channels, height, width;
    pen_dtype dtype; /* never AUTO */
    pen_layout layout;
    size_t bytes; /* of one sample */
} pen_shape;

/* The random key of one sample's journey.  Two journeys with equal keys are
 * equal; the bit layout of the counter is fixed in src/base/rng.h. */
typedef struct pen_key {
    uint64_t seed;
    int64_t sample;
    int64_t epoch;
    int32_t occurrence; /* 0 for a sample's first time in an epoch */
} pen_key;

/* One primitive of AutoAugment and its relatives, as torchvision's _apply_op takes it. */
typedef struct pen_augment_step {
    pen_augment kind;
    float magnitude; /* with its sign */
} pen_augment_step;

/* What one operation does to one sample.  Of the union, the member of its kind counts. */
typedef struct pen_params {
    pen_op_kind kind;
    bool applied;         /* does it happen?  false too for what a group did not take */
    int32_t in_w, in_h;   /* size before */
    int32_t out_w, out_h; /* size after */
    int32_t x, y, w, h;   /* box: crops (may hang over where padding is added), erasing */
    union {
        struct {
            uint8_t order[4]; /* 0 brightness, 1 contrast, 2 saturation, 3 hue, in turn */
            float factor[4];  /* indexed as above */
        } jitter;
        struct {
            float angle; /* degrees: counter-clockwise for rotation, clockwise for affine */
            int32_t translate[2]; /* affine only, as what follows */
            float scale;
            float shear[2]; /* degrees */
        } warp;             /* RANDOM_ROTATION, RANDOM_AFFINE */
        struct {
            int32_t
                points[8]; /* x, y of where top left, top right, bottom right and bottom left go */
        } perspective;
        struct {
            float sigma;
        } blur;
        struct {
            uint8_t n_steps;
            uint8_t n_chains;                  /* AUG_MIX: the steps in turn belong to chains */
            uint8_t depth[PEN_MAX_CHAINS];     /* AUG_MIX: steps of each */
            float weights[PEN_MAX_CHAINS + 1]; /* AUG_MIX: of the image itself and of each chain */
            pen_augment_step steps[PEN_MAX_AUGMENTS];
        } augment; /* AUTO_AUGMENT, RAND_AUGMENT, TRIVIAL_AUGMENT, AUG_MIX */
        struct {
            uint8_t n_taken;                /* RANDOM_APPLY: 0 or all; RANDOM_CHOICE: 1 */
            uint8_t order[PEN_MAX_MEMBERS]; /* which members are taken, in turn */
        } group;
    };
} pen_params;

/* Check the line, add Decode and find out what comes out.  The output size must
 * not depend on the image: end with a crop or a Resize to (h, w).
 * On success the caller owns *out.  PEN_EINVAL names the operation at fault. */
PEN_API int pen_pipeline_create(pen_pipeline **out, const pen_op *ops, size_t n_ops,
                                pen_dtype dtype, pen_layout layout, pen_error *err);
PEN_API pen_pipeline *pen_pipeline_ref(pen_pipeline *pipe);
PEN_API void pen_pipeline_unref(pen_pipeline *pipe);

PEN_API size_t pen_pipeline_op_count(const pen_pipeline *pipe);
PEN_API pen_op_kind pen_pipeline_op_kind(const pen_pipeline *pipe, size_t index);
PEN_API pen_shape pen_pipeline_shape(const pen_pipeline *pipe);
/* One line of JSON that says everything the hash covers.  Lives with the pipeline. */
PEN_API const char *pen_pipeline_describe(const pen_pipeline *pipe);
/* 32 hex digits over the description and the numerics version. */
PEN_API const char *pen_pipeline_hash(const pen_pipeline *pipe);

/* Draw the parameters of every operation (one pen_params an operation, Decode,
 * groups and members included) for an image with this header. */
PEN_API int pen_pipeline_draw(const pen_pipeline *pipe, const pen_key *key,
                              const pen_image_info *info, pen_params *out, size_t out_cap,
                              pen_error *err);

/* Run one encoded sample into dst (pen_shape.bytes).  Slow path: allocates its
 * scratch; loaders keep theirs.
 * Never reads past src+len nor writes past dst+dst_cap, whatever the input. */
PEN_API int pen_pipeline_run(const pen_pipeline *pipe, const pen_key *key, const uint8_t *src,
                             size_t len, void *dst, size_t dst_cap, pen_error *err);
/* The same with parameters given instead of drawn (n = op count), for checking. */
PEN_API int pen_pipeline_run_params(const pen_pipeline *pipe, const pen_key *key,
                                    const pen_params *params, size_t n, const uint8_t *src,
                                    size_t len, void *dst, size_t dst_cap, pen_error *err);

#endif
