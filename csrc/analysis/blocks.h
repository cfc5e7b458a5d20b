/* Births matched with deaths: allocator events and baseline in, the table `blocks` out. */
#ifndef MP_ANALYSIS_BLOCKS_H
#define MP_ANALYSIS_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "analysis/devices.h"
#include "base/status.h"
#include "record/recording.h"

/* A death without an event: allocation `row` gave out the address of a live block. */
typedef struct mp_implied_death {
    size_t row;
    int64_t bytes;
} mp_implied_death;

typedef struct mp_implied_deaths {
    mp_implied_death *rows; /* owned, in order of row */
    size_t count, room;
} mp_implied_deaths;

/* Makes the table `blocks` in order of birth, those from before the recording (birth_ns
 * -1) first. Frees without a size get the size of their block. Counts unknown frees and
 * missed ones in the table `devices`. On failure *implied is empty. */
mp_status mp_blocks_build(mp_recording *recording, const mp_device_set *devices,
                          mp_implied_deaths *implied);

void mp_implied_deaths_fini(mp_implied_deaths *implied);

#endif
