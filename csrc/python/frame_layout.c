#include "python/frame_layout.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#if PY_VERSION_HEX >= 0x030D0000
/* _PyRuntime begins with a table of 64-bit words: cookie, version, free-threaded, then
 * sizes and offsets whose places differ by minor version. */
enum { WORD_VERSION = 1, WORD_FREE_THREADED = 2 };

typedef struct table_places {
    int minor, current_frame, previous, executable, instruction, locals, owner,
        code_adaptive;
} table_places;

static const table_places s_places[] = {
    {13, 23, 29, 30, 31, 32, 33, 43},
    {14, 26, 32, 33, 34, 35, 36, 48},
};

static bool
table_agrees(const uint64_t *table, const table_places *at)
{
    return table[at->current_frame] == offsetof(PyThreadState, current_frame) &&
           table[at->previous] == MP_FRAME_PREVIOUS &&
           table[at->executable] == MP_FRAME_CODE &&
           table[at->instruction] == MP_FRAME_INSTRUCTION &&
           table[at->locals] == MP_FRAME_LOCALS && table[at->owner] == MP_FRAME_OWNER &&
           table[at->code_adaptive] == offsetof(PyCodeObject, co_code_adaptive);
}

bool
mp_frame_layout_check(char *why, size_t room)
{
    const uint64_t *table = dlsym(RTLD_DEFAULT, "_PyRuntime");
    if (table == NULL || memcmp(table, "xdebugpy", 8) != 0) {
        snprintf(why, room, "the interpreter has no table of its offsets");
        return false;
    }
    if (table[WORD_FREE_THREADED] != 0) {
        snprintf(why, room, "free-threaded builds of Python are not supported");
        return false;
    }
    int minor = (int)(table[WORD_VERSION] >> 16 & 0xff);
    for (size_t i = 0; i < MP_COUNT_OF(s_places); i++) {
        if (s_places[i].minor == minor) {
            if (table_agrees(table, &s_places[i])) {
                return true;
            }
            snprintf(why, room, "frames of this Python 3.%d lie elsewhere than known",
                     minor);
            return false;
        }
    }
    snprintf(why, room, "Python 3.%d is not known", minor);
    return false;
}
#else
bool
mp_frame_layout_check(char *why, size_t room)
{
#ifdef Py_DEBUG
    snprintf(why, room, "debug builds of Python are not supported");
    return false;
#else
    return true;
#endif
}
#endif
