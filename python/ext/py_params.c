/* py_params.c - drawn parameters, between Python and C.
 *
 * A dict has what every operation has (its size before and after, its box), and
 * what its own kind adds.  Lists whose length differs from draw to draw (the
 * members a group took, the primitives of AutoAugment) are written out by hand.
 */
#include "py_op.h"

#include <string.h>

#define FIELD(type, member, count)                         \
    {                                                      \
#member, type, offsetof(pen_params, member), count \
    }
#define OWN_FIELD(type, group, member, count)                    \
    {                                                            \
#member, type, offsetof(pen_params, group.member), count \
    }

/* clang-format off */
#define COMMON_FIELDS                    \
    FIELD(PY_FIELD_BOOL, applied, 1),    \
    FIELD(PY_FIELD_INT32, in_w, 1),      \
    FIELD(PY_FIELD_INT32, in_h, 1),      \
    FIELD(PY_FIELD_INT32, out_w, 1),     \
    FIELD(PY_FIELD_INT32, out_h, 1),     \
    FIELD(PY_FIELD_INT32, x, 1),         \
    FIELD(PY_FIELD_INT32, y, 1),         \
    FIELD(PY_FIELD_INT32, w, 1),         \
    FIELD(PY_FIELD_INT32, h, 1)
/* clang-format on */

static const py_field common_fields[] = {COMMON_FIELDS, {0}};
static const py_field jitter_fields[] = {
    COMMON_FIELDS,
    OWN_FIELD(PY_FIELD_UINT8, jitter, order, 4),
    OWN_FIELD(PY_FIELD_FLOAT, jitter, factor, 4),
    {0},
};
static const py_field rotation_fields[] = {
    COMMON_FIELDS,
    OWN_FIELD(PY_FIELD_FLOAT, warp, angle, 1),
    {0},
};
static const py_field affine_fields[] = {
    COMMON_FIELDS,
    OWN_FIELD(PY_FIELD_FLOAT, warp, angle, 1),
    OWN_FIELD(PY_FIELD_INT32, warp, translate, 2),
    OWN_FIELD(PY_FIELD_FLOAT, warp, scale, 1),
    OWN_FIELD(PY_FIELD_FLOAT, warp, shear, 2),
    {0},
};
static const py_field perspective_fields[] = {
    COMMON_FIELDS,
    OWN_FIELD(PY_FIELD_INT32, perspective, points, 8),
    {0},
};
static const py_field blur_fields[] = {
    COMMON_FIELDS,
    OWN_FIELD(PY_FIELD_FLOAT, blur, sigma, 1),
    {0},
};

static const py_field *fields_of(pen_op_kind kind)
{
    switch (kind) {
    case PEN_OP_COLOR_JITTER:
        return jitter_fields;
    case PEN_OP_RANDOM_ROTATION:
        return rotation_fields;
    case PEN_OP_RANDOM_AFFINE:
        return affine_fields;
    case PEN_OP_RANDOM_PERSPECTIVE:
        return perspective_fields;
    case PEN_OP_GAUSSIAN_BLUR:
        return blur_fields;
    default:
        return common_fields;
    }
}

static bool has_steps(pen_op_kind kind)
{
    return kind == PEN_OP_AUTO_AUGMENT || kind == PEN_OP_RAND_AUGMENT ||
           kind == PEN_OP_TRIVIAL_AUGMENT;
}

/* ---- to Python ---- */

/* Put a new reference, or NULL, into a dict. */
static int put(PyObject *dict, const char *name, PyObject *value)
{
    const int rc = value ? PyDict_SetItemString(dict, name, value) : -1;
    Py_XDECREF(value);
    return rc;
}

static PyObject *steps_to_python(const pen_augment_step *steps, int n)
{
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        PyObject *step =
            Py_BuildValue("(sd)", pen_augment_name(steps[i].kind), (double)steps[i].magnitude);
        if (!step || PyTuple_SetItem(tuple, i, step) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *chains_to_python(const pen_params *params)
{
    PyObject *tuple = PyTuple_New(params->augment.n_chains);
    const pen_augment_step *steps = params->augment.steps;
    for (int i = 0; tuple && i < params->augment.n_chains; i++) {
        PyObject *chain = steps_to_python(steps, params->augment.depth[i]);
        steps += params->augment.depth[i];
        if (!chain || PyTuple_SetItem(tuple, i, chain) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *weights_to_python(const pen_params *params)
{
    const int n = params->augment.n_chains ? params->augment.n_chains + 1 : 0;
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        PyObject *weight = PyFloat_FromDouble((double)params->augment.weights[i]);
        if (!weight || PyTuple_SetItem(tuple, i, weight) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *order_to_python(const pen_params *params)
{
    PyObject *tuple = PyTuple_New(params->group.n_taken);
    for (int i = 0; tuple && i < params->group.n_taken; i++) {
        PyObject *member = PyLong_FromLong(params->group.order[i]);
        if (!member || PyTuple_SetItem(tuple, i, member) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

PyObject *py_params_to_python(const pen_params *params)
{
    PyObject *dict = py_fields_to_dict(fields_of(params->kind), params);
    if (!dict)
        return NULL;
    int rc = put(dict, "kind", PyUnicode_FromString(pen_op_name(params->kind)));
    if (rc == 0 && has_steps(params->kind))
        rc = put(dict, "steps", steps_to_python(params->augment.steps, params->augment.n_steps));
    if (rc == 0 && params->kind == PEN_OP_AUG_MIX)
        rc = put(dict, "chains", chains_to_python(params));
    if (rc == 0 && params->kind == PEN_OP_AUG_MIX)
        rc = put(dict, "weights", weights_to_python(params));
    if (rc == 0 && pen_op_is_group(params->kind))
        rc = put(dict, "order", order_to_python(params));
    if (rc < 0)
        Py_CLEAR(dict);
    return dict;
}

/* ---- from Python ---- */

/* The length of a list that may have up to `most` items, or -1. */
static Py_ssize_t length_of(PyObject *list, Py_ssize_t most, const char *what)
{
    const Py_ssize_t n = PySequence_Size(list);
    if (n > most)
        PyErr_Format(PyExc_ValueError, "params: '%s' has more than %zd items", what, most);
    return n > most ? -1 : n;
}

/* Call read(item, into) for every item. */
static int for_each(PyObject *list, Py_ssize_t n, int (*read)(PyObject *, pen_params *),
                    pen_params *into)
{
    int rc = 0;
    for (Py_ssize_t i = 0; i < n && rc == 0; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        rc = item ? read(item, into) : -1;
        Py_XDECREF(item);
    }
    return rc;
}

static int read_step(PyObject *item, pen_params *into)
{
    const char *name;
    float magnitude;
    if (!PyTuple_Check(item) || PyTuple_Size(item) != 2 ||
        !PyUnicode_Check(PyTuple_GetItem(item, 0))) {
        PyErr_SetString(PyExc_ValueError, "params: a step is a tuple (name, magnitude)");
        return -1;
    }
    if (!PyArg_ParseTuple(item, "sf", &name, &magnitude))
        return -1;
    if (into->augment.n_steps == PEN_MAX_AUGMENTS) {
        PyErr_Format(PyExc_ValueError, "params: more than %d steps", PEN_MAX_AUGMENTS);
        return -1;
    }
    for (int kind = 0; kind < PEN_AUGMENT_COUNT; kind++)
        if (strcmp(name, pen_augment_name((pen_augment)kind)) == 0) {
            into->augment.steps[into->augment.n_steps++] =
                (pen_augment_step){(pen_augment)kind, magnitude};
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "params: there is no step '%s'", name);
    return -1;
}

static int read_steps(PyObject *list, pen_params *into)
{
    const Py_ssize_t n = length_of(list, PEN_MAX_AUGMENTS, "steps");
    return n < 0 ? -1 : for_each(list, n, read_step, into);
}

static int read_chain(PyObject *list, pen_params *into)
{
    const uint8_t before = into->augment.n_steps;
    if (read_steps(list, into) < 0)
        return -1;
    into->augment.depth[into->augment.n_chains++] = (uint8_t)(into->augment.n_steps - before);
    return 0;
}

static int read_chains(PyObject *list, pen_params *into)
{
    const Py_ssize_t n = length_of(list, PEN_MAX_CHAINS, "chains");
    return n < 0 ? -1 : for_each(list, n, read_chain, into);
}

static int read_weights(PyObject *list, pen_params *into)
{
    const Py_ssize_t n = length_of(list, PEN_MAX_CHAINS + 1, "weights");
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        into->augment.weights[i] = item ? (float)PyFloat_AsDouble(item) : 0;
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return -1;
    }
    return n < 0 ? -1 : 0;
}

static int read_member(PyObject *item, pen_params *into)
{
    const long member = PyLong_AsLong(item);
    if (member < 0 || member >= PEN_MAX_MEMBERS) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "params: 'order' names members by their numbers");
        return -1;
    }
    into->group.order[into->group.n_taken++] = (uint8_t)member;
    return 0;
}

static int read_order(PyObject *list, pen_params *into)
{
    const Py_ssize_t n = length_of(list, PEN_MAX_MEMBERS, "order");
    return n < 0 ? -1 : for_each(list, n, read_member, into);
}

/* Read the list `name` and take it out of the dict. */
static int take(PyObject *dict, const char *name, int (*read)(PyObject *, pen_params *),
                pen_params *into)
{
    PyObject *list = PyDict_GetItemString(dict, name);
    if (!list) {
        PyErr_Format(PyExc_ValueError, "params: '%s' is missing", name);
        return -1;
    }
    return read(list, into) < 0 ? -1 : PyDict_DelItemString(dict, name);
}

static int read_lists(PyObject *dict, pen_params *out)
{
    if (has_steps(out->kind))
        return take(dict, "steps", read_steps, out);
    if (pen_op_is_group(out->kind))
        return take(dict, "order", read_order, out);
    if (out->kind != PEN_OP_AUG_MIX)
        return 0;
    return take(dict, "chains", read_chains, out) < 0 ? -1
                                                      : take(dict, "weights", read_weights, out);
}

int py_params_from_python(PyObject *dict, pen_params *out)
{
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "params: a list of dicts is expected, as draw() gives");
        return -1;
    }
    PyObject *kind = PyDict_GetItemString(dict, "kind");
    const char *name = kind && PyUnicode_Check(kind) ? PyUnicode_AsUTF8AndSize(kind, NULL) : NULL;
    if (!name) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "params: 'kind' is missing");
        return -1;
    }
    const int number = py_op_kind_named(name);
    PyObject *rest = number < 0 ? NULL : PyDict_Copy(dict);
    if (!rest)
        return -1;
    memset(out, 0, sizeof *out);
    out->kind = (pen_op_kind)number;
    int rc = read_lists(rest, out);
    if (rc == 0)
        rc = py_fields_from_dict(fields_of(out->kind), out, rest, name, "kind");
    Py_DECREF(rest);
    return rc;
}
