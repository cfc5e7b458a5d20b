/* What a Python stack says about who allocates, from the roles of its frames: one byte a
 * stack. */
#ifndef MP_ANALYSIS_STACK_ROLES_H
#define MP_ANALYSIS_STACK_ROLES_H

#include <stdint.h>

#include "record/recording.h"

enum {
    /* Nothing of Python runs inside the autograd engine: the stack names the line that
     * called backward and says nothing about who needs the memory. */
    MP_ROLE_PLAIN_BACKWARD = 1,
    MP_ROLE_OPTIMIZER = 2,       /* inside an optimizer's step ... */
    MP_ROLE_BACKWARD_INSIDE = 4, /* ... and there inside a backward (closures) */
    MP_ROLE_MODULE_INSIDE = 8,   /* ... or inside a module */
    MP_ROLE_EMPTY = 16,
};

/* One byte for each row of `stacks`, at least one; the caller frees. NULL when out of
 * memory. */
uint8_t *mp_stack_roles_new(const mp_recording *recording);

#endif
