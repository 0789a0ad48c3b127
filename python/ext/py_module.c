/* py_module.c - the module penstock._core: its types, functions and constants.
 *
 * Where things live:
 *   py_core.h      what the files share; conventions
 *   py_error.c     pen_error -> exception
 *   py_fields.c    C structs <-> dicts, by table
 *   py_op.c        operations and their parameters
 *   py_array.c     Array: DLPack, buffers, dlpack_abi.h
 *   py_image.c     probe, decode
 *   py_pack.c      writing packs
 *   py_dataset.c, py_pipeline.c, py_batch.c, py_loader.c: the types of that name
 *   py_guest.c     Guest: loaders of worker processes, for `penstock top`
 *   py_knobs.c     the part of Loader that any thread may call
 *
 * Import starts no threads and opens no files.
 */
#include "py_core.h"

static PyObject *no_position(PyObject *module, const pen_order *order, int64_t epoch,
                             int64_t position, int code)
{
    pen_error err = {.code = code, .offset = -1};
    PyOS_snprintf(err.text, sizeof err.text,
                  "order: no position %lld in epoch %lld of %lld samples", (long long)position,
                  (long long)epoch, (long long)order->count);
    return py_raise(PyModule_GetState(module), err.code, &err);
}

/* order_at(kind, block, window, seed, count, epoch, position) -> sample id */
PyObject *py_order_at(PyObject *module, PyObject *args)
{
    int kind, block, window;
    unsigned long long seed;
    long long count, epoch, position;
    if (!PyArg_ParseTuple(args, "iiiKLLL:order_at", &kind, &block, &window, &seed, &count, &epoch,
                          &position))
        return NULL;
    const pen_order order = {(pen_order_kind)kind, block, window, seed, count};
    const int64_t id = pen_order_at(&order, epoch, position);
    return id < 0 ? no_position(module, &order, epoch, position, (int)id) : PyLong_FromLongLong(id);
}

/* order_slice(kind, block, window, seed, count, epoch, begin, n) -> list of sample ids; past
 * the end it goes on at the beginning */
PyObject *py_order_slice(PyObject *module, PyObject *args)
{
    int kind, block, window, n;
    unsigned long long seed;
    long long count, epoch, begin;
    if (!PyArg_ParseTuple(args, "iiiKLLLi:order_slice", &kind, &block, &window, &seed, &count,
                          &epoch, &begin, &n))
        return NULL;
    const pen_order order = {(pen_order_kind)kind, block, window, seed, count};
    if (n < 0) {
        PyErr_Format(PyExc_ValueError, "order: a slice of %d samples", n);
        return NULL;
    }
    if (count < 1 || begin < 0 || begin > INT64_MAX - n)
        return no_position(module, &order, epoch, begin, PEN_EINVAL);
    PyObject *ids = PyList_New(n);
    for (int i = 0; ids && i < n; i++) {
        const int64_t position = (begin + i) % count;
        const int64_t id = pen_order_at(&order, epoch, position);
        PyObject *number = id < 0 ? no_position(module, &order, epoch, position, (int)id)
                                  : PyLong_FromLongLong(id);
        if (!number || PyList_SetItem(ids, i, number) < 0)
            Py_CLEAR(ids);
    }
    return ids;
}

static PyObject *py_cpu_level(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(pen_cpu_level());
}

static PyMethodDef functions[] = {
    {"probe", py_image_probe, METH_VARARGS, "probe(data): what the header of an image says."},
    {"decode", py_image_decode, METH_VARARGS, "decode(data, channels, window): pixels (H, W, C)."},
    {"order_at", py_order_at, METH_VARARGS,
     "order_at(kind, block, window, seed, count, epoch, position): a sample id."},
    {"order_slice", py_order_slice, METH_VARARGS,
     "order_slice(kind, block, window, seed, count, epoch, begin, n): sample ids."},
    {"pack", py_pack_write, METH_VARARGS,
     "pack(dataset, path, shard_bytes, overwrite): what to open it with."},
    {"cpu_level", py_cpu_level, METH_NOARGS,
     "The SIMD level in use: 'avx512', 'avx2' or 'scalar'."},
    {0},
};

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out)
{
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *out ? PyModule_AddType(module, *out) : -1;
}

static int module_exec(PyObject *module)
{
    py_state *state = PyModule_GetState(module);
    state->errors = PyImport_ImportModule("penstock.errors");
    if (!state->errors || add_type(module, &py_array_spec, &state->array_type) < 0 ||
        add_type(module, &py_batch_spec, &state->batch_type) < 0 ||
        add_type(module, &py_dataset_spec, &state->dataset_type) < 0 ||
        add_type(module, &py_pipeline_spec, &state->pipeline_type) < 0 ||
        add_type(module, &py_loader_spec, &state->loader_type) < 0 ||
        add_type(module, &py_guest_spec, &state->guest_type) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "version", pen_version());
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    py_state *state = PyModule_GetState(module);
    Py_VISIT(state->errors);
    Py_VISIT(state->array_type);
    Py_VISIT(state->batch_type);
    Py_VISIT(state->dataset_type);
    Py_VISIT(state->pipeline_type);
    Py_VISIT(state->loader_type);
    Py_VISIT(state->guest_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    py_state *state = PyModule_GetState(module);
    Py_CLEAR(state->errors);
    Py_CLEAR(state->array_type);
    Py_CLEAR(state->batch_type);
    Py_CLEAR(state->dataset_type);
    Py_CLEAR(state->pipeline_type);
    Py_CLEAR(state->loader_type);
    Py_CLEAR(state->guest_type);
    return 0;
}

static void module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "penstock._core",
    .m_doc = "The C library, converted and nothing else; use the package penstock.",
    .m_size = sizeof(py_state),
    .m_methods = functions,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void); /* no header has it */
PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
