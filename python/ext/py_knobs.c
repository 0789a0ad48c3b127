/* py_knobs.c - the loader's knobs, policy, telemetry and verdict.
 *
 * Any thread may ask, also while another waits in next().  Python's lock is kept: what is
 * called here waits for nothing but short locks, and a close cannot come between.
 */
#include "py_core.h"

#include <math.h>

/* ---- knobs ---- */

/* get_knobs() -> {name: value} */
PyObject *py_loader_get_knobs(PyObject *object, PyObject *unused)
{
    (void)unused;
    const pen_loader *loader = py_loader_peek(object);
    pen_knobs knobs;
    if (!loader)
        return NULL;
    int rc = pen_loader_get_knobs(loader, &knobs);
    if (rc < 0)
        return py_raise(py_state_of(object), rc, NULL);
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < PEN_KNOB_COUNT; i++) {
        pen_knob_info info;
        pen_loader_knob(loader, i, &info);
        PyObject *value = info.is_integer ? PyLong_FromDouble(knobs.value[i])
                                          : PyFloat_FromDouble(knobs.value[i]);
        if (!value || PyDict_SetItemString(dict, info.name, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

/* knob_table() -> {name: (unit, text, min, max, is_integer, is_pinned)} */
PyObject *py_loader_knob_table(PyObject *object, PyObject *unused)
{
    (void)unused;
    const pen_loader *loader = py_loader_peek(object);
    PyObject *dict = loader ? PyDict_New() : NULL;
    for (int i = 0; dict && i < PEN_KNOB_COUNT; i++) {
        pen_knob_info k;
        int rc = pen_loader_knob(loader, i, &k);
        PyObject *line = rc < 0 ? py_raise(py_state_of(object), rc, NULL)
                                : Py_BuildValue("ssddOO", k.unit, k.text, k.min, k.max,
                                                k.is_integer ? Py_True : Py_False,
                                                k.is_pinned ? Py_True : Py_False);
        if (!line || PyDict_SetItemString(dict, k.name, line) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(line);
    }
    return dict;
}

/* The knob that a Python string names, or -1 with an exception. */
static int find_knob(PyObject *name)
{
    PyObject *bytes = PyUnicode_Check(name) ? PyUnicode_AsUTF8String(name) : NULL;
    int knob = bytes ? pen_knob_find(PyBytes_AsString(bytes)) : -1;
    Py_XDECREF(bytes);
    if (knob < 0 && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "no knob %R", name);
    return knob;
}

/* set_knobs({name: number}) */
PyObject *py_loader_set_knobs(PyObject *object, PyObject *dict)
{
    pen_knobs knobs;
    pen_knobs_init(&knobs);
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "a dict of knobs is expected");
        return NULL;
    }
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &name, &value);) {
        const int knob = find_knob(name);
        const double number = knob < 0 ? -1 : PyFloat_AsDouble(value);
        if (PyErr_Occurred())
            return NULL;
        if (isnan(number)) {
            PyErr_Format(PyExc_ValueError, "%S must be a number, not NaN", name);
            return NULL;
        }
        knobs.value[knob] = number;
    }
    pen_loader *loader = py_loader_peek(object);
    pen_error err = PY_NO_ERROR;
    if (!loader)
        return NULL;
    const int rc = pen_loader_set_knobs(loader, &knobs, &err);
    if (rc < 0)
        return py_raise(py_state_of(object), rc, &err);
    Py_RETURN_NONE;
}

/* release_knob(name) */
PyObject *py_loader_release_knob(PyObject *object, PyObject *name)
{
    const int knob = find_knob(name);
    pen_loader *loader = knob < 0 ? NULL : py_loader_peek(object);
    if (!loader)
        return NULL;
    const int rc = pen_loader_release_knobs(loader, UINT64_C(1) << knob);
    if (rc < 0)
        return py_raise(py_state_of(object), rc, NULL);
    Py_RETURN_NONE;
}

/* ---- policy ---- */

int py_policy_get(PyObject *name, const pen_knob_policy **out)
{
    PyObject *bytes = PyUnicode_Check(name) ? PyUnicode_AsUTF8String(name) : NULL;
    *out = bytes ? pen_policy_find(PyBytes_AsString(bytes)) : NULL;
    Py_XDECREF(bytes);
    if (*out)
        return 0;
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError,
                     "policy must be 'fixed', 'rules', 'hillclimb' or 'model', not %R", name);
    return -1;
}

/* set_policy(name) */
PyObject *py_loader_set_policy(PyObject *object, PyObject *name)
{
    const pen_knob_policy *policy;
    pen_loader *loader = py_policy_get(name, &policy) < 0 ? NULL : py_loader_peek(object);
    pen_error err = PY_NO_ERROR;
    if (!loader)
        return NULL;
    const int rc = pen_loader_set_policy(loader, policy, &err);
    if (rc < 0)
        return py_raise(py_state_of(object), rc, &err);
    Py_RETURN_NONE;
}

/* policy() -> (name, what it last said) */
PyObject *py_loader_policy(PyObject *object, PyObject *unused)
{
    (void)unused;
    const pen_loader *loader = py_loader_peek(object);
    char reason[PEN_REASON_CAP] = "";
    if (!loader)
        return NULL;
    pen_loader_reason(loader, reason, sizeof reason);
    return Py_BuildValue("ss", pen_loader_policy(loader), reason);
}

/* ---- telemetry ---- */

static const py_field stage_fields[] = {
    {"count", PY_FIELD_INT64, offsetof(pen_stage_stats, count), 1},
    {"total_s", PY_FIELD_DOUBLE, offsetof(pen_stage_stats, total_s), 1},
    {"mean_s", PY_FIELD_DOUBLE, offsetof(pen_stage_stats, mean_s), 1},
    {"p50_s", PY_FIELD_DOUBLE, offsetof(pen_stage_stats, p50_s), 1},
    {"p95_s", PY_FIELD_DOUBLE, offsetof(pen_stage_stats, p95_s), 1},
    {"p99_s", PY_FIELD_DOUBLE, offsetof(pen_stage_stats, p99_s), 1},
    {"variation", PY_FIELD_DOUBLE, offsetof(pen_stage_stats, variation), 1},
    {0},
};

#define STAT(member, type)                                     \
    {                                                          \
#member, type, offsetof(pen_pipeline_stats, member), 1 \
    }
static const py_field pipeline_fields[] = {
    STAT(time_ns, PY_FIELD_INT64),
    STAT(batches, PY_FIELD_INT64),
    STAT(samples, PY_FIELD_INT64),
    STAT(bytes_in, PY_FIELD_INT64),
    STAT(bytes_out, PY_FIELD_INT64),
    STAT(idle_ns, PY_FIELD_INT64),
    STAT(memory_wait_ns, PY_FIELD_INT64),
    STAT(shared_wait_ns, PY_FIELD_INT64),
    STAT(workers, PY_FIELD_INT32),
    STAT(readers, PY_FIELD_INT32),
    STAT(open_batches, PY_FIELD_INT32),
    STAT(ready_batches, PY_FIELD_INT32),
    STAT(samples_in_flight, PY_FIELD_INT32),
    STAT(samples_read, PY_FIELD_INT32),
    STAT(budget_bytes, PY_FIELD_INT64),
    STAT(budget_used, PY_FIELD_INT64),
    STAT(slab_bytes, PY_FIELD_INT64),
    STAT(ahead_samples, PY_FIELD_INT64),
    STAT(ahead_bytes, PY_FIELD_INT64),
    STAT(ahead_cost_s, PY_FIELD_DOUBLE),
    STAT(cache_hits, PY_FIELD_INT64),
    STAT(cache_misses, PY_FIELD_INT64),
    {0},
};

/* {stage: {count, mean_s, ...}} */
static PyObject *stages_to_dict(const pen_pipeline_stats *stats)
{
    PyObject *stages = PyDict_New();
    for (int i = 0; stages && i < PEN_STAGE_COUNT; i++) {
        PyObject *one = py_fields_to_dict(stage_fields, &stats->stages[i]);
        if (!one || PyDict_SetItemString(stages, pen_stage_name(i), one) < 0)
            Py_CLEAR(stages);
        Py_XDECREF(one);
    }
    return stages;
}

/* telemetry() -> dict */
PyObject *py_loader_telemetry(PyObject *object, PyObject *unused)
{
    (void)unused;
    const pen_loader *loader = py_loader_peek(object);
    pen_pipeline_stats stats = PEN_PIPELINE_STATS_INIT;
    if (!loader)
        return NULL;
    const int rc = pen_loader_get_pipeline_stats(loader, &stats);
    if (rc < 0)
        return py_raise(py_state_of(object), rc, NULL);
    PyObject *dict = py_fields_to_dict(pipeline_fields, &stats);
    PyObject *stages = dict ? stages_to_dict(&stats) : NULL;
    if (dict && (!stages || PyDict_SetItemString(dict, "stages", stages) < 0))
        Py_CLEAR(dict);
    Py_XDECREF(stages);
    return dict;
}

/* verdict() -> str */
PyObject *py_loader_verdict(PyObject *object, PyObject *unused)
{
    (void)unused;
    const pen_loader *loader = py_loader_peek(object);
    char line[PEN_VERDICT_MAX];
    if (!loader)
        return NULL;
    const int64_t n = pen_loader_verdict(loader, line, sizeof line);
    return n < 0 ? py_raise(py_state_of(object), (int)n, NULL)
                 : PyUnicode_DecodeUTF8(line, (Py_ssize_t)n, NULL);
}
