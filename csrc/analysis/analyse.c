#include "analysis/analyse.h"

#include "analysis/blocks.h"
#include "analysis/devices.h"
#include "analysis/launches.h"
#include "analysis/ownership.h"
#include "analysis/timeline.h"

static mp_status
analyse_memory(mp_recording *recording, const mp_device_set *devices)
{
    mp_implied_deaths implied;
    MP_TRY(mp_blocks_build(recording, devices, &implied));
    mp_status status = mp_timeline_build(recording, devices, &implied);
    mp_implied_deaths_fini(&implied);
    return status;
}

mp_status
mp_analyse(mp_recording *recording)
{
    mp_device_set devices;
    MP_TRY(mp_device_set_init(&devices, recording));
    mp_status status = analyse_memory(recording, &devices);
    mp_device_set_fini(&devices);
    MP_TRY(status);
    MP_TRY(mp_ownership_assign(recording));
    return mp_launches_link(recording);
}
