/* py_op.c - operations and their drawn parameters, between Python and C.
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
static const py_field flip_fields[] = {
    MEMBER(PY_FIELD_FLOAT, flip, p),
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
    [PEN_OP_HFLIP] = flip_fields,
    [PEN_OP_VFLIP] = flip_fields,
    [PEN_OP_COLOR_JITTER] = jitter_fields,
    [PEN_OP_GRAYSCALE] = grayscale_fields,
    [PEN_OP_TO_TENSOR] = to_tensor_fields,
    [PEN_OP_NORMALIZE] = normalize_fields,
    [PEN_OP_RANDOM_ERASING] = random_erasing_fields,
};

/* -1 and ValueError for a name that is not in op.h's list. */
static int kind_named(const char *name)
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
    const int kind = kind_named(name);
    if (kind < 0)
        return -1;
    memset(out, 0, sizeof *out);
    out->kind = (pen_op_kind)kind;
    return py_fields_from_dict(fields_of[kind], out, settings, name, NULL);
}

/* ---- drawn parameters ---- */

static const py_field params_fields[] = {
    {"applied", PY_FIELD_BOOL, offsetof(pen_params, applied), 1},
    {"in_w", PY_FIELD_INT32, offsetof(pen_params, in_w), 1},
    {"in_h", PY_FIELD_INT32, offsetof(pen_params, in_h), 1},
    {"out_w", PY_FIELD_INT32, offsetof(pen_params, out_w), 1},
    {"out_h", PY_FIELD_INT32, offsetof(pen_params, out_h), 1},
    {"x", PY_FIELD_INT32, offsetof(pen_params, x), 1},
    {"y", PY_FIELD_INT32, offsetof(pen_params, y), 1},
    {"w", PY_FIELD_INT32, offsetof(pen_params, w), 1},
    {"h", PY_FIELD_INT32, offsetof(pen_params, h), 1},
    {"order", PY_FIELD_UINT8, offsetof(pen_params, order), 4},
    {"factor", PY_FIELD_FLOAT, offsetof(pen_params, factor), 4},
    {0},
};

PyObject *py_params_to_python(const pen_params *params)
{
    PyObject *dict = py_fields_to_dict(params_fields, params);
    PyObject *kind = dict ? PyUnicode_FromString(pen_op_name(params->kind)) : NULL;
    if (!kind || PyDict_SetItemString(dict, "kind", kind) < 0)
        Py_CLEAR(dict);
    Py_XDECREF(kind);
    return dict;
}

int py_params_from_python(PyObject *dict, pen_params *out)
{
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "params: a list of dicts is expected, as draw() gives");
        return -1;
    }
    PyObject *kind = PyDict_GetItemString(dict, "kind");
    const char *name = kind && PyUnicode_Check(kind) ? PyUnicode_AsUTF8AndSize(kind, NULL) : NULL;
    if (!name) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "params: 'kind' is missing");
        return -1;
    }
    const int number = kind_named(name);
    if (number < 0)
        return -1;
    memset(out, 0, sizeof *out);
    out->kind = (pen_op_kind)number;
    return py_fields_from_dict(params_fields, out, dict, name, "kind");
}
