/* From backward to the forward line: the autograd node that runs is known by its sequence
 * number and the thread that made it in forward.
 *
 * With operators recorded, the node was made by the last operator that had started there
 * with that number (operators that make no node carry the number too, before it). Without
 * them, the allocations tell: the number is taken just before the operator allocates, so
 * the first allocation of that thread that saw number + 1 is the node's. Operators that
 * allocate nothing leave no such allocation: then the nearest lower number stands in. */
#ifndef MP_ANALYSIS_FORWARD_H
#define MP_ANALYSIS_FORWARD_H

#include <stdint.h>

#include "base/status.h"
#include "record/recording.h"

typedef struct mp_forward_links {
    /* Per row of `operators`, owned. */
    uint32_t *backward_ids; /* innermost BACKWARD_FUNCTION operator around it, itself, or
                             * the one whose results the engine's wrapper works on */
    uint32_t *stack_ids;    /* of a backward operator: its forward line's stack, 0 none */
    uint8_t *near;          /* 1: by the nearest lower number */
} mp_forward_links;

/* Sets forward_id in `operators`. `roles` as from mp_stack_roles_new. */
mp_status mp_forward_links_init(mp_forward_links *links, mp_recording *recording,
                                const uint8_t *roles);
void mp_forward_links_fini(mp_forward_links *links);

#endif
