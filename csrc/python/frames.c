#include "python/frames.h"

#include <string.h>

#include "python/frame_layout.h"
#include "python/frame_proof.h"
#include "record/tables.h"

enum {
    FACTORS = 256, /* frames hashed before the sum is stirred */
    KEPT = MP_FRAMES_INNER + MP_FRAMES_OUTER,
};

/* Random odd numbers, so that the products are independent of each other. */
static uint64_t s_factors[FACTORS];

/* Bytecode of torch.nn.Module.__call__, [low, low + bytes). Written under the GIL while
 * hooks may read; bytes is 0 while low changes. */
static _Atomic(uint64_t) s_call_low;
static _Atomic(uint64_t) s_call_bytes;
static _Atomic(PyCodeObject *) s_call_code;

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

bool
mp_frames_init(char *why, size_t room)
{
    static bool s_proved;
    if (!s_proved) {
        make_factors();
        s_proved = mp_frame_layout_check(why, room) && mp_frame_walk_prove(why, room);
    }
    return s_proved;
}

const void *
mp_frames_innermost(void)
{
    PyThreadState *state = PyGILState_GetThisThreadState();
    return state == NULL ? NULL : mp_frame_first(state);
}

/* ---- modules ---- */

/* True when the frame holds the first argument itself: an inner function that uses it
 * would have a cell put in its place. */
static bool
first_argument_is_plain(PyCodeObject *code)
{
    PyObject *names = PyObject_GetAttrString((PyObject *)code, "co_varnames");
    PyObject *cells = PyObject_GetAttrString((PyObject *)code, "co_cellvars");
    bool plain = false;
    if (names != NULL && cells != NULL && code->co_argcount > 0) {
        plain = PySequence_Contains(cells, PyTuple_GET_ITEM(names, 0)) == 0;
    }
    Py_XDECREF(names);
    Py_XDECREF(cells);
    PyErr_Clear();
    return plain;
}

void
mp_frames_set_module_call(void *code)
{
    if (code != NULL && !first_argument_is_plain(code)) {
        code = NULL;
    }
    mp_store_release(&s_call_bytes, 0);
    mp_store_release(&s_call_code, code);
    if (code != NULL) {
        mp_store_release(&s_call_low, mp_code_bytes_first(code));
        mp_store_release(&s_call_bytes, mp_code_bytes_count(code));
    }
}

/* ---- a stack that the log does not know yet ---- */

/* Frames innermost first; beyond the inner ones a ring over the outermost seen so far. */
typedef struct new_stack {
    uint32_t seen;
    uint64_t frames[KEPT];
    uint32_t modules[KEPT]; /* object id of the frame in the same place, 0 none */
} new_stack;

/* What died at this address unseen was of the other kind: its id ends here. */
static MP_NOINLINE uint32_t
intern(mp_object_kind kind, const void *address, const char *class_name)
{
    uint32_t id = mp_objects_intern(kind, address, class_name);
    if (id != 0 && mp_objects_at(id)->kind != kind) {
        mp_objects_strike(address);
        id = mp_objects_intern(kind, address, class_name);
    }
    return id;
}

static uint32_t
intern_module(mp_thread_log *log, const char *frame)
{
    PyObject *module = mp_frame_first_local(frame);
    if (module == NULL) { /* its function has deleted `self` */
        return 0;
    }
    uint32_t id = intern(MP_OBJECT_MODULE, module, Py_TYPE(module)->tp_name);
    log->lost[MP_LOSS_OBJECT] += id == 0;
    return id;
}

static bool
add_frame(mp_thread_log *log, new_stack *stack, const char *frame)
{
    PyCodeObject *code = mp_frame_code(frame);
    if (code == NULL) {
        return true;
    }
    /* Also the code of a frame that does not show: it is part of the fingerprint, so its
     * death must be noticed. */
    uint32_t id = intern(MP_OBJECT_CODE, code, NULL);
    if (id == 0) {
        log->lost[MP_LOSS_OBJECT]++;
        return false;
    }
    if (!mp_frame_shows(frame, code)) {
        return true;
    }
    uint32_t at = stack->seen++;
    if (at >= MP_FRAMES_INNER) {
        at = MP_FRAMES_INNER + (at - MP_FRAMES_INNER) % MP_FRAMES_OUTER;
    }
    stack->frames[at] = (uint64_t)id << 32 | (uint32_t)mp_frame_instruction(frame, code);
    stack->modules[at] =
        code == mp_load_relaxed(&s_call_code) ? intern_module(log, frame) : 0;
    return true;
}

/* Writes the stack as frames.h lays it out; returns how many words. */
static uint32_t
write_words(const new_stack *stack, uint64_t *words)
{
    bool truncated = stack->seen > KEPT;
    uint32_t depth = truncated ? KEPT : stack->seen;
    uint32_t first = truncated ? (stack->seen - MP_FRAMES_INNER) % MP_FRAMES_OUTER : 0;
    uint64_t *calls = &words[1 + depth];
    uint32_t modules = 0;
    for (uint32_t i = 0; i < depth; i++) {
        uint32_t at = i;
        if (i >= MP_FRAMES_INNER) {
            at = MP_FRAMES_INNER + (first + i - MP_FRAMES_INNER) % MP_FRAMES_OUTER;
        }
        words[1 + i] = stack->frames[at];
        if (stack->modules[at] != 0) {
            calls[modules++] = (uint64_t)i << 32 | stack->modules[at];
        }
    }
    uint64_t flags = truncated ? MP_STACK_TRUNCATED : 0;
    words[0] = depth | (uint64_t)modules << 16 | flags << 32;
    return 1 + depth + modules;
}

static MP_NOINLINE uint32_t
add_stack(mp_thread_log *log, uint64_t fingerprint, const char *frame)
{
    new_stack stack;
    stack.seen = 0;
    for (; frame != NULL; frame = mp_frame_previous(frame)) {
        if (!add_frame(log, &stack, frame)) {
            return 0;
        }
    }
    if (stack.seen == 0) {
        return 0;
    }
    uint64_t words[1 + 2 * KEPT];
    uint32_t count = write_words(&stack, words);
    uint32_t id =
        mp_intern_add(&log->stacks, &g_recorder.budget, fingerprint, words, count);
    log->lost[MP_LOSS_STACK] += id == 0;
    return id;
}

/* ---- the hot path ---- */

/* Reads frames only, no code object, and decides nothing: what two stacks differ in is an
 * instruction, the number of frames or a module. */
MP_INLINE uint64_t
fingerprint_of(const char *frame)
{
    uint64_t call_bytes = mp_load_acquire(&s_call_bytes);
    uint64_t call_low = mp_load_relaxed(&s_call_low);
    uint64_t hash = 0;
    do {
        const uint64_t *factor = s_factors;
        do {
            uint64_t position = mp_frame_position(frame);
            hash += (position ^ position >> 17) * *factor;
            if (mp_frame_code_key(frame, position) - call_low < call_bytes) {
                uint64_t module = (uint64_t)(uintptr_t)mp_frame_first_local(frame);
                hash += (module ^ module >> 15) * (*factor * 0xC2B2AE3D27D4EB4Fu);
            }
            factor++;
            frame = mp_frame_previous(frame);
        } while (frame != NULL && factor < s_factors + FACTORS);
        /* Stirred, because the factors begin anew. */
        hash = (hash ^ hash >> 32) * 0x9E3779B97F4A7C15u + (uint64_t)(factor - s_factors);
    } while (MP_UNLIKELY(frame != NULL));
    return hash | 1;
}

uint32_t
mp_frames_capture(mp_thread_log *log)
{
    PyThreadState *state = PyGILState_GetThisThreadState();
    const char *first = state == NULL ? NULL : mp_frame_first(state);
    if (first == NULL) {
        return 0;
    }
    uint64_t fingerprint = fingerprint_of(first);
    uint32_t generation = mp_load_relaxed(&g_objects_generation);
    if (MP_UNLIKELY(log->object_generation != generation)) {
        mp_intern_forget(&log->stacks);
        log->object_generation = generation;
    }
    uint32_t id = mp_intern_find(&log->stacks, fingerprint);
    return MP_LIKELY(id != 0) ? id : add_stack(log, fingerprint, first);
}
