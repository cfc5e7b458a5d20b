/* The staircase: allocation sites of which more bytes are alive at each step's end.
 *
 * For each site (stack, device) the bytes alive at the step ends are a series. The first
 * MP_GROWTH_WARM_UP steps are left out: what optimizers and caches set up there stays. The
 * rise begins after the series' last minimum and is growth when
 *  - it spans at least MP_GROWTH_STEPS step ends,
 *  - the slope (median over pairs of step ends, Theil-Sen) is above 0 with 98 % confidence,
 *  - the end lies clearly above all that was before the rise (a sawtooth's does not),
 *  - it goes on to the end (a cache that is full does not). */
#ifndef MP_ANALYSIS_GROWTH_H
#define MP_ANALYSIS_GROWTH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "record/recording.h"

#define MP_GROWTH_WARM_UP 2
#define MP_GROWTH_STEPS 5

/* low and high bound the slope's 98 % interval. survivors: blocks of the site alive at the
 * last step's end. first_step: number of the step at whose end the rise began. */
#define MP_GROWTH_FIELDS(F)                                                                \
    F(double, bytes_per_step)                                                              \
    F(double, low)                                                                         \
    F(double, high)                                                                        \
    F(int64_t, bytes_at_end)                                                               \
    F(int64_t, first_step)                                                                 \
    F(uint32_t, stack_id)                                                                  \
    F(uint32_t, survivors)                                                                 \
    F(uint32_t, steps_used)                                                                \
    F(int8_t, device_type)                                                                 \
    F(int8_t, device_index)                                                                \
    F(uint16_t, flags)
MP_DEFINE_TABLE(mp_growth_site, MP_GROWTH_FIELDS)
_Static_assert(sizeof(mp_growth_site) == 56, "no padding");

typedef struct mp_growth {
    mp_growth_site *sites; /* owned, steepest first */
    size_t count;
} mp_growth;

/* Reads a recording that was analysed; fewer steps than MP_GROWTH_WARM_UP +
 * MP_GROWTH_STEPS give no site. O(n log n). */
mp_status mp_growth_find(const mp_recording *recording, mp_growth *out);
void mp_growth_fini(mp_growth *growth);

#endif
