/* py_fields.c - C structs as Python dicts, by table.
 *
 * Settings, parameters, options and counters cross the border in both
 * directions.  A table lists a struct's members once; the two functions here
 * do the rest, so no noun has conversion code of its own.
 */
#include "py_core.h"

#include <float.h>
#include <math.h>

static const size_t field_bytes[] = {
    [PY_FIELD_BOOL] = sizeof(bool),       [PY_FIELD_UINT8] = sizeof(uint8_t),
    [PY_FIELD_INT32] = sizeof(int32_t),   [PY_FIELD_INT64] = sizeof(int64_t),
    [PY_FIELD_UINT64] = sizeof(uint64_t), [PY_FIELD_FLOAT] = sizeof(float),
    [PY_FIELD_DOUBLE] = sizeof(double),
};

/* ---- to Python ---- */

static PyObject *element_to_python(py_field_type type, const void *from)
{
    switch (type) {
    case PY_FIELD_BOOL:
        return PyBool_FromLong(*(const bool *)from);
    case PY_FIELD_UINT8:
        return PyLong_FromLong(*(const uint8_t *)from);
    case PY_FIELD_INT32:
        return PyLong_FromLong(*(const int32_t *)from);
    case PY_FIELD_INT64:
        return PyLong_FromLongLong(*(const int64_t *)from);
    case PY_FIELD_UINT64:
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)from);
    case PY_FIELD_FLOAT:
        return PyFloat_FromDouble((double)*(const float *)from);
    case PY_FIELD_DOUBLE:
        return PyFloat_FromDouble(*(const double *)from);
    case PY_FIELD_END:
        break;
    }
    PyErr_SetString(PyExc_SystemError, "a field of no type");
    return NULL;
}

static PyObject *field_to_python(const py_field *field, const void *from)
{
    const char *at = (const char *)from + field->offset;
    if (field->count == 1)
        return element_to_python(field->type, at);
    PyObject *tuple = PyTuple_New(field->count);
    for (int i = 0; tuple && i < field->count; i++) {
        PyObject *item = element_to_python(field->type, at + (size_t)i * field_bytes[field->type]);
        if (!item || PyTuple_SetItem(tuple, i, item) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

PyObject *py_fields_to_dict(const py_field *table, const void *from)
{
    PyObject *dict = PyDict_New();
    for (const py_field *field = table; dict && field->type != PY_FIELD_END; field++) {
        PyObject *value = field_to_python(field, from);
        if (!value || PyDict_SetItemString(dict, field->name, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

/* ---- from Python ---- */

/* 0, or -1 with OverflowError or TypeError set. */
static int integer_from_python(PyObject *value, long long min, long long max, long long *out)
{
    PyObject *index = PyNumber_Index(value); /* NumPy's integers are welcome, floats are not */
    if (!index)
        return -1;
    *out = PyLong_AsLongLong(index);
    Py_DECREF(index);
    if (*out == -1 && PyErr_Occurred())
        return -1;
    if (*out < min || *out > max) {
        PyErr_SetString(PyExc_OverflowError, "out of range");
        return -1;
    }
    return 0;
}

static int uint64_from_python(PyObject *value, uint64_t *out)
{
    PyObject *index = PyNumber_Index(value);
    if (!index)
        return -1;
    *out = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    return *out == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

static int double_from_python(PyObject *value, double limit, double *out)
{
    *out = PyFloat_AsDouble(value);
    if (*out == -1.0 && PyErr_Occurred())
        return -1;
    if (!isfinite(*out) || fabs(*out) > limit) {
        PyErr_SetString(PyExc_OverflowError, "not a finite number");
        return -1;
    }
    return 0;
}

static int float_from_python(PyObject *value, float *out)
{
    double wide;
    if (double_from_python(value, (double)FLT_MAX, &wide) < 0)
        return -1;
    *out = (float)wide;
    return 0;
}

static int element_from_python(py_field_type type, void *into, PyObject *value)
{
    long long number = 0;
    switch (type) {
    case PY_FIELD_BOOL: {
        int truth = PyObject_IsTrue(value);
        *(bool *)into = truth > 0;
        return truth < 0 ? -1 : 0;
    }
    case PY_FIELD_UINT8:
        if (integer_from_python(value, 0, UINT8_MAX, &number) < 0)
            return -1;
        *(uint8_t *)into = (uint8_t)number;
        return 0;
    case PY_FIELD_INT32:
        if (integer_from_python(value, INT32_MIN, INT32_MAX, &number) < 0)
            return -1;
        *(int32_t *)into = (int32_t)number;
        return 0;
    case PY_FIELD_INT64:
        if (integer_from_python(value, INT64_MIN, INT64_MAX, &number) < 0)
            return -1;
        *(int64_t *)into = number;
        return 0;
    case PY_FIELD_UINT64:
        return uint64_from_python(value, into);
    case PY_FIELD_FLOAT:
        return float_from_python(value, into);
    case PY_FIELD_DOUBLE:
        return double_from_python(value, DBL_MAX, into);
    case PY_FIELD_END:
        break;
    }
    PyErr_SetString(PyExc_SystemError, "a field of no type");
    return -1;
}

static int field_from_python(const py_field *field, void *into, PyObject *value)
{
    char *at = (char *)into + field->offset;
    if (field->count == 1)
        return element_from_python(field->type, at, value);
    Py_ssize_t n = PySequence_Size(value);
    if (n < 0)
        return -1;
    if (n != field->count) {
        PyErr_Format(PyExc_ValueError, "%d values expected", field->count);
        return -1;
    }
    int rc = 0;
    for (Py_ssize_t i = 0; i < n && rc == 0; i++) {
        PyObject *item = PySequence_GetItem(value, i);
        rc = item
                 ? element_from_python(field->type, at + (size_t)i * field_bytes[field->type], item)
                 : -1;
        Py_XDECREF(item);
    }
    return rc;
}

/* Replace the pending exception by a ValueError that names the member. */
static void name_the_member(const char *what, const char *member)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (type && !PyErr_GivenExceptionMatches(type, PyExc_MemoryError)) {
        PyErr_Format(PyExc_ValueError, "%s: '%s': %S", what, member, value ? value : Py_None);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
    } else {
        PyErr_Restore(type, value, trace);
    }
}

int py_fields_from_dict(const py_field *table, void *into, PyObject *dict, const char *what,
                        const char *also)
{
    Py_ssize_t n_known = 0;
    for (const py_field *field = table; field->type != PY_FIELD_END; field++, n_known++) {
        PyObject *value = PyDict_GetItemString(dict, field->name);
        if (!value) {
            PyErr_Format(PyExc_ValueError, "%s: '%s' is missing", what, field->name);
            return -1;
        }
        if (field_from_python(field, into, value) < 0) {
            name_the_member(what, field->name);
            return -1;
        }
    }
    if (also && PyDict_GetItemString(dict, also))
        n_known++;
    if (PyDict_Size(dict) != n_known) {
        PyErr_Format(PyExc_ValueError, "%s: has settings that do not exist", what);
        return -1;
    }
    return 0;
}
