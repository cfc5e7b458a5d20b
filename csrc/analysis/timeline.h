/* Memory over time: totals in the rows of `allocations`, and the tables `devices` and
 * `step_memory`. */
#ifndef MP_ANALYSIS_TIMELINE_H
#define MP_ANALYSIS_TIMELINE_H

#include "analysis/blocks.h"
#include "analysis/devices.h"
#include "base/status.h"
#include "record/recording.h"

/* After mp_blocks_build. Where an allocator reports its own totals (CUDA) they are kept and
 * compared with the events; elsewhere they are the sum of the blocks known. A time equal
 * to a boundary of window or step lies after it. */
mp_status mp_timeline_build(mp_recording *recording, const mp_device_set *devices,
                            const mp_implied_deaths *implied);

#endif
