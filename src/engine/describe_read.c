/* describe_read.c - the pipeline that a description describes.
 *
 * A description comes from a stranger by the network, and what is drawn and done must be exactly
 * what the stranger has in mind.  So settings are read by name here, leniently, the pipeline is
 * made and checked as any other, and then it describes itself: only if that gives the same bytes
 * again is it accepted.  Unknown settings, numbers with more digits than a float has, spaces: all
 * of that shows there, and nothing has to be found here.
 *
 * The first fault is kept and all later readings do nothing, so that one check at the end is
 * enough. Bounds: 64 KiB, PEN_PIPELINE_MAX_OPS operations; groups stand in each other no deeper
 * than there are operations.
 */
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include <penstock/version.h>

#include "base/fail.h"
#include "base/mem.h"
#include "base/text.h"
#include "engine/describe.h"
#include "source/names.h"

typedef struct reading {
    pen_op *ops; /* PEN_PIPELINE_MAX_OPS */
    size_t n;
    const char *op; /* the name of the one that is read */
    int rc;
    pen_error *err;
} reading;

static void complain(reading *r, const char *name, const char *wanted)
{
    if (r->rc == 0)
        r->rc = pen__fail(r->err, PEN_EINVAL, -1, "%s: '%s' must be %s", r->op, name, wanted);
}

/* ---- values ---- */

static double number_at(reading *r, const json_t *value, const char *name, double limit)
{
    const double number = json_number_value(value);
    if (json_is_number(value) && fabs(number) <= limit)
        return number;
    complain(r, name, "a number");
    return 0;
}

static float get_float(reading *r, const json_t *from, const char *name)
{
    return (float)number_at(r, json_object_get(from, name), name, FLT_MAX);
}

static double get_double(reading *r, const json_t *from, const char *name)
{
    return number_at(r, json_object_get(from, name), name, DBL_MAX);
}

static int32_t integer_at(reading *r, const json_t *value, const char *name, int32_t min,
                          int32_t max)
{
    const double number = json_number_value(value);
    if (json_is_number(value) && number >= min && number <= max && number == (int32_t)number)
        return (int32_t)number;
    complain(r, name, "a whole number in its range");
    return 0;
}

static int32_t get_int(reading *r, const json_t *from, const char *name)
{
    return integer_at(r, json_object_get(from, name), name, INT32_MIN, INT32_MAX);
}

static bool get_bool(reading *r, const json_t *from, const char *name)
{
    const json_t *value = json_object_get(from, name);
    if (!json_is_boolean(value))
        complain(r, name, "true or false");
    return json_is_true(value);
}

/* The list if it has n members, else NULL. */
static const json_t *get_list(reading *r, const json_t *from, const char *name, size_t n)
{
    const json_t *list = json_object_get(from, name);
    if (json_is_array(list) && json_array_size(list) == n)
        return list;
    complain(r, name, "a list of another length");
    return NULL;
}

static void get_floats(reading *r, const json_t *from, const char *name, float *out, size_t n)
{
    const json_t *list = get_list(r, from, name, n);
    for (size_t i = 0; list && i < n; i++)
        out[i] = (float)number_at(r, json_array_get(list, i), name, FLT_MAX);
}

static void get_doubles(reading *r, const json_t *from, const char *name, double *out, size_t n)
{
    const json_t *list = get_list(r, from, name, n);
    for (size_t i = 0; list && i < n; i++)
        out[i] = number_at(r, json_array_get(list, i), name, DBL_MAX);
}

static void get_ints(reading *r, const json_t *from, const char *name, int32_t *out, size_t n)
{
    const json_t *list = get_list(r, from, name, n);
    for (size_t i = 0; list && i < n; i++)
        out[i] = integer_at(r, json_array_get(list, i), name, INT32_MIN, INT32_MAX);
}

static void get_fill(reading *r, const json_t *from, uint8_t out[PEN_MAX_CHANNELS])
{
    const json_t *list = get_list(r, from, "fill", PEN_MAX_CHANNELS);
    for (size_t i = 0; list && i < PEN_MAX_CHANNELS; i++)
        out[i] = (uint8_t)integer_at(r, json_array_get(list, i), "fill", 0, 255);
}

/* The number of a word in a list that ends with NULL. */
static int get_word(reading *r, const json_t *from, const char *name, const char *const *words)
{
    const char *word = json_string_value(json_object_get(from, name));
    for (int i = 0; word && words[i]; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    complain(r, name, "one of the words that are known here");
    return 0;
}

static pen_filter get_filter(reading *r, const json_t *from)
{
    return (pen_filter)get_word(r, from, "interpolation", pen__filter_names);
}

/* ---- settings of operations; describe.c has the same order ---- */

static void read_resize(reading *r, const json_t *from, pen_op *op)
{
    int32_t size[2] = {0};
    get_ints(r, from, "size", size, 2);
    op->resize.h = size[0];
    op->resize.w = size[1];
    op->resize.max_size = get_int(r, from, "max_size");
    op->resize.filter = get_filter(r, from);
}

static void read_crop(reading *r, const json_t *from, pen_op *op)
{
    int32_t size[2] = {0};
    if (op->kind != PEN_OP_PAD)
        get_ints(r, from, "size", size, 2);
    op->crop.h = size[0];
    op->crop.w = size[1];
    if (op->kind == PEN_OP_CENTER_CROP)
        return;
    get_ints(r, from, "padding", op->crop.pad, 4);
    if (op->kind == PEN_OP_RANDOM_CROP)
        op->crop.pad_if_needed = get_bool(r, from, "pad_if_needed");
    op->crop.padding_mode = (pen_padding)get_word(r, from, "padding_mode", pen__padding_names);
    get_fill(r, from, op->crop.fill);
}

static void read_area(reading *r, const json_t *from, pen_op *op)
{
    float scale[2] = {0}, ratio[2] = {0};
    get_floats(r, from, "scale", scale, 2);
    get_floats(r, from, "ratio", ratio, 2);
    op->area.scale_min = scale[0];
    op->area.scale_max = scale[1];
    op->area.ratio_min = ratio[0];
    op->area.ratio_max = ratio[1];
    if (op->kind == PEN_OP_RANDOM_RESIZED_CROP) {
        int32_t size[2] = {0};
        get_ints(r, from, "size", size, 2);
        op->area.h = size[0];
        op->area.w = size[1];
        op->area.filter = get_filter(r, from);
        return;
    }
    op->area.p = get_float(r, from, "p");
    if (json_is_string(json_object_get(from, "value"))) /* which word: describing it will show */
        op->area.fill_mode = PEN_FILL_RANDOM;
    else
        get_floats(r, from, "value", op->area.value, PEN_MAX_CHANNELS);
}

static void read_chance(reading *r, const json_t *from, pen_op *op)
{
    if (op->kind == PEN_OP_RANDOM_POSTERIZE)
        op->chance.bits = get_int(r, from, "bits");
    if (op->kind == PEN_OP_RANDOM_SOLARIZE)
        op->chance.threshold = get_float(r, from, "threshold");
    if (op->kind == PEN_OP_RANDOM_SHARPNESS)
        op->chance.factor = get_float(r, from, "sharpness_factor");
    op->chance.p = get_float(r, from, "p");
}

static void read_warp(reading *r, const json_t *from, pen_op *op)
{
    if (op->kind == PEN_OP_RANDOM_PERSPECTIVE) {
        op->warp.distortion_scale = get_double(r, from, "distortion_scale");
        op->warp.p = get_double(r, from, "p");
    } else {
        get_floats(r, from, "degrees", op->warp.degrees, 2);
        op->warp.has_center = !json_is_null(json_object_get(from, "center"));
        if (op->warp.has_center)
            get_doubles(r, from, "center", op->warp.center, 2);
    }
    if (op->kind == PEN_OP_RANDOM_ROTATION)
        op->warp.expand = get_bool(r, from, "expand");
    if (op->kind == PEN_OP_RANDOM_AFFINE) {
        get_doubles(r, from, "translate", op->warp.translate, 2);
        get_floats(r, from, "scale", op->warp.scale, 2);
        get_floats(r, from, "shear", op->warp.shear, 4);
    }
    op->warp.filter = get_filter(r, from);
    get_fill(r, from, op->warp.fill);
}

static void read_blur(reading *r, const json_t *from, pen_op *op)
{
    int32_t size[2] = {0};
    get_ints(r, from, "kernel_size", size, 2);
    op->blur.kernel_w = size[0];
    op->blur.kernel_h = size[1];
    get_floats(r, from, "sigma", op->blur.sigma, 2);
}

static void read_augment(reading *r, const json_t *from, pen_op *op)
{
    if (op->kind == PEN_OP_AUTO_AUGMENT)
        op->augment.policy = (pen_policy)get_word(r, from, "policy", pen__augment_policy_names);
    if (op->kind == PEN_OP_RAND_AUGMENT) {
        op->augment.num_ops = get_int(r, from, "num_ops");
        op->augment.magnitude = get_int(r, from, "magnitude");
    }
    if (op->kind == PEN_OP_RAND_AUGMENT || op->kind == PEN_OP_TRIVIAL_AUGMENT)
        op->augment.num_magnitude_bins = get_int(r, from, "num_magnitude_bins");
    if (op->kind == PEN_OP_AUG_MIX) {
        op->augment.severity = get_int(r, from, "severity");
        op->augment.mixture_width = get_int(r, from, "mixture_width");
        op->augment.chain_depth = get_int(r, from, "chain_depth");
        op->augment.alpha = get_float(r, from, "alpha");
        op->augment.all_ops = get_bool(r, from, "all_ops");
    }
    op->augment.filter = get_filter(r, from);
    get_fill(r, from, op->augment.fill);
}

static void read_jitter(reading *r, const json_t *from, pen_op *op)
{
    get_floats(r, from, "brightness", op->jitter.brightness, 2);
    get_floats(r, from, "contrast", op->jitter.contrast, 2);
    get_floats(r, from, "saturation", op->jitter.saturation, 2);
    get_floats(r, from, "hue", op->jitter.hue, 2);
}

static void read_settings(reading *r, const json_t *from, pen_op *op)
{
    switch (op->kind) {
    case PEN_OP_DECODE:
        op->decode.channels = get_int(r, from, "channels");
        op->decode.use_exif = get_bool(r, from, "exif");
        break;
    case PEN_OP_RESIZE:
        read_resize(r, from, op);
        break;
    case PEN_OP_CENTER_CROP:
    case PEN_OP_RANDOM_CROP:
    case PEN_OP_PAD:
        read_crop(r, from, op);
        break;
    case PEN_OP_RANDOM_RESIZED_CROP:
    case PEN_OP_RANDOM_ERASING:
        read_area(r, from, op);
        break;
    case PEN_OP_HFLIP:
    case PEN_OP_VFLIP:
    case PEN_OP_RANDOM_GRAYSCALE:
    case PEN_OP_RANDOM_INVERT:
    case PEN_OP_RANDOM_POSTERIZE:
    case PEN_OP_RANDOM_SOLARIZE:
    case PEN_OP_RANDOM_SHARPNESS:
    case PEN_OP_RANDOM_AUTOCONTRAST:
    case PEN_OP_RANDOM_EQUALIZE:
        read_chance(r, from, op);
        break;
    case PEN_OP_RANDOM_ROTATION:
    case PEN_OP_RANDOM_AFFINE:
    case PEN_OP_RANDOM_PERSPECTIVE:
        read_warp(r, from, op);
        break;
    case PEN_OP_GAUSSIAN_BLUR:
        read_blur(r, from, op);
        break;
    case PEN_OP_AUTO_AUGMENT:
    case PEN_OP_RAND_AUGMENT:
    case PEN_OP_TRIVIAL_AUGMENT:
    case PEN_OP_AUG_MIX:
        read_augment(r, from, op);
        break;
    case PEN_OP_RANDOM_APPLY:
        op->group.p = get_float(r, from, "p");
        break;
    case PEN_OP_RANDOM_CHOICE:
        get_floats(r, from, "p", op->group.weights, (size_t)op->group.n);
        break;
    case PEN_OP_COLOR_JITTER:
        read_jitter(r, from, op);
        break;
    case PEN_OP_GRAYSCALE:
        op->grayscale.channels = get_int(r, from, "channels");
        break;
    case PEN_OP_NORMALIZE:
        get_floats(r, from, "mean", op->normalize.mean, PEN_MAX_CHANNELS);
        get_floats(r, from, "std", op->normalize.std, PEN_MAX_CHANNELS);
        break;
    case PEN_OP_TO_TENSOR:
        if (json_object_get(from, "scaling"))
            op->to_tensor.scaling = (pen_scaling)get_word(r, from, "scaling", pen__scaling_names);
        break;
    default: /* RandomOrder, Compose have none */
        break;
    }
}

/* ---- the line ---- */

static pen_op_kind kind_named(const char *name)
{
    for (int kind = 0; name && kind < PEN_OP_COUNT; kind++)
        if (strcmp(name, pen_op_name((pen_op_kind)kind)) == 0)
            return (pen_op_kind)kind;
    return PEN_OP_COUNT;
}

/* The operation and the place for it; NULL if there is none. */
static pen_op *add_op(reading *r, const json_t *from)
{
    const pen_op_kind kind = kind_named(json_string_value(json_object_get(from, "op")));
    r->op = kind < PEN_OP_COUNT ? pen_op_name(kind) : "operation";
    if (kind == PEN_OP_COUNT)
        complain(r, "op", "the name of an operation");
    if (r->n == PEN_PIPELINE_MAX_OPS && r->rc == 0)
        r->rc = pen__fail(r->err, PEN_EINVAL, -1, "more than %d operations", PEN_PIPELINE_MAX_OPS);
    if (r->rc)
        return NULL;
    pen_op *op = &r->ops[r->n++];
    memset(op, 0, sizeof *op);
    op->kind = kind;
    return op;
}

static void read_ops(reading *r, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list) && r->rc == 0; i++) {
        const json_t *from = json_array_get(list, i), *members = json_object_get(from, "ops");
        pen_op *op = add_op(r, from);
        if (!op)
            return;
        const bool is_group = pen_op_is_group(op->kind);
        if (is_group && (!json_is_array(members) || json_array_size(members) > PEN_MAX_MEMBERS)) {
            complain(r, "ops", "a list of members");
            return;
        }
        if (is_group)
            op->group.n = (int32_t)json_array_size(members);
        read_settings(r, from, op);
        if (is_group)
            read_ops(r, members);
    }
}

static int check_version(const json_t *root, pen_error *err)
{
    const json_t *numerics = json_object_get(root, "numerics");
    if (!json_is_number(numerics))
        return pen__fail(err, PEN_EINVAL, -1, "no description of a pipeline");
    if (json_number_value(numerics) != PEN_NUMERICS_VERSION)
        return pen__fail(err, PEN_EUNSUPPORTED, -1,
                         "the pipeline has numerics version %.9g, this program %d",
                         json_number_value(numerics), PEN_NUMERICS_VERSION);
    return 0;
}

static int make_pipeline(pen_pipeline **out, const json_t *root, pen_error *err)
{
    int rc = check_version(root, err);
    if (rc)
        return rc;
    reading r = {.op = "pipeline", .err = err};
    r.ops = pen__malloc(PEN_PIPELINE_MAX_OPS * sizeof *r.ops);
    if (!r.ops)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    const pen_dtype dtype = (pen_dtype)get_word(&r, root, "dtype", pen__dtype_names);
    const pen_layout layout = (pen_layout)get_word(&r, root, "layout", pen__layout_names);
    if (!json_is_array(json_object_get(root, "ops")))
        complain(&r, "ops", "a list of operations");
    read_ops(&r, json_object_get(root, "ops"));
    rc = r.rc ? r.rc : pen_pipeline_create(out, r.ops, r.n, dtype, layout, err);
    pen__free(r.ops);
    return rc;
}

int pen__describe_read(pen_pipeline **out, const char *text, size_t len, pen_error *err)
{
    *out = NULL;
    if (len > PEN__DESCRIPTION_MAX)
        return pen__fail(err, PEN_ELIMIT, -1, "a description of %zu bytes: over %d", len,
                         PEN__DESCRIPTION_MAX);
    enum { MAX_VALUES = 64 * PEN_PIPELINE_MAX_OPS };
    if (pen__text_count_values(text, len) > MAX_VALUES)
        return pen__fail(err, PEN_ELIMIT, -1, "more values than %d operations have",
                         PEN_PIPELINE_MAX_OPS);
    json_error_t why;
    pen__shown shown;
    /* as reals: -0 is no integer, and RandomRotation(0) has one */
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &why);
    if (!root)
        return pen__fail(err, PEN_EINVAL, -1, "no description of a pipeline: %s",
                         pen__show(&shown, why.text, strlen(why.text)));
    int rc = make_pipeline(out, root, err);
    json_decref(root);
    if (rc)
        return rc;
    const char *again = pen_pipeline_describe(*out);
    if (strlen(again) == len && memcmp(again, text, len) == 0)
        return 0;
    pen_pipeline_unref(*out);
    *out = NULL;
    return pen__fail(err, PEN_EINVAL, -1,
                     "the description is not written as pen_pipeline_describe writes it");
}
