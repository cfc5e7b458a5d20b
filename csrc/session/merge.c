#include "session/merge.h"

#include <stdlib.h>
#include <string.h>

/* The next event of one log. */
typedef struct log_cursor {
    const mp_log_map *map;
    const mp_chunk *chunk;
    const mp_event *event; /* NULL at the end */
    const mp_event *end;
    uint32_t first_ordinal; /* ordinal before the first kept operator */
    uint32_t *operator_ids; /* [ordinal - first_ordinal] -> operator id */
    uint32_t ordinal_count;
} log_cursor;

typedef struct merger {
    mp_gathered *gathered;
    mp_recording *recording;
    const mp_merge_window *window;
    uint64_t keep_after, keep_before;
    log_cursor *cursors;
    size_t cursor_count;
    size_t *heap; /* cursor indices, smallest ticks first */
    size_t heap_count;
    size_t counts[MP_EVENT_SPAN + 1];
    size_t filled[MP_EVENT_SPAN + 1];
} merger;

static void
cursor_settle(log_cursor *cursor)
{
    while (cursor->event == cursor->end) {
        cursor->chunk = cursor->chunk == NULL ? NULL : cursor->chunk->next;
        if (cursor->chunk == NULL) {
            cursor->event = NULL;
            cursor->end = NULL;
            return;
        }
        mp_event *end;
        cursor->event = mp_chunk_events(cursor->map->log, cursor->chunk, &end);
        cursor->end = end;
    }
}

static void
cursor_rewind(log_cursor *cursor)
{
    cursor->chunk = cursor->map->log->first;
    cursor->event = NULL;
    cursor->end = NULL;
    if (cursor->chunk != NULL) {
        mp_event *end;
        cursor->event = mp_chunk_events(cursor->map->log, cursor->chunk, &end);
        cursor->end = end;
        cursor_settle(cursor);
    }
}

static bool
is_kept(const merger *self, const mp_event *event)
{
    return event->kind >= MP_EVENT_ALLOC && event->kind <= MP_EVENT_SPAN &&
           event->ticks >= self->keep_after && event->ticks <= self->keep_before;
}

/* ---- heap over the cursors ---- */

static uint64_t
heap_ticks(const merger *self, size_t at)
{
    return self->cursors[self->heap[at]].event->ticks;
}

static void
heap_sift_down(merger *self, size_t at)
{
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2; child++) {
            if (child < self->heap_count && heap_ticks(self, child) < heap_ticks(self, least)) {
                least = child;
            }
        }
        if (least == at) {
            return;
        }
        size_t moved = self->heap[at];
        self->heap[at] = self->heap[least];
        self->heap[least] = moved;
        at = least;
    }
}

static void
heap_build(merger *self)
{
    self->heap_count = 0;
    for (size_t i = 0; i < self->cursor_count; i++) {
        cursor_rewind(&self->cursors[i]);
        if (self->cursors[i].event != NULL) {
            self->heap[self->heap_count++] = i;
        }
    }
    for (size_t at = self->heap_count; at-- > 0;) {
        heap_sift_down(self, at);
    }
}

/* ---- first pass: counts ---- */

static void
count_events(merger *self)
{
    for (size_t i = 0; i < self->cursor_count; i++) {
        log_cursor *cursor = &self->cursors[i];
        cursor_rewind(cursor);
        while (cursor->event != NULL) {
            if (is_kept(self, cursor->event)) {
                self->counts[cursor->event->kind]++;
            }
            cursor->event++;
            cursor_settle(cursor);
        }
    }
}

/* Ring mode keeps whole steps: what precedes the first kept step mark goes too. */
static void
cut_at_first_step(merger *self)
{
    if (self->window->keep_after == 0) {
        return;
    }
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < self->cursor_count; i++) {
        log_cursor *cursor = &self->cursors[i];
        cursor_rewind(cursor);
        while (cursor->event != NULL) {
            const mp_event *event = cursor->event;
            if (event->kind == MP_EVENT_STEP && event->step.number >= 0 &&
                is_kept(self, event) && event->ticks < first) {
                first = event->ticks;
            }
            cursor->event++;
            cursor_settle(cursor);
        }
    }
    if (first != UINT64_MAX) {
        self->keep_after = first;
    }
}

static mp_status
make_tables(merger *self)
{
    static const struct {
        mp_table_id table;
        mp_event_kind kinds[3];
    } s_tables[] = {
        {MP_TABLE_ALLOCATIONS, {MP_EVENT_ALLOC, MP_EVENT_FREE, MP_EVENT_OOM}},
        {MP_TABLE_OPERATORS, {MP_EVENT_OPERATOR}},
        {MP_TABLE_STEPS, {MP_EVENT_STEP}},
        {MP_TABLE_SPANS, {MP_EVENT_SPAN}},
    };
    for (size_t t = 0; t < MP_COUNT_OF(s_tables); t++) {
        size_t rows = 0;
        for (size_t k = 0; k < 3; k++) {
            rows += s_tables[t].kinds[k] != MP_EVENT_NONE ? self->counts[s_tables[t].kinds[k]] : 0;
        }
        if (mp_recording_resize(self->recording, s_tables[t].table, rows) == NULL && rows > 0) {
            return MP_NO_MEMORY;
        }
    }
    for (size_t i = 0; i < self->cursor_count; i++) {
        log_cursor *cursor = &self->cursors[i];
        const mp_thread_log *log = cursor->map->log;
        cursor->first_ordinal = log->first != NULL ? (uint32_t)log->first->first_ordinal : 0;
        cursor->ordinal_count = log->op_count - cursor->first_ordinal;
        cursor->operator_ids = calloc((size_t)cursor->ordinal_count + 1, sizeof(uint32_t));
        if (cursor->operator_ids == NULL) {
            return MP_NO_MEMORY;
        }
    }
    return MP_OK;
}

/* ---- second pass: rows ---- */

static int64_t
to_ns(const merger *self, uint64_t ticks)
{
    return mp_clock_to_ns(&self->window->clock, ticks);
}

/* Ids that a log gave: an event of a recycled chunk may name what is not there. */
static uint32_t
operator_id(const log_cursor *cursor, uint32_t ordinal)
{
    if (ordinal <= cursor->first_ordinal ||
        ordinal - cursor->first_ordinal > cursor->ordinal_count) {
        return 0;
    }
    return cursor->operator_ids[ordinal - cursor->first_ordinal];
}

static void
add_allocation(merger *self, const log_cursor *cursor, const mp_event *event)
{
    size_t row = self->filled[MP_EVENT_ALLOC]++;
    MP_ROWS(self->recording, ALLOCATIONS, mp_allocation)[row] = (mp_allocation){
        .time_ns = to_ns(self, event->ticks),
        .address = event->memory.address,
        .bytes = event->memory.bytes,
        .allocated_bytes = event->memory.allocated_bytes,
        .reserved_bytes = event->memory.reserved_bytes,
        .sequence = event->memory.sequence,
        .thread = (uint32_t)(cursor - self->cursors) + 1,
        .stack_id = cursor->map->stacks[event->stack],
        .operator_id = operator_id(cursor, event->op_at),
        .kind = event->kind,
        .device_type = event->device_type,
        .device_index = event->device_index,
        .flags = event->flags,
    };
}

static void
add_operator(merger *self, log_cursor *cursor, const mp_event *event)
{
    size_t row = self->filled[MP_EVENT_OPERATOR]++;
    mp_operator *rows = MP_ROWS(self->recording, OPERATORS, mp_operator);
    uint32_t parent = operator_id(cursor, event->op.parent);
    bool ended = event->op.end_ticks != 0 && event->op.end_ticks <= self->keep_before;
    rows[row] = (mp_operator){
        .start_ns = to_ns(self, event->ticks),
        .end_ns = ended ? to_ns(self, event->op.end_ticks) : self->recording->stop_ns,
        .sequence = event->op.sequence,
        .forward_thread = event->op.forward_thread,
        .name_id = cursor->map->names[event->op.name],
        .overload_id = cursor->map->overloads[event->op.name],
        .parent_id = parent,
        .thread = (uint32_t)(cursor - self->cursors) + 1,
        .stack_id = cursor->map->stacks[event->stack],
        .shapes_id = cursor->map->shapes[event->op.shapes],
        .depth = (uint16_t)(parent == 0 ? 0 : rows[parent - 1].depth + 1),
        .scope = event->scope,
        .flags = (uint8_t)(event->flags | (ended ? 0 : MP_FLAG_UNFINISHED)),
    };
    if (event->op_at > cursor->first_ordinal) {
        cursor->operator_ids[event->op_at - cursor->first_ordinal] = (uint32_t)row + 1;
    }
}

static void
add_step(merger *self, const log_cursor *cursor, const mp_event *event)
{
    size_t row = self->filled[MP_EVENT_STEP]++;
    MP_ROWS(self->recording, STEPS, mp_step)[row] = (mp_step){
        .start_ns = to_ns(self, event->ticks),
        .end_ns = self->recording->stop_ns,
        .number = event->step.number,
        .thread = (uint32_t)(cursor - self->cursors) + 1,
    };
}

static void
add_span(merger *self, const log_cursor *cursor, const mp_event *event)
{
    size_t row = self->filled[MP_EVENT_SPAN]++;
    MP_ROWS(self->recording, SPANS, mp_span)[row] = (mp_span){
        .start_ns = to_ns(self, event->ticks),
        .end_ns = to_ns(self, event->op.end_ticks),
        .name_id = cursor->map->names[event->op.name],
        .thread = (uint32_t)(cursor - self->cursors) + 1,
        .object_id = event->op.parent,
        .kind = event->scope,
    };
}

static void
add_event(merger *self, log_cursor *cursor)
{
    const mp_event *event = cursor->event;
    if (!is_kept(self, event)) {
        return;
    }
    switch (event->kind) {
    case MP_EVENT_OPERATOR:
        add_operator(self, cursor, event);
        break;
    case MP_EVENT_STEP:
        add_step(self, cursor, event);
        break;
    case MP_EVENT_SPAN:
        add_span(self, cursor, event);
        break;
    default:
        add_allocation(self, cursor, event);
        break;
    }
}

static void
fill_rows(merger *self)
{
    heap_build(self);
    while (self->heap_count > 0) {
        log_cursor *cursor = &self->cursors[self->heap[0]];
        add_event(self, cursor);
        cursor->event++;
        cursor_settle(cursor);
        if (cursor->event == NULL) {
            self->heap[0] = self->heap[--self->heap_count];
        }
        heap_sift_down(self, 0);
    }
}

/* ---- steps, spans, threads ---- */

static int
by_span_start(const void *a, const void *b)
{
    const mp_span *x = a, *y = b;
    if (x->start_ns != y->start_ns) {
        return x->start_ns < y->start_ns ? -1 : 1;
    }
    return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns);
}

/* A mark ends the step before it. Marks with a negative number only end one; steps that
 * began in warm-up are not shown. */
static void
close_steps(merger *self)
{
    mp_step *steps = MP_ROWS(self->recording, STEPS, mp_step);
    size_t count = MP_COUNT(self->recording, STEPS);
    for (size_t i = 0; i + 1 < count; i++) {
        steps[i].end_ns = steps[i + 1].start_ns;
    }
    size_t kept = 0;
    count -= count > 0 && self->window->drop_open_step;
    for (size_t i = 0; i < count; i++) {
        bool in_window = steps[i].start_ns >= self->recording->window_start_ns;
        if (steps[i].number >= 0 && in_window && steps[i].end_ns > steps[i].start_ns) {
            steps[kept++] = steps[i];
        }
    }
    self->recording->tables[MP_TABLE_STEPS].count = kept;
}

static mp_status
add_threads(merger *self)
{
    mp_thread *threads =
        mp_recording_resize(self->recording, MP_TABLE_THREADS, self->cursor_count);
    if (threads == NULL && self->cursor_count > 0) {
        return MP_NO_MEMORY;
    }
    for (size_t i = 0; i < self->cursor_count; i++) {
        const mp_thread_log *log = self->cursors[i].map->log;
        threads[i].os_id = log->os_id;
        threads[i].torch_id = log->torch_id;
        MP_TRY(mp_text_table_add(&self->gathered->texts, log->name,
                                 strnlen(log->name, sizeof(log->name)), &threads[i].name_id));
    }
    const mp_allocation *allocations = MP_ROWS(self->recording, ALLOCATIONS, mp_allocation);
    for (size_t i = 0; i < MP_COUNT(self->recording, ALLOCATIONS); i++) {
        threads[allocations[i].thread - 1].event_count++;
    }
    const mp_operator *operators = MP_ROWS(self->recording, OPERATORS, mp_operator);
    for (size_t i = 0; i < MP_COUNT(self->recording, OPERATORS); i++) {
        threads[operators[i].thread - 1].event_count++;
    }
    return MP_OK;
}

static void
set_times(merger *self)
{
    mp_recording *recording = self->recording;
    const mp_merge_window *window = self->window;
    uint64_t begins = window->window_ticks > self->keep_after ? window->window_ticks
                                                               : self->keep_after;
    recording->start_ns = to_ns(self, window->start_ticks);
    recording->window_start_ns = to_ns(self, begins);
    recording->stop_ns = to_ns(self, window->stop_ticks < self->keep_before
                                         ? window->stop_ticks
                                         : self->keep_before);
}

static mp_status
merge_all(merger *self)
{
    size_t logs = self->gathered->map_count;
    self->cursors = calloc(logs + 1, sizeof(*self->cursors));
    self->heap = calloc(logs + 1, sizeof(*self->heap));
    if (self->cursors == NULL || self->heap == NULL) {
        return MP_NO_MEMORY;
    }
    for (size_t i = 0; i < logs; i++) {
        self->cursors[self->cursor_count++].map = &self->gathered->maps[i];
    }
    cut_at_first_step(self);
    set_times(self);
    count_events(self);
    MP_TRY(make_tables(self));
    fill_rows(self);
    close_steps(self);
    if (MP_COUNT(self->recording, SPANS) > 1) {
        qsort(MP_ROWS(self->recording, SPANS, mp_span), MP_COUNT(self->recording, SPANS),
              sizeof(mp_span), by_span_start);
    }
    return add_threads(self);
}

mp_status
mp_merge(mp_gathered *gathered, const mp_merge_window *window)
{
    merger self = {
        .gathered = gathered,
        .recording = gathered->recording,
        .window = window,
        .keep_after = window->keep_after,
        .keep_before = window->keep_before != 0 ? window->keep_before : window->stop_ticks,
    };
    mp_status status = merge_all(&self);
    for (size_t i = 0; i < self.cursor_count; i++) {
        free(self.cursors[i].operator_ids);
    }
    free(self.cursors);
    free(self.heap);
    return status;
}
