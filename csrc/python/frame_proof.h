/* The proof that frame_layout.h describes the running interpreter: a small program is run,
 * and in each of its stacks the walk and the public API must say the same. */
#ifndef MP_PYTHON_FRAME_PROOF_H
#define MP_PYTHON_FRAME_PROOF_H

#include <stdbool.h>
#include <stddef.h>

/* GIL held. False with a reason on any difference. Leaves no exception and no object. */
bool mp_frame_walk_prove(char *why, size_t room);

#endif
