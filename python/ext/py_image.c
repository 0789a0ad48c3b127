/* py_image.c - the functions probe and decode: one encoded image. */
#include "py_core.h"

static const py_field info_fields[] = {
    {"width", PY_FIELD_INT32, offsetof(pen_image_info, width), 1},
    {"height", PY_FIELD_INT32, offsetof(pen_image_info, height), 1},
    {"channels", PY_FIELD_UINT8, offsetof(pen_image_info, channels), 1},
    {"bits", PY_FIELD_UINT8, offsetof(pen_image_info, bits), 1},
    {"orientation", PY_FIELD_UINT8, offsetof(pen_image_info, orientation), 1},
    {"is_progressive", PY_FIELD_BOOL, offsetof(pen_image_info, is_progressive), 1},
    {"is_grey", PY_FIELD_BOOL, offsetof(pen_image_info, is_grey), 1},
    {"is_animated", PY_FIELD_BOOL, offsetof(pen_image_info, is_animated), 1},
    {"sampling_h", PY_FIELD_UINT8, offsetof(pen_image_info, sampling_h), 1},
    {"sampling_v", PY_FIELD_UINT8, offsetof(pen_image_info, sampling_v), 1},
    {0},
};

/* probe(data) -> dict */
PyObject *py_image_probe(PyObject *module, PyObject *args)
{
    Py_buffer data;
    if (!PyArg_ParseTuple(args, "y*:probe", &data))
        return NULL;
    pen_image_info info;
    pen_error err = PY_NO_ERROR;
    const int rc = pen_image_probe(data.buf, (size_t)data.len, &info, &err);
    PyBuffer_Release(&data);
    if (rc < 0)
        return py_raise(PyModule_GetState(module), rc, &err);
    PyObject *dict = py_fields_to_dict(info_fields, &info);
    PyObject *format = dict ? PyUnicode_FromString(pen_format_name(info.format)) : NULL;
    if (!format || PyDict_SetItemString(dict, "format", format) < 0)
        Py_CLEAR(dict);
    Py_XDECREF(format);
    return dict;
}

typedef struct rectangle {
    int32_t x, y, w, h;
} rectangle;

/* None (the whole image) or (x, y, w, h). */
static int window_from_python(PyObject *window, const pen_image_info *info, rectangle *out)
{
    *out = (rectangle){0, 0, info->width, info->height};
    if (window == Py_None)
        return 0;
    PyObject *tuple = PySequence_Tuple(window);
    if (!tuple)
        return -1;
    const int is_good = PyArg_ParseTuple(tuple, "iiii;window must be (x, y, w, h)", &out->x,
                                         &out->y, &out->w, &out->h);
    Py_DECREF(tuple);
    return is_good ? 0 : -1;
}

static PyObject *decode(py_state *state, const Py_buffer *data, int channels, PyObject *window)
{
    pen_image_info info;
    pen_error err = PY_NO_ERROR;
    int64_t rc = pen_image_probe(data->buf, (size_t)data->len, &info, &err);
    if (rc < 0)
        return py_raise(state, (int)rc, &err);
    rectangle box;
    if (window_from_python(window, &info, &box) < 0)
        return NULL;
    if ((channels != 1 && channels != 3) || box.w <= 0 || box.h <= 0) {
        PyErr_Format(PyExc_ValueError, "decode: channels must be 1 or 3 and the window not empty");
        return NULL;
    }
    const size_t n_bytes = (size_t)box.w * (size_t)box.h * (size_t)channels;
    /* A window that hangs over is refused by the library, but not before it is allocated for. */
    if (box.w > info.width || box.h > info.height)
        return py_raise(state, PEN_EINVAL, NULL);
    py_memory *memory = py_memory_create(n_bytes);
    if (!memory)
        return NULL;
    uint8_t *dst = py_memory_data(memory);
    Py_BEGIN_ALLOW_THREADS rc = pen_image_decode(data->buf, (size_t)data->len, box.x, box.y, box.w,
                                                 box.h, channels, dst, n_bytes, &err);
    Py_END_ALLOW_THREADS PyObject *array =
        rc < 0 ? py_raise(state, (int)rc, &err)
               : py_array_create(state, memory, dst, PY_DTYPE_UINT8, 3,
                                 (const int64_t[]){box.h, box.w, channels});
    py_memory_unref(memory);
    return array;
}

/* decode(data, channels, window) -> Array (H, W, C) */
PyObject *py_image_decode(PyObject *module, PyObject *args)
{
    Py_buffer data;
    int channels;
    PyObject *window;
    if (!PyArg_ParseTuple(args, "y*iO:decode", &data, &channels, &window))
        return NULL;
    PyObject *array = decode(PyModule_GetState(module), &data, channels, window);
    PyBuffer_Release(&data);
    return array;
}
