/* py_loader.c - the type Loader: batches in order, and where in the stream we are.
 *
 * What an iteration is, and what `break` means, is decided in penstock/loader.py.
 *
 * Waiting: the library waits with Python's lock released, in slices, and
 * between two slices Python may run its signal handlers: Ctrl-C works at once.
 *
 * A pen_loader is for one thread at a time.  `is_busy` (guarded by Python's
 * lock) is set while a call is inside the library, and a second thread gets an
 * exception instead of a race.  A signal handler that closes the loader between
 * two slices is legal.  What any thread may call looks at the loader under Python's lock;
 * a call that lets go of it is counted (`n_beside`), and nobody closes meanwhile.
 */
#include "py_core.h"

#define SLICE_NS (INT64_C(100) * 1000 * 1000)

typedef struct py_loader {
    PyObject_HEAD pen_loader *loader; /* NULL once closed */
    pen_dataset *dataset;
    bool is_busy;
    int n_beside; /* calls of other threads that a close must not pull the loader away from */
} py_loader;

/* ---- making and ending ---- */

static const py_field opts_fields[] = {
    {"batch_size", PY_FIELD_INT32, offsetof(pen_loader_opts, batch_size), 1},
    {"seed", PY_FIELD_UINT64, offsetof(pen_loader_opts, seed), 1},
    {"order", PY_FIELD_INT32, offsetof(pen_loader_opts, order), 1},
    {"order_block", PY_FIELD_INT32, offsetof(pen_loader_opts, order_block), 1},
    {"order_window", PY_FIELD_INT32, offsetof(pen_loader_opts, order_window), 1},
    {"rank", PY_FIELD_INT32, offsetof(pen_loader_opts, rank), 1},
    {"world_size", PY_FIELD_INT32, offsetof(pen_loader_opts, world_size), 1},
    {"tail", PY_FIELD_INT32, offsetof(pen_loader_opts, tail), 1},
    {"on_error", PY_FIELD_INT32, offsetof(pen_loader_opts, on_error), 1},
    {"max_bad", PY_FIELD_INT64, offsetof(pen_loader_opts, max_bad), 1},
    {"workers", PY_FIELD_INT32, offsetof(pen_loader_opts, workers), 1},
    {"ready_batches", PY_FIELD_INT32, offsetof(pen_loader_opts, ready_batches), 1},
    {"memory_budget", PY_FIELD_INT64, offsetof(pen_loader_opts, memory_budget), 1},
    {"use_index", PY_FIELD_INT32, offsetof(pen_loader_opts, use_index), 1},
    {"period_ms", PY_FIELD_INT32, offsetof(pen_loader_opts, period_ms), 1},
    {"pinned_knobs", PY_FIELD_UINT64, offsetof(pen_loader_opts, pinned_knobs), 1},
    {"offload", PY_FIELD_INT32, offsetof(pen_loader_opts, offload), 1},
    {0},
};

static pen_loader *create_loader(py_state *state, pen_dataset *dataset, pen_pipeline *pipeline,
                                 const pen_loader_opts *opts)
{
    pen_loader *loader = NULL;
    pen_error err = PY_NO_ERROR;
    int rc;
    Py_BEGIN_ALLOW_THREADS rc = pen_loader_create(&loader, dataset, pipeline, opts, &err);
    Py_END_ALLOW_THREADS return rc < 0 ? (pen_loader *)py_raise(state, rc, &err) : loader;
}

static PyObject *wrap_loader(PyTypeObject *type, pen_loader *loader, pen_dataset *dataset)
{
    py_loader *self = PyObject_New(py_loader, type);
    if (!self) {
        pen_loader_free(loader);
        return NULL;
    }
    self->loader = loader;
    self->dataset = pen_dataset_ref(dataset);
    self->is_busy = false;
    self->n_beside = 0;
    return (PyObject *)self;
}

/* (kind, alpha, weight) of each operation; 0, or -1 with an exception. */
static int read_mixes(PyObject *sequence, pen_mix mixes[PEN_MIX_MAX], int32_t *n)
{
    const Py_ssize_t size = sequence ? PySequence_Size(sequence) : 0;
    if (size < 0)
        return -1;
    if (size > PEN_MIX_MAX) {
        PyErr_Format(PyExc_ValueError, "a batch has at most %d operations", PEN_MIX_MAX);
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        int kind = 0;
        const bool is_good =
            item && PyTuple_Check(item) &&
            PyArg_ParseTuple(item, "idd", &kind, &mixes[i].alpha, &mixes[i].weight);
        mixes[i].kind = (pen_mix_kind)kind;
        Py_XDECREF(item);
        if (!is_good) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "(kind, alpha, weight) is expected");
            return -1;
        }
    }
    *n = (int32_t)size;
    return 0;
}

/* Loader(dataset, pipeline, options: dict, ledger: path or None, mixes=(), num_classes=0,
 *        policy="fixed", decision_log: path or None, metrics: str or None) */
static PyObject *loader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dataset",     "pipeline", "options",      "ledger",  "mixes",
                            "num_classes", "policy",   "decision_log", "metrics", NULL};
    py_state *state = PyType_GetModuleState(type);
    PyObject *dataset_object, *pipeline_object, *options, *ledger = NULL, *mix_list = NULL;
    PyObject *policy = NULL, *log = NULL;
    const char *metrics = NULL;
    int num_classes = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO!O&|OiOO&z:Loader", names, &dataset_object,
                                     &pipeline_object, &PyDict_Type, &options, py_optional_path,
                                     &ledger, &mix_list, &num_classes, &policy, py_optional_path,
                                     &log, &metrics))
        return NULL;
    pen_dataset *dataset = py_dataset_get(state, dataset_object);
    pen_pipeline *pipeline = dataset ? py_pipeline_get(state, pipeline_object) : NULL;
    pen_loader_opts opts;
    pen_loader_opts_init(&opts);
    opts.ledger_path = ledger ? PyBytes_AsString(ledger) : NULL;
    pen_mix mixes[PEN_MIX_MAX];
    opts.mixes = mixes;
    opts.num_classes = num_classes;
    opts.decision_log = log ? PyBytes_AsString(log) : NULL;
    opts.metrics = metrics;
    pen_loader *loader = NULL;
    if (pipeline && (!policy || py_policy_get(policy, &opts.policy) == 0) &&
        read_mixes(mix_list, mixes, &opts.n_mixes) == 0 &&
        py_fields_from_dict(opts_fields, &opts, options, "Loader", NULL) == 0)
        loader = create_loader(state, dataset, pipeline, &opts);
    Py_XDECREF(ledger);
    Py_XDECREF(log);
    return loader ? wrap_loader(type, loader, dataset) : NULL;
}

/* Joins threads, so Python's lock is let go. */
static void free_loader(py_loader *self)
{
    pen_loader *loader = self->loader;
    self->loader = NULL;
    Py_BEGIN_ALLOW_THREADS pen_loader_free(loader);
    Py_END_ALLOW_THREADS
}

static void loader_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    py_loader *self = (py_loader *)object;
    free_loader(self);
    pen_dataset_unref(self->dataset);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* The loader, if it is open and no other thread is in it; else NULL and an exception.
 * Asked after arguments are converted: that runs Python code, which may close it. */
static pen_loader *usable(PyObject *object)
{
    const py_loader *self = (const py_loader *)object;
    pen_error err = {.code = PEN_EINVAL, .offset = -1, .text = "the loader is closed"};
    if (!self->loader)
        return (pen_loader *)py_raise(py_state_of(object), err.code, &err);
    if (!self->is_busy)
        return self->loader;
    PyErr_SetString(PyExc_RuntimeError, "the loader is in use by another thread");
    return NULL;
}

pen_loader *py_loader_peek(PyObject *object)
{
    const py_loader *self = (const py_loader *)object;
    return self->loader ? self->loader : usable(object);
}

void py_loader_beside(PyObject *object, int change)
{
    ((py_loader *)object)->n_beside += change;
}

static PyObject *loader_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_loader *self = (py_loader *)object;
    if (self->loader && !usable(object))
        return NULL;
    if (self->n_beside > 0) {
        PyErr_SetString(PyExc_RuntimeError, "the loader is in use by another thread");
        return NULL;
    }
    free_loader(self);
    Py_RETURN_NONE;
}

/* ---- batches ---- */

/* One slice of waiting. */
static int next_slice(py_loader *self, pen_batch **batch, pen_error *err)
{
    pen_loader *loader = self->loader;
    int rc;
    self->is_busy = true;
    Py_BEGIN_ALLOW_THREADS rc = pen_loader_next(loader, SLICE_NS, batch, err);
    Py_END_ALLOW_THREADS self->is_busy = false;
    return rc;
}

/* -1: somebody has made errors of warnings. */
static int pass_on_warning(pen_loader *loader)
{
    char text[640];
    int rc = 0;
    for (int64_t n; rc == 0 && (n = pen_loader_warning(loader, text, sizeof text)) > 0;) {
        /* It may name a file, and names are any bytes. */
        PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, "backslashreplace");
        rc = message ? PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "%U", message) : -1;
        Py_XDECREF(message);
    }
    return rc;
}

/* next() -> Batch, or None at the end of an epoch */
static PyObject *loader_next(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_loader *self = (py_loader *)object;
    pen_batch *batch = NULL;
    pen_error err = PY_NO_ERROR;
    int rc;
    do {
        if (PyErr_CheckSignals() < 0 || !usable(object))
            return NULL;
        rc = next_slice(self, &batch, &err);
        if (PyErr_Occurred()) /* a signal's, while a sample of a remote dataset was waited for */
            return NULL;
    } while (rc == PEN_AGAIN);
    if (rc == PEN_END && pass_on_warning(self->loader) < 0)
        return NULL;
    if (rc == PEN_END)
        Py_RETURN_NONE;
    return rc < 0 ? py_raise(py_state_of(object), rc, &err)
                  : py_batch_create(py_state_of(object), batch, self->dataset);
}

/* replay(epoch, batch) -> Batch */
static PyObject *loader_replay(PyObject *object, PyObject *args)
{
    py_loader *self = (py_loader *)object;
    long long epoch, index;
    if (!PyArg_ParseTuple(args, "LL:replay", &epoch, &index))
        return NULL;
    pen_loader *loader = usable(object);
    if (!loader)
        return NULL;
    pen_batch *batch = NULL;
    pen_error err = PY_NO_ERROR;
    int rc;
    self->is_busy = true;
    Py_BEGIN_ALLOW_THREADS rc = pen_loader_replay(loader, epoch, index, &batch, &err);
    Py_END_ALLOW_THREADS self->is_busy = false;
    if (PyErr_Occurred())
        return NULL;
    return rc < 0 ? py_raise(py_state_of(object), rc, &err)
                  : py_batch_create(py_state_of(object), batch, self->dataset);
}

/* ---- position ---- */

/* seek(epoch, batch) */
static PyObject *loader_seek(PyObject *object, PyObject *args)
{
    py_loader *self = (py_loader *)object;
    long long epoch, index;
    if (!PyArg_ParseTuple(args, "LL:seek", &epoch, &index))
        return NULL;
    pen_loader *loader = usable(object);
    if (!loader)
        return NULL;
    pen_error err = PY_NO_ERROR;
    int rc;
    self->is_busy = true;
    Py_BEGIN_ALLOW_THREADS rc = pen_loader_seek(loader, epoch, index, &err);
    Py_END_ALLOW_THREADS self->is_busy = false;
    if (rc < 0)
        return py_raise(py_state_of(object), rc, &err);
    Py_RETURN_NONE;
}

/* tell() -> (epoch, batch) that comes next */
static PyObject *loader_tell(PyObject *object, PyObject *unused)
{
    (void)unused;
    const pen_loader *loader = usable(object);
    if (!loader)
        return NULL;
    int64_t epoch, index;
    pen_loader_tell(loader, &epoch, &index);
    return Py_BuildValue("(LL)", (long long)epoch, (long long)index);
}

/* state() -> one line of JSON */
static PyObject *loader_state(PyObject *object, PyObject *unused)
{
    (void)unused;
    const pen_loader *loader = usable(object);
    if (!loader)
        return NULL;
    char text[PEN_STATE_MAX];
    const int64_t n = pen_loader_state(loader, text, sizeof text);
    return n < 0 ? py_raise(py_state_of(object), (int)n, NULL)
                 : PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, NULL);
}

/* resume(state: str) */
static PyObject *loader_resume(PyObject *object, PyObject *args)
{
    py_loader *self = (py_loader *)object;
    const char *text;
    if (!PyArg_ParseTuple(args, "s:resume", &text))
        return NULL;
    pen_loader *loader = usable(object);
    if (!loader)
        return NULL;
    pen_error err = PY_NO_ERROR;
    int rc;
    self->is_busy = true;
    Py_BEGIN_ALLOW_THREADS rc = pen_loader_resume(loader, text, &err);
    Py_END_ALLOW_THREADS self->is_busy = false;
    if (rc < 0)
        return py_raise(py_state_of(object), rc, &err);
    Py_RETURN_NONE;
}

/* draw_mix(epoch, batch) -> (kind, lam, (x1, y1, x2, y2)) */
static PyObject *loader_draw_mix(PyObject *object, PyObject *args)
{
    long long epoch, index;
    if (!PyArg_ParseTuple(args, "LL:draw_mix", &epoch, &index))
        return NULL;
    const pen_loader *loader = usable(object);
    if (!loader)
        return NULL;
    pen_error err = PY_NO_ERROR;
    pen_mix_params p;
    const int rc = pen_loader_draw_mix(loader, epoch, index, &p, &err);
    if (rc < 0)
        return py_raise(py_state_of(object), rc, &err);
    return Py_BuildValue("id(iiii)", (int)p.kind, p.lam, (int)p.x1, (int)p.y1, (int)p.x2,
                         (int)p.y2);
}

static Py_ssize_t loader_length(PyObject *object)
{
    const pen_loader *loader = usable(object);
    const int64_t n = loader ? pen_loader_batches(loader) : -1;
    if (loader && n < 0)
        PyErr_SetString(PyExc_TypeError, "a loader that is fed does not know its length");
    return n < 0 ? -1 : (Py_ssize_t)n;
}

/* ---- fed orders ---- */

typedef int (*feed_function)(pen_loader *, const int64_t *, int32_t, pen_error *);

/* feed(ids), skip(ids): any sequence of integers, or an array of int64 as it is. */
static PyObject *feed_ids(PyObject *object, PyObject *ids, feed_function feed)
{
    py_ids list;
    if (py_ids_get(ids, &list) < 0)
        return NULL;
    pen_loader *loader = usable(object);
    pen_error err = PY_NO_ERROR;
    int rc = PEN_EINVAL;
    if (loader && list.n > INT32_MAX)
        PyErr_SetString(PyExc_ValueError, "a batch is far too long");
    else if (loader && (rc = feed(loader, list.data, (int32_t)list.n, &err)) < 0)
        py_raise(py_state_of(object), rc, &err);
    py_ids_release(&list);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *loader_feed(PyObject *object, PyObject *ids)
{
    return feed_ids(object, ids, pen_loader_feed);
}

static PyObject *loader_skip(PyObject *object, PyObject *ids)
{
    return feed_ids(object, ids, pen_loader_skip);
}

static PyObject *loader_feed_end(PyObject *object, PyObject *unused)
{
    (void)unused;
    pen_loader *loader = usable(object);
    pen_error err = PY_NO_ERROR;
    if (!loader)
        return NULL;
    const int rc = pen_loader_feed_end(loader, &err);
    if (rc < 0)
        return py_raise(py_state_of(object), rc, &err);
    Py_RETURN_NONE;
}

static PyObject *loader_fed(PyObject *object, PyObject *unused)
{
    (void)unused;
    const pen_loader *loader = usable(object);
    if (!loader)
        return NULL;
    const int64_t n = pen_loader_fed(loader);
    return n < 0 ? py_raise(py_state_of(object), (int)n, NULL) : PyLong_FromLongLong(n);
}

/* ---- counters ---- */

#define COUNTER(member)                                                \
    {                                                                  \
#member, PY_FIELD_INT64, offsetof(pen_loader_stats, member), 1 \
    }
static const py_field stats_fields[] = {
    COUNTER(batches),
    COUNTER(samples),
    COUNTER(bad_samples),
    COUNTER(bytes_read),
    COUNTER(read_ns),
    COUNTER(decode_ns),
    COUNTER(augment_ns),
    COUNTER(tensor_ns),
    COUNTER(idle_ns),
    COUNTER(wait_ns),
    COUNTER(first_batch_ns),
    COUNTER(budget_bytes),
    COUNTER(budget_used),
    COUNTER(budget_peak),
    COUNTER(jpeg_indexed),
    COUNTER(jpeg_plain),
    COUNTER(jpeg_library),
    COUNTER(index_samples),
    COUNTER(index_bytes),
    {"workers", PY_FIELD_INT32, offsetof(pen_loader_stats, workers), 1},
    {"ready", PY_FIELD_INT32, offsetof(pen_loader_stats, ready), 1},
    {0},
};

/* stats() -> dict; any thread may ask, also while another waits in next(). */
static PyObject *loader_stats(PyObject *object, PyObject *unused)
{
    (void)unused;
    const pen_loader *loader = py_loader_peek(object);
    if (!loader)
        return NULL;
    pen_loader_stats stats;
    pen_loader_get_stats(loader, &stats);
    return py_fields_to_dict(stats_fields, &stats);
}

static PyMethodDef loader_methods[] = {
    {"next", loader_next, METH_NOARGS, "The next batch, None at the end of an epoch."},
    {"replay", loader_replay, METH_VARARGS, "replay(epoch, batch): build a batch again."},
    {"draw_mix", loader_draw_mix, METH_VARARGS, "draw_mix(epoch, batch): what mixes a batch."},
    {"seek", loader_seek, METH_VARARGS, "seek(epoch, batch): go there."},
    {"tell", loader_tell, METH_NOARGS, "(epoch, batch) of what comes next."},
    {"state", loader_state, METH_NOARGS, "Position and identity as a line of JSON."},
    {"resume", loader_resume, METH_VARARGS, "resume(state): continue from a state."},
    {"feed", loader_feed, METH_O, "feed(ids): append a batch (fed orders)."},
    {"skip", loader_skip, METH_O, "skip(ids): count a batch without making it."},
    {"feed_end", loader_feed_end, METH_NOARGS, "The epoch that is being fed is complete."},
    {"fed", loader_fed, METH_NOARGS, "Batches fed and not delivered yet."},
    {"stats", loader_stats, METH_NOARGS, "Counters as a dict."},
    {"telemetry", py_loader_telemetry, METH_NOARGS, "Times by stage, queues, waits."},
    {"verdict", py_loader_verdict, METH_NOARGS, "One line: who waits for whom, and why."},
    {"get_knobs", py_loader_get_knobs, METH_NOARGS, "The knobs as a dict."},
    {"knob_table", py_loader_knob_table, METH_NOARGS, "What each knob is, and its range."},
    {"set_knobs", py_loader_set_knobs, METH_O, "set_knobs(dict): at once, and pinned."},
    {"release_knob", py_loader_release_knob, METH_O, "release_knob(name): the policy's again."},
    {"set_policy", py_loader_set_policy, METH_O, "set_policy(name): who turns the knobs."},
    {"policy", py_loader_policy, METH_NOARGS, "(name, what it last said)."},
    {"metrics", py_loader_metrics, METH_NOARGS, "Statistics as OpenMetrics text."},
    {"status", py_loader_status, METH_NOARGS, "Statistics, knobs, decisions as JSON."},
    {"address", py_loader_address, METH_NOARGS, "Where it answers HTTP, or ''."},
    {"trace_start", py_loader_trace_start, METH_NOARGS, "Begin to note spans."},
    {"trace_stop", py_loader_trace_stop, METH_O, "trace_stop(path): write them."},
    {"close", loader_close, METH_NOARGS, "End the threads; batches stay valid."},
    {0},
};

static PyType_Slot loader_slots[] = {
    {Py_tp_doc, "Loader(dataset, pipeline, options, ledger)\n--\n\nThe stream of batches."},
    {Py_tp_new, loader_new},
    {Py_tp_dealloc, loader_dealloc},
    {Py_tp_methods, loader_methods},
    {Py_mp_length, loader_length},
    {0, NULL},
};

PyType_Spec py_loader_spec = {
    .name = "penstock._core.Loader",
    .basicsize = sizeof(py_loader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = loader_slots,
};
