#include "python/growth_function.h"

#include "analysis/growth.h"
#include "python/columns.h"
#include "python/recording_type.h"
#include "python/state.h"

static const char *const s_growth_fields[] = {MP_GROWTH_FIELDS(MP_FIELD_AND_CODE) NULL};

static PyObject *
growth_function(PyObject *Py_UNUSED(module), PyObject *object)
{
    const mp_recording *recording = mp_recording_unwrap(object);
    if (recording == NULL) {
        return NULL;
    }
    mp_growth growth;
    mp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = mp_growth_find(recording, &growth);
    Py_END_ALLOW_THREADS
    if (status != MP_OK) {
        return mp_raise(status, "growth");
    }
    PyObject *array =
        mp_columns_own(s_growth_fields, growth.sites, growth.count, sizeof(*growth.sites));
    mp_growth_fini(&growth);
    return array;
}

static PyMethodDef growth_functions[] = {
    {"growth", growth_function, METH_O,
     PyDoc_STR("Allocation sites of which more is alive at each step's end.")},
    {NULL, NULL, 0, NULL},
};

int
mp_add_growth(PyObject *module)
{
    if (PyModule_AddFunctions(module, growth_functions) < 0) {
        return -1;
    }
    return PyModule_AddIntConstant(module, "growth_steps_needed",
                                   MP_GROWTH_WARM_UP + MP_GROWTH_STEPS);
}
