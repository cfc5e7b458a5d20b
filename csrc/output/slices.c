#include "output/slices.h"

#include <stdlib.h>

#include "base/table.h"
#include "output/python_slices.h"
#include "output/slice_order.h"
#include "record/event.h"

static mp_status
make_room(mp_slice_list *list, size_t room)
{
    mp_slice *items = realloc(list->items, room * sizeof(*items));
    if (items == NULL) {
        return MP_NO_MEMORY;
    }
    list->items = items;
    list->room = room;
    return MP_OK;
}

mp_status
mp_slices_add(mp_slice_list *list, const mp_slice *slice)
{
    if (list->count == list->room) {
        MP_TRY(make_room(list, list->room == 0 ? 1024 : list->room * 2));
    }
    list->items[list->count++] = *slice;
    return MP_OK;
}

void
mp_slices_fini(mp_slice_list *list)
{
    free(list->items);
    *list = (mp_slice_list){0};
}

/* Adds what began within the window, cut at its end. */
static mp_status
add(const mp_recording *recording, mp_slice_list *list, mp_slice slice)
{
    if (slice.start_ns < recording->window_start_ns ||
        slice.start_ns > recording->stop_ns) {
        return MP_OK;
    }
    if (slice.end_ns > recording->stop_ns) {
        slice.end_ns = recording->stop_ns;
    }
    return mp_slices_add(list, &slice);
}

/* Of a step, unlike of an operator, the part within the window is of use. */
static mp_status
add_steps(const mp_recording *recording, mp_slice_list *list)
{
    const mp_step *steps = MP_ROWS(recording, STEPS, mp_step);
    for (size_t i = 0; i < MP_COUNT(recording, STEPS); i++) {
        int64_t start = steps[i].start_ns;
        if (start < recording->window_start_ns) {
            start = recording->window_start_ns;
        }
        if (steps[i].end_ns > start) {
            MP_TRY(add(recording, list,
                       (mp_slice){.start_ns = start,
                                  .end_ns = steps[i].end_ns,
                                  .thread = steps[i].thread,
                                  .kind = MP_SLICE_STEP,
                                  .row = (uint32_t)i}));
        }
    }
    return MP_OK;
}

/* Where operators were recorded, an optimizer's span is one of them already: *named[name]
 * says which names operators have. */
static mp_status
list_operator_names(const mp_recording *recording, bool **named)
{
    const mp_operator *operators = MP_ROWS(recording, OPERATORS, mp_operator);
    *named = calloc(MP_COUNT(recording, STRING_OFFSETS) + 1, sizeof(**named));
    if (*named == NULL) {
        return MP_NO_MEMORY;
    }
    for (size_t i = 0; i < MP_COUNT(recording, OPERATORS); i++) {
        (*named)[operators[i].name_id] = true;
    }
    return MP_OK;
}

static mp_status
add_spans(const mp_recording *recording, mp_slice_list *list)
{
    const mp_span *spans = MP_ROWS(recording, SPANS, mp_span);
    bool *named = NULL;
    mp_status status = MP_OK;
    if (MP_COUNT(recording, SPANS) > 0) {
        status = list_operator_names(recording, &named);
    }
    for (size_t i = 0; i < MP_COUNT(recording, SPANS) && status == MP_OK; i++) {
        if (spans[i].kind == MP_SPAN_USER || !named[spans[i].name_id]) {
            status = add(recording, list,
                         (mp_slice){.start_ns = spans[i].start_ns,
                                    .end_ns = spans[i].end_ns,
                                    .thread = spans[i].thread,
                                    .kind = MP_SLICE_SPAN,
                                    .row = (uint32_t)i});
        }
    }
    free(named);
    return status;
}

static mp_status
add_operators(const mp_recording *recording, mp_slice_list *list)
{
    const mp_operator *operators = MP_ROWS(recording, OPERATORS, mp_operator);
    MP_TRY(make_room(list, MP_COUNT(recording, OPERATORS) + 1));
    for (size_t i = 0; i < MP_COUNT(recording, OPERATORS); i++) {
        MP_TRY(add(recording, list,
                   (mp_slice){.start_ns = operators[i].start_ns,
                              .end_ns = operators[i].end_ns,
                              .thread = operators[i].thread,
                              .kind = MP_SLICE_OPERATOR,
                              .row = (uint32_t)i}));
    }
    return MP_OK;
}

static mp_status
add_calls(const mp_recording *recording, mp_slice_list *list)
{
    const mp_activity *rows = MP_ROWS(recording, ACTIVITIES, mp_activity);
    for (size_t i = 0; i < MP_COUNT(recording, ACTIVITIES); i++) {
        if (MP_ACTIVITY_IS_CALL(rows[i].kind)) {
            MP_TRY(add(recording, list, (mp_slice){.start_ns = rows[i].start_ns,
                                                   .end_ns = rows[i].end_ns,
                                                   .thread = rows[i].thread,
                                                   .kind = MP_SLICE_CALL,
                                                   .row = (uint32_t)i}));
        }
    }
    return MP_OK;
}

/* Readers divide by the length of all steps, or else of all operators. */
static mp_status
add_window(const mp_recording *recording, mp_slice_list *lists)
{
    const mp_operator *operators = MP_ROWS(recording, OPERATORS, mp_operator);
    for (size_t i = 0; i < lists[MP_SLICE_OPERATOR].count; i++) {
        const mp_slice *slice = &lists[MP_SLICE_OPERATOR].items[i];
        if (operators[slice->row].scope != MP_SCOPE_USER &&
            slice->end_ns > slice->start_ns) {
            return MP_OK;
        }
    }
    if (lists[MP_SLICE_STEP].count > 0) {
        return MP_OK;
    }
    const mp_allocation *allocations = MP_ROWS(recording, ALLOCATIONS, mp_allocation);
    size_t threads = MP_COUNT(recording, THREADS);
    uint32_t thread = MP_COUNT(recording, ALLOCATIONS) > 0 ? allocations[0].thread
                                                           : (threads > 0 ? 1 : 0);
    int64_t start = recording->window_start_ns;
    int64_t end = recording->stop_ns > start ? recording->stop_ns : start + 1;
    return mp_slices_add(&lists[MP_SLICE_WINDOW], &(mp_slice){.start_ns = start,
                                                              .end_ns = end,
                                                              .thread = thread,
                                                              .kind = MP_SLICE_WINDOW});
}

/* The kernel gives ids of ended threads anew; bars of one id share a track. */
static mp_status
share_tracks(const mp_recording *recording, mp_slice_list *lists)
{
    const mp_thread *threads = MP_ROWS(recording, THREADS, mp_thread);
    size_t count = MP_COUNT(recording, THREADS);
    mp_table_map first = {0};
    uint32_t *track = malloc((count + 1) * sizeof(*track));
    mp_status status = track == NULL ? MP_NO_MEMORY : mp_table_init(&first, count + 1);
    for (size_t i = 1; i <= count && status == MP_OK; i++) {
        uint32_t *value = mp_table_at(&first, (uint64_t)threads[i - 1].os_id);
        if (value == NULL) {
            status = MP_NO_MEMORY;
            break;
        }
        *value = *value == 0 ? (uint32_t)i : *value;
        track[i] = threads[i - 1].os_id == 0 ? 0 : *value; /* as for no thread */
    }
    for (size_t kind = 0; kind < MP_SLICE_KIND_COUNT && status == MP_OK; kind++) {
        for (size_t i = 0; i < lists[kind].count; i++) {
            uint32_t thread = lists[kind].items[i].thread;
            lists[kind].items[i].thread = thread == 0 ? 0 : track[thread];
        }
    }
    mp_table_fini(&first);
    free(track);
    return status;
}

static mp_status
collect(const mp_recording *recording, bool python_functions, mp_slice_list *lists,
        mp_slice_list *out)
{
    MP_TRY(add_steps(recording, &lists[MP_SLICE_STEP]));
    MP_TRY(add_spans(recording, &lists[MP_SLICE_SPAN]));
    MP_TRY(add_operators(recording, &lists[MP_SLICE_OPERATOR]));
    MP_TRY(add_calls(recording, &lists[MP_SLICE_CALL]));
    MP_TRY(add_window(recording, lists));
    if (python_functions) {
        MP_TRY(mp_python_slices_add(recording, &lists[MP_SLICE_PYTHON]));
    }
    MP_TRY(share_tracks(recording, lists));
    return mp_slices_merge(lists, MP_COUNT(recording, THREADS), out);
}

mp_status
mp_slices_collect(const mp_recording *recording, bool python_functions, mp_slice_list *list,
                  size_t *dropped)
{
    mp_slice_list lists[MP_SLICE_KIND_COUNT] = {{0}};
    *list = (mp_slice_list){0};
    *dropped = 0;
    mp_status status = collect(recording, python_functions, lists, list);
    for (size_t kind = 0; kind < MP_SLICE_KIND_COUNT; kind++) {
        mp_slices_fini(&lists[kind]);
    }
    if (status == MP_OK) {
        *dropped = mp_slices_nest(list);
    }
    return status;
}
