/* py_op.h - operations and their drawn parameters, between Python and C. */
#ifndef PEN_PY_OP_H
#define PEN_PY_OP_H

#include "py_core.h"

/* (name, {setting: value}) as penstock.transforms makes them. */
int py_op_from_python(PyObject *pair, pen_op *out);
/* -1 and ValueError for a name that is not in op.h's list. */
int py_op_kind_named(const char *name);

/* ---- py_params.c ---- */

/* {"kind": name, "applied": ..., ...}, and back. */
PyObject *py_params_to_python(const pen_params *params);
int py_params_from_python(PyObject *dict, pen_params *out);

#endif
