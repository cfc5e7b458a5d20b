/* Python stacks of the calling thread, read without the GIL while the thread is inside C
 * (capture_cost: the blind walk). One public door for both steps: capture in a hook, text
 * when the session ends. */
#ifndef MP_PYTHON_FRAMES_H
#define MP_PYTHON_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/objects.h"
#include "record/thread_log.h"

/* Loads this interpreter's frame layout and proves it against the public API on a few
 * real stacks; GIL held. False with the reason in `why`: stacks are then off. */
bool mp_frames_init(char *why, size_t room);

/* The id in log->stacks of the calling thread's Python stack, 0 when it has none or there
 * is no room. Hook context (no GIL needed; log is entered). Words of a stack in the log:
 *
 *   word 0              depth | modules << 16 | MP_STACK_TRUNCATED-flags << 32
 *   depth words         code id << 32 | instruction offset in bytes    innermost first
 *   modules words       index of the Module.__call__ frame << 32 | module's object id
 *
 * Depth policy: at most MP_FRAMES_INNER innermost and MP_FRAMES_OUTER outermost frames;
 * what lies between is left out and the stack flagged. */
#define MP_FRAMES_INNER 192
#define MP_FRAMES_OUTER 64
uint32_t mp_frames_capture(mp_thread_log *log);

/* The calling thread's innermost frame as an opaque pointer: equal pointers while one C
 * call is still running in that frame mean an equal stack. NULL without Python. Hook
 * context. */
const void *mp_frames_innermost(void);

/* The code object of torch.nn.Module.__call__ (borrowed; the caller keeps it alive until
 * the next call of this function), or NULL: its frames' first local is the module, and
 * stacks that differ only in it are different stacks. A code whose first argument is kept
 * in a cell counts as NULL. GIL held. */
void mp_frames_set_module_call(void *code);

/* Where a (code id, instruction offset) of a captured stack lies. GIL held; recording has
 * stopped or not, but mp_code_watch_stop() has not been called. Texts are borrowed until
 * then. False when the code is not known any more. */
typedef struct mp_code_line {
    const char *file; /* UTF-8 */
    size_t file_bytes;
    const char *function; /* qualified name where the interpreter has one */
    size_t function_bytes;
    int line; /* 0 unknown */
} mp_code_line;
bool mp_code_describe(uint32_t code_id, uint32_t instruction, mp_code_line *out);

/* From start to stop every code object that a captured stack names stays readable: a
 * dying one is kept in memory ("parked") up to MP_PARKED_LIMIT of them; beyond that its
 * texts are copied and its address struck out. GIL held. start fails with a reason. */
#define MP_PARKED_LIMIT 200000
bool mp_code_watch_start(char *why, size_t room);
void mp_code_watch_stop(void);

/* For tests: another limit than MP_PARKED_LIMIT from now on. */
void mp_code_watch_limit(size_t parked);

#endif
