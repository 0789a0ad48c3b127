/* py_batch.c - the type Batch: what a training step receives.
 *
 * batch["image"], ["label"], ["mask"] and ["id"] are Arrays over the batch's
 * slab; "json", "txt" and "cls" are read from the dataset when they are asked
 * for, because most training loops never do: all of a batch together, as each
 * question to a storage node takes its time.
 */
#include "py_core.h"

#include <string.h>

typedef struct py_batch {
    PyObject_HEAD pen_batch *batch;
    py_memory *memory; /* the same slab, for the arrays */
    pen_dataset *dataset;
} py_batch;

PyObject *py_batch_create(py_state *state, pen_batch *batch, pen_dataset *ds)
{
    py_memory *memory = py_memory_of_batch(batch);
    py_batch *self = memory ? PyObject_New(py_batch, state->batch_type) : NULL;
    if (!self) {
        py_memory_unref(memory);
        pen_batch_unref(batch);
        return NULL;
    }
    self->batch = batch;
    self->memory = memory;
    self->dataset = pen_dataset_ref(ds);
    return (PyObject *)self;
}

static void batch_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    py_batch *self = (py_batch *)object;
    py_memory_unref(self->memory);
    pen_batch_unref(self->batch);
    pen_dataset_unref(self->dataset);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* ---- the arrays ---- */

static PyObject *batch_image(py_batch *self)
{
    const pen_shape shape = pen_batch_shape(self->batch);
    int64_t dims[4] = {pen_batch_count(self->batch)};
    py_shape_dims(&shape, dims + 1);
    return py_array_create(py_state_of((PyObject *)self), self->memory, pen_batch_data(self->batch),
                           py_dtype_of(shape.dtype), 4, dims);
}

/* One value a sample.  The memory is the batch holder's, so the const may go. */
static PyObject *batch_column(py_batch *self, const void *data, py_dtype dtype)
{
    const int64_t count = pen_batch_count(self->batch);
    return py_array_create(py_state_of((PyObject *)self), self->memory, (void *)data, dtype, 1,
                           &count);
}

/* (batch) integers, or (batch, classes) floats once they are mixed. */
static PyObject *batch_labels(py_batch *self)
{
    const float *mixed = pen_batch_mixed_labels(self->batch);
    if (!mixed)
        return batch_column(self, pen_batch_labels(self->batch), PY_DTYPE_INT64);
    const int64_t dims[2] = {pen_batch_count(self->batch), pen_batch_classes(self->batch)};
    return py_array_create(py_state_of((PyObject *)self), self->memory, (void *)mixed,
                           PY_DTYPE_FLOAT32, 2, dims);
}

/* ---- fields that lie in the dataset ---- */

/* Bytes for a field of a sample, and where they begin; None where there is no such field. */
static PyObject *field_room(py_batch *self, int64_t id, pen_field field, uint8_t **dst)
{
    const int64_t length = pen_dataset_field_length(self->dataset, id, field);
    *dst = NULL;
    if (length == PEN_ENOTFOUND)
        Py_RETURN_NONE;
    if (length < 0)
        return py_raise(py_state_of((PyObject *)self), (int)length, NULL);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (bytes)
        *dst = (uint8_t *)PyBytes_AsString(bytes);
    return bytes;
}

static PyObject *field_rooms(py_batch *self, pen_field field, uint8_t **dst)
{
    const int64_t count = pen_batch_count(self->batch);
    const int64_t *ids = pen_batch_ids(self->batch);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (int64_t i = 0; list && i < count; i++) {
        PyObject *item = field_room(self, ids[i], field, &dst[i]);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *batch_field(py_batch *self, pen_field field)
{
    const int64_t count = pen_batch_count(self->batch);
    uint8_t **dst = PyMem_Malloc((size_t)(count > 0 ? count : 1) * sizeof *dst);
    if (!dst)
        return PyErr_NoMemory();
    PyObject *list = field_rooms(self, field, dst);
    pen_error err = PY_NO_ERROR;
    int rc = 0;
    if (list) {
        Py_BEGIN_ALLOW_THREADS rc = pen_dataset_fields_read(
            self->dataset, pen_batch_ids(self->batch), count, field, dst, &err);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(dst);
    if (rc == 0)
        return list;
    Py_XDECREF(list);
    return PyErr_Occurred() ? NULL : py_raise(py_state_of((PyObject *)self), rc, &err);
}

static PyObject *batch_subscript(PyObject *object, PyObject *name)
{
    py_batch *self = (py_batch *)object;
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (!text) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "a batch is indexed by name, such as batch['image']");
        return NULL;
    }
    if (strcmp(text, "image") == 0)
        return batch_image(self);
    if (strcmp(text, "label") == 0)
        return batch_labels(self);
    if (strcmp(text, "mask") == 0)
        return batch_column(self, pen_batch_mask(self->batch), PY_DTYPE_BOOL);
    if (strcmp(text, "id") == 0)
        return batch_column(self, pen_batch_ids(self->batch), PY_DTYPE_INT64);
    if (strcmp(text, "json") == 0)
        return batch_field(self, PEN_FIELD_JSON);
    if (strcmp(text, "txt") == 0)
        return batch_field(self, PEN_FIELD_TXT);
    if (strcmp(text, "cls") == 0)
        return batch_field(self, PEN_FIELD_CLS);
    PyErr_SetObject(PyExc_KeyError, name);
    return NULL;
}

/* ---- attributes ---- */

static PyObject *batch_keys(PyObject *object, void *unused)
{
    (void)unused;
    py_batch *self = (py_batch *)object;
    const int64_t count = pen_batch_count(self->batch);
    const int64_t *ids = pen_batch_ids(self->batch);
    char key[PEN_KEY_MAX];
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (int64_t i = 0; list && i < count; i++) {
        const int64_t n = pen_dataset_key(self->dataset, ids[i], key, sizeof key);
        PyObject *item = n < 0 ? py_raise(py_state_of(object), (int)n, NULL)
                               : PyUnicode_DecodeFSDefaultAndSize(key, (Py_ssize_t)n);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *batch_ids(PyObject *object, void *unused)
{
    (void)unused;
    py_batch *self = (py_batch *)object;
    const int64_t count = pen_batch_count(self->batch);
    const int64_t *ids = pen_batch_ids(self->batch);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (int64_t i = 0; list && i < count; i++) {
        PyObject *item = PyLong_FromLongLong(ids[i]);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *batch_epoch(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(pen_batch_epoch(((py_batch *)object)->batch));
}

static PyObject *batch_index(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(pen_batch_index(((py_batch *)object)->batch));
}

static Py_ssize_t batch_length(PyObject *object)
{
    return (Py_ssize_t)pen_batch_count(((py_batch *)object)->batch);
}

static PyObject *batch_repr(PyObject *object)
{
    const pen_batch *batch = ((py_batch *)object)->batch;
    return PyUnicode_FromFormat(
        "Batch(epoch=%lld, index=%lld, len=%lld)", (long long)pen_batch_epoch(batch),
        (long long)pen_batch_index(batch), (long long)pen_batch_count(batch));
}

static PyGetSetDef batch_getset[] = {
    {"keys", batch_keys, NULL, "Keys of the samples.", NULL},
    {"ids", batch_ids, NULL, "Ids of the samples in the dataset.", NULL},
    {"epoch", batch_epoch, NULL, "The epoch this batch belongs to.", NULL},
    {"index", batch_index, NULL, "Its place in the epoch.", NULL},
    {0},
};

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, "One step's samples: batch['image'], ['label'], ['mask'], ['id'], ['json'], "
                "['txt'], ['cls']."},
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_repr, batch_repr},
    {Py_tp_getset, batch_getset},
    {Py_mp_length, batch_length},
    {Py_mp_subscript, batch_subscript},
    {0, NULL},
};

PyType_Spec py_batch_spec = {
    .name = "penstock._core.Batch",
    .basicsize = sizeof(py_batch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = batch_slots,
};
