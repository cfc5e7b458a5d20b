/* The devices of a recording, numbered 0.. in order of type and index. */
#ifndef MP_ANALYSIS_DEVICES_H
#define MP_ANALYSIS_DEVICES_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/status.h"
#include "record/recording.h"

#define MP_DEVICE_KEYS 65536 /* all pairs of two bytes */

typedef struct mp_device_set {
    uint32_t *numbers; /* [key], owned; 0 for devices that do not occur */
    size_t count;
} mp_device_set;

MP_INLINE size_t
mp_device_key(int8_t type, int8_t index)
{
    return (size_t)(uint8_t)type << 8 | (uint8_t)index;
}

/* Number of a device that occurs in the recording. */
MP_INLINE size_t
mp_device_number(const mp_device_set *set, int8_t type, int8_t index)
{
    return set->numbers[mp_device_key(type, index)];
}

/* Finds the devices of allocations and baseline and makes the table `devices`, all else
 * in it 0. */
mp_status mp_device_set_init(mp_device_set *set, mp_recording *recording);
void mp_device_set_fini(mp_device_set *set);

#endif
