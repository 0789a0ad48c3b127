/* py_dataset.c - the type Dataset: an immutable, sorted list of samples. */
#include "py_core.h"

#include <string.h>

typedef struct py_dataset {
    PyObject_HEAD pen_dataset *dataset;
    PyObject *spec; /* str: what it was opened with */
} py_dataset;

pen_dataset *py_dataset_get(py_state *state, PyObject *object)
{
    if (Py_TYPE(object) == state->dataset_type)
        return ((py_dataset *)object)->dataset;
    PyErr_SetString(PyExc_TypeError, "a penstock.Dataset is expected");
    return NULL;
}

/* ---- opening ---- */

/* As py_check_progress. */
static int check_signals(void *ctx)
{
    (void)ctx;
    PyGILState_STATE lock = PyGILState_Ensure();
    int interrupted = PyErr_CheckSignals() != 0;
    PyGILState_Release(lock);
    return interrupted;
}

int py_check_progress(void *ctx, int64_t done, int64_t total)
{
    (void)done, (void)total;
    return check_signals(ctx);
}

/* A dataset that was opened; NULL and an exception if it was not, or if a signal came meanwhile. */
static pen_dataset *opened(py_state *state, int rc, pen_dataset *dataset, const pen_error *err)
{
    if (rc == 0 && !PyErr_Occurred())
        return dataset;
    pen_dataset_unref(dataset);
    return PyErr_Occurred() ? NULL : (pen_dataset *)py_raise(state, rc, err);
}

/* Open with Python's lock released; NULL and an exception on failure. */
static pen_dataset *open_dataset(py_state *state, const char *path, const char *cache_dir,
                                 bool use_cache, bool allow_outside)
{
    pen_dataset_opts opts;
    pen_dataset_opts_init(&opts);
    opts.cache_dir = cache_dir;
    opts.use_cache = use_cache;
    opts.allow_outside = allow_outside;
    opts.progress = py_check_progress;
    opts.waiting = check_signals;
    pen_dataset *dataset = NULL;
    pen_error err = PY_NO_ERROR;
    int rc;
    Py_BEGIN_ALLOW_THREADS rc = pen_dataset_open(&dataset, path, &opts, &err);
    Py_END_ALLOW_THREADS return opened(state, rc, dataset, &err);
}

int py_optional_path(PyObject *object, void *out)
{
    if (object != NULL && object != Py_None)
        return PyUnicode_FSConverter(object, out);
    Py_CLEAR(*(PyObject **)out);
    return object ? 1 : Py_CLEANUP_SUPPORTED;
}

/* The Python object over an open dataset, which it takes over. */
static PyObject *wrap_dataset(PyTypeObject *type, pen_dataset *dataset, const char *spec)
{
    py_dataset *self = dataset ? PyObject_New(py_dataset, type) : NULL;
    if (!self) {
        pen_dataset_unref(dataset);
        return NULL;
    }
    self->dataset = dataset;
    self->spec = PyUnicode_DecodeFSDefault(spec);
    if (!self->spec)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *dataset_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path", "cache_dir", "use_cache", "allow_outside", NULL};
    PyObject *path = NULL, *cache_dir = NULL;
    int use_cache = 1, allow_outside = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|O&$pp:Dataset", names, PyUnicode_FSConverter,
                                     &path, py_optional_path, &cache_dir, &use_cache,
                                     &allow_outside))
        return NULL;
    const char *text = PyBytes_AsString(path);
    pen_dataset *dataset =
        open_dataset(PyType_GetModuleState(type), text,
                     cache_dir ? PyBytes_AsString(cache_dir) : NULL, use_cache, allow_outside);
    PyObject *self = dataset ? wrap_dataset(type, dataset, text) : NULL;
    Py_DECREF(path);
    Py_XDECREF(cache_dir);
    return self;
}

/* What from_list was given, as C wants it. */
typedef struct file_list {
    py_texts paths, classes;
    py_ids labels;
    const char *root;
} file_list;

static pen_dataset *open_list(py_state *state, const file_list *list)
{
    pen_dataset_opts opts;
    pen_dataset_opts_init(&opts);
    opts.progress = py_check_progress;
    pen_dataset *dataset = NULL;
    pen_error err = PY_NO_ERROR;
    int rc;
    Py_BEGIN_ALLOW_THREADS rc =
        pen_dataset_from_list(&dataset, list->root, list->paths.items, list->labels.data,
                              list->paths.n, list->classes.items, list->classes.n, &opts, &err);
    Py_END_ALLOW_THREADS return opened(state, rc, dataset, &err);
}

/* 0, or -1 with an exception. */
static int read_list(PyObject *paths, PyObject *labels, PyObject *classes, file_list *out)
{
    if (py_texts_get(paths, &out->paths) < 0)
        return -1;
    if (classes != Py_None && py_texts_get(classes, &out->classes) < 0)
        return -1;
    if (labels == Py_None)
        return 0;
    if (py_ids_get(labels, &out->labels) < 0)
        return -1;
    if (out->labels.n == out->paths.n)
        return 0;
    PyErr_Format(PyExc_ValueError, "%zd labels for %zd paths", out->labels.n, out->paths.n);
    return -1;
}

/* Dataset.from_list(paths, labels=None, classes=None, root=None) */
static PyObject *dataset_from_list(PyObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"paths", "labels", "classes", "root", NULL};
    PyObject *paths, *labels = Py_None, *classes = Py_None, *root = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOO&:from_list", names, &paths, &labels,
                                     &classes, py_optional_path, &root))
        return NULL;
    file_list list = {.root = root ? PyBytes_AsString(root) : NULL};
    PyObject *self = NULL;
    if (read_list(paths, labels, classes, &list) == 0) {
        pen_dataset *dataset = open_list(PyType_GetModuleState((PyTypeObject *)type), &list);
        if (dataset)
            self = wrap_dataset((PyTypeObject *)type, dataset, list.root ? list.root : "");
    }
    py_texts_release(&list.paths);
    py_texts_release(&list.classes);
    py_ids_release(&list.labels);
    Py_XDECREF(root);
    return self;
}

static void dataset_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    py_dataset *self = (py_dataset *)object;
    pen_dataset_unref(self->dataset);
    Py_XDECREF(self->spec);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* ---- one sample ---- */

/* A sample id, counted from the end when negative; -1 and IndexError outside. */
static int64_t sample_id(PyObject *object, PyObject *number)
{
    PyObject *index = PyNumber_Index(number);
    long long id = index ? PyLong_AsLongLong(index) : -1;
    Py_XDECREF(index);
    if (id == -1 && PyErr_Occurred())
        return -1;
    const int64_t count = pen_dataset_count(((py_dataset *)object)->dataset);
    if (id < 0)
        id += count;
    if (id >= 0 && id < count)
        return id;
    PyErr_SetString(PyExc_IndexError, "sample id out of range");
    return -1;
}

static PyObject *key_text(PyObject *object, int64_t id)
{
    char key[PEN_KEY_MAX];
    const int64_t n = pen_dataset_key(((py_dataset *)object)->dataset, id, key, sizeof key);
    return n < 0 ? py_raise(py_state_of(object), (int)n, NULL)
                 : PyUnicode_DecodeFSDefaultAndSize(key, (Py_ssize_t)n);
}

static PyObject *dataset_key(PyObject *object, PyObject *number)
{
    const int64_t id = sample_id(object, number);
    return id < 0 ? NULL : key_text(object, id);
}

static PyObject *dataset_keys(PyObject *object, PyObject *unused)
{
    (void)unused;
    const int64_t count = pen_dataset_count(((py_dataset *)object)->dataset);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (int64_t id = 0; list && id < count; id++) {
        PyObject *key = key_text(object, id);
        if (!key || PyList_SetItem(list, (Py_ssize_t)id, key) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *dataset_label(PyObject *object, PyObject *number)
{
    const int64_t id = sample_id(object, number);
    return id < 0 ? NULL
                  : PyLong_FromLongLong(pen_dataset_label(((py_dataset *)object)->dataset, id));
}

static PyObject *dataset_find(PyObject *object, PyObject *key)
{
    PyObject *bytes = NULL;
    if (!PyUnicode_FSConverter(key, &bytes))
        return NULL;
    const int64_t id = pen_dataset_find(((py_dataset *)object)->dataset, PyBytes_AsString(bytes));
    Py_DECREF(bytes);
    if (id >= 0)
        return PyLong_FromLongLong(id);
    if (id == PEN_ENOTFOUND)
        PyErr_SetObject(PyExc_KeyError, key);
    else
        py_raise(py_state_of(object), (int)id, NULL);
    return NULL;
}

/* Bytes of the image or another field, read with Python's lock released. */
static PyObject *read_bytes(PyObject *object, int64_t id, pen_field field, int64_t length)
{
    const pen_dataset *dataset = ((py_dataset *)object)->dataset;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (!bytes)
        return NULL;
    uint8_t *dst = (uint8_t *)PyBytes_AsString(bytes);
    pen_error err = PY_NO_ERROR;
    int64_t rc;
    Py_BEGIN_ALLOW_THREADS rc =
        field == PEN_FIELD_IMAGE
            ? pen_dataset_read(dataset, id, dst, (size_t)length, &err)
            : pen_dataset_field_read(dataset, id, field, dst, (size_t)length, &err);
    Py_END_ALLOW_THREADS if (rc >= 0) return bytes;
    Py_DECREF(bytes);
    return PyErr_Occurred() ? NULL : py_raise(py_state_of(object), (int)rc, &err);
}

static PyObject *dataset_read(PyObject *object, PyObject *number)
{
    const int64_t id = sample_id(object, number);
    if (id < 0)
        return NULL;
    const int64_t length = pen_dataset_length(((py_dataset *)object)->dataset, id);
    return length < 0 ? py_raise(py_state_of(object), (int)length, NULL)
                      : read_bytes(object, id, PEN_FIELD_IMAGE, length);
}

static int field_named(const char *name)
{
    for (int i = 0; i < PEN_FIELD_COUNT; i++)
        if (strcmp(name, pen_field_name((pen_field)i)) == 0)
            return i;
    PyErr_Format(PyExc_ValueError, "field must be 'image', 'cls', 'json' or 'txt', not '%s'", name);
    return -1;
}

static PyObject *dataset_field(PyObject *object, PyObject *args)
{
    PyObject *number;
    const char *name;
    if (!PyArg_ParseTuple(args, "Os:field", &number, &name))
        return NULL;
    const int field = field_named(name);
    const int64_t id = field < 0 ? -1 : sample_id(object, number);
    if (id < 0)
        return NULL;
    if (field == PEN_FIELD_IMAGE)
        return dataset_read(object, number);
    const int64_t length =
        pen_dataset_field_length(((py_dataset *)object)->dataset, id, (pen_field)field);
    if (length == PEN_ENOTFOUND)
        Py_RETURN_NONE;
    return length < 0 ? py_raise(py_state_of(object), (int)length, NULL)
                      : read_bytes(object, id, (pen_field)field, length);
}

/* ---- the whole ---- */

static Py_ssize_t dataset_length(PyObject *object)
{
    return (Py_ssize_t)pen_dataset_count(((py_dataset *)object)->dataset);
}

static PyObject *dataset_classes(PyObject *object, void *unused)
{
    (void)unused;
    const pen_dataset *dataset = ((py_dataset *)object)->dataset;
    const int64_t count = pen_dataset_class_count(dataset);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (int64_t i = 0; list && i < count; i++) {
        PyObject *name = PyUnicode_DecodeFSDefault(pen_dataset_class_name(dataset, i));
        if (!name || PyList_SetItem(list, (Py_ssize_t)i, name) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *dataset_hash(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(pen_dataset_hash(((py_dataset *)object)->dataset));
}

static PyObject *dataset_kind(PyObject *object, void *unused)
{
    (void)unused;
    const pen_source_kind kind = pen_dataset_kind(((py_dataset *)object)->dataset);
    return PyUnicode_FromString(pen_source_kind_name(kind));
}

static PyObject *dataset_nbytes(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(pen_dataset_bytes(((py_dataset *)object)->dataset));
}

static PyObject *dataset_path(PyObject *object, void *unused)
{
    (void)unused;
    PyObject *spec = ((py_dataset *)object)->spec;
    Py_INCREF(spec);
    return spec;
}

static PyObject *dataset_repr(PyObject *object)
{
    const py_dataset *self = (const py_dataset *)object;
    return PyUnicode_FromFormat("Dataset(%R, kind='%s', len=%lld)", self->spec,
                                pen_source_kind_name(pen_dataset_kind(self->dataset)),
                                (long long)pen_dataset_count(self->dataset));
}

static PyMethodDef dataset_methods[] = {
    {"from_list", PY_METHOD(dataset_from_list), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "from_list(paths, labels=None, classes=None, root=None)\n--\n\n"
     "Files one by one, in this order; a file may come more than once.  Relative paths begin "
     "at root, absolute ones below it become relative."},
    {"key", dataset_key, METH_O, "key(id): the sample's key."},
    {"keys", dataset_keys, METH_NOARGS, "keys(): every key, in order of id."},
    {"label", dataset_label, METH_O, "label(id): the sample's label, -1 if it has none."},
    {"read", dataset_read, METH_O, "read(id): the encoded image as bytes."},
    {"field", dataset_field, METH_VARARGS,
     "field(id, name): bytes of 'image', 'cls', 'json' or 'txt', or None."},
    {"find", dataset_find, METH_O, "find(key): the sample's id; KeyError if there is none."},
    {0},
};

static PyGetSetDef dataset_getset[] = {
    {"path", dataset_path, NULL, "What it was opened with.", NULL},
    {"kind", dataset_kind, NULL, "'folder', 'tar', 'manifest', 'list', 'remote' or 'pack'.", NULL},
    {"classes", dataset_classes, NULL, "Class names, where directories give them.", NULL},
    {"hash", dataset_hash, NULL, "Identity, the same for every way of storing it.", NULL},
    {"nbytes", dataset_nbytes, NULL, "Bytes of all images.", NULL},
    {0},
};

static PyType_Slot dataset_slots[] = {
    {Py_tp_doc,
     "Dataset(path, cache_dir=None, *, use_cache=True, allow_outside=False)\n--\n\n"
     "Samples of a folder, of tar shards ('shard-{000..146}.tar'), of a pack ('train.pen'), of a "
     "manifest, or of a storage node ('penstock://host/name')."},
    {Py_tp_new, dataset_new},
    {Py_tp_dealloc, dataset_dealloc},
    {Py_tp_repr, dataset_repr},
    {Py_tp_methods, dataset_methods},
    {Py_tp_getset, dataset_getset},
    {Py_mp_length, dataset_length},
    {0, NULL},
};

PyType_Spec py_dataset_spec = {
    .name = "penstock._core.Dataset",
    .basicsize = sizeof(py_dataset),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = dataset_slots,
};
