/* The frame walk as functions of memprof._core, for its tests and for environment(). */
#include "python/state.h"

#include <time.h>

#include "python/frames.h"
#include "record/tables.h"
#include "session/session.h"

/* One captured stack: the words stay valid while the recorder is open. */
typedef struct captured {
    const uint64_t *words;
    bool own_recorder;
} captured;

static bool
open_recorder(captured *out)
{
    out->own_recorder = !mp_session_is_open();
    if (!out->own_recorder) {
        return true;
    }
    mp_recorder_options options = {.max_bytes = (size_t)8 << 20, .want_stacks = true};
    if (!mp_objects_open() || mp_recorder_open(&options) != MP_OK) {
        mp_objects_close();
        PyErr_NoMemory();
        return false;
    }
    mp_recorder_start();
    return true;
}

static void
close_recorder(const captured *capture)
{
    if (capture->own_recorder) {
        mp_recorder_stop();
        mp_recorder_close();
        mp_objects_close();
    }
}

static bool
frames_ready(void)
{
    char why[160];
    if (!mp_frames_init(why, sizeof(why))) {
        PyErr_SetString(PyExc_RuntimeError, why);
        return false;
    }
    return true;
}

/* The walk runs without the GIL, as in a hook. */
static bool
capture_here(captured *out)
{
    if (!frames_ready() || !open_recorder(out)) {
        return false;
    }
    mp_thread_log *log;
    uint32_t id = 0;
    Py_BEGIN_ALLOW_THREADS
    log = mp_log_enter();
    if (log != NULL) {
        id = mp_frames_capture(log);
        mp_log_leave(log);
    }
    Py_END_ALLOW_THREADS
    if (id == 0) {
        close_recorder(out);
        PyErr_SetString(PyExc_RuntimeError, "no stack was captured");
        return false;
    }
    uint32_t count;
    out->words = mp_intern_words(&log->stacks, id, &count);
    return true;
}

static PyObject *
describe(uint64_t word)
{
    mp_code_line line;
    if (!mp_code_describe((uint32_t)(word >> 32), (uint32_t)word, &line)) {
        return PyUnicode_FromString("<unknown>");
    }
    return Py_BuildValue("(s#s#i)", line.file, (Py_ssize_t)line.file_bytes, line.function,
                         (Py_ssize_t)line.function_bytes, line.line);
}

static PyObject *
capture_stack(PyObject *self, PyObject *ignored)
{
    captured capture;
    if (!capture_here(&capture)) {
        return NULL;
    }
    uint32_t depth = capture.words[0] & 0xffff;
    PyObject *list = PyList_New(depth);
    for (uint32_t i = 0; list != NULL && i < depth; i++) {
        PyObject *frame = describe(capture.words[1 + i]);
        if (frame == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, frame);
    }
    int truncated = (capture.words[0] >> 32 & MP_STACK_TRUNCATED) != 0;
    close_recorder(&capture);
    return list == NULL ? NULL : Py_BuildValue("(NO)", list, truncated ? Py_True : Py_False);
}

static PyObject *
capture_modules(PyObject *self, PyObject *ignored)
{
    captured capture;
    if (!capture_here(&capture)) {
        return NULL;
    }
    uint32_t depth = capture.words[0] & 0xffff;
    uint32_t modules = capture.words[0] >> 16 & 0xffff;
    PyObject *list = PyList_New(modules);
    for (uint32_t i = 0; list != NULL && i < modules; i++) {
        const mp_object *object = mp_objects_at((uint32_t)capture.words[1 + depth + i]);
        PyObject *item = Py_BuildValue("(Ks)", (unsigned long long)(uintptr_t)object->address,
                                       object->class_name);
        if (item == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, item);
    }
    close_recorder(&capture);
    return list;
}

static PyObject *
capture_cost(PyObject *self, PyObject *rounds)
{
    long count = PyLong_AsLong(rounds);
    captured capture;
    if ((count == -1 && PyErr_Occurred()) || !frames_ready() || !open_recorder(&capture)) {
        return NULL;
    }
    struct timespec from, to;
    mp_thread_log *log = mp_log_enter();
    uint32_t id = 0;
    if (log != NULL) {
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (long i = 0; i < count; i++) {
            id = mp_frames_capture(log);
            MP_COMPILER_BARRIER();
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        mp_log_leave(log);
    }
    close_recorder(&capture);
    if (id == 0) {
        PyErr_SetString(PyExc_RuntimeError, "no stack was captured");
        return NULL;
    }
    double ns = (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
    return PyFloat_FromDouble(ns / (double)count);
}

static PyObject *
frames_check(PyObject *self, PyObject *ignored)
{
    char why[160] = "";
    return PyUnicode_FromString(mp_frames_init(why, sizeof(why)) ? "" : why);
}

static PyObject *
set_module_call(PyObject *self, PyObject *code)
{
    if (code != Py_None && !PyCode_Check(code)) {
        PyErr_SetString(PyExc_TypeError, "a code object or None is expected");
        return NULL;
    }
    mp_frames_set_module_call(code == Py_None ? NULL : code);
    Py_RETURN_NONE;
}

static PyMethodDef frame_functions[] = {
    {"_frames_check", frames_check, METH_NOARGS, "\"\" when the frame layout is proved."},
    {"_capture_stack", capture_stack, METH_NOARGS,
     "([(file, function, line)], truncated) of the caller, innermost first."},
    {"_capture_modules", capture_modules, METH_NOARGS, "[(address, class)], innermost first."},
    {"_capture_cost", capture_cost, METH_O, "ns of one warm capture, over so many rounds."},
    {"_set_module_call", set_module_call, METH_O, "Tests: the code whose `self` is a module."},
    {NULL, NULL, 0, NULL},
};

int
mp_add_frames(PyObject *module)
{
    return PyModule_AddFunctions(module, frame_functions);
}
