/* py_pack.c - writing packs. */
#include "py_core.h"

/* pack(dataset, path, shard_bytes, overwrite) -> what to open it with */
PyObject *py_pack_write(PyObject *module, PyObject *args)
{
    PyObject *object, *path = NULL;
    long long shard_bytes;
    int overwrite;
    if (!PyArg_ParseTuple(args, "OO&Lp:pack", &object, PyUnicode_FSConverter, &path, &shard_bytes,
                          &overwrite))
        return NULL;
    py_state *state = PyModule_GetState(module);
    const pen_dataset *dataset = py_dataset_get(state, object);
    char spec[PEN_PACK_SPEC_MAX];
    pen_error err = PY_NO_ERROR;
    pen_pack_opts opts;
    pen_pack_opts_init(&opts);
    opts.shard_bytes = shard_bytes;
    opts.overwrite = overwrite;
    opts.progress = py_check_progress;
    int64_t rc = PEN_EINVAL;
    if (dataset) {
        const char *text = PyBytes_AsString(path);
        Py_BEGIN_ALLOW_THREADS rc = pen_pack_write(dataset, text, &opts, spec, sizeof spec, &err);
        Py_END_ALLOW_THREADS
    }
    Py_DECREF(path);
    if (PyErr_Occurred())
        return NULL;
    return rc < 0 ? py_raise(state, (int)rc, &err) : PyUnicode_DecodeFSDefault(spec);
}
