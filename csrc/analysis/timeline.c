#include "analysis/timeline.h"

#include <stdbool.h>
#include <stdlib.h>

#include "analysis/steps.h"
#include "analysis/sums.h"
#include "record/event.h"

typedef struct device_state {
    bool seen;  /* has events */
    bool given; /* the allocator reports totals */
    bool has_baseline;
    int64_t total;      /* now */
    int64_t reserved;   /* now; -1 unknown */
    int64_t older;      /* sum of the blocks known from before the recording */
    int64_t live_start; /* sum of the blocks alive at the window's start */
    int64_t live_end;
} device_state;

typedef struct timeline {
    mp_recording *recording;
    const mp_device_set *devices;
    mp_device *rows;
    device_state *states;
    mp_step_memory *step_rows;
    const mp_step *steps;
    size_t step_count;
    size_t step; /* open, or next to open */
    bool step_open;
    bool in_window;
    int64_t next_ns; /* boundary ahead: nothing changes before it */
} timeline;

/* ---- before the first event ---- */

static void
sum_blocks(timeline *self)
{
    const mp_block *blocks = MP_ROWS(self->recording, BLOCKS, mp_block);
    int64_t window_ns = self->recording->window_start_ns;
    for (size_t i = 0; i < MP_COUNT(self->recording, BLOCKS); i++) {
        const mp_block *block = &blocks[i];
        device_state *state = &self->states[mp_device_number(
            self->devices, block->device_type, block->device_index)];
        bool dead = block->death_ns != -1;
        if (block->birth_ns == -1) {
            state->older = mp_sum(state->older, block->bytes);
        }
        if (block->birth_ns < window_ns && !(dead && block->death_ns < window_ns)) {
            state->live_start = mp_sum(state->live_start, block->bytes);
        }
        if (!dead) {
            state->live_end = mp_sum(state->live_end, block->bytes);
        }
    }
}

static int64_t
event_change(const mp_allocation *event)
{
    return event->kind == MP_ALLOCATION_OOM ? 0 : event->bytes;
}

static void
find_first_totals(timeline *self)
{
    for (size_t d = 0; d < self->devices->count; d++) {
        self->states[d].total = self->states[d].older;
        self->states[d].reserved = self->rows[d].device_type == MP_DEVICE_CPU ? 0 : -1;
    }
    const mp_allocation *events = MP_ROWS(self->recording, ALLOCATIONS, mp_allocation);
    for (size_t i = 0; i < MP_COUNT(self->recording, ALLOCATIONS); i++) {
        const mp_allocation *event = &events[i];
        device_state *state = &self->states[mp_device_number(
            self->devices, event->device_type, event->device_index)];
        if (!state->seen) {
            state->seen = true;
            state->given =
                event->device_type != MP_DEVICE_CPU && event->allocated_bytes >= 0;
            if (state->given) {
                state->total = mp_difference(event->allocated_bytes, event_change(event));
            }
        }
    }
    const mp_baseline *baseline = MP_ROWS(self->recording, BASELINE, mp_baseline);
    for (size_t i = 0; i < MP_COUNT(self->recording, BASELINE); i++) {
        self->states[mp_device_number(self->devices, baseline[i].device_type,
                                      baseline[i].device_index)]
            .has_baseline = true;
    }
}

static void
compare_baseline(timeline *self)
{
    for (size_t d = 0; d < self->devices->count; d++) {
        const device_state *state = &self->states[d];
        if (state->total != state->older) {
            self->rows[d].flags |=
                state->has_baseline ? MP_DEVICE_BASELINE_DIFFERS : MP_DEVICE_NO_BASELINE;
        }
    }
}

/* ---- boundaries ---- */

static void
begin_window(timeline *self)
{
    self->in_window = true;
    for (size_t d = 0; d < self->devices->count; d++) {
        mp_device *row = &self->rows[d];
        const device_state *state = &self->states[d];
        row->start_bytes = state->total;
        row->peak_bytes = state->total;
        row->peak_ns = self->recording->window_start_ns;
        row->peak_reserved_bytes = state->reserved;
        row->reserved_at_peak_bytes = state->reserved;
    }
}

static mp_step_memory *
step_row(const timeline *self, size_t device)
{
    return &self->step_rows[self->step * self->devices->count + device];
}

static void
open_step(timeline *self)
{
    const mp_step *step = &self->steps[self->step];
    self->step_open = true;
    for (size_t d = 0; d < self->devices->count; d++) {
        *step_row(self, d) = (mp_step_memory){
            .peak_ns = step->start_ns,
            .peak_bytes = self->states[d].total,
            .start_bytes = self->states[d].total,
            .step = (uint32_t)mp_step_number(step),
            .device_type = self->rows[d].device_type,
            .device_index = self->rows[d].device_index,
        };
    }
}

static void
close_step(timeline *self)
{
    for (size_t d = 0; d < self->devices->count; d++) {
        step_row(self, d)->end_bytes = self->states[d].total;
    }
    self->step_open = false;
    self->step++;
}

/* Crosses all boundaries up to and including time_ns. */
static void
advance(timeline *self, int64_t time_ns)
{
    if (!self->in_window && self->recording->window_start_ns <= time_ns) {
        begin_window(self);
    }
    while (self->step < self->step_count) {
        const mp_step *step = &self->steps[self->step];
        if (self->step_open && step->end_ns <= time_ns) {
            close_step(self);
        } else if (!self->step_open && step->start_ns <= time_ns) {
            open_step(self);
        } else {
            self->next_ns = self->step_open ? step->end_ns : step->start_ns;
            break;
        }
    }
    if (self->step == self->step_count) {
        self->next_ns = INT64_MAX;
    }
    if (!self->in_window && self->recording->window_start_ns < self->next_ns) {
        self->next_ns = self->recording->window_start_ns;
    }
}

/* ---- events ---- */

static void
count_change(int64_t change, int64_t *allocated, int64_t *freed)
{
    if (change > 0) {
        *allocated = mp_sum(*allocated, change);
    } else {
        *freed = mp_difference(*freed, change);
    }
}

static void
note_in_window(timeline *self, size_t device, const mp_allocation *event, int64_t implied)
{
    mp_device *row = &self->rows[device];
    const device_state *state = &self->states[device];
    count_change(event_change(event), &row->allocated_bytes, &row->freed_bytes);
    row->freed_bytes = mp_sum(row->freed_bytes, implied);
    row->allocations += event->kind == MP_ALLOCATION_ALLOC;
    row->frees += event->kind == MP_ALLOCATION_FREE;
    if (state->total > row->peak_bytes) {
        row->peak_bytes = state->total;
        row->peak_ns = event->time_ns;
        row->reserved_at_peak_bytes = state->reserved;
    }
    if (state->reserved > row->peak_reserved_bytes) {
        row->peak_reserved_bytes = state->reserved;
    }
}

static void
note_in_step(timeline *self, size_t device, const mp_allocation *event, int64_t implied)
{
    mp_step_memory *row = step_row(self, device);
    count_change(event_change(event), &row->allocated_bytes, &row->freed_bytes);
    row->freed_bytes = mp_sum(row->freed_bytes, implied);
    if (self->states[device].total > row->peak_bytes) {
        row->peak_bytes = self->states[device].total;
        row->peak_ns = event->time_ns;
    }
}

static void
take_event(timeline *self, mp_allocation *event, int64_t implied)
{
    size_t device =
        mp_device_number(self->devices, event->device_type, event->device_index);
    device_state *state = &self->states[device];
    int64_t expected = mp_sum(state->total, event_change(event));
    if (state->given && event->allocated_bytes >= 0) {
        implied = 0; /* the allocator's total knows what we missed */
        if (event->allocated_bytes != expected) {
            self->rows[device].flags |= MP_DEVICE_TOTALS_DRIFT;
        }
        state->total = event->allocated_bytes;
    } else {
        state->total = mp_difference(expected, implied);
        event->allocated_bytes = state->total;
    }
    if (event->device_type == MP_DEVICE_CPU) {
        event->reserved_bytes = 0;
    }
    state->reserved = event->reserved_bytes;
    if (self->in_window) {
        note_in_window(self, device, event, implied);
    }
    if (self->step_open) {
        note_in_step(self, device, event, implied);
    }
}

static void
take_events(timeline *self, const mp_implied_deaths *implied)
{
    mp_allocation *events = MP_ROWS(self->recording, ALLOCATIONS, mp_allocation);
    size_t next_implied = 0;
    for (size_t i = 0; i < MP_COUNT(self->recording, ALLOCATIONS); i++) {
        if (events[i].time_ns >= self->next_ns) {
            advance(self, events[i].time_ns);
        }
        int64_t bytes = 0;
        if (next_implied < implied->count && implied->rows[next_implied].row == i) {
            bytes = implied->rows[next_implied++].bytes;
        }
        take_event(self, &events[i], bytes);
    }
    advance(self, INT64_MAX);
}

/* ---- after the last event ---- */

static bool
is_balanced(const mp_device *row, const device_state *state)
{
    int64_t expected =
        mp_difference(mp_sum(row->start_bytes, row->allocated_bytes), row->freed_bytes);
    bool sums_agree =
        (row->flags & MP_DEVICE_NO_BASELINE) != 0 ||
        (state->live_start == row->start_bytes && state->live_end == row->end_bytes);
    return expected == row->end_bytes && sums_agree &&
           (row->flags & (MP_DEVICE_TOTALS_DRIFT | MP_DEVICE_BASELINE_DIFFERS)) == 0;
}

static int32_t
step_around(const timeline *self, int64_t time_ns)
{
    size_t low = 0, high = self->step_count; /* first step that ends after time_ns */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (self->steps[middle].end_ns <= time_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool inside = low < self->step_count && self->steps[low].start_ns <= time_ns;
    return inside ? mp_step_number(&self->steps[low]) : -1;
}

static void
finish(timeline *self)
{
    for (size_t d = 0; d < self->devices->count; d++) {
        mp_device *row = &self->rows[d];
        row->end_bytes = self->states[d].total;
        row->peak_step = step_around(self, row->peak_ns);
        row->balanced = is_balanced(row, &self->states[d]);
    }
}

mp_status
mp_timeline_build(mp_recording *recording, const mp_device_set *devices,
                  const mp_implied_deaths *implied)
{
    size_t step_rows = MP_COUNT(recording, STEPS) * devices->count;
    timeline self = {
        .recording = recording,
        .devices = devices,
        .rows = MP_ROWS(recording, DEVICES, mp_device),
        .steps = MP_ROWS(recording, STEPS, mp_step),
        .step_count = MP_COUNT(recording, STEPS),
        .next_ns = INT64_MIN,
    };
    self.step_rows = mp_recording_resize(recording, MP_TABLE_STEP_MEMORY, step_rows);
    self.states = calloc(devices->count + 1, sizeof(*self.states));
    if (self.states == NULL || (self.step_rows == NULL && step_rows > 0)) {
        free(self.states);
        return MP_NO_MEMORY;
    }
    sum_blocks(&self);
    find_first_totals(&self);
    compare_baseline(&self);
    take_events(&self, implied);
    finish(&self);
    free(self.states);
    return MP_OK;
}
