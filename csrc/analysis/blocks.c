#include "analysis/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/steps.h"
#include "base/table.h"
#include "record/event.h"

/* A live block is known by a handle: place + 1 in `rows`, or with OLDER set in `older`.
 * Blocks from before the recording come to light at any time (by their free), but stand
 * first in the table: hence two arrays until the end. */
#define OLDER 0x80000000u

typedef struct matcher {
    mp_recording *recording;
    const mp_device_set *devices;
    mp_device *device_rows;
    mp_table_map *alive; /* one a device: address -> handle, 0 once dead */
    mp_block *rows;      /* the recording's table while it fills */
    size_t count;
    mp_block *older;
    size_t older_count, older_room;
    mp_step_cursor steps;
    mp_implied_deaths *implied;
} matcher;

static void *
grown(void *rows, size_t *room, size_t row_bytes)
{
    size_t more = *room == 0 ? 256 : *room * 2;
    void *moved = realloc(rows, more * row_bytes);
    if (moved != NULL) {
        *room = more;
    }
    return moved;
}

static mp_block *
block_of(const matcher *self, uint32_t handle)
{
    return (handle & OLDER) != 0 ? &self->older[(handle & ~OLDER) - 1]
                                 : &self->rows[handle - 1];
}

/* A zeroed block from before the recording, and its handle. */
static mp_block *
add_older(matcher *self, uint32_t *handle)
{
    if (self->older_count == self->older_room) {
        void *moved = grown(self->older, &self->older_room, sizeof(*self->older));
        if (moved == NULL) {
            return NULL;
        }
        self->older = moved;
    }
    mp_block *block = &self->older[self->older_count++];
    *block = (mp_block){
        .birth_ns = -1,
        .death_ns = -1,
        .birth_step = -1,
        .death_step = -1,
        .requested_bytes = -1,
        .preexisting = 1,
    };
    *handle = OLDER | (uint32_t)self->older_count;
    return block;
}

/* ---- baseline ---- */

/* Marks rows whose address had an event up to the snapshot: what it then shows is a block
 * of the recording, or one that died while the snapshot was taken. */
static void
mark_overtaken(const matcher *self, const mp_table_map *places, uint8_t *overtaken)
{
    const mp_baseline *baseline = MP_ROWS(self->recording, BASELINE, mp_baseline);
    const mp_allocation *events = MP_ROWS(self->recording, ALLOCATIONS, mp_allocation);
    int64_t last_ns = INT64_MIN;
    for (size_t i = 0; i < MP_COUNT(self->recording, BASELINE); i++) {
        last_ns = baseline[i].time_ns > last_ns ? baseline[i].time_ns : last_ns;
    }
    for (size_t i = 0; i < MP_COUNT(self->recording, ALLOCATIONS); i++) {
        const mp_allocation *event = &events[i];
        if (event->time_ns > last_ns) {
            return;
        }
        size_t device =
            mp_device_number(self->devices, event->device_type, event->device_index);
        const uint32_t *place = mp_table_find(&places[device], event->address);
        if (place != NULL && event->kind != MP_ALLOCATION_OOM &&
            event->time_ns <= baseline[*place - 1].time_ns) {
            overtaken[*place - 1] = 1;
        }
    }
}

static mp_status
add_baseline_block(matcher *self, const mp_baseline *row)
{
    size_t device = mp_device_number(self->devices, row->device_type, row->device_index);
    uint32_t *handle = mp_table_at(&self->alive[device], row->address);
    if (handle == NULL) {
        return MP_NO_MEMORY;
    }
    mp_block *block = add_older(self, handle);
    if (block == NULL) {
        return MP_NO_MEMORY;
    }
    block->address = row->address;
    block->bytes = row->bytes;
    block->requested_bytes = row->requested_bytes;
    block->stack_id = row->stack_id;
    block->device_type = row->device_type;
    block->device_index = row->device_index;
    return MP_OK;
}

/* places[device]: address -> first baseline row of it + 1. */
static mp_status
add_baseline_blocks(matcher *self, mp_table_map *places, uint8_t *overtaken)
{
    const mp_baseline *rows = MP_ROWS(self->recording, BASELINE, mp_baseline);
    size_t count = MP_COUNT(self->recording, BASELINE);
    for (size_t i = 0; i < count; i++) {
        size_t device =
            mp_device_number(self->devices, rows[i].device_type, rows[i].device_index);
        uint32_t *place = mp_table_at(&places[device], rows[i].address);
        if (place == NULL) {
            return MP_NO_MEMORY;
        }
        overtaken[i] = *place != 0;
        *place = *place == 0 ? (uint32_t)i + 1 : *place;
    }
    mark_overtaken(self, places, overtaken);
    for (size_t i = 0; i < count; i++) {
        if (!overtaken[i]) {
            MP_TRY(add_baseline_block(self, &rows[i]));
        }
    }
    return MP_OK;
}

static mp_table_map *
maps_new(size_t count)
{
    mp_table_map *maps = calloc(count + 1, sizeof(*maps));
    for (size_t i = 0; maps != NULL && i < count; i++) {
        if (mp_table_init(&maps[i], 64) != MP_OK) {
            while (i-- > 0) {
                mp_table_fini(&maps[i]);
            }
            free(maps);
            maps = NULL;
        }
    }
    return maps;
}

static void
maps_free(mp_table_map *maps, size_t count)
{
    for (size_t i = 0; maps != NULL && i < count; i++) {
        mp_table_fini(&maps[i]);
    }
    free(maps);
}

static mp_status
take_baseline(matcher *self)
{
    size_t count = MP_COUNT(self->recording, BASELINE);
    if (count == 0) {
        return MP_OK;
    }
    mp_table_map *places = maps_new(self->devices->count);
    uint8_t *overtaken = calloc(count, 1);
    mp_status status = MP_NO_MEMORY;
    if (places != NULL && overtaken != NULL) {
        status = add_baseline_blocks(self, places, overtaken);
    }
    free(overtaken);
    maps_free(places, self->devices->count);
    return status;
}

/* ---- events ---- */

static mp_status
add_implied(mp_implied_deaths *implied, size_t row, int64_t bytes)
{
    if (implied->count == implied->room) {
        void *moved = grown(implied->rows, &implied->room, sizeof(*implied->rows));
        if (moved == NULL) {
            return MP_NO_MEMORY;
        }
        implied->rows = moved;
    }
    implied->rows[implied->count++] = (mp_implied_death){row, bytes};
    return MP_OK;
}

static void
bury(mp_block *block, int64_t time_ns, int32_t step)
{
    block->death_ns = time_ns;
    block->death_step = step;
}

static void
fill_block(matcher *self, mp_block *block, const mp_allocation *event, int32_t step)
{
    *block = (mp_block){
        .address = event->address,
        .bytes = event->bytes,
        .requested_bytes = event->device_type == MP_DEVICE_CPU ? event->bytes : -1,
        .birth_ns = event->time_ns,
        .death_ns = -1,
        .birth_step = step,
        .death_step = -1,
        .thread = event->thread,
        .operator_id = event->operator_id,
        .stack_id = event->stack_id,
        .device_type = event->device_type,
        .device_index = event->device_index,
        .preexisting = event->time_ns < self->recording->window_start_ns,
        .flags = (event->flags & MP_FLAG_MAPPED) != 0 ? MP_BLOCK_MAPPED : 0,
    };
}

static mp_status
take_birth(matcher *self, const mp_allocation *event, size_t device, size_t row)
{
    int32_t step = mp_step_cursor_number(&self->steps, event->time_ns);
    uint32_t *handle = mp_table_at(&self->alive[device], event->address);
    if (handle == NULL) {
        return MP_NO_MEMORY;
    }
    if (MP_UNLIKELY(*handle != 0)) {
        mp_block *lost = block_of(self, *handle);
        bury(lost, event->time_ns, step);
        lost->flags |= MP_BLOCK_MISSED_FREE;
        self->device_rows[device].flags |= MP_DEVICE_MISSED_FREES;
        MP_TRY(add_implied(self->implied, row, lost->bytes));
    }
    fill_block(self, &self->rows[self->count++], event, step);
    *handle = (uint32_t)self->count;
    return MP_OK;
}

/* The free of a block whose birth was not seen. */
static mp_status
take_unknown_death(matcher *self, const mp_allocation *event, size_t device, int32_t step)
{
    if (event->bytes == 0) {
        self->device_rows[device].unknown_frees++;
        return MP_OK;
    }
    uint32_t handle;
    mp_block *block = add_older(self, &handle);
    if (block == NULL) {
        return MP_NO_MEMORY;
    }
    block->address = event->address;
    block->bytes = event->bytes == INT64_MIN ? INT64_MAX : -event->bytes;
    block->device_type = event->device_type;
    block->device_index = event->device_index;
    block->flags = (event->flags & MP_FLAG_MAPPED) != 0 ? MP_BLOCK_MAPPED : 0;
    bury(block, event->time_ns, step);
    return MP_OK;
}

static mp_status
take_death(matcher *self, mp_allocation *event, size_t device)
{
    int32_t step = mp_step_cursor_number(&self->steps, event->time_ns);
    uint32_t *handle = mp_table_find(&self->alive[device], event->address);
    if (handle == NULL || *handle == 0) {
        return take_unknown_death(self, event, device, step);
    }
    mp_block *block = block_of(self, *handle);
    bury(block, event->time_ns, step);
    if (event->bytes == 0) {
        event->bytes = -block->bytes;
    }
    *handle = 0;
    return MP_OK;
}

static mp_status
take_events(matcher *self)
{
    mp_allocation *events = MP_ROWS(self->recording, ALLOCATIONS, mp_allocation);
    for (size_t i = 0; i < MP_COUNT(self->recording, ALLOCATIONS); i++) {
        mp_allocation *event = &events[i];
        size_t device =
            mp_device_number(self->devices, event->device_type, event->device_index);
        if (event->kind == MP_ALLOCATION_ALLOC) {
            MP_TRY(take_birth(self, event, device, i));
        } else if (event->kind == MP_ALLOCATION_FREE) {
            MP_TRY(take_death(self, event, device));
        }
    }
    return MP_OK;
}

/* ---- result ---- */

static mp_status
put_older_first(matcher *self)
{
    if (self->older_count == 0) {
        return MP_OK;
    }
    mp_table *table = &self->recording->tables[MP_TABLE_BLOCKS];
    size_t count = self->older_count + self->count;
    mp_block *rows = realloc(table->rows, count * sizeof(*rows));
    if (rows == NULL) {
        return MP_NO_MEMORY;
    }
    if (self->count > 0) {
        memmove(rows + self->older_count, rows, self->count * sizeof(*rows));
    }
    memcpy(rows, self->older, self->older_count * sizeof(*rows));
    table->rows = rows;
    table->count = count;
    return MP_OK;
}

static mp_status
make_rows(matcher *self)
{
    const mp_allocation *events = MP_ROWS(self->recording, ALLOCATIONS, mp_allocation);
    size_t births = 0;
    for (size_t i = 0; i < MP_COUNT(self->recording, ALLOCATIONS); i++) {
        births += events[i].kind == MP_ALLOCATION_ALLOC;
    }
    if (MP_COUNT(self->recording, ALLOCATIONS) + MP_COUNT(self->recording, BASELINE) >=
        OLDER) {
        return MP_INVALID; /* handles have 31 bits */
    }
    self->rows = mp_recording_resize(self->recording, MP_TABLE_BLOCKS, births);
    return self->rows == NULL && births > 0 ? MP_NO_MEMORY : MP_OK;
}

static mp_status
build(matcher *self)
{
    if (self->alive == NULL) {
        return MP_NO_MEMORY;
    }
    MP_TRY(make_rows(self));
    MP_TRY(take_baseline(self));
    MP_TRY(take_events(self));
    return put_older_first(self);
}

mp_status
mp_blocks_build(mp_recording *recording, const mp_device_set *devices,
                mp_implied_deaths *implied)
{
    *implied = (mp_implied_deaths){0};
    matcher self = {
        .recording = recording,
        .devices = devices,
        .device_rows = MP_ROWS(recording, DEVICES, mp_device),
        .alive = maps_new(devices->count),
        .steps = mp_step_cursor_of(recording),
        .implied = implied,
    };
    mp_status status = build(&self);
    maps_free(self.alive, devices->count);
    free(self.older);
    if (status != MP_OK) {
        mp_implied_deaths_fini(implied);
    }
    return status;
}

void
mp_implied_deaths_fini(mp_implied_deaths *implied)
{
    free(implied->rows);
    *implied = (mp_implied_deaths){0};
}
