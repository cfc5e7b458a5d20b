#include "analysis/stack_roles.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static uint32_t
flags_at(const mp_recording *recording, const mp_stack *stack, uint32_t at)
{
    uint32_t frame = MP_ROWS(recording, STACK_FRAMES, uint32_t)[stack->offset + at];
    return MP_ROWS(recording, FRAMES, mp_frame)[frame].flags;
}

/* Whether frame `at`, which calls backward, is the last of Python before the engine: the
 * innermost, or with only torch's own entry inside it. */
static bool
enters_engine(const mp_recording *recording, const mp_stack *stack, uint32_t at)
{
    static const char s_entry[] = "_engine_run_backward";
    if (at != 1) {
        return at == 0;
    }
    uint32_t frame = MP_ROWS(recording, STACK_FRAMES, uint32_t)[stack->offset];
    size_t length;
    const char *name = mp_recording_string(
        recording, MP_ROWS(recording, FRAMES, mp_frame)[frame].function_id, &length);
    return length == sizeof(s_entry) - 1 && memcmp(name, s_entry, length) == 0;
}

static uint8_t
role_of(const mp_recording *recording, const mp_stack *stack)
{
    if (stack->depth == 0) {
        return MP_ROLE_EMPTY;
    }
    uint32_t seen = 0; /* flags of the frames inside the one at hand */
    uint8_t role = 0;
    for (uint32_t at = 0; at < stack->depth; at++) {
        uint32_t flags = flags_at(recording, stack, at);
        if ((flags & MP_FRAME_BACKWARD) != 0 && (seen & MP_FRAME_BACKWARD) == 0 &&
            enters_engine(recording, stack, at)) {
            role |= MP_ROLE_PLAIN_BACKWARD;
        }
        if ((flags & MP_FRAME_OPTIMIZER) != 0 && (seen & MP_FRAME_OPTIMIZER) == 0) {
            role |= MP_ROLE_OPTIMIZER;
            role |= (seen & MP_FRAME_BACKWARD) != 0 ? MP_ROLE_BACKWARD_INSIDE : 0;
            role |= (seen & MP_FRAME_MODULE_CALL) != 0 ? MP_ROLE_MODULE_INSIDE : 0;
        }
        seen |= flags;
    }
    return role;
}

uint8_t *
mp_stack_roles_new(const mp_recording *recording)
{
    size_t count = MP_COUNT(recording, STACKS);
    uint8_t *roles = calloc(count + 1, 1);
    if (roles == NULL) {
        return NULL;
    }
    roles[0] = MP_ROLE_EMPTY;
    for (size_t i = 0; i < count; i++) {
        roles[i] = role_of(recording, &MP_ROWS(recording, STACKS, mp_stack)[i]);
    }
    return roles;
}
