/* The frame walk as functions of memprof._core, for its tests and for environment(). */
#include "python/state.h"

#include <pthread.h>
#include <time.h>

#include "python/frames.h"
#include "record/tables.h"
#include "session/session.h"

/* A small recorder of our own where no session is open, shared by the threads that are in
 * here at once. Guarded by the GIL. */
static unsigned s_own_users;

static bool
recorder_enter(void)
{
    if (mp_session_is_open()) {
        return true;
    }
    if (s_own_users == 0) {
        mp_recorder_options options = {.max_bytes = (size_t)8 << 20, .want_stacks = true};
        if (!mp_objects_open() || mp_recorder_open(&options) != MP_OK) {
            mp_objects_close();
            PyErr_NoMemory();
            return false;
        }
        mp_recorder_start();
    }
    s_own_users++;
    return true;
}

static void
recorder_leave(void)
{
    if (s_own_users > 0 && --s_own_users == 0) {
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

/* The words of the calling thread's stack, valid until recorder_leave(), which the caller
 * owes then. NULL with an exception. The walk runs without the GIL, as in a hook. */
static const uint64_t *
capture_here(uint32_t *id)
{
    if (!frames_ready() || !recorder_enter()) {
        return NULL;
    }
    mp_thread_log *log;
    *id = 0;
    Py_BEGIN_ALLOW_THREADS
    log = mp_log_enter();
    if (log != NULL) {
        *id = mp_frames_capture(log);
        mp_log_leave(log);
    }
    Py_END_ALLOW_THREADS
    if (*id == 0) {
        recorder_leave();
        PyErr_SetString(PyExc_RuntimeError, "no stack was captured");
        return NULL;
    }
    uint32_t count;
    return mp_intern_words(&log->stacks, *id, &count);
}

static PyObject *
frame_tuple(uint64_t word)
{
    mp_code_line line;
    if (!mp_code_describe((uint32_t)(word >> 32), (uint32_t)word, &line)) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(s#s#i)", line.file, (Py_ssize_t)line.file_bytes, line.function,
                         (Py_ssize_t)line.function_bytes, line.line);
}

static PyObject *
stack_tuple(const uint64_t *words)
{
    uint32_t depth = words[0] & 0xffff;
    PyObject *list = PyList_New(depth);
    for (uint32_t i = 0; list != NULL && i < depth; i++) {
        PyObject *frame = frame_tuple(words[1 + i]);
        if (frame == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, frame);
    }
    bool truncated = (words[0] >> 32 & MP_STACK_TRUNCATED) != 0;
    return list == NULL ? NULL
                        : Py_BuildValue("(NO)", list, truncated ? Py_True : Py_False);
}

static PyObject *
capture_stack(PyObject *self, PyObject *ignored)
{
    uint32_t id;
    const uint64_t *words = capture_here(&id);
    if (words == NULL) {
        return NULL;
    }
    PyObject *result = stack_tuple(words);
    recorder_leave();
    return result;
}

static PyObject *
capture_modules(PyObject *self, PyObject *ignored)
{
    uint32_t id;
    const uint64_t *words = capture_here(&id);
    if (words == NULL) {
        return NULL;
    }
    uint32_t depth = words[0] & 0xffff;
    uint32_t modules = words[0] >> 16 & 0xffff;
    PyObject *list = PyList_New(modules);
    for (uint32_t i = 0; list != NULL && i < modules; i++) {
        uint64_t word = words[1 + depth + i];
        const mp_object *object = mp_objects_at((uint32_t)word);
        PyObject *item = Py_BuildValue("(IKs)", (unsigned)(word >> 32),
                                       (unsigned long long)(uintptr_t)object->address,
                                       object->class_name);
        if (item == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, item);
    }
    recorder_leave();
    return list;
}

static PyObject *
require_session(void)
{
    if (!mp_session_is_open()) {
        PyErr_SetString(PyExc_RuntimeError, "no session is recording: call start()");
        return NULL;
    }
    return Py_None;
}

static PyObject *
capture_id(PyObject *self, PyObject *ignored)
{
    uint32_t id;
    if (require_session() == NULL || capture_here(&id) == NULL) {
        return NULL;
    }
    return PyLong_FromUnsignedLong(id);
}

static PyObject *
describe_id(PyObject *self, PyObject *number)
{
    unsigned long id = PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred() || require_session() == NULL) {
        return NULL;
    }
    if (t_log == NULL || id == 0 || id > t_log->stacks.count) {
        return PyErr_Format(PyExc_ValueError, "%lu is no stack of this thread", id);
    }
    uint32_t count;
    return stack_tuple(mp_intern_words(&t_log->stacks, (uint32_t)id, &count));
}

/* ---- a thread that Python did not start ---- */

typedef struct foreign_thread {
    bool with_state;
    bool entered;
    uint32_t stack;
    const void *innermost;
} foreign_thread;

static void
capture_foreign(foreign_thread *seen)
{
    mp_thread_log *log = mp_log_enter();
    if (log != NULL) {
        seen->entered = true;
        seen->stack = mp_frames_capture(log);
        seen->innermost = mp_frames_innermost();
        mp_log_leave(log);
    }
}

static void *
foreign_main(void *argument)
{
    foreign_thread *seen = argument;
    if (seen->with_state) {
        PyGILState_STATE state = PyGILState_Ensure();
        capture_foreign(seen);
        PyGILState_Release(state);
    } else {
        capture_foreign(seen);
    }
    return NULL;
}

static PyObject *
capture_in_foreign_thread(PyObject *self, PyObject *with_state)
{
    if (!frames_ready() || !recorder_enter()) {
        return NULL;
    }
    foreign_thread seen = {.with_state = with_state == Py_True};
    pthread_t thread;
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = pthread_create(&thread, NULL, foreign_main, &seen);
    if (error == 0) {
        pthread_join(thread, NULL);
    }
    Py_END_ALLOW_THREADS
    recorder_leave();
    if (error != 0 || !seen.entered) {
        PyErr_SetString(PyExc_RuntimeError, "the thread could not be started");
        return NULL;
    }
    return Py_BuildValue("(IO)", (unsigned)seen.stack,
                         seen.innermost == NULL ? Py_False : Py_True);
}

/* ---- cost, proof, switches ---- */

static double
time_captures(mp_thread_log *log, long rounds, uint32_t *id)
{
    struct timespec from, to;
    *id = mp_frames_capture(log);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long i = 0; i < rounds; i++) {
        *id = mp_frames_capture(log);
        MP_COMPILER_BARRIER();
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    double ns =
        (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
    return ns / (double)rounds;
}

static PyObject *
capture_cost(PyObject *self, PyObject *number)
{
    long rounds = PyLong_AsLong(number);
    if (rounds <= 0) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_ValueError, "rounds=%ld: give at least 1", rounds);
        }
        return NULL;
    }
    if (!frames_ready() || !recorder_enter()) {
        return NULL;
    }
    double ns = 0;
    uint32_t id = 0, depth = 0, count;
    mp_thread_log *log = mp_log_enter();
    if (log != NULL) {
        ns = time_captures(log, rounds, &id);
        depth = id == 0 ? 0 : mp_intern_words(&log->stacks, id, &count)[0] & 0xffff;
        mp_log_leave(log);
    }
    recorder_leave();
    if (id == 0) {
        PyErr_SetString(PyExc_RuntimeError, "no stack was captured");
        return NULL;
    }
    return Py_BuildValue("(dI)", ns, (unsigned)depth);
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

static PyObject *
set_parked_limit(PyObject *self, PyObject *limit)
{
    if (limit == Py_None) {
        mp_code_watch_limit(MP_PARKED_LIMIT);
        Py_RETURN_NONE;
    }
    size_t parked = PyLong_AsSize_t(limit);
    if (PyErr_Occurred()) {
        return NULL;
    }
    mp_code_watch_limit(parked);
    Py_RETURN_NONE;
}

static PyMethodDef frame_functions[] = {
    {"_frames_check", frames_check, METH_NOARGS, "\"\" when the frame layout is proved."},
    {"_capture_stack", capture_stack, METH_NOARGS,
     "([(file, function, line)], truncated) of the caller, innermost first."},
    {"_capture_modules", capture_modules, METH_NOARGS,
     "[(index of the frame, address, class)] of the caller, innermost first."},
    {"_capture_id", capture_id, METH_NOARGS,
     "The caller's stack in its thread's log while a session records."},
    {"_describe_id", describe_id, METH_O,
     "As _capture_stack(), of a number of _capture_id()."},
    {"_capture_foreign", capture_in_foreign_thread, METH_O,
     "(stack, has innermost frame) of a thread in C, with a thread state or without."},
    {"_capture_cost", capture_cost, METH_O,
     "(ns of one warm capture of the caller over so many rounds, depth)."},
    {"_set_module_call", set_module_call, METH_O,
     "Tests: the code whose first argument is a module, or None."},
    {"_set_parked_limit", set_parked_limit, METH_O,
     "Tests: how many dying code objects are kept, None for the usual limit."},
    {NULL, NULL, 0, NULL},
};

int
mp_add_frames(PyObject *module)
{
    return PyModule_AddFunctions(module, frame_functions);
}
