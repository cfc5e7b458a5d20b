/* Second half of assembly: the events of all logs, in one order of time, into the tables
 * allocations, operators, steps, spans and threads. No Python; O(events x log threads). */
#ifndef MP_SESSION_MERGE_H
#define MP_SESSION_MERGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "session/gather.h"

typedef struct mp_merge_window {
    mp_clock_map clock;
    uint64_t start_ticks;
    uint64_t window_ticks; /* events before it are warm-up */
    uint64_t stop_ticks;
    uint64_t keep_after;   /* ring: older events are incomplete and left out; 0 all */
    uint64_t keep_before;  /* limit: later ones likewise; 0 all */
    bool drop_open_step;   /* a step that no later mark ended is no step */
} mp_merge_window;

/* Fills gathered->recording, but for its strings: mp_text_table_store comes once all texts
 * are there. In ring mode the window begins at the first step after
 * keep_after, or at keep_after where no step was marked. */
mp_status mp_merge(mp_gathered *gathered, const mp_merge_window *window);

#endif
