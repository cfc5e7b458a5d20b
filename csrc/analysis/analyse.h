/* All passes over a fresh recording, in their order: from allocator events, operators,
 * steps, stacks and the baseline to blocks, device totals and step memory. */
#ifndef MP_ANALYSIS_ANALYSE_H
#define MP_ANALYSIS_ANALYSE_H

#include "base/status.h"
#include "record/recording.h"

/* Fills the tables blocks, devices and step_memory; completes allocations (running totals
 * and sizes of frees where the source gave none), operators (forward_id) and activities
 * (whose each is). O(n log n).
 * Calls neither Python nor the system beyond memory; one thread at a time. */
mp_status mp_analyse(mp_recording *recording);

#endif
