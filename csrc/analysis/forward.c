#include "analysis/forward.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/stack_roles.h"
#include "base/table.h"
#include "record/event.h"

/* Keys of (thread, number): both halves fit in any real run; others get no link. */
#define NUMBER_BITS 44
#define THREAD_LIMIT (1u << (64 - NUMBER_BITS))

/* An allocation with a line, the first of its thread with that number. */
typedef struct numbered_line {
    int64_t sequence;
    int64_t time_ns;
    uint32_t stack_id;
} numbered_line;

/* In order of sequence, which never falls within a thread. */
typedef struct thread_lines {
    numbered_line *rows;
    size_t count, room;
} thread_lines;

typedef struct linker {
    mp_recording *recording;
    mp_forward_links *links;
    const uint8_t *roles;
    mp_table_map threads;   /* torch's logical thread id -> thread id */
    mp_table_map operators; /* (thread, number) -> id of the last operator started */
    thread_lines *lines;    /* [thread id] */
    size_t thread_count;
} linker;

/* ---- lines by number ---- */

static mp_status
add_line(thread_lines *lines, const mp_allocation *event)
{
    if (lines->count > 0 && lines->rows[lines->count - 1].sequence >= event->sequence) {
        return MP_OK;
    }
    if (lines->count == lines->room) {
        size_t room = lines->room == 0 ? 256 : lines->room * 2;
        numbered_line *rows = realloc(lines->rows, room * sizeof(*rows));
        if (rows == NULL) {
            return MP_NO_MEMORY;
        }
        lines->rows = rows;
        lines->room = room;
    }
    lines->rows[lines->count++] =
        (numbered_line){event->sequence, event->time_ns, event->stack_id};
    return MP_OK;
}

static mp_status
collect_lines(linker *self)
{
    const mp_allocation *events = MP_ROWS(self->recording, ALLOCATIONS, mp_allocation);
    for (size_t i = 0; i < MP_COUNT(self->recording, ALLOCATIONS); i++) {
        const mp_allocation *event = &events[i];
        uint8_t role = self->roles[event->stack_id];
        if (event->kind == MP_ALLOCATION_ALLOC && event->sequence > 0 &&
            (role & (MP_ROLE_EMPTY | MP_ROLE_PLAIN_BACKWARD)) == 0) {
            MP_TRY(add_line(&self->lines[event->thread], event));
        }
    }
    return MP_OK;
}

/* The last line up to number + 1 that was there before the node ran, or NULL. */
static const numbered_line *
line_of(const thread_lines *lines, int64_t number, int64_t before_ns)
{
    size_t low = 0, high = lines->count; /* first line beyond number + 1 */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (lines->rows[middle].sequence - 1 <= number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    while (low > 0 && lines->rows[low - 1].time_ns > before_ns) {
        low--;
    }
    return low == 0 ? NULL : &lines->rows[low - 1];
}

/* ---- operators ---- */

static bool
has_key(uint32_t thread, int64_t number)
{
    return thread != 0 && thread < THREAD_LIMIT && number >= 0 &&
           number >> NUMBER_BITS == 0;
}

static uint64_t
key_of(uint32_t thread, int64_t number)
{
    return (uint64_t)thread << NUMBER_BITS | (uint64_t)number;
}

static mp_status
note_forward(linker *self, size_t row)
{
    const mp_operator *op = &MP_ROWS(self->recording, OPERATORS, mp_operator)[row];
    if (!has_key(op->thread, op->sequence)) {
        return MP_OK;
    }
    uint32_t *id = mp_table_at(&self->operators, key_of(op->thread, op->sequence));
    if (id == NULL) {
        return MP_NO_MEMORY;
    }
    *id = (uint32_t)row + 1;
    return MP_OK;
}

static void
link_backward(linker *self, size_t row)
{
    mp_operator *ops = MP_ROWS(self->recording, OPERATORS, mp_operator);
    mp_operator *op = &ops[row];
    op->forward_id = 0;
    const uint32_t *thread = mp_table_find(&self->threads, op->forward_thread);
    if (op->forward_thread == 0 || thread == NULL || !has_key(*thread, op->sequence)) {
        return;
    }
    const uint32_t *id = mp_table_find(&self->operators, key_of(*thread, op->sequence));
    if (id != NULL) {
        op->forward_id = *id;
        uint32_t stack = ops[*id - 1].stack_id;
        if ((self->roles[stack] & (MP_ROLE_EMPTY | MP_ROLE_PLAIN_BACKWARD)) == 0) {
            self->links->stack_ids[row] = stack;
            return;
        }
    }
    const numbered_line *line = line_of(&self->lines[*thread], op->sequence, op->start_ns);
    if (line != NULL) {
        self->links->stack_ids[row] = line->stack_id;
        self->links->near[row] = line->sequence != op->sequence + 1;
    }
}

static bool
is_engine_wrapper(const mp_recording *recording, const mp_operator *op)
{
    static const char s_prefix[] = "autograd::engine::evaluate_function";
    size_t length;
    const char *name = mp_recording_string(recording, op->name_id, &length);
    return op->scope == MP_SCOPE_FUNCTION && length >= sizeof(s_prefix) - 1 &&
           memcmp(name, s_prefix, sizeof(s_prefix) - 1) == 0;
}

/* The engine works on a node's results (sums them to shape, adds them up) after the node
 * has ended, within the wrapper: what comes there is the node's. */
static void
enter_backward(linker *self, size_t row)
{
    const mp_operator *ops = MP_ROWS(self->recording, OPERATORS, mp_operator);
    uint32_t id = (uint32_t)row + 1, parent = ops[row].parent_id;
    self->links->backward_ids[row] = id;
    if (parent != 0 && parent <= row &&
        is_engine_wrapper(self->recording, &ops[parent - 1])) {
        self->links->backward_ids[parent - 1] = id;
    }
}

static mp_status
link_operators(linker *self)
{
    mp_operator *ops = MP_ROWS(self->recording, OPERATORS, mp_operator);
    uint32_t *backward_ids = self->links->backward_ids;
    for (size_t row = 0; row < MP_COUNT(self->recording, OPERATORS); row++) {
        uint32_t parent = ops[row].parent_id;
        backward_ids[row] = parent == 0 || parent > row ? 0 : backward_ids[parent - 1];
        if (ops[row].scope == MP_SCOPE_FUNCTION) {
            MP_TRY(note_forward(self, row));
        } else if (ops[row].scope == MP_SCOPE_BACKWARD_FUNCTION) {
            enter_backward(self, row);
            link_backward(self, row);
        }
    }
    return MP_OK;
}

static mp_status
map_threads(linker *self)
{
    const mp_thread *threads = MP_ROWS(self->recording, THREADS, mp_thread);
    for (size_t i = 0; i < self->thread_count; i++) {
        uint32_t *id = mp_table_at(&self->threads, threads[i].torch_id);
        if (id == NULL) {
            return MP_NO_MEMORY;
        }
        *id = (uint32_t)i + 1;
    }
    return MP_OK;
}

static mp_status
link_all(linker *self)
{
    size_t count = MP_COUNT(self->recording, OPERATORS);
    mp_forward_links *links = self->links;
    links->backward_ids = calloc(count + 1, sizeof(*links->backward_ids));
    links->stack_ids = calloc(count + 1, sizeof(*links->stack_ids));
    links->near = calloc(count + 1, sizeof(*links->near));
    self->lines = calloc(self->thread_count + 1, sizeof(*self->lines));
    if (links->backward_ids == NULL || links->stack_ids == NULL || links->near == NULL ||
        self->lines == NULL) {
        return MP_NO_MEMORY;
    }
    if (count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_table_init(&self->threads, self->thread_count));
    MP_TRY(mp_table_init(&self->operators, 1024));
    MP_TRY(map_threads(self));
    MP_TRY(collect_lines(self));
    return link_operators(self);
}

mp_status
mp_forward_links_init(mp_forward_links *links, mp_recording *recording,
                      const uint8_t *roles)
{
    *links = (mp_forward_links){0};
    linker self = {
        .recording = recording,
        .links = links,
        .roles = roles,
        .thread_count = MP_COUNT(recording, THREADS),
    };
    mp_status status = link_all(&self);
    mp_table_fini(&self.threads);
    mp_table_fini(&self.operators);
    for (size_t i = 0; self.lines != NULL && i <= self.thread_count; i++) {
        free(self.lines[i].rows);
    }
    free(self.lines);
    if (status != MP_OK) {
        mp_forward_links_fini(links);
    }
    return status;
}

void
mp_forward_links_fini(mp_forward_links *links)
{
    free(links->backward_ids);
    free(links->stack_ids);
    free(links->near);
    *links = (mp_forward_links){0};
}
