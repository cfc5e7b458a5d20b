#include "record/recording.h"

#include <stdlib.h>

#include "base/compiler.h"
#include "record/event.h"

/* One function a table; each returns the broken rule or NULL. A rule names table and
 * field, so that the text alone tells what to look at. */

typedef struct checker {
    const mp_recording *recording;
    size_t strings, stacks, shapes, frames, modules, threads, operators;
} checker;

#define CHECK(condition, rule)                                                             \
    do {                                                                                   \
        if (MP_UNLIKELY(!(condition))) {                                                   \
            return rule;                                                                   \
        }                                                                                  \
    } while (0)

/* Ids that count from 1, with 0 for none. */
static bool
is_id(uint32_t id, size_t rows)
{
    return id <= rows;
}

/* Ids that are rows, where row 0 is the empty one and may be left out. */
static bool
is_row(uint32_t id, size_t rows)
{
    return id == 0 || id < rows;
}

static const char *
check_strings(const checker *self)
{
    const uint64_t *offsets = MP_ROWS(self->recording, STRING_OFFSETS, uint64_t);
    size_t count = MP_COUNT(self->recording, STRING_OFFSETS);
    if (count == 0) {
        return NULL;
    }
    CHECK(offsets[0] == 0, "string_offsets: the first must be 0");
    CHECK(count == 1 || offsets[1] == 0, "string_offsets: string 0 must be empty");
    for (size_t i = 1; i < count; i++) {
        CHECK(offsets[i - 1] <= offsets[i], "string_offsets: must not fall");
    }
    CHECK(offsets[count - 1] <= MP_COUNT(self->recording, STRING_BYTES),
          "string_offsets: the last lies beyond string_bytes");
    return NULL;
}

static const char *
check_shapes(const checker *self)
{
    const uint32_t *offsets = MP_ROWS(self->recording, SHAPE_OFFSETS, uint32_t);
    size_t count = MP_COUNT(self->recording, SHAPE_OFFSETS);
    for (size_t i = 1; i < count; i++) {
        CHECK(offsets[i - 1] <= offsets[i], "shape_offsets: must not fall");
    }
    CHECK(count == 0 || offsets[count - 1] <= MP_COUNT(self->recording, SHAPE_VALUES),
          "shape_offsets: the last lies beyond shape_values");
    return NULL;
}

static const char *
check_frames(const checker *self)
{
    const mp_frame *rows = MP_ROWS(self->recording, FRAMES, mp_frame);
    for (size_t i = 0; i < self->frames; i++) {
        CHECK(is_row(rows[i].file_id, self->strings), "frames: file_id is no string");
        CHECK(is_row(rows[i].function_id, self->strings),
              "frames: function_id is no string");
    }
    return NULL;
}

static const char *
check_stacks(const checker *self)
{
    const uint32_t *frames = MP_ROWS(self->recording, STACK_FRAMES, uint32_t);
    size_t entries = MP_COUNT(self->recording, STACK_FRAMES);
    for (size_t i = 0; i < entries; i++) {
        CHECK(frames[i] < self->frames, "stack_frames: entry is no row of frames");
    }
    const mp_stack *rows = MP_ROWS(self->recording, STACKS, mp_stack);
    CHECK(self->stacks == 0 || rows[0].depth == 0, "stacks: stack 0 must be empty");
    for (size_t i = 0; i < self->stacks; i++) {
        CHECK((uint64_t)rows[i].offset + rows[i].depth <= entries,
              "stacks: offset + depth lies beyond stack_frames");
        CHECK(is_id(rows[i].module_id, self->modules), "stacks: module_id is no module");
    }
    return NULL;
}

/* Walks up from a module and marks the walk with its start's id; meeting the own mark is
 * a cycle. Each module is marked once, so all walks together are linear. */
static bool
parents_end(const mp_module *rows, uint32_t *marks, uint32_t start)
{
    uint32_t id = start;
    while (id != 0 && marks[id - 1] == 0) {
        marks[id - 1] = start;
        id = rows[id - 1].parent_id;
    }
    return id == 0 || marks[id - 1] != start;
}

static const char *
check_module_parents(const checker *self)
{
    const mp_module *rows = MP_ROWS(self->recording, MODULES, mp_module);
    CHECK(self->modules < UINT32_MAX, "modules: too many rows");
    uint32_t *marks = calloc(self->modules + 1, sizeof(*marks));
    CHECK(marks != NULL, "modules: out of memory while checking parents");
    bool ends = true;
    for (size_t i = 0; ends && i < self->modules; i++) {
        ends = marks[i] != 0 || parents_end(rows, marks, (uint32_t)i + 1);
    }
    free(marks);
    CHECK(ends, "modules: parent_id leads in a circle");
    return NULL;
}

static const char *
check_modules(const checker *self)
{
    const mp_module *rows = MP_ROWS(self->recording, MODULES, mp_module);
    for (size_t i = 0; i < self->modules; i++) {
        CHECK(is_row(rows[i].path_id, self->strings), "modules: path_id is no string");
        CHECK(is_row(rows[i].class_id, self->strings), "modules: class_id is no string");
        CHECK(is_id(rows[i].parent_id, self->modules), "modules: parent_id is no module");
    }
    return check_module_parents(self);
}

static const char *
check_threads(const checker *self)
{
    const mp_thread *rows = MP_ROWS(self->recording, THREADS, mp_thread);
    for (size_t i = 0; i < self->threads; i++) {
        CHECK(is_row(rows[i].name_id, self->strings), "threads: name_id is no string");
    }
    return NULL;
}

static const char *
check_allocations(const checker *self)
{
    const mp_allocation *rows = MP_ROWS(self->recording, ALLOCATIONS, mp_allocation);
    size_t count = MP_COUNT(self->recording, ALLOCATIONS);
    for (size_t i = 0; i < count; i++) {
        const mp_allocation *row = &rows[i];
        CHECK(i == 0 || rows[i - 1].time_ns <= row->time_ns,
              "allocations: time_ns must not fall");
        CHECK(row->kind >= MP_ALLOCATION_ALLOC && row->kind <= MP_ALLOCATION_OOM,
              "allocations: kind must be 1, 2 or 3");
        CHECK(row->kind == MP_ALLOCATION_FREE ? row->bytes <= 0 : row->bytes >= 0,
              "allocations: bytes must not be positive for a free, nor negative otherwise");
        CHECK(is_id(row->thread, self->threads), "allocations: thread is no thread");
        CHECK(is_row(row->stack_id, self->stacks), "allocations: stack_id is no stack");
        CHECK(is_id(row->operator_id, self->operators),
              "allocations: operator_id is no operator");
    }
    return NULL;
}

static const char *
check_operators(const checker *self)
{
    const mp_operator *rows = MP_ROWS(self->recording, OPERATORS, mp_operator);
    for (size_t i = 0; i < self->operators; i++) {
        const mp_operator *row = &rows[i];
        CHECK(i == 0 || rows[i - 1].start_ns <= row->start_ns,
              "operators: start_ns must not fall");
        CHECK(row->start_ns <= row->end_ns, "operators: end_ns lies before start_ns");
        CHECK(row->scope < MP_SCOPE_LIMIT, "operators: scope is unknown");
        CHECK(is_row(row->name_id, self->strings), "operators: name_id is no string");
        CHECK(is_row(row->overload_id, self->strings),
              "operators: overload_id is no string");
        /* Upwards only: so a walk over parents ends. */
        CHECK(row->parent_id <= i, "operators: parent_id is no earlier operator");
        CHECK(is_id(row->thread, self->threads), "operators: thread is no thread");
        CHECK(is_row(row->stack_id, self->stacks), "operators: stack_id is no stack");
        CHECK(is_row(row->shapes_id, self->shapes), "operators: shapes_id is no shape");
        CHECK(is_id(row->forward_id, self->operators),
              "operators: forward_id is no operator");
    }
    return NULL;
}

static const char *
check_steps(const checker *self)
{
    const mp_step *rows = MP_ROWS(self->recording, STEPS, mp_step);
    for (size_t i = 0; i < MP_COUNT(self->recording, STEPS); i++) {
        CHECK(rows[i].start_ns <= rows[i].end_ns, "steps: end_ns lies before start_ns");
        CHECK(i == 0 || rows[i - 1].end_ns <= rows[i].start_ns, "steps: must not overlap");
        CHECK(is_id(rows[i].thread, self->threads), "steps: thread is no thread");
    }
    return NULL;
}

static const char *
check_spans(const checker *self)
{
    const mp_span *rows = MP_ROWS(self->recording, SPANS, mp_span);
    for (size_t i = 0; i < MP_COUNT(self->recording, SPANS); i++) {
        CHECK(i == 0 || rows[i - 1].start_ns <= rows[i].start_ns,
              "spans: start_ns must not fall");
        CHECK(rows[i].start_ns <= rows[i].end_ns, "spans: end_ns lies before start_ns");
        CHECK(is_row(rows[i].name_id, self->strings), "spans: name_id is no string");
        CHECK(is_id(rows[i].thread, self->threads), "spans: thread is no thread");
        CHECK(rows[i].kind == MP_SPAN_USER || rows[i].kind == MP_SPAN_OPTIMIZER,
              "spans: kind must be 1 or 2");
    }
    return NULL;
}

static const char *
check_baseline(const checker *self)
{
    const mp_baseline *rows = MP_ROWS(self->recording, BASELINE, mp_baseline);
    for (size_t i = 0; i < MP_COUNT(self->recording, BASELINE); i++) {
        CHECK(rows[i].bytes >= 0, "baseline: bytes must not be negative");
        CHECK(is_row(rows[i].stack_id, self->stacks), "baseline: stack_id is no stack");
    }
    return NULL;
}

static const char *
check_blocks(const checker *self)
{
    const mp_block *rows = MP_ROWS(self->recording, BLOCKS, mp_block);
    for (size_t i = 0; i < MP_COUNT(self->recording, BLOCKS); i++) {
        const mp_block *row = &rows[i];
        CHECK(i == 0 || rows[i - 1].birth_ns <= row->birth_ns,
              "blocks: birth_ns must not fall");
        CHECK(row->death_ns == -1 || row->birth_ns <= row->death_ns,
              "blocks: death_ns lies before birth_ns");
        CHECK(row->bytes >= 0, "blocks: bytes must not be negative");
        CHECK(is_id(row->thread, self->threads), "blocks: thread is no thread");
        CHECK(is_id(row->operator_id, self->operators),
              "blocks: operator_id is no operator");
        CHECK(is_row(row->stack_id, self->stacks), "blocks: stack_id is no stack");
        CHECK(is_id(row->module_id, self->modules), "blocks: module_id is no module");
        CHECK(row->category < MP_CATEGORY_COUNT, "blocks: category is unknown");
        CHECK(row->phase < MP_PHASE_COUNT, "blocks: phase is unknown");
    }
    return NULL;
}

static const char *
check_activities(const checker *self)
{
    const mp_activity *rows = MP_ROWS(self->recording, ACTIVITIES, mp_activity);
    size_t count = MP_COUNT(self->recording, ACTIVITIES);
    for (size_t i = 0; i < count; i++) {
        const mp_activity *row = &rows[i];
        CHECK(i == 0 || rows[i - 1].start_ns <= row->start_ns,
              "activities: start_ns must not fall");
        CHECK(row->start_ns <= row->end_ns, "activities: end_ns lies before start_ns");
        CHECK(row->kind < MP_ACTIVITY_KIND_COUNT, "activities: kind is unknown");
        CHECK(is_row(row->name_id, self->strings), "activities: name_id is no string");
        CHECK(is_row(row->stack_id, self->stacks), "activities: stack_id is no stack");
        CHECK(is_id(row->thread, self->threads), "activities: thread is no thread");
        CHECK(is_id(row->operator_id, self->operators),
              "activities: operator_id is no operator");
        CHECK(row->launch_id == 0 ||
                  (row->launch_id <= count &&
                   MP_ACTIVITY_IS_CALL(rows[row->launch_id - 1].kind)),
              "activities: launch_id is no call");
    }
    return NULL;
}

static const char *
check_times(const checker *self)
{
    const mp_recording *recording = self->recording;
    CHECK(recording->start_ns <= recording->window_start_ns &&
              recording->window_start_ns <= recording->stop_ns,
          "start_ns, window_start_ns, stop_ns: must not fall");
    return NULL;
}

static size_t
runs(const mp_recording *recording, mp_table_id offsets)
{
    size_t count = recording->tables[offsets].count;
    return count == 0 ? 0 : count - 1;
}

mp_status
mp_recording_check(const mp_recording *recording, const char **what)
{
    static const char *(*const s_checks[])(const checker *) = {
        check_times,  check_strings,  check_shapes,      check_frames, check_modules,
        check_stacks, check_threads,  check_operators,   check_steps,  check_spans,
        check_blocks, check_baseline, check_allocations, check_activities,
    };
    checker self = {
        .recording = recording,
        .strings = runs(recording, MP_TABLE_STRING_OFFSETS),
        .shapes = runs(recording, MP_TABLE_SHAPE_OFFSETS),
        .stacks = MP_COUNT(recording, STACKS),
        .frames = MP_COUNT(recording, FRAMES),
        .modules = MP_COUNT(recording, MODULES),
        .threads = MP_COUNT(recording, THREADS),
        .operators = MP_COUNT(recording, OPERATORS),
    };
    for (size_t i = 0; i < MP_COUNT_OF(s_checks); i++) {
        const char *broken = s_checks[i](&self);
        if (broken != NULL) {
            *what = broken;
            return MP_INVALID;
        }
    }
    return MP_OK;
}
