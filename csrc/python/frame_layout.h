/* Where the running interpreter keeps its frames: one block of constants and readers per
 * CPython version, for release builds with the GIL. Only public headers are used; what they
 * hide (struct _PyInterpreterFrame) is stated here and proved at run time, against the
 * interpreter's own table of offsets where it has one (3.13 on) and against the public API
 * always (mp_frames_init). Bytes, LP64.
 *
 *              3.10      3.11  3.12  3.13  3.14
 *  code        f_code      32     0     0     0 (tagged)
 *  previous    f_back      48     8     8     8
 *  instruction f_lasti     56    56    56    56
 *  owner       -           69    70    70    74
 *  localsplus  (struct)    72    72    72    80 (tagged)
 */
#ifndef MP_PYTHON_FRAME_LAYOUT_H
#define MP_PYTHON_FRAME_LAYOUT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <frameobject.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define MP_FRAME_READ(type, frame, offset)                                                 \
    (*(type *)((char *)(uintptr_t)(frame) + (offset)))

#if PY_VERSION_HEX < 0x030B0000
enum { MP_FRAME_LOCALS = offsetof(PyFrameObject, f_localsplus) };
#elif PY_VERSION_HEX < 0x030C0000
enum {
    MP_FRAME_CODE = 32,
    MP_FRAME_PREVIOUS = 48,
    MP_FRAME_INSTRUCTION = 56,
    MP_FRAME_OWNER = 69,
    MP_FRAME_LOCALS = 72,
};
#elif PY_VERSION_HEX < 0x030E0000
enum {
    MP_FRAME_CODE = 0,
    MP_FRAME_PREVIOUS = 8,
    MP_FRAME_INSTRUCTION = 56,
    MP_FRAME_OWNER = 70,
    MP_FRAME_LOCALS = 72,
};
#else
enum {
    MP_FRAME_CODE = 0,
    MP_FRAME_PREVIOUS = 8,
    MP_FRAME_INSTRUCTION = 56,
    MP_FRAME_OWNER = 74,
    MP_FRAME_LOCALS = 80,
};
#endif

enum { MP_OWNED_BY_GENERATOR = 1, MP_OWNED_BY_C = 3 /* and above */ };
enum { MP_CODE_UNIT_BYTES = 2 };

/* The innermost frame of a thread state that belongs to the calling thread. */
MP_INLINE const char *
mp_frame_first(PyThreadState *state)
{
#if PY_VERSION_HEX < 0x030B0000
    return (const char *)state->frame;
#elif PY_VERSION_HEX < 0x030D0000
    return (const char *)state->cframe->current_frame;
#else
    return (const char *)state->current_frame;
#endif
}

MP_INLINE const char *
mp_frame_previous(const char *frame)
{
#if PY_VERSION_HEX < 0x030B0000
    return (const char *)((const PyFrameObject *)frame)->f_back;
#else
    return MP_FRAME_READ(const char *, frame, MP_FRAME_PREVIOUS);
#endif
}

/* One number that stands for code and instruction while the code lives. */
MP_INLINE uint64_t
mp_frame_position(const char *frame)
{
#if PY_VERSION_HEX < 0x030B0000
    const PyFrameObject *object = (const PyFrameObject *)frame;
    return (uint64_t)(uintptr_t)object->f_code * 0x9E3779B97F4A7C15u +
           (uint64_t)(unsigned)object->f_lasti;
#else
    return MP_FRAME_READ(uint64_t, frame, MP_FRAME_INSTRUCTION);
#endif
}

/* The first local variable (of a function: its first argument), without its tag. */
MP_INLINE PyObject *
mp_frame_first_local(const char *frame)
{
    return (PyObject *)(MP_FRAME_READ(uintptr_t, frame, MP_FRAME_LOCALS) & ~(uintptr_t)3);
}

/* The code of a frame; NULL for one that is owned by C or runs no Python code. */
MP_INLINE PyCodeObject *
mp_frame_code(const char *frame)
{
#if PY_VERSION_HEX < 0x030B0000
    return ((const PyFrameObject *)frame)->f_code;
#else
    if (MP_FRAME_READ(unsigned char, frame, MP_FRAME_OWNER) >= MP_OWNED_BY_C) {
        return NULL;
    }
    PyObject *code =
        (PyObject *)(MP_FRAME_READ(uintptr_t, frame, MP_FRAME_CODE) & ~(uintptr_t)3);
    return code != NULL && Py_TYPE(code) == &PyCode_Type ? (PyCodeObject *)code : NULL;
#endif
}

/* Where the instructions of a code object lie, in the numbers of mp_frame_code_key(). */
MP_INLINE uint64_t
mp_code_bytes_first(PyCodeObject *code)
{
#if PY_VERSION_HEX < 0x030B0000
    return (uint64_t)(uintptr_t)code;
#else
    return (uint64_t)(uintptr_t)code->co_code_adaptive;
#endif
}

MP_INLINE uint64_t
mp_code_bytes_count(PyCodeObject *code)
{
#if PY_VERSION_HEX < 0x030B0000
    return 1;
#else
    return (uint64_t)Py_SIZE(code) * MP_CODE_UNIT_BYTES;
#endif
}

/* A number within its code's bytes, and within those of no other. */
MP_INLINE uint64_t
mp_frame_code_key(const char *frame, uint64_t position)
{
#if PY_VERSION_HEX < 0x030B0000
    return (uint64_t)(uintptr_t)((const PyFrameObject *)frame)->f_code;
#else
    return position;
#endif
}

/* Whether the frame is in tracebacks: not one that has not begun yet. */
MP_INLINE bool
mp_frame_shows(const char *frame, PyCodeObject *code)
{
#if PY_VERSION_HEX < 0x030B0000
    return true;
#else
    return MP_FRAME_READ(unsigned char, frame, MP_FRAME_OWNER) == MP_OWNED_BY_GENERATOR ||
           MP_FRAME_READ(uint64_t, frame, MP_FRAME_INSTRUCTION) >=
               mp_code_bytes_first(code) +
                   (uint64_t)code->_co_firsttraceable * MP_CODE_UNIT_BYTES;
#endif
}

/* The instruction's offset in bytes, as PyCode_Addr2Line takes it. */
MP_INLINE int
mp_frame_instruction(const char *frame, PyCodeObject *code)
{
#if PY_VERSION_HEX < 0x030B0000
    return ((const PyFrameObject *)frame)->f_lasti * MP_CODE_UNIT_BYTES;
#else
    return (int)(MP_FRAME_READ(uint64_t, frame, MP_FRAME_INSTRUCTION) -
                 mp_code_bytes_first(code));
#endif
}

/* Compares the constants with what the interpreter itself says, where it does. False with
 * a reason for a build that this file does not describe. */
bool mp_frame_layout_check(char *why, size_t room);

#endif
