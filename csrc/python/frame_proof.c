#include "python/frame_proof.h"

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/frame_layout.h"

static int s_stacks, s_wrong;

/* Code, instruction and line of one frame, as the public API has them. */
static bool
frame_agrees(const char *frame, PyCodeObject *code, PyFrameObject *object)
{
    PyCodeObject *expected = PyFrame_GetCode(object);
    bool agrees = expected == code;
    if (agrees) {
        int instruction = mp_frame_instruction(frame, code);
        agrees = PyFrame_GetLineNumber(object) == PyCode_Addr2Line(code, instruction);
#if PY_VERSION_HEX >= 0x030B0000
        agrees = agrees && PyFrame_GetLasti(object) == instruction;
#endif
    }
    Py_DECREF(expected);
    return agrees;
}

static bool
stack_agrees(void)
{
    PyThreadState *state = PyThreadState_Get();
    if (state != PyGILState_GetThisThreadState()) { /* not the main interpreter */
        return false;
    }
    PyFrameObject *object = PyThreadState_GetFrame(state);
    bool agrees = true;
    for (const char *frame = mp_frame_first(state); frame != NULL && agrees;
         frame = mp_frame_previous(frame)) {
        PyCodeObject *code = mp_frame_code(frame);
        if (code == NULL || !mp_frame_shows(frame, code)) {
            continue;
        }
        agrees = object != NULL && frame_agrees(frame, code, object);
        PyFrameObject *back = object == NULL ? NULL : PyFrame_GetBack(object);
        Py_XDECREF(object);
        object = back;
    }
    agrees = agrees && object == NULL;
    Py_XDECREF(object);
    return agrees;
}

/* check(first) is called with the first argument of the function that calls it. */
static PyObject *
check(PyObject *self, PyObject *first_of_caller)
{
    const char *frame = mp_frame_first(PyThreadState_Get());
    s_stacks++;
    s_wrong += !stack_agrees() || mp_frame_first_local(frame) != first_of_caller;
    Py_RETURN_NONE;
}

static PyMethodDef s_check_def = {"check", check, METH_O, NULL};

/* Calls in a loop are specialised after a few rounds, which changes how frames are made. */
static const char s_program[] = "def plain(n):\n"
                                "    check(n)\n"
                                "    return plain(n - 1) if n else None\n"
                                "def generator(n):\n"
                                "    while n:\n"
                                "        yield check(n)\n"
                                "        n -= 1\n"
                                "class Made:\n"
                                "    def __init__(self):\n"
                                "        check(self)\n"
                                "    def __iter__(self):\n"
                                "        yield from generator(2)\n"
                                "    def __call__(self, *args, **kwargs):\n"
                                "        return (lambda me: check(me))(self)\n"
                                "async def answer(n):\n"
                                "    check(n)\n"
                                "async def ask(n):\n"
                                "    await answer(n)\n"
                                "def run():\n"
                                "    plain(20)\n"
                                "    sorted([2, 1], key=lambda v: check(v) or v)\n"
                                "    list(map(plain, [0, 0]))\n"
                                "    for _ in range(20):\n"
                                "        list(Made())\n"
                                "        Made()(1, b=2)\n"
                                "        for _ in ask(1).__await__():\n"
                                "            pass\n"
                                "    exec('plain(0)')\n"
                                "run()\n";
enum { STACKS_EXPECTED = 21 + 2 + 2 + 20 * (1 + 2 + 1 + 1 + 1) + 1 };

static bool
run_program(void)
{
    PyObject *globals = PyDict_New();
    PyObject *function = PyCFunction_New(&s_check_def, NULL);
    PyObject *result = NULL;
    if (globals != NULL && function != NULL &&
        PyDict_SetItemString(globals, "check", function) == 0 &&
        PyDict_SetItemString(globals, "__name__", Py_None) == 0 &&
        PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0) {
        result = PyRun_String(s_program, Py_file_input, globals, globals);
        PyDict_Clear(globals); /* the functions and their globals refer to each other */
    }
    Py_XDECREF(globals);
    Py_XDECREF(function);
    Py_XDECREF(result);
    return result != NULL;
}

/* A signal's exception is raised again, later, in the program that was interrupted. */
static void
drop_exception(void)
{
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();
    }
    PyErr_Clear();
}

bool
mp_frame_walk_prove(char *why, size_t room)
{
    s_stacks = s_wrong = 0;
    if (!run_program()) {
        drop_exception();
        s_stacks = 0;
    }
    if (s_stacks != STACKS_EXPECTED) {
        PyOS_snprintf(why, room, "the test of the walk of Python's frames did not run");
        return false;
    }
    if (s_wrong > 0) {
        PyOS_snprintf(why, room, "the walk of Python's frames is wrong in %d of %d stacks",
                      s_wrong, s_stacks);
        return false;
    }
    return true;
}
