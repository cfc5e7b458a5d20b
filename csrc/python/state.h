/* What the files of python/ share: how each adds itself to the module, and how a status
 * becomes an exception. */
#ifndef MP_PYTHON_STATE_H
#define MP_PYTHON_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/status.h"

/* Each adds its types or functions to `module`; -1 with an exception on failure. */
int mp_add_recording_type(PyObject *module);
int mp_add_session_type(PyObject *module);
int mp_add_frames(PyObject *module);
int mp_add_torch_setup(PyObject *module);
int mp_add_trace_writer(PyObject *module);
int mp_add_cupti_functions(PyObject *module);

/* Sets the exception for a status other than MP_OK; `what` names the action that failed.
 * MP_ABORTED leaves the exception that is set. Always returns NULL. */
PyObject *mp_raise(mp_status status, const char *what);

#endif
