/* CUPTI for Python: what a session saw of it, which library it is, and a replay of raw
 * buffers. GIL held. */
#ifndef MP_PYTHON_CUPTI_FUNCTIONS_H
#define MP_PYTHON_CUPTI_FUNCTIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "collect/cupti_activity.h"

/* The counts of a report, as a new dict. */
PyObject *mp_cupti_report_dict(const mp_cupti_report *report);

/* A sequence of paths as C strings that live as long as *keep; NULL with an exception.
 * The array is PyMem_Free'd by the caller, and *keep released. */
const char **mp_cupti_paths(PyObject *paths, size_t *count, PyObject **keep);

#endif
