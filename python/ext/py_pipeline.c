/* py_pipeline.c - the type Pipeline: a line of operations, checked and described. */
#include "py_core.h"
#include "py_op.h"

typedef struct py_pipeline {
    PyObject_HEAD pen_pipeline *pipeline;
} py_pipeline;

pen_pipeline *py_pipeline_get(py_state *state, PyObject *object)
{
    if (Py_TYPE(object) == state->pipeline_type)
        return ((py_pipeline *)object)->pipeline;
    PyErr_SetString(PyExc_TypeError, "a Pipeline is expected");
    return NULL;
}

/* The number of operations written to `ops`, or -1. */
static Py_ssize_t ops_from_python(PyObject *list, pen_op ops[PEN_PIPELINE_MAX_OPS])
{
    const Py_ssize_t n = PySequence_Size(list);
    if (n > PEN_PIPELINE_MAX_OPS) {
        PyErr_Format(PyExc_ValueError, "ops: at most %d operations", PEN_PIPELINE_MAX_OPS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *pair = PySequence_GetItem(list, i);
        const int rc = pair ? py_op_from_python(pair, &ops[i]) : -1;
        Py_XDECREF(pair);
        if (rc < 0)
            return -1;
    }
    return n;
}

static PyObject *pipeline_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"ops", "dtype", "layout", NULL};
    PyObject *list;
    int dtype, layout;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Oii:Pipeline", names, &list, &dtype, &layout))
        return NULL;
    pen_op ops[PEN_PIPELINE_MAX_OPS];
    const Py_ssize_t n = ops_from_python(list, ops);
    if (n < 0)
        return NULL;
    pen_pipeline *pipeline = NULL;
    pen_error err = PY_NO_ERROR;
    const int rc =
        pen_pipeline_create(&pipeline, ops, (size_t)n, (pen_dtype)dtype, (pen_layout)layout, &err);
    if (rc < 0)
        return py_raise(PyType_GetModuleState(type), rc, &err);
    py_pipeline *self = PyObject_New(py_pipeline, type);
    if (self)
        self->pipeline = pipeline;
    else
        pen_pipeline_unref(pipeline);
    return (PyObject *)self;
}

static void pipeline_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    pen_pipeline_unref(((py_pipeline *)object)->pipeline);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* ---- draw ---- */

/* A key and an image, as every call here starts with; release `data` afterwards. */
static int parse_sample(PyObject *args, const char *format, Py_buffer *data, pen_key *key,
                        PyObject **params)
{
    unsigned long long seed;
    long long epoch, sample;
    int occurrence;
    if (!PyArg_ParseTuple(args, format, data, &seed, &epoch, &sample, &occurrence, params))
        return -1;
    *key = (pen_key){.seed = seed, .sample = sample, .epoch = epoch, .occurrence = occurrence};
    return 0;
}

static PyObject *params_list(const pen_params *params, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *dict = py_params_to_python(&params[i]);
        if (!dict || PyList_SetItem(list, (Py_ssize_t)i, dict) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* The given operations, and the Decode that may have been added. */
#define MAX_PARAMS (PEN_PIPELINE_MAX_OPS + 1)

/* draw(data, seed, epoch, sample, occurrence) -> list of dicts */
static PyObject *pipeline_draw(PyObject *object, PyObject *args)
{
    const pen_pipeline *pipeline = ((py_pipeline *)object)->pipeline;
    Py_buffer data;
    pen_key key;
    if (parse_sample(args, "y*KLLi:draw", &data, &key, NULL) < 0)
        return NULL;
    pen_image_info info;
    pen_params params[MAX_PARAMS];
    pen_error err = PY_NO_ERROR;
    int rc = pen_image_probe(data.buf, (size_t)data.len, &info, &err);
    PyBuffer_Release(&data);
    if (rc >= 0)
        rc = pen_pipeline_draw(pipeline, &key, &info, params, MAX_PARAMS, &err);
    return rc < 0 ? py_raise(py_state_of(object), rc, &err)
                  : params_list(params, pen_pipeline_op_count(pipeline));
}

/* ---- run ---- */

/* The number of parameters; 0 for None: draw them. */
static Py_ssize_t params_from_python(PyObject *list, pen_params params[MAX_PARAMS])
{
    if (list == Py_None)
        return 0;
    const Py_ssize_t n = PySequence_Size(list);
    if (n == 0 || n > MAX_PARAMS) {
        PyErr_SetString(PyExc_ValueError, "params: one an operation is expected, Decode included");
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *dict = PySequence_GetItem(list, i);
        const int rc = dict ? py_params_from_python(dict, &params[i]) : -1;
        Py_XDECREF(dict);
        if (rc < 0)
            return -1;
    }
    return n;
}

static PyObject *run(PyObject *object, const Py_buffer *data, const pen_key *key, PyObject *list)
{
    const pen_pipeline *pipeline = ((py_pipeline *)object)->pipeline;
    py_state *state = py_state_of(object);
    pen_params params[MAX_PARAMS];
    const Py_ssize_t n = params_from_python(list, params);
    if (n < 0)
        return NULL;
    const pen_shape shape = pen_pipeline_shape(pipeline);
    py_memory *memory = py_memory_create(shape.bytes);
    if (!memory)
        return NULL;
    void *dst = py_memory_data(memory);
    const size_t len = (size_t)data->len;
    pen_error err = PY_NO_ERROR;
    int rc;
    Py_BEGIN_ALLOW_THREADS rc =
        n == 0 ? pen_pipeline_run(pipeline, key, data->buf, len, dst, shape.bytes, &err)
               : pen_pipeline_run_params(pipeline, key, params, (size_t)n, data->buf, len, dst,
                                         shape.bytes, &err);
    Py_END_ALLOW_THREADS int64_t dims[3];
    py_shape_dims(&shape, dims);
    PyObject *array = rc < 0
                          ? py_raise(state, rc, &err)
                          : py_array_create(state, memory, dst, py_dtype_of(shape.dtype), 3, dims);
    py_memory_unref(memory);
    return array;
}

/* run(data, seed, epoch, sample, occurrence, params) -> Array */
static PyObject *pipeline_run(PyObject *object, PyObject *args)
{
    Py_buffer data;
    pen_key key;
    PyObject *params;
    if (parse_sample(args, "y*KLLiO:run", &data, &key, &params) < 0)
        return NULL;
    PyObject *array = run(object, &data, &key, params);
    PyBuffer_Release(&data);
    return array;
}

/* ---- looking at it ---- */

static PyObject *pipeline_describe(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(pen_pipeline_describe(((py_pipeline *)object)->pipeline));
}

static PyObject *pipeline_hash(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(pen_pipeline_hash(((py_pipeline *)object)->pipeline));
}

static PyMethodDef pipeline_methods[] = {
    {"draw", pipeline_draw, METH_VARARGS,
     "draw(data, seed, epoch, sample, occurrence): what each operation would do."},
    {"run", pipeline_run, METH_VARARGS,
     "run(data, seed, epoch, sample, occurrence, params): the tensor; params may be None."},
    {0},
};

static PyGetSetDef pipeline_getset[] = {
    {"description", pipeline_describe, NULL, "Everything the hash covers, as JSON.", NULL},
    {"hash", pipeline_hash, NULL, "Identity of the operations and their numerics.", NULL},
    {0},
};

static PyType_Slot pipeline_slots[] = {
    {Py_tp_doc, "Pipeline(ops, dtype, layout)\n--\n\nA checked line of operations."},
    {Py_tp_new, pipeline_new},
    {Py_tp_dealloc, pipeline_dealloc},
    {Py_tp_methods, pipeline_methods},
    {Py_tp_getset, pipeline_getset},
    {0, NULL},
};

PyType_Spec py_pipeline_spec = {
    .name = "penstock._core.Pipeline",
    .basicsize = sizeof(py_pipeline),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = pipeline_slots,
};
