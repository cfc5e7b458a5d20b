#include "python/state.h"

#include <errno.h>

PyObject *
mp_raise(mp_status status, const char *what)
{
    switch (status) {
    case MP_NO_MEMORY:
        return PyErr_NoMemory();
    case MP_ABORTED:
        return NULL;
    case MP_OS_ERROR:
        return PyErr_SetFromErrno(PyExc_OSError);
    case MP_INVALID:
        PyErr_Format(PyExc_ValueError, "%s: the data contradicts itself", what);
        return NULL;
    default:
        PyErr_Format(PyExc_RuntimeError, "%s: %s", what, mp_status_name(status));
        return NULL;
    }
}
