#include "analysis/launches.h"

#include <stdlib.h>

#include "analysis/steps.h"
#include "base/table.h"
#include "record/event.h"

typedef struct launch_pass {
    mp_recording *recording;
    mp_activity *rows;
    size_t count;
    const mp_operator *operators;
    size_t operator_count, next_operator;
    uint32_t *track; /* [thread id]: the first thread with its kernel id, which may recur */
    uint32_t *last;  /* [track]: operator that began last there, or one that is around it */
    mp_table_map calls; /* correlation id -> row + 1 */
} launch_pass;

static mp_status
find_tracks(launch_pass *self)
{
    const mp_thread *threads = MP_ROWS(self->recording, THREADS, mp_thread);
    size_t count = MP_COUNT(self->recording, THREADS);
    mp_table_map first = {0};
    self->track = calloc(count + 1, sizeof(*self->track));
    self->last = calloc(count + 1, sizeof(*self->last));
    mp_status status = self->track == NULL || self->last == NULL
                           ? MP_NO_MEMORY
                           : mp_table_init(&first, count + 1);
    for (size_t i = 1; i <= count && status == MP_OK; i++) {
        uint32_t *track = mp_table_at(&first, (uint64_t)threads[i - 1].os_id);
        if (track == NULL) {
            status = MP_NO_MEMORY;
            break;
        }
        *track = *track == 0 ? (uint32_t)i : *track;
        self->track[i] = *track;
    }
    mp_table_fini(&first);
    return status;
}

/* ---- calls ---- */

static void
take_operators(launch_pass *self, int64_t time_ns)
{
    const mp_operator *ops = self->operators;
    for (; self->next_operator < self->operator_count &&
           ops[self->next_operator].start_ns <= time_ns;
         self->next_operator++) {
        const mp_operator *op = &ops[self->next_operator];
        if ((op->flags & MP_FLAG_ASYNC) == 0) {
            self->last[self->track[op->thread]] = (uint32_t)self->next_operator + 1;
        }
    }
}

/* Calls come in order of time, so an operator that has ended is looked at once. */
static uint32_t
operator_at(launch_pass *self, uint32_t thread, int64_t time_ns)
{
    uint32_t *last = &self->last[self->track[thread]];
    while (*last != 0 && self->operators[*last - 1].end_ns <= time_ns) {
        *last = self->operators[*last - 1].parent_id;
    }
    return *last;
}

/* Backward work has no Python stack of its own: the line is the forward operator's. */
static uint32_t
stack_of(const launch_pass *self, uint32_t operator_id)
{
    for (uint32_t id = operator_id; id != 0; id = self->operators[id - 1].parent_id) {
        const mp_operator *op = &self->operators[id - 1];
        uint32_t stack = op->stack_id;
        if (op->scope == MP_SCOPE_BACKWARD_FUNCTION && op->forward_id != 0) {
            uint32_t forward = self->operators[op->forward_id - 1].stack_id;
            stack = forward != 0 ? forward : stack;
        }
        if (stack != 0) {
            return stack;
        }
    }
    return 0;
}

/* A driver call inside a runtime call has its correlation id: the outer one counts. */
static mp_status
remember_call(launch_pass *self, size_t row)
{
    if (self->rows[row].correlation == 0) {
        return MP_OK;
    }
    uint32_t *known = mp_table_at(&self->calls, self->rows[row].correlation);
    if (known == NULL) {
        return MP_NO_MEMORY;
    }
    if (*known == 0 || (self->rows[row].kind == MP_ACTIVITY_RUNTIME &&
                        self->rows[*known - 1].kind == MP_ACTIVITY_DRIVER)) {
        *known = (uint32_t)row + 1;
    }
    return MP_OK;
}

static mp_status
link_calls(launch_pass *self)
{
    mp_step_cursor steps = mp_step_cursor_of(self->recording);
    for (size_t i = 0; i < self->count; i++) {
        mp_activity *row = &self->rows[i];
        row->operator_id = row->stack_id = row->launch_id = 0;
        row->step = mp_step_cursor_number(&steps, row->start_ns);
        if (!MP_ACTIVITY_IS_CALL(row->kind)) {
            continue;
        }
        take_operators(self, row->start_ns);
        if (row->thread != 0) {
            row->operator_id = operator_at(self, row->thread, row->start_ns);
            row->stack_id = stack_of(self, row->operator_id);
        }
        MP_TRY(remember_call(self, i));
    }
    return MP_OK;
}

static void
link_device(launch_pass *self)
{
    for (size_t i = 0; i < self->count; i++) {
        mp_activity *row = &self->rows[i];
        if (MP_ACTIVITY_IS_CALL(row->kind) || row->correlation == 0) {
            continue;
        }
        const uint32_t *call = mp_table_find(&self->calls, row->correlation);
        if (call != NULL) {
            const mp_activity *launch = &self->rows[*call - 1];
            row->launch_id = *call;
            row->operator_id = launch->operator_id;
            row->stack_id = launch->stack_id;
            row->step = launch->step;
        }
    }
}

mp_status
mp_launches_link(mp_recording *recording)
{
    launch_pass self = {
        .recording = recording,
        .rows = MP_ROWS(recording, ACTIVITIES, mp_activity),
        .count = MP_COUNT(recording, ACTIVITIES),
        .operators = MP_ROWS(recording, OPERATORS, mp_operator),
        .operator_count = MP_COUNT(recording, OPERATORS),
    };
    if (self.count == 0) {
        return MP_OK;
    }
    mp_status status = self.count < UINT32_MAX ? find_tracks(&self) : MP_INVALID;
    if (status == MP_OK) {
        status = mp_table_init(&self.calls, self.count / 2);
    }
    if (status == MP_OK) {
        status = link_calls(&self);
    }
    if (status == MP_OK) {
        link_device(&self);
    }
    free(self.track);
    free(self.last);
    mp_table_fini(&self.calls);
    return status;
}
