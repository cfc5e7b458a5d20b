#include "python/frames.h"

#include <string.h>

#include "python/frame_layout.h"
#include "record/tables.h"
#include "python/state.h"

enum {
    FACTORS = 256,     /* positions deeper than this use a factor again */
    MODULE_LIMIT = 96, /* modules told of one stack, innermost first */
    WALK_LIMIT = 20000,
};

/* Random odd numbers, so that the products are independent of each other. */
static uint64_t s_factors[FACTORS];

/* Bytecode of torch.nn.Module.__call__, [s_call_low, s_call_low + s_call_bytes). */
static uint64_t s_call_low;
static uint64_t s_call_bytes;
static PyCodeObject *s_call_code;

static void
make_factors(void)
{
    uint64_t state = 0x243F6A8885A308D3u;
    for (int i = 0; i < FACTORS; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        s_factors[i] = state | 1;
    }
}

void
mp_frames_set_module_call(void *code)
{
    s_call_code = code;
    s_call_bytes = 0;
#if PY_VERSION_HEX >= 0x030B0000
    if (code != NULL) {
        s_call_low = (uint64_t)(uintptr_t)s_call_code->co_code_adaptive;
        s_call_bytes = (uint64_t)Py_SIZE(s_call_code) * sizeof(_Py_CODEUNIT);
    }
#endif
}

MP_INLINE bool
is_module_call(const char *frame, uint64_t position)
{
#if PY_VERSION_HEX < 0x030B0000
    return ((const PyFrameObject *)frame)->f_code == s_call_code;
#else
    return position - s_call_low < s_call_bytes;
#endif
}

const void *
mp_frames_innermost(void)
{
    PyThreadState *state = PyGILState_GetThisThreadState();
    return state == NULL ? NULL : mp_frame_first(state);
}

/* ---- a stack that the log does not know yet ---- */

typedef struct new_stack {
    uint32_t depth, modules, flags;
    uint64_t frames[MP_FRAMES_INNER + MP_FRAMES_OUTER];
    uint64_t calls[MODULE_LIMIT];
} new_stack;

static bool
add_frame(new_stack *stack, uint32_t seen, const char *frame, PyCodeObject *code)
{
    uint32_t id = mp_objects_intern(MP_OBJECT_CODE, code, NULL);
    if (id == 0) {
        return false;
    }
    uint64_t word = (uint64_t)id << 32 | (uint32_t)mp_frame_instruction(frame, code);
    uint32_t at = seen;
    if (seen >= MP_FRAMES_INNER) { /* a ring over the outermost seen so far */
        at = MP_FRAMES_INNER + (seen - MP_FRAMES_INNER) % MP_FRAMES_OUTER;
    }
    stack->frames[at] = word;
    if (code == s_call_code && stack->modules < MODULE_LIMIT) {
        PyObject *module = mp_frame_first_local(frame);
        uint32_t module_id =
            module == NULL ? 0
                           : mp_objects_intern(MP_OBJECT_MODULE, module, Py_TYPE(module)->tp_name);
        if (module_id != 0) {
            stack->calls[stack->modules++] = (uint64_t)at << 32 | module_id;
        }
    }
    return true;
}

/* Turns the ring of outermost frames so that it begins with its innermost. */
static void
unroll(new_stack *stack, uint32_t seen)
{
    stack->depth = seen;
    if (seen <= MP_FRAMES_INNER + MP_FRAMES_OUTER) {
        return;
    }
    uint64_t outer[MP_FRAMES_OUTER];
    uint32_t first = (seen - MP_FRAMES_INNER) % MP_FRAMES_OUTER;
    for (uint32_t i = 0; i < MP_FRAMES_OUTER; i++) {
        outer[i] = stack->frames[MP_FRAMES_INNER + (first + i) % MP_FRAMES_OUTER];
    }
    memcpy(&stack->frames[MP_FRAMES_INNER], outer, sizeof(outer));
    stack->depth = MP_FRAMES_INNER + MP_FRAMES_OUTER;
    stack->flags = MP_STACK_TRUNCATED;
}

static MP_NOINLINE uint32_t
add_stack(mp_thread_log *log, uint64_t fingerprint, const char *frame)
{
    new_stack stack;
    stack.depth = stack.modules = stack.flags = 0;
    uint32_t seen = 0;
    for (uint32_t walked = 0; frame != NULL && walked < WALK_LIMIT;
         frame = mp_frame_previous(frame), walked++) {
        PyCodeObject *code = mp_frame_code(frame);
        if (code == NULL) {
            continue;
        }
        if (!add_frame(&stack, seen, frame, code)) {
            log->lost[MP_LOSS_OBJECT]++;
            return 0;
        }
        seen++;
    }
    unroll(&stack, seen);
    uint64_t words[1 + MP_FRAMES_INNER + MP_FRAMES_OUTER + MODULE_LIMIT];
    words[0] = stack.depth | (uint64_t)stack.modules << 16 | (uint64_t)stack.flags << 32;
    memcpy(&words[1], stack.frames, stack.depth * sizeof(words[0]));
    memcpy(&words[1 + stack.depth], stack.calls, stack.modules * sizeof(words[0]));
    uint32_t id = mp_intern_add(&log->stacks, &g_recorder.budget, fingerprint, words,
                                1 + stack.depth + stack.modules);
    log->lost[MP_LOSS_STACK] += id == 0;
    return id;
}

/* ---- the hot path ---- */

uint32_t
mp_frames_capture(mp_thread_log *log)
{
    PyThreadState *state = PyGILState_GetThisThreadState();
    if (state == NULL) {
        return 0;
    }
    const char *first = mp_frame_first(state);
    if (first == NULL) {
        return 0;
    }
    uint64_t hash = 0;
    uint32_t depth = 0;
    for (const char *frame = first; frame != NULL && depth < WALK_LIMIT;
         frame = mp_frame_previous(frame), depth++) {
        uint64_t position = mp_frame_position(frame);
        uint64_t factor = s_factors[depth % FACTORS];
        hash += (position ^ position >> 17) * factor;
        if (is_module_call(frame, position)) {
            uint64_t module = (uint64_t)(uintptr_t)mp_frame_first_local(frame);
            hash += (module ^ module >> 15) * (factor * 0xC2B2AE3D27D4EB4Fu | 1);
        }
    }
    hash = (hash ^ hash >> 32) * 0x9E3779B97F4A7C15u + depth;
    uint64_t fingerprint = hash | 1;
    uint32_t generation = mp_load_relaxed(&g_objects_generation);
    if (MP_UNLIKELY(log->object_generation != generation)) {
        mp_intern_forget(&log->stacks);
        log->object_generation = generation;
    }
    uint32_t id = mp_intern_find(&log->stacks, fingerprint);
    return MP_LIKELY(id != 0) ? id : add_stack(log, fingerprint, first);
}

/* ---- proof ---- */

/* Called from Python code of several shapes: the walk and the public API must agree. */
static bool
walk_agrees(void)
{
    PyThreadState *state = PyThreadState_Get();
    if (state != PyGILState_GetThisThreadState()) {
        return false;
    }
    const char *frame = mp_frame_first(state);
    PyFrameObject *object = PyThreadState_GetFrame(state);
    bool agrees = true;
    for (; frame != NULL && agrees; frame = mp_frame_previous(frame)) {
        PyCodeObject *code = mp_frame_code(frame);
        if (code == NULL) {
            continue;
        }
        PyCodeObject *expected = object == NULL ? NULL : PyFrame_GetCode(object);
        agrees = expected == code;
#if PY_VERSION_HEX >= 0x030B0000
        agrees = agrees && PyFrame_GetLasti(object) == mp_frame_instruction(frame, code);
#endif
        Py_XDECREF(expected);
        PyFrameObject *back = object == NULL ? NULL : PyFrame_GetBack(object);
        Py_XDECREF(object);
        object = back;
    }
    agrees = agrees && object == NULL;
    Py_XDECREF(object);
    return agrees;
}

static int s_checks, s_failures;

static PyObject *
check_here(PyObject *self, PyObject *ignored)
{
    s_checks++;
    s_failures += !walk_agrees();
    Py_RETURN_NONE;
}

static PyMethodDef s_check_def = {"check", check_here, METH_NOARGS, NULL};

static const char s_check_program[] = "def plain(n):\n"
                                      "    return plain(n - 1) if n else check()\n"
                                      "def generator():\n"
                                      "    for _ in range(2):\n"
                                      "        yield check()\n"
                                      "class Made:\n"
                                      "    def __init__(self):\n"
                                      "        check()\n"
                                      "    def __iter__(self):\n"
                                      "        yield from generator()\n"
                                      "plain(0)\n"
                                      "plain(20)\n"
                                      "list(generator())\n"
                                      "[check() for _ in range(2)]\n"
                                      "sorted([2, 1], key=lambda v: check() or v)\n"
                                      "for _ in range(20):\n"
                                      "    list(Made())\n"
                                      "exec('check()')\n";
enum { CHECKS_EXPECTED = 2 + 2 + 2 + 2 + 60 + 1 };

static bool
run_check_program(void)
{
    PyObject *globals = PyDict_New();
    PyObject *check = PyCFunction_New(&s_check_def, NULL);
    PyObject *result = NULL;
    if (globals != NULL && check != NULL &&
        PyDict_SetItemString(globals, "check", check) == 0 &&
        PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0) {
        result = PyRun_String(s_check_program, Py_file_input, globals, globals);
    }
    Py_XDECREF(globals);
    Py_XDECREF(check);
    if (result == NULL) {
        PyErr_Clear();
        return false;
    }
    Py_DECREF(result);
    return true;
}

bool
mp_frames_init(char *why, size_t room)
{
    static bool s_proved;
    if (s_proved) {
        return true;
    }
    make_factors();
    if (!mp_frame_layout_check(why, room)) {
        return false;
    }
    s_checks = s_failures = 0;
    if (!run_check_program() || s_failures > 0 || s_checks != CHECKS_EXPECTED) {
        PyOS_snprintf(why, room, "the walk of Python's frames was wrong in %d of %d stacks",
                      s_failures, s_checks);
        return false;
    }
    s_proved = true;
    return true;
}
