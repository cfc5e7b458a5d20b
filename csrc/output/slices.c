#include "output/slices.h"

#include <stdlib.h>

#include "output/python_slices.h"

mp_status
mp_slices_add(mp_slice_list *list, const mp_slice *slice)
{
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 1024 : list->room * 2;
        mp_slice *items = realloc(list->items, room * sizeof(*items));
        if (items == NULL) {
            return MP_NO_MEMORY;
        }
        list->items = items;
        list->room = room;
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

static mp_status
add_steps(const mp_recording *recording, mp_slice_list *list)
{
    const mp_step *steps = MP_ROWS(recording, STEPS, mp_step);
    for (size_t i = 0; i < MP_COUNT(recording, STEPS); i++) {
        MP_TRY(mp_slices_add(list, &(mp_slice){.start_ns = steps[i].start_ns,
                                               .end_ns = steps[i].end_ns - MP_SLICE_GAP_NS,
                                               .thread = steps[i].thread,
                                               .kind = MP_SLICE_STEP,
                                               .row = (uint32_t)i}));
    }
    return MP_OK;
}

/* An optimizer's span is an operator of its own already. */
static mp_status
add_spans(const mp_recording *recording, mp_slice_list *list)
{
    const mp_span *spans = MP_ROWS(recording, SPANS, mp_span);
    for (size_t i = 0; i < MP_COUNT(recording, SPANS); i++) {
        if (spans[i].kind == MP_SPAN_USER && spans[i].start_ns >= recording->window_start_ns) {
            MP_TRY(mp_slices_add(list, &(mp_slice){.start_ns = spans[i].start_ns,
                                                   .end_ns = spans[i].end_ns,
                                                   .thread = spans[i].thread,
                                                   .kind = MP_SLICE_SPAN,
                                                   .row = (uint32_t)i}));
        }
    }
    return MP_OK;
}

static mp_status
add_operators(const mp_recording *recording, mp_slice_list *list)
{
    const mp_operator *operators = MP_ROWS(recording, OPERATORS, mp_operator);
    for (size_t i = 0; i < MP_COUNT(recording, OPERATORS); i++) {
        if (operators[i].start_ns >= recording->window_start_ns) {
            MP_TRY(mp_slices_add(list, &(mp_slice){.start_ns = operators[i].start_ns,
                                                   .end_ns = operators[i].end_ns,
                                                   .thread = operators[i].thread,
                                                   .kind = MP_SLICE_OPERATOR,
                                                   .row = (uint32_t)i}));
        }
    }
    return MP_OK;
}

static int
compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int
in_order(const void *left, const void *right)
{
    const mp_slice *a = left, *b = right;
    int order = compare(a->thread, b->thread);
    order = order != 0 ? order : compare(a->start_ns, b->start_ns);
    order = order != 0 ? order : compare(b->end_ns, a->end_ns);
    order = order != 0 ? order : compare(a->kind, b->kind);
    return order != 0 ? order : compare(a->row, b->row);
}

/* One pass with the open slices on a stack: a child ends a nanosecond before its parent at
 * the latest. Readers add start and duration as floating-point numbers, so that equal ends
 * may come out as an overlap. */
static void
nest(mp_slice_list *list, size_t *dropped)
{
    size_t open[MP_SLICE_DEPTH];
    size_t depth = 0, kept = 0;
    uint32_t thread = 0;
    for (size_t i = 0; i < list->count; i++) {
        mp_slice slice = list->items[i];
        if (slice.thread != thread) {
            thread = slice.thread;
            depth = 0;
        }
        while (depth > 0 && list->items[open[depth - 1]].end_ns <= slice.start_ns) {
            depth--;
        }
        if (depth == MP_SLICE_DEPTH) {
            ++*dropped;
            continue;
        }
        if (depth > 0 && slice.end_ns >= list->items[open[depth - 1]].end_ns) {
            slice.end_ns = list->items[open[depth - 1]].end_ns - 1;
        }
        if (slice.end_ns < slice.start_ns) {
            slice.end_ns = slice.start_ns;
        }
        slice.parent = 0;
        for (size_t d = depth; slice.kind == MP_SLICE_PYTHON && d-- > 0;) {
            if (list->items[open[d]].kind == MP_SLICE_PYTHON) {
                slice.parent = (uint32_t)open[d] + 1;
                break;
            }
        }
        list->items[kept] = slice;
        open[depth++] = kept++;
    }
    list->count = kept;
}

mp_status
mp_slices_collect(const mp_recording *recording, bool python_functions, mp_slice_list *list,
                  size_t *dropped)
{
    *list = (mp_slice_list){0};
    *dropped = 0;
    mp_status status = add_steps(recording, list);
    status = status == MP_OK ? add_spans(recording, list) : status;
    status = status == MP_OK ? add_operators(recording, list) : status;
    if (status == MP_OK && python_functions) {
        status = mp_python_slices_add(recording, list);
    }
    if (status != MP_OK) {
        mp_slices_fini(list);
        return status;
    }
    if (list->count > 1) {
        qsort(list->items, list->count, sizeof(*list->items), in_order);
    }
    nest(list, dropped);
    return MP_OK;
}

