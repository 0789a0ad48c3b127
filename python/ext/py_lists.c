/* py_lists.c - lists of integers and of paths on their way to C.
 *
 * Samplers give lists, tuples, ranges, NumPy arrays and tensors.  A contiguous array of
 * int64 is read where it is; anything else is a sequence of integers, taken one by one.
 *
 * Paths are copied into one block, because half a million Python objects would take far
 * more room than the dataset made of them.
 */
#include "py_core.h"

#include <string.h>

/* Is it one dimension of native 64-bit integers?  Their letter differs between systems. */
static bool is_int64(const Py_buffer *view)
{
    const char *format = view->format ? view->format : "B";
    if (*format == '@' || *format == '=')
        format++;
    return view->ndim == 1 && view->itemsize == sizeof(int64_t) &&
           (strcmp(format, "q") == 0 || strcmp(format, "l") == 0);
}

static bool read_in_place(PyObject *object, py_ids *out)
{
    if (!PyObject_CheckBuffer(object))
        return false;
    if (PyObject_GetBuffer(object, &out->view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0) {
        PyErr_Clear(); /* strided: it is a sequence all the same */
        return false;
    }
    if (!is_int64(&out->view)) {
        PyBuffer_Release(&out->view);
        return false;
    }
    out->data = out->view.buf;
    out->n = out->view.len / (Py_ssize_t)sizeof(int64_t);
    return true;
}

static int copy_items(PyObject *sequence, py_ids *out)
{
    out->n = PySequence_Size(sequence);
    if (out->n < 0)
        return -1;
    out->copy = PyMem_Malloc((size_t)out->n * sizeof *out->copy + 1);
    if (!out->copy) {
        PyErr_NoMemory();
        return -1;
    }
    out->data = out->copy;
    for (Py_ssize_t i = 0; i < out->n; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        PyObject *index = item ? PyNumber_Index(item) : NULL;
        out->copy[i] = index ? PyLong_AsLongLong(index) : -1;
        Py_XDECREF(item);
        Py_XDECREF(index);
        if (out->copy[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

int py_ids_get(PyObject *object, py_ids *out)
{
    memset(out, 0, sizeof *out);
    if (read_in_place(object, out))
        return 0;
    /* list, tuple, range, array, tensor; a list from an iterator such as a generator */
    PyObject *sequence = PySequence_Check(object) ? Py_NewRef(object) : PySequence_List(object);
    int rc = sequence ? copy_items(sequence, out) : -1;
    Py_XDECREF(sequence);
    if (rc < 0)
        py_ids_release(out);
    return rc;
}

void py_ids_release(py_ids *ids)
{
    PyMem_Free(ids->copy);
    ids->copy = NULL;
    if (ids->view.obj)
        PyBuffer_Release(&ids->view);
}

/* ---- texts ---- */

/* Append one path to the block; its place there, or -1. */
static Py_ssize_t append(py_texts *texts, size_t *used, size_t *cap, PyObject *item)
{
    PyObject *bytes = NULL;
    if (!item || !PyUnicode_FSConverter(item, &bytes))
        return -1;
    size_t len = (size_t)PyBytes_Size(bytes), at = *used;
    if (at + len + 1 > *cap) {
        size_t wanted = (at + len + 1) * 3 / 2 + 4096;
        char *moved = PyMem_Realloc(texts->bytes, wanted);
        if (!moved) {
            Py_DECREF(bytes);
            PyErr_NoMemory();
            return -1;
        }
        texts->bytes = moved;
        *cap = wanted;
    }
    memcpy(texts->bytes + at, PyBytes_AsString(bytes), len + 1);
    *used = at + len + 1;
    Py_DECREF(bytes);
    return (Py_ssize_t)at;
}

static int fill_texts(PyObject *sequence, py_texts *out, Py_ssize_t *places)
{
    size_t used = 0, cap = 0;
    for (Py_ssize_t i = 0; i < out->n; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        places[i] = append(out, &used, &cap, item);
        Py_XDECREF(item);
        if (places[i] < 0)
            return -1;
    }
    return 0;
}

int py_texts_get(PyObject *sequence, py_texts *out)
{
    if (!PySequence_Check(sequence) || PyUnicode_Check(sequence) || PyBytes_Check(sequence)) {
        PyErr_SetString(PyExc_TypeError, "a sequence of paths or names is expected");
        return -1;
    }
    out->n = PySequence_Size(sequence);
    if (out->n < 0)
        return -1;
    /* Places first, for the block moves while it grows; then pointers. */
    Py_ssize_t *places = PyMem_Malloc((size_t)out->n * sizeof *places + 1);
    const char **items = PyMem_Malloc((size_t)out->n * sizeof *items + 1);
    if (!places || !items)
        PyErr_NoMemory();
    if (!places || !items || fill_texts(sequence, out, places) < 0) {
        PyMem_Free(places);
        PyMem_Free((void *)items);
        return -1;
    }
    for (Py_ssize_t i = 0; i < out->n; i++)
        items[i] = out->bytes + places[i];
    PyMem_Free(places);
    out->items = items;
    return 0;
}

void py_texts_release(py_texts *texts)
{
    PyMem_Free((void *)texts->items);
    PyMem_Free(texts->bytes);
    texts->items = NULL;
    texts->bytes = NULL;
}
