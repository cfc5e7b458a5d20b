#include "analysis/devices.h"

#include <stdlib.h>

static void
mark_devices(uint32_t *seen, const mp_recording *recording)
{
    const mp_allocation *allocations = MP_ROWS(recording, ALLOCATIONS, mp_allocation);
    for (size_t i = 0; i < MP_COUNT(recording, ALLOCATIONS); i++) {
        seen[mp_device_key(allocations[i].device_type, allocations[i].device_index)] = 1;
    }
    const mp_baseline *baseline = MP_ROWS(recording, BASELINE, mp_baseline);
    for (size_t i = 0; i < MP_COUNT(recording, BASELINE); i++) {
        seen[mp_device_key(baseline[i].device_type, baseline[i].device_index)] = 1;
    }
}

/* Turns marks into numbers; with `rows` also names the rows. Returns the count. */
static size_t
number_devices(uint32_t *numbers, mp_device *rows)
{
    size_t count = 0;
    for (int pair = 0; pair < MP_DEVICE_KEYS; pair++) {
        int8_t type = (int8_t)(pair / 256 - 128);
        int8_t index = (int8_t)(pair % 256 - 128);
        size_t key = mp_device_key(type, index);
        if (numbers[key] == 0) {
            continue;
        }
        if (rows != NULL) {
            rows[count].device_type = type;
            rows[count].device_index = index;
            numbers[key] = (uint32_t)count;
        }
        count++;
    }
    return count;
}

mp_status
mp_device_set_init(mp_device_set *set, mp_recording *recording)
{
    *set = (mp_device_set){.numbers = calloc(MP_DEVICE_KEYS, sizeof(*set->numbers))};
    if (set->numbers == NULL) {
        return MP_NO_MEMORY;
    }
    mark_devices(set->numbers, recording);
    set->count = number_devices(set->numbers, NULL);
    mp_device *rows = mp_recording_resize(recording, MP_TABLE_DEVICES, set->count);
    if (rows == NULL && set->count > 0) {
        mp_device_set_fini(set);
        return MP_NO_MEMORY;
    }
    if (rows != NULL) {
        number_devices(set->numbers, rows);
    }
    return MP_OK;
}

void
mp_device_set_fini(mp_device_set *set)
{
    free(set->numbers);
    *set = (mp_device_set){0};
}
