/* py_guest.c - Guest: a loader of worker processes in `penstock top PID`. */
#include "py_core.h"

typedef struct py_guest {
    PyObject_HEAD pen_guest *guest;
} py_guest;

static PyObject *guest_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Guest", names))
        return NULL;
    pen_guest *guest = NULL;
    pen_error err = PY_NO_ERROR;
    int rc;
    Py_BEGIN_ALLOW_THREADS rc = pen_guest_open(&guest, &err);
    Py_END_ALLOW_THREADS if (rc < 0) return py_raise(PyType_GetModuleState(type), rc, &err);
    py_guest *self = PyObject_New(py_guest, type);
    if (!self) {
        pen_guest_close(guest);
        return NULL;
    }
    self->guest = guest;
    return (PyObject *)self;
}

static void guest_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    pen_guest *guest = ((py_guest *)object)->guest;
    /* The last one ends a thread, and waits for it. */
    Py_BEGIN_ALLOW_THREADS pen_guest_close(guest);
    Py_END_ALLOW_THREADS PyObject_Free(object);
    Py_DECREF(type);
}

/* say(json) */
static PyObject *guest_say(PyObject *object, PyObject *text)
{
    Py_ssize_t len;
    const char *json = PyUnicode_AsUTF8AndSize(text, &len);
    if (!json)
        return NULL;
    int rc; /* a request that is being answered may hold the lock */
    Py_BEGIN_ALLOW_THREADS rc = pen_guest_say(((py_guest *)object)->guest, json, (size_t)len);
    Py_END_ALLOW_THREADS if (rc < 0) return py_raise(py_state_of(object), rc, NULL);
    Py_RETURN_NONE;
}

/* wishes() -> "workers=3&ready_batches=auto" */
static PyObject *guest_wishes(PyObject *object, PyObject *unused)
{
    (void)unused;
    char wishes[PEN_GUEST_WISHES_MAX];
    int64_t n;
    Py_BEGIN_ALLOW_THREADS n = pen_guest_wishes(((py_guest *)object)->guest, wishes, sizeof wishes);
    Py_END_ALLOW_THREADS return n < 0 ? py_raise(py_state_of(object), (int)n, NULL)
                                      : PyUnicode_DecodeUTF8(wishes, (Py_ssize_t)n, NULL);
}

static PyMethodDef guest_methods[] = {
    {"say", guest_say, METH_O, "say(json): what it is like now, an object of JSON."},
    {"wishes", guest_wishes, METH_NOARGS, "wishes(): what is wanted of its knobs since last time."},
    {0},
};

static PyType_Slot guest_slots[] = {
    {Py_tp_doc, "Guest()\n--\n\nA loader that is made outside the library, for `penstock top`."},
    {Py_tp_new, guest_new},
    {Py_tp_dealloc, guest_dealloc},
    {Py_tp_methods, guest_methods},
    {0, NULL},
};

PyType_Spec py_guest_spec = {
    .name = "penstock._core.Guest",
    .basicsize = sizeof(py_guest),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = guest_slots,
};
