/* py_op.c - operations, between Python and C.
 *
 * One table an operation; the names in it are those of the members in op.h.
 * Values are checked for type and range here, for sense by the pipeline.
 */
#include "py_op.h"

#include <string.h>

_Static_assert(sizeof(pen_filter) == sizeof(int32_t), "enums cross as int32");
_Static_assert(sizeof(int) == sizeof(int32_t), "ints cross as int32");

#define MEMBER(type, group, member)                      \
    {                                                    \
#member, type, offsetof(pen_op, group.member), 1 \
    }
#define MEMBERS(type, group, member, count)                  \
    {                                                        \
#member, type, offsetof(pen_op, group.member), count \
    }

static const py_field decode_fields[] = {
    MEMBER(PY_FIELD_INT32, decode, channels),
    MEMBER(PY_FIELD_BOOL, decode, use_exif),
    {0},
};
static const py_field resize_fields[] = {
    MEMBER(PY_FIELD_INT32, resize, h),
    MEMBER(PY_FIELD_INT32, resize, w),
    MEMBER(PY_FIELD_INT32, resize, max_size),
    MEMBER(PY_FIELD_INT32, resize, filter),
    {0},
};
static const py_field center_crop_fields[] = {
    MEMBER(PY_FIELD_INT32, crop, h),
    MEMBER(PY_FIELD_INT32, crop, w),
    {0},
};
static const py_field random_crop_fields[] = {
    MEMBER(PY_FIELD_INT32, crop, h),
    MEMBER(PY_FIELD_INT32, crop, w),
    MEMBERS(PY_FIELD_INT32, crop, pad, 4),
    MEMBER(PY_FIELD_BOOL, crop, pad_if_needed),
    MEMBER(PY_FIELD_INT32, crop, padding_mode),
    MEMBERS(PY_FIELD_UINT8, crop, fill, PEN_MAX_CHANNELS),
    {0},
};
static const py_field random_resized_crop_fields[] = {
    MEMBER(PY_FIELD_INT32, area, h),         MEMBER(PY_FIELD_INT32, area, w),
    MEMBER(PY_FIELD_FLOAT, area, scale_min), MEMBER(PY_FIELD_FLOAT, area, scale_max),
    MEMBER(PY_FIELD_FLOAT, area, ratio_min), MEMBER(PY_FIELD_FLOAT, area, ratio_max),
    MEMBER(PY_FIELD_INT32, area, filter),    {0},
};
static const py_field pad_fields[] = {
    MEMBERS(PY_FIELD_INT32, crop, pad, 4),
    MEMBER(PY_FIELD_INT32, crop, padding_mode),
    MEMBERS(PY_FIELD_UINT8, crop, fill, PEN_MAX_CHANNELS),
    {0},
};
static const py_field chance_fields[] = {
    MEMBER(PY_FIELD_FLOAT, chance, p),
    {0},
};
static const py_field posterize_fields[] = {
    MEMBER(PY_FIELD_FLOAT, chance, p),
    MEMBER(PY_FIELD_INT32, chance, bits),
    {0},
};
static const py_field solarize_fields[] = {
    MEMBER(PY_FIELD_FLOAT, chance, p),
    MEMBER(PY_FIELD_FLOAT, chance, threshold),
    {0},
};
static const py_field sharpness_fields[] = {
    MEMBER(PY_FIELD_FLOAT, chance, p),
    MEMBER(PY_FIELD_FLOAT, chance, factor),
    {0},
};
static const py_field rotation_fields[] = {
    MEMBERS(PY_FIELD_FLOAT, warp, degrees, 2),
    MEMBER(PY_FIELD_BOOL, warp, expand),
    MEMBER(PY_FIELD_BOOL, warp, has_center),
    MEMBERS(PY_FIELD_DOUBLE, warp, center, 2),
    MEMBER(PY_FIELD_INT32, warp, filter),
    MEMBERS(PY_FIELD_UINT8, warp, fill, PEN_MAX_CHANNELS),
    {0},
};
static const py_field affine_fields[] = {
    MEMBERS(PY_FIELD_FLOAT, warp, degrees, 2),
    MEMBERS(PY_FIELD_DOUBLE, warp, translate, 2),
    MEMBERS(PY_FIELD_FLOAT, warp, scale, 2),
    MEMBERS(PY_FIELD_FLOAT, warp, shear, 4),
    MEMBER(PY_FIELD_BOOL, warp, has_center),
    MEMBERS(PY_FIELD_DOUBLE, warp, center, 2),
    MEMBER(PY_FIELD_INT32, warp, filter),
    MEMBERS(PY_FIELD_UINT8, warp, fill, PEN_MAX_CHANNELS),
    {0},
};
static const py_field perspective_fields[] = {
    MEMBER(PY_FIELD_DOUBLE, warp, distortion_scale),
    MEMBER(PY_FIELD_DOUBLE, warp, p),
    MEMBER(PY_FIELD_INT32, warp, filter),
    MEMBERS(PY_FIELD_UINT8, warp, fill, PEN_MAX_CHANNELS),
    {0},
};
static const py_field blur_fields[] = {
    MEMBER(PY_FIELD_INT32, blur, kernel_w),
    MEMBER(PY_FIELD_INT32, blur, kernel_h),
    MEMBERS(PY_FIELD_FLOAT, blur, sigma, 2),
    {0},
};
static const py_field auto_augment_fields[] = {
    MEMBER(PY_FIELD_INT32, augment, policy),
    MEMBER(PY_FIELD_INT32, augment, filter),
    MEMBERS(PY_FIELD_UINT8, augment, fill, PEN_MAX_CHANNELS),
    {0},
};
static const py_field rand_augment_fields[] = {
    MEMBER(PY_FIELD_INT32, augment, num_ops),
    MEMBER(PY_FIELD_INT32, augment, magnitude),
    MEMBER(PY_FIELD_INT32, augment, num_magnitude_bins),
    MEMBER(PY_FIELD_INT32, augment, filter),
    MEMBERS(PY_FIELD_UINT8, augment, fill, PEN_MAX_CHANNELS),
    {0},
};
static const py_field trivial_augment_fields[] = {
    MEMBER(PY_FIELD_INT32, augment, num_magnitude_bins),
    MEMBER(PY_FIELD_INT32, augment, filter),
    MEMBERS(PY_FIELD_UINT8, augment, fill, PEN_MAX_CHANNELS),
    {0},
};
static const py_field aug_mix_fields[] = {
    MEMBER(PY_FIELD_INT32, augment, severity),
    MEMBER(PY_FIELD_INT32, augment, mixture_width),
    MEMBER(PY_FIELD_INT32, augment, chain_depth),
    MEMBER(PY_FIELD_FLOAT, augment, alpha),
    MEMBER(PY_FIELD_BOOL, augment, all_ops),
    MEMBER(PY_FIELD_INT32, augment, filter),
    MEMBERS(PY_FIELD_UINT8, augment, fill, PEN_MAX_CHANNELS),
    {0},
};
static const py_field group_fields[] = {
    MEMBER(PY_FIELD_INT32, group, n),
    {0},
};
static const py_field random_apply_fields[] = {
    MEMBER(PY_FIELD_INT32, group, n),
    MEMBER(PY_FIELD_FLOAT, group, p),
    {0},
};
static const py_field random_choice_fields[] = {
    MEMBER(PY_FIELD_INT32, group, n),
    MEMBERS(PY_FIELD_FLOAT, group, weights, PEN_MAX_MEMBERS),
    {0},
};
static const py_field jitter_fields[] = {
    MEMBERS(PY_FIELD_FLOAT, jitter, brightness, 2),
    MEMBERS(PY_FIELD_FLOAT, jitter, contrast, 2),
    MEMBERS(PY_FIELD_FLOAT, jitter, saturation, 2),
    MEMBERS(PY_FIELD_FLOAT, jitter, hue, 2),
    {0},
};
static const py_field grayscale_fields[] = {
    MEMBER(PY_FIELD_INT32, grayscale, channels),
    {0},
};
static const py_field to_tensor_fields[] = {
    MEMBER(PY_FIELD_INT32, to_tensor, scaling),
    {0},
};
static const py_field normalize_fields[] = {
    MEMBERS(PY_FIELD_FLOAT, normalize, mean, PEN_MAX_CHANNELS),
    MEMBERS(PY_FIELD_FLOAT, normalize, std, PEN_MAX_CHANNELS),
    {0},
};
static const py_field random_erasing_fields[] = {
    MEMBER(PY_FIELD_FLOAT, area, p),
    MEMBER(PY_FIELD_FLOAT, area, scale_min),
    MEMBER(PY_FIELD_FLOAT, area, scale_max),
    MEMBER(PY_FIELD_FLOAT, area, ratio_min),
    MEMBER(PY_FIELD_FLOAT, area, ratio_max),
    MEMBER(PY_FIELD_INT32, area, fill_mode),
    MEMBERS(PY_FIELD_FLOAT, area, value, PEN_MAX_CHANNELS),
    {0},
};

static const py_field *const fields_of[PEN_OP_COUNT] = {
    [PEN_OP_DECODE] = decode_fields,
    [PEN_OP_RESIZE] = resize_fields,
    [PEN_OP_CENTER_CROP] = center_crop_fields,
    [PEN_OP_RANDOM_CROP] = random_crop_fields,
    [PEN_OP_RANDOM_RESIZED_CROP] = random_resized_crop_fields,
    [PEN_OP_HFLIP] = chance_fields,
    [PEN_OP_VFLIP] = chance_fields,
    [PEN_OP_COLOR_JITTER] = jitter_fields,
    [PEN_OP_GRAYSCALE] = grayscale_fields,
    [PEN_OP_TO_TENSOR] = to_tensor_fields,
    [PEN_OP_NORMALIZE] = normalize_fields,
    [PEN_OP_RANDOM_ERASING] = random_erasing_fields,
    [PEN_OP_PAD] = pad_fields,
    [PEN_OP_RANDOM_GRAYSCALE] = chance_fields,
    [PEN_OP_RANDOM_INVERT] = chance_fields,
    [PEN_OP_RANDOM_POSTERIZE] = posterize_fields,
    [PEN_OP_RANDOM_SOLARIZE] = solarize_fields,
    [PEN_OP_RANDOM_SHARPNESS] = sharpness_fields,
    [PEN_OP_RANDOM_AUTOCONTRAST] = chance_fields,
    [PEN_OP_RANDOM_EQUALIZE] = chance_fields,
    [PEN_OP_RANDOM_ROTATION] = rotation_fields,
    [PEN_OP_RANDOM_AFFINE] = affine_fields,
    [PEN_OP_RANDOM_PERSPECTIVE] = perspective_fields,
    [PEN_OP_GAUSSIAN_BLUR] = blur_fields,
    [PEN_OP_AUTO_AUGMENT] = auto_augment_fields,
    [PEN_OP_RAND_AUGMENT] = rand_augment_fields,
    [PEN_OP_TRIVIAL_AUGMENT] = trivial_augment_fields,
    [PEN_OP_AUG_MIX] = aug_mix_fields,
    [PEN_OP_RANDOM_APPLY] = random_apply_fields,
    [PEN_OP_RANDOM_CHOICE] = random_choice_fields,
    [PEN_OP_RANDOM_ORDER] = group_fields,
    [PEN_OP_COMPOSE] = group_fields,
};

int py_op_kind_named(const char *name)
{
    for (int kind = 0; kind < PEN_OP_COUNT; kind++)
        if (strcmp(name, pen_op_name((pen_op_kind)kind)) == 0)
            return kind;
    PyErr_Format(PyExc_ValueError, "there is no operation '%s'", name);
    return -1;
}

int py_op_from_python(PyObject *pair, pen_op *out)
{
    const char *name;
    PyObject *settings;
    if (!PyTuple_Check(pair)) {
        PyErr_SetString(PyExc_TypeError, "an operation is a tuple (name, settings)");
        return -1;
    }
    if (!PyArg_ParseTuple(pair, "sO!;an operation is a tuple (name, settings)", &name, &PyDict_Type,
                          &settings))
        return -1;
    const int kind = py_op_kind_named(name);
    if (kind < 0)
        return -1;
    memset(out, 0, sizeof *out);
    out->kind = (pen_op_kind)kind;
    return py_fields_from_dict(fields_of[kind], out, settings, name, NULL);
}
