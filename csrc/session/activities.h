/* What CUPTI gave becomes the table `activities`: times on the recording's clock, threads
 * and names by its ids. */
#ifndef MP_SESSION_ACTIVITIES_H
#define MP_SESSION_ACTIVITIES_H

#include "base/clock.h"
#include "base/status.h"
#include "session/gather.h"

/* After mp_merge, before the texts are stored and the passes run. Adds a row to `threads`
 * for each thread that only CUPTI saw. Does nothing where no activity was recorded. */
mp_status mp_activities_store(mp_gathered *gathered, const mp_clock_map *clock);

#endif
