/* memprof._core.growth: the pass of analysis/growth as a function over a Recording. */
#ifndef MP_PYTHON_GROWTH_FUNCTION_H
#define MP_PYTHON_GROWTH_FUNCTION_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Adds `growth` and `growth_steps_needed` to the module. */
int mp_add_growth(PyObject *module);

#endif
