#include "analysis/ownership.h"

#include <stdbool.h>
#include <stdlib.h>

#include "analysis/forward.h"
#include "analysis/stack_roles.h"
#include "record/event.h"

/* The optimizer spans of a thread that have begun, as one range. */
typedef struct optimizer_range {
    int64_t start_ns; /* of the latest */
    int64_t end_ns;   /* INT64_MIN: none yet */
} optimizer_range;

typedef struct owner_pass {
    mp_recording *recording;
    uint8_t *roles;
    mp_forward_links links;
    optimizer_range *optimizing; /* [thread id] */
    size_t next_span;
    uint32_t *last_backward; /* [thread id]: the last backward operator that began there */
    size_t next_operator;
} owner_pass;

/* Blocks come in order of birth and spans in order of start: each span is taken once. */
static void
take_spans(owner_pass *self, int64_t time_ns)
{
    const mp_span *spans = MP_ROWS(self->recording, SPANS, mp_span);
    size_t count = MP_COUNT(self->recording, SPANS);
    for (; self->next_span < count && spans[self->next_span].start_ns <= time_ns;
         self->next_span++) {
        const mp_span *span = &spans[self->next_span];
        optimizer_range *range = &self->optimizing[span->thread];
        if (span->kind == MP_SPAN_OPTIMIZER && span->end_ns > range->end_ns) {
            *range = (optimizer_range){span->start_ns, span->end_ns};
        }
    }
}

static void
take_operators(owner_pass *self, int64_t time_ns)
{
    const mp_operator *ops = MP_ROWS(self->recording, OPERATORS, mp_operator);
    size_t count = MP_COUNT(self->recording, OPERATORS);
    for (; self->next_operator < count && ops[self->next_operator].start_ns <= time_ns;
         self->next_operator++) {
        if (ops[self->next_operator].scope == MP_SCOPE_BACKWARD_FUNCTION) {
            self->last_backward[ops[self->next_operator].thread] =
                (uint32_t)self->next_operator + 1;
        }
    }
}

/* The backward node that a block belongs to. Between two nodes the engine works on the
 * results of the first; without the engine's wrapper among the operators (light mode) only
 * the thread's order shows it, hence *near. */
static uint32_t
backward_of(const owner_pass *self, const mp_block *block, bool *near)
{
    *near = false;
    if (block->operator_id != 0) {
        uint32_t id = self->links.backward_ids[block->operator_id - 1];
        if (id != 0) {
            return id;
        }
    }
    uint8_t role = self->roles[block->stack_id];
    *near = (role & MP_ROLE_PLAIN_BACKWARD) != 0 ||
            ((role & MP_ROLE_EMPTY) != 0 && block->operator_id == 0);
    return *near ? self->last_backward[block->thread] : 0;
}

static bool
is_in_optimizer(const owner_pass *self, const mp_block *block, uint32_t backward_id,
                uint8_t role)
{
    const mp_operator *ops = MP_ROWS(self->recording, OPERATORS, mp_operator);
    const optimizer_range *range = &self->optimizing[block->thread];
    bool in_span = block->birth_ns < range->end_ns;
    if (!in_span && (role & MP_ROLE_OPTIMIZER) == 0) {
        return false;
    }
    if ((role & (MP_ROLE_BACKWARD_INSIDE | MP_ROLE_MODULE_INSIDE)) != 0) {
        return false;
    }
    return !(in_span && backward_id != 0 &&
             ops[backward_id - 1].start_ns > range->start_ns);
}

static mp_phase
phase_of(const owner_pass *self, const mp_block *block, uint32_t backward_id)
{
    uint32_t flags = 0, module_id = 0;
    if (block->stack_id != 0) {
        const mp_stack *stack =
            &MP_ROWS(self->recording, STACKS, mp_stack)[block->stack_id];
        flags = stack->flags;
        module_id = stack->module_id;
    }
    if (is_in_optimizer(self, block, backward_id, self->roles[block->stack_id])) {
        return MP_PHASE_OPTIMIZER;
    }
    if (backward_id != 0 || (flags & MP_STACK_BACKWARD) != 0) {
        return MP_PHASE_BACKWARD;
    }
    if ((flags & MP_STACK_DATA) != 0) {
        return MP_PHASE_DATA;
    }
    return module_id != 0 ? MP_PHASE_FORWARD : MP_PHASE_OTHER;
}

static void
give_forward_line(const owner_pass *self, mp_block *block, uint32_t backward_id, bool near)
{
    uint8_t role = self->roles[block->stack_id];
    uint32_t line = self->links.stack_ids[backward_id - 1];
    if (line != 0 && (role & (MP_ROLE_EMPTY | MP_ROLE_PLAIN_BACKWARD)) != 0) {
        block->stack_id = line;
        block->flags |= MP_BLOCK_FORWARD_LINE;
        block->flags |= near || self->links.near[backward_id - 1] ? MP_BLOCK_NEAR : 0;
    }
}

static void
assign_all(owner_pass *self)
{
    mp_block *blocks = MP_ROWS(self->recording, BLOCKS, mp_block);
    const mp_stack *stacks = MP_ROWS(self->recording, STACKS, mp_stack);
    for (size_t i = 0; i < MP_COUNT(self->recording, BLOCKS); i++) {
        mp_block *block = &blocks[i];
        bool near;
        take_spans(self, block->birth_ns);
        take_operators(self, block->birth_ns);
        uint32_t backward_id = backward_of(self, block, &near);
        block->phase = (uint8_t)phase_of(self, block, backward_id);
        if (backward_id != 0) {
            give_forward_line(self, block, backward_id, near);
        }
        block->module_id = block->stack_id == 0 ? 0 : stacks[block->stack_id].module_id;
    }
}

static mp_status
prepare(owner_pass *self)
{
    size_t threads = MP_COUNT(self->recording, THREADS);
    self->roles = mp_stack_roles_new(self->recording);
    self->optimizing = calloc(threads + 1, sizeof(*self->optimizing));
    self->last_backward = calloc(threads + 1, sizeof(*self->last_backward));
    if (self->roles == NULL || self->optimizing == NULL || self->last_backward == NULL) {
        return MP_NO_MEMORY;
    }
    for (size_t i = 0; i <= threads; i++) {
        self->optimizing[i].end_ns = INT64_MIN;
    }
    return mp_forward_links_init(&self->links, self->recording, self->roles);
}

mp_status
mp_ownership_assign(mp_recording *recording)
{
    owner_pass self = {.recording = recording};
    mp_status status = prepare(&self);
    if (status == MP_OK) {
        assign_all(&self);
    }
    mp_forward_links_fini(&self.links);
    free(self.optimizing);
    free(self.last_backward);
    free(self.roles);
    return status;
}
