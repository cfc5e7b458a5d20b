#include "python/state.h"

int
mp_add_trace_writer(PyObject *module)
{
    return 0;
}
