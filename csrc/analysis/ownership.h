/* Who a block belongs to: line, module and phase; and forward_id of the operators. */
#ifndef MP_ANALYSIS_OWNERSHIP_H
#define MP_ANALYSIS_OWNERSHIP_H

#include "base/status.h"
#include "record/recording.h"

/* After mp_blocks_build. A block keeps the stack that allocated it, unless that is empty or
 * says no more than "called backward": then it gets the forward line's, where one is known.
 * Phase, the first that holds: optimizer, backward, data, forward (on a module's stack),
 * other; where an optimizer's step and a backward contain each other the inner counts. */
mp_status mp_ownership_assign(mp_recording *recording);

#endif
