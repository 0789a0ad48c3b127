/* py_error.c - a pen_error becomes a Python exception.
 *
 * The classes are written in Python (penstock/errors.py): each names the codes
 * it stands for in `errors.BY_CODE`, so this file needs no table of its own.
 */
#include "py_core.h"

#include <string.h>

/* The class for the code's name, borrowed; the base class where none is listed. */
static PyObject *class_for(PyObject *errors, const char *name)
{
    PyObject *by_code = PyObject_GetAttrString(errors, "BY_CODE");
    if (!by_code)
        return NULL;
    PyObject *key = PyUnicode_FromString(name);
    PyObject *found = key ? PyDict_GetItemWithError(by_code, key) : NULL;
    Py_XINCREF(found);
    Py_XDECREF(key);
    Py_DECREF(by_code);
    if (!found && !PyErr_Occurred())
        found = PyObject_GetAttrString(errors, "Error");
    return found;
}

PyObject *py_raise(py_state *state, int code, const pen_error *err)
{
    const bool has_reason = err && err->code != 0 && err->text[0];
    const char *text = has_reason ? err->text : pen_error_message(code);
    const char *name = pen_error_name(code);
    if (code == PEN_ENOMEM) {
        PyErr_SetString(PyExc_MemoryError, text);
        return NULL;
    }
    PyObject *class = class_for(state->errors, name);
    if (!class)
        return NULL;
    /* Keys are bytes of any kind; an error must never fail to be told. */
    PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
    PyObject *error = message ? PyObject_CallFunctionObjArgs(class, message, NULL) : NULL;
    PyObject *code_name = PyUnicode_FromString(name);
    PyObject *offset = has_reason && err->offset >= 0 ? PyLong_FromLongLong(err->offset)
                                                      : (Py_INCREF(Py_None), Py_None);
    PyObject *sample = has_reason && err->sample >= 0 ? PyLong_FromLongLong(err->sample)
                                                      : (Py_INCREF(Py_None), Py_None);
    if (error && code_name && offset && sample &&
        PyObject_SetAttrString(error, "code", code_name) == 0 &&
        PyObject_SetAttrString(error, "offset", offset) == 0 &&
        PyObject_SetAttrString(error, "sample", sample) == 0)
        PyErr_SetObject(class, error);
    Py_XDECREF(sample);
    Py_XDECREF(offset);
    Py_XDECREF(code_name);
    Py_XDECREF(error);
    Py_XDECREF(message);
    Py_DECREF(class);
    return NULL;
}
