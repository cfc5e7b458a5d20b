/* memprof._core.Recording: a thin shell that owns one mp_recording. */
#ifndef MP_PYTHON_RECORDING_TYPE_H
#define MP_PYTHON_RECORDING_TYPE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "record/recording.h"

/* A new Recording that takes over `recording` (also on failure, when it is freed). */
PyObject *mp_recording_wrap(mp_recording *recording);

/* The struct behind a Recording, borrowed; NULL with TypeError for another object. */
const mp_recording *mp_recording_unwrap(PyObject *object);

#endif
