/* py_core.h - what the files of the extension share.
 *
 * The extension converts and nothing else: one file a noun of the C API, each
 * with one Python type (or a few functions), the rest is the C library's work
 * or penstock/'s Python.  Only public headers are used.
 *
 * Conventions:
 *  - a function that fails has set a Python exception and returns NULL or -1;
 *  - Python's lock is released around everything that may wait or compute;
 *  - what other threads may free (tensor memory) never touches Python objects.
 */
#ifndef PEN_PY_CORE_H
#define PEN_PY_CORE_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>

#include <penstock/penstock.h>

/* The module's own objects; types are needed to make instances from C. */
typedef struct py_state {
    PyTypeObject *array_type, *batch_type, *dataset_type, *pipeline_type, *loader_type, *guest_type;
    PyObject *errors; /* the module penstock.errors, where the exceptions live */
} py_state;

/* The state behind an instance of one of our types, none of which can be subclassed. */
static inline py_state *py_state_of(PyObject *self)
{
    return (py_state *)PyType_GetModuleState(Py_TYPE(self));
}

/* ---- py_error.c ---- */

/* Raise what the library reported; always returns NULL.  `err->code` 0: `code` stands alone. */
PyObject *py_raise(py_state *state, int code, const pen_error *err);
/* A pen_error that says nothing yet. */
#define PY_NO_ERROR ((pen_error){.code = 0, .offset = -1, .sample = -1})

/* ---- py_fields.c: C structs as dicts, by table ---- */

typedef enum py_field_type {
    PY_FIELD_END = 0,
    PY_FIELD_BOOL,
    PY_FIELD_UINT8,
    PY_FIELD_INT32, /* enums too */
    PY_FIELD_INT64,
    PY_FIELD_UINT64,
    PY_FIELD_FLOAT,
    PY_FIELD_DOUBLE,
} py_field_type;

/* One member of a struct; `count` above 1 is an array, a tuple in Python. */
typedef struct py_field {
    const char *name;
    py_field_type type;
    size_t offset;
    int count;
} py_field;

/* A dict of the table's members.  New reference. */
PyObject *py_fields_to_dict(const py_field *table, const void *from);
/* Fill the members of `into` from a dict.  Every member must be there and nothing else but
 * the key `also` (may be NULL).  ValueError says "<what>: '<member>' ...". */
int py_fields_from_dict(const py_field *table, void *into, PyObject *dict, const char *what,
                        const char *also);

/* ---- py_lists.c ---- */

/* Integers from Python: an array of int64 seen in place, or a sequence copied. */
typedef struct py_ids {
    const int64_t *data;
    Py_ssize_t n;
    int64_t *copy; /* NULL when `data` is in `view` */
    Py_buffer view;
} py_ids;

/* 0, or -1 with an exception. */
int py_ids_get(PyObject *object, py_ids *out);
void py_ids_release(py_ids *ids);

/* Paths or names from Python, as the file system spells them, in two blocks. */
typedef struct py_texts {
    const char *const *items; /* NULL while there are none */
    Py_ssize_t n;
    char *bytes;
} py_texts;

/* 0, or -1 with an exception; `out` is zero before. */
int py_texts_get(PyObject *sequence, py_texts *out);
void py_texts_release(py_texts *texts);

/* ---- py_array.c ---- */

typedef enum py_dtype {
    PY_DTYPE_UINT8,
    PY_DTYPE_FLOAT32,
    PY_DTYPE_FLOAT16,
    PY_DTYPE_BFLOAT16,
    PY_DTYPE_INT64,
    PY_DTYPE_BOOL,
} py_dtype;

#define PY_ARRAY_MAX_DIMS 4

/* Refcounted bytes that any thread may let go: a slab of a batch, or our own. */
typedef struct py_memory py_memory;

/* Takes a reference of its own to the batch.  NULL and MemoryError on failure. */
py_memory *py_memory_of_batch(pen_batch *batch);
py_memory *py_memory_create(size_t n_bytes);
void *py_memory_data(py_memory *memory);
void py_memory_unref(py_memory *memory);

/* An Array over `data` inside `memory`, which it references. */
PyObject *py_array_create(py_state *state, py_memory *memory, void *data, py_dtype dtype, int ndim,
                          const int64_t *shape);
py_dtype py_dtype_of(pen_dtype dtype);
/* Write the dimensions of one sample as its layout says: (C, H, W) or (H, W, C). */
void py_shape_dims(const pen_shape *shape, int64_t dims[3]);

/* ---- py_batch.c ---- */

/* Takes over the caller's reference to `batch`, also on failure; references `ds`. */
PyObject *py_batch_create(py_state *state, pen_batch *batch, pen_dataset *ds);

/* ---- py_dataset.c, py_pipeline.c ---- */

/* The C object behind a Dataset or Pipeline; TypeError for anything else. */
pen_dataset *py_dataset_get(py_state *state, PyObject *object);
/* A progress function of the library: called without Python's lock where something may take long.
 * Ctrl-C ends that, and the exception stays set for whoever gets the lock back. */
int py_check_progress(void *ctx, int64_t done, int64_t total);
pen_pipeline *py_pipeline_get(py_state *state, PyObject *object);

/* ---- py_loader.c, py_knobs.c ---- */

/* The C loader if it is open, whichever thread is in it; else NULL and an exception. */
pen_loader *py_loader_peek(PyObject *object);
/* +1 before Python's lock is let go in a call that any thread may make, -1 after. */
void py_loader_beside(PyObject *object, int change);
/* The policy with a name; -1 and ValueError. */
int py_policy_get(PyObject *name, const pen_knob_policy **out);

PyObject *py_loader_get_knobs(PyObject *object, PyObject *unused);
PyObject *py_loader_knob_table(PyObject *object, PyObject *unused);
PyObject *py_loader_set_knobs(PyObject *object, PyObject *dict);
PyObject *py_loader_release_knob(PyObject *object, PyObject *name);
PyObject *py_loader_set_policy(PyObject *object, PyObject *name);
PyObject *py_loader_policy(PyObject *object, PyObject *unused);
PyObject *py_loader_telemetry(PyObject *object, PyObject *unused);
PyObject *py_loader_verdict(PyObject *object, PyObject *unused);

/* ---- py_views.c ---- */

PyObject *py_loader_metrics(PyObject *object, PyObject *unused);
PyObject *py_loader_status(PyObject *object, PyObject *unused);
PyObject *py_loader_address(PyObject *object, PyObject *unused);
PyObject *py_loader_trace_start(PyObject *object, PyObject *unused);
PyObject *py_loader_trace_stop(PyObject *object, PyObject *path);

/* An O& converter: a path, or None; `out` is a PyObject * that holds bytes or NULL. */
int py_optional_path(PyObject *object, void *out);

/* ---- the types, and functions of the module ---- */

extern PyType_Spec py_array_spec, py_batch_spec, py_dataset_spec, py_pipeline_spec, py_loader_spec,
    py_guest_spec;

PyObject *py_image_probe(PyObject *module, PyObject *args);
PyObject *py_image_decode(PyObject *module, PyObject *args);
PyObject *py_order_at(PyObject *module, PyObject *args);
PyObject *py_order_slice(PyObject *module, PyObject *args);
PyObject *py_pack_write(PyObject *module, PyObject *args);

/* Methods with keywords, as PyMethodDef wants them. */
#define PY_METHOD(function) ((PyCFunction)(void (*)(void))(function))

#endif
