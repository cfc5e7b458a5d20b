#include "python/state.h"

#include "python/frames.h"

int
mp_add_frames(PyObject *module)
{
    return 0;
}
