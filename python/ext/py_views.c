/* py_views.c - a loader as text: OpenMetrics, status, address; traces.
 *
 * Any thread may ask, as with knobs (py_knobs.c).
 */
#include "py_core.h"

#include <stdlib.h>

typedef int64_t (*view)(const pen_loader *, char *, size_t);

static PyObject *text_of(PyObject *object, view write)
{
    const pen_loader *loader = py_loader_peek(object);
    if (!loader)
        return NULL;
    char *text = malloc(PEN_METRICS_MAX);
    if (!text)
        return PyErr_NoMemory();
    const int64_t n = write(loader, text, PEN_METRICS_MAX);
    PyObject *result = n < 0 ? py_raise(py_state_of(object), (int)n, NULL)
                             : PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, NULL);
    free(text);
    return result;
}

PyObject *py_loader_metrics(PyObject *object, PyObject *unused)
{
    (void)unused;
    return text_of(object, pen_loader_metrics);
}

PyObject *py_loader_status(PyObject *object, PyObject *unused)
{
    (void)unused;
    return text_of(object, pen_loader_status);
}

PyObject *py_loader_address(PyObject *object, PyObject *unused)
{
    (void)unused;
    return text_of(object, pen_loader_address);
}

/* trace_start() */
PyObject *py_loader_trace_start(PyObject *object, PyObject *unused)
{
    (void)unused;
    pen_loader *loader = py_loader_peek(object);
    pen_error err = PY_NO_ERROR;
    if (!loader)
        return NULL;
    int rc; /* it may wait for a trace that is being written */
    py_loader_beside(object, 1);
    Py_BEGIN_ALLOW_THREADS rc = pen_loader_trace_start(loader, 0, &err);
    Py_END_ALLOW_THREADS py_loader_beside(object, -1);
    if (rc < 0)
        return py_raise(py_state_of(object), rc, &err);
    Py_RETURN_NONE;
}

/* trace_stop(path) -> the number of spans */
PyObject *py_loader_trace_stop(PyObject *object, PyObject *path)
{
    PyObject *bytes = NULL;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    pen_loader *loader = py_loader_peek(object);
    pen_error err = PY_NO_ERROR;
    int64_t n = -1;
    if (loader) { /* megabytes to write: others go on meanwhile */
        const char *file = PyBytes_AsString(bytes);
        py_loader_beside(object, 1);
        Py_BEGIN_ALLOW_THREADS n = pen_loader_trace_stop(loader, file, &err);
        Py_END_ALLOW_THREADS py_loader_beside(object, -1);
    }
    Py_DECREF(bytes);
    if (!loader)
        return NULL;
    return n < 0 ? py_raise(py_state_of(object), (int)n, &err) : PyLong_FromLongLong(n);
}
