/* memprof._core. One process-wide recorder stands behind it, so it declares that it does
 * not support several interpreters. */
#include "python/state.h"

#include "base/clock.h"

static int
module_exec(PyObject *module)
{
    mp_clock_init();
    if (mp_add_recording_type(module) < 0 || mp_add_session_type(module) < 0 ||
        mp_add_frames(module) < 0 || mp_add_torch_setup(module) < 0 ||
        mp_add_trace_writer(module) < 0 || mp_add_cupti_functions(module) < 0) {
        return -1;
    }
    return PyModule_AddStringConstant(module, "clock_source", mp_clock_source());
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "memprof._core",
    .m_doc = "Recorder, analysis passes and trace writer in C.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&module_def);
}
