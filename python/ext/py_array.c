/* py_array.c - the type Array: memory of ours that other libraries may use in place.
 *
 * An Array is a shape and a type over refcounted memory.  It has no arithmetic;
 * it hands the memory on, without a copy, through DLPack (torch.from_dlpack,
 * numpy.from_dlpack) and the buffer protocol (numpy.asarray, memoryview).
 *
 * Invariants:
 *  1. Elements are packed, C order; strides follow from the shape.
 *  2. The memory outlives the Array, its exports and the loader it came from:
 *     each export holds a reference of its own.
 *  3. Letting go of an export touches no Python object, since receivers do so
 *     from threads that do not hold Python's lock.
 */
#include "py_core.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "dlpack_abi.h"

static const struct {
    const char *name;
    const char *format; /* the struct module's; NULL: Python has none */
    dl_type type;
} dtypes[] = {
    [PY_DTYPE_UINT8] = {"uint8", "B", {DL_CODE_UINT, 8, 1}},
    [PY_DTYPE_FLOAT32] = {"float32", "f", {DL_CODE_FLOAT, 32, 1}},
    [PY_DTYPE_FLOAT16] = {"float16", "e", {DL_CODE_FLOAT, 16, 1}},
    [PY_DTYPE_BFLOAT16] = {"bfloat16", NULL, {DL_CODE_BFLOAT, 16, 1}},
    [PY_DTYPE_INT64] = {"int64", "q", {DL_CODE_INT, 64, 1}},
    [PY_DTYPE_BOOL] = {"bool", "?", {DL_CODE_BOOL, 8, 1}},
};

typedef struct py_array {
    PyObject_HEAD py_memory *memory;
    void *data;
    py_dtype dtype;
    int ndim;
    Py_ssize_t n_bytes;
    Py_ssize_t shape[PY_ARRAY_MAX_DIMS], strides[PY_ARRAY_MAX_DIMS]; /* strides in bytes */
} py_array;

/* ---- memory ----
 *
 * From the C heap, because of invariant 3: Python's allocators that work without
 * its lock are not in the limited API. */

struct py_memory {
    atomic_int refs;
    pen_batch *batch; /* NULL: the bytes follow this struct */
    void *data;
};

enum { ALIGNMENT = 64 }; /* as a batch's slab has */

py_memory *py_memory_of_batch(pen_batch *batch)
{
    py_memory *memory = malloc(sizeof *memory);
    if (!memory)
        return (py_memory *)PyErr_NoMemory();
    atomic_init(&memory->refs, 1);
    memory->batch = pen_batch_ref(batch);
    memory->data = pen_batch_data(batch);
    return memory;
}

py_memory *py_memory_create(size_t n_bytes)
{
    py_memory *memory = NULL;
    if (n_bytes < PY_SSIZE_T_MAX - sizeof *memory - ALIGNMENT)
        memory = malloc(sizeof *memory + ALIGNMENT + n_bytes);
    if (!memory)
        return (py_memory *)PyErr_NoMemory();
    atomic_init(&memory->refs, 1);
    memory->batch = NULL;
    uintptr_t end = (uintptr_t)(memory + 1);
    memory->data = (void *)((end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    return memory;
}

void *py_memory_data(py_memory *memory)
{
    return memory->data;
}

static py_memory *memory_ref(py_memory *memory)
{
    atomic_fetch_add_explicit(&memory->refs, 1, memory_order_relaxed);
    return memory;
}

void py_memory_unref(py_memory *memory)
{
    if (!memory || atomic_fetch_sub_explicit(&memory->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (memory->batch)
        pen_batch_unref(memory->batch);
    free(memory);
}

/* ---- making one ---- */

PyObject *py_array_create(py_state *state, py_memory *memory, void *data, py_dtype dtype, int ndim,
                          const int64_t *shape)
{
    py_array *self = PyObject_New(py_array, state->array_type);
    if (!self)
        return NULL;
    self->memory = memory_ref(memory);
    self->data = data;
    self->dtype = dtype;
    self->ndim = ndim;
    self->n_bytes = dtypes[dtype].type.bits / 8;
    for (int i = ndim - 1; i >= 0; i--) {
        self->strides[i] = self->n_bytes;
        self->shape[i] = (Py_ssize_t)shape[i];
        self->n_bytes *= self->shape[i];
    }
    return (PyObject *)self;
}

static void array_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    py_memory_unref(((py_array *)object)->memory);
    PyObject_Free(object);
    Py_DECREF(type);
}

py_dtype py_dtype_of(pen_dtype dtype)
{
    switch (dtype) {
    case PEN_DTYPE_FLOAT32:
        return PY_DTYPE_FLOAT32;
    case PEN_DTYPE_FLOAT16:
        return PY_DTYPE_FLOAT16;
    case PEN_DTYPE_BFLOAT16:
        return PY_DTYPE_BFLOAT16;
    case PEN_DTYPE_UINT8:
    case PEN_DTYPE_AUTO: /* never in a pen_shape */
        break;
    }
    return PY_DTYPE_UINT8;
}

void py_shape_dims(const pen_shape *shape, int64_t dims[3])
{
    const bool is_planar = shape->layout == PEN_LAYOUT_NCHW;
    dims[0] = is_planar ? shape->channels : shape->height;
    dims[1] = is_planar ? shape->height : shape->width;
    dims[2] = is_planar ? shape->width : shape->channels;
}

/* ---- DLPack ---- */

typedef struct dl_export {
    union {
        dl_managed legacy;
        dl_managed_versioned versioned;
    };
    py_memory *memory;
    int64_t shape[PY_ARRAY_MAX_DIMS], strides[PY_ARRAY_MAX_DIMS];
} dl_export;

static void export_free(dl_export *export)
{
    py_memory_unref(export->memory);
    free(export);
}

static void delete_legacy(dl_managed *managed)
{
    export_free(managed->context);
}

static void delete_versioned(dl_managed_versioned *managed)
{
    export_free(managed->context);
}

/* Runs when a capsule dies; one that nobody consumed still owns its export. */
static void capsule_destructor(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, DL_CAPSULE)) {
        dl_managed *managed = PyCapsule_GetPointer(capsule, DL_CAPSULE);
        managed->deleter(managed);
    } else if (PyCapsule_IsValid(capsule, DL_CAPSULE_VERSIONED)) {
        dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, DL_CAPSULE_VERSIONED);
        managed->deleter(managed);
    }
}

static void fill_tensor(dl_tensor *tensor, dl_export *export, const py_array *self, void *data)
{
    const Py_ssize_t item = dtypes[self->dtype].type.bits / 8;
    for (int i = 0; i < self->ndim; i++) {
        export->shape[i] = self->shape[i];
        export->strides[i] = self->strides[i] / item;
    }
    *tensor = (dl_tensor){.data = data,
                          .device = {DL_DEVICE_CPU, 0},
                          .ndim = self->ndim,
                          .type = dtypes[self->dtype].type,
                          .shape = export->shape,
                          .strides = export->strides};
}

/* A capsule over `memory`, whose reference it takes over, also on failure. */
static PyObject *export_capsule(const py_array *self, py_memory *memory, void *data,
                                bool is_versioned, bool is_copy)
{
    dl_export *export = calloc(1, sizeof *export);
    if (!export) {
        py_memory_unref(memory);
        return PyErr_NoMemory();
    }
    export->memory = memory;
    PyObject *capsule;
    if (is_versioned) {
        export->versioned = (dl_managed_versioned){.major = DL_VERSION_MAJOR,
                                                   .minor = DL_VERSION_MINOR,
                                                   .context = export,
                                                   .deleter = delete_versioned,
                                                   .flags = is_copy ? DL_FLAG_IS_COPIED : 0};
        fill_tensor(&export->versioned.tensor, export, self, data);
        capsule = PyCapsule_New(&export->versioned, DL_CAPSULE_VERSIONED, capsule_destructor);
    } else {
        export->legacy = (dl_managed){.context = export, .deleter = delete_legacy};
        fill_tensor(&export->legacy.tensor, export, self, data);
        capsule = PyCapsule_New(&export->legacy, DL_CAPSULE, capsule_destructor);
    }
    if (!capsule)
        export_free(export);
    return capsule;
}

/* A tuple of two integers, or None, which leaves them as they are. */
static int pair_from_python(PyObject *pair, int *first, int *second)
{
    if (pair == Py_None)
        return 0;
    if (PyTuple_Check(pair) && PyTuple_Size(pair) == 2)
        return PyArg_ParseTuple(pair, "ii", first, second) ? 0 : -1;
    PyErr_SetString(PyExc_TypeError, "dl_device and max_version are pairs of integers, or None");
    return -1;
}

/* None or (device type, device id); anything but our CPU is refused. */
static int check_device(PyObject *device)
{
    int type = DL_DEVICE_CPU, id = 0;
    if (pair_from_python(device, &type, &id) < 0)
        return -1;
    if (type == DL_DEVICE_CPU && id == 0)
        return 0;
    PyErr_SetString(PyExc_BufferError, "the data is in CPU memory; move it after the exchange");
    return -1;
}

static PyObject *array_dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    py_array *self = (py_array *)object;
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream,
                                     &max_version, &device, &copy) ||
        check_device(device) < 0)
        return NULL;
    if (stream != Py_None) {
        PyErr_SetString(PyExc_ValueError, "stream: CPU memory belongs to no stream");
        return NULL;
    }
    int major = 0, minor = 0;
    if (pair_from_python(max_version, &major, &minor) < 0)
        return NULL;
    const bool is_versioned = major >= DL_VERSION_MAJOR;
    if (copy != Py_True)
        return export_capsule(self, memory_ref(self->memory), self->data, is_versioned, false);
    py_memory *memory = py_memory_create((size_t)self->n_bytes);
    if (!memory)
        return NULL;
    memcpy(memory->data, self->data, (size_t)self->n_bytes);
    return export_capsule(self, memory, memory->data, is_versioned, true);
}

static PyObject *array_dlpack_device(PyObject *object, PyObject *unused)
{
    (void)object, (void)unused;
    return Py_BuildValue("(ii)", DL_DEVICE_CPU, 0);
}

/* ---- the buffer protocol, and NumPy ---- */

static int array_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    py_array *self = (py_array *)object;
    const char *format = dtypes[self->dtype].format;
    if (!format && (flags & PyBUF_FORMAT)) {
        PyErr_SetString(PyExc_BufferError, "Python has no bfloat16 buffers: use DLPack");
        view->obj = NULL;
        return -1;
    }
    Py_INCREF(object);
    *view = (Py_buffer){.buf = self->data,
                        .obj = object,
                        .len = self->n_bytes,
                        .itemsize = dtypes[self->dtype].type.bits / 8,
                        .ndim = flags & PyBUF_ND ? self->ndim : 1, /* else: plain bytes */
                        .format = flags & PyBUF_FORMAT ? (char *)format : NULL,
                        .shape = flags & PyBUF_ND ? self->shape : NULL,
                        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL};
    return 0;
}

/* NumPy asks here only after the buffer protocol has failed, that is for bfloat16;
 * a call by hand gets what numpy.asarray gives. */
static PyObject *array_array(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dtype", "copy", NULL};
    PyObject *dtype = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:__array__", names, &dtype, &copy))
        return NULL;
    if (!dtypes[((py_array *)object)->dtype].format) {
        PyErr_SetString(PyExc_TypeError, "NumPy has no bfloat16: use torch.from_dlpack");
        return NULL;
    }
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *make =
        numpy ? PyObject_GetAttrString(numpy, copy == Py_True ? "array" : "asarray") : NULL;
    PyObject *result = make ? PyObject_CallFunctionObjArgs(make, object, dtype, NULL) : NULL;
    Py_XDECREF(make);
    Py_XDECREF(numpy);
    return result;
}

static PyObject *array_tolist(PyObject *object, PyObject *unused)
{
    (void)unused;
    PyObject *view = PyMemoryView_FromObject(object);
    PyObject *list = view ? PyObject_CallMethod(view, "tolist", NULL) : NULL;
    Py_XDECREF(view);
    return list;
}

/* ---- looking at it ---- */

static PyObject *array_shape(PyObject *object, void *unused)
{
    (void)unused;
    py_array *self = (py_array *)object;
    PyObject *tuple = PyTuple_New(self->ndim);
    for (int i = 0; tuple && i < self->ndim; i++) {
        PyObject *item = PyLong_FromSsize_t(self->shape[i]);
        if (!item || PyTuple_SetItem(tuple, i, item) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *array_dtype(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(dtypes[((py_array *)object)->dtype].name);
}

static PyObject *array_ndim(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLong(((py_array *)object)->ndim);
}

static PyObject *array_nbytes(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromSsize_t(((py_array *)object)->n_bytes);
}

static Py_ssize_t array_length(PyObject *object)
{
    return ((py_array *)object)->shape[0];
}

static PyObject *array_repr(PyObject *object)
{
    PyObject *shape = array_shape(object, NULL);
    if (!shape)
        return NULL;
    const char *dtype = dtypes[((py_array *)object)->dtype].name;
    PyObject *text = PyUnicode_FromFormat("Array(shape=%S, dtype=%s)", shape, dtype);
    Py_DECREF(shape);
    return text;
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", PY_METHOD(array_dlpack), METH_VARARGS | METH_KEYWORDS,
     "The memory as a DLPack capsule, without a copy unless copy=True."},
    {"__dlpack_device__", array_dlpack_device, METH_NOARGS, "(1, 0): CPU memory."},
    {"__array__", PY_METHOD(array_array), METH_VARARGS | METH_KEYWORDS,
     "A numpy.ndarray over the same memory."},
    {"tolist", array_tolist, METH_NOARGS, "The elements as nested lists."},
    {0},
};

static PyGetSetDef array_getset[] = {
    {"shape", array_shape, NULL, "Sizes of the dimensions.", NULL},
    {"dtype", array_dtype, NULL, "Name of the element type, such as 'float32'.", NULL},
    {"ndim", array_ndim, NULL, "Number of dimensions.", NULL},
    {"nbytes", array_nbytes, NULL, "Size in bytes.", NULL},
    {0},
};

static PyType_Slot array_slots[] = {
    {Py_tp_doc, "Memory that NumPy, PyTorch and others use in place (DLPack, buffer protocol)."},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_repr, array_repr},
    {Py_tp_methods, array_methods},
    {Py_tp_getset, array_getset},
    {Py_mp_length, array_length},
    {Py_bf_getbuffer, array_getbuffer},
    {0, NULL},
};

PyType_Spec py_array_spec = {
    .name = "penstock._core.Array",
    .basicsize = sizeof(py_array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = array_slots,
};
