#include "python/state.h"

int
mp_add_recording_type(PyObject *module)
{
    return 0;
}
