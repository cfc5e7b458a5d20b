#include "output/python_slices.h"

#include <stdlib.h>

enum { DEPTH_LIMIT = 256 }; /* frames of a stack, counted from the outermost */
enum { NEVER_SEEN_AGAIN = MP_SLICE_KIND_COUNT }; /* kind of a slice without length */

typedef struct open_function {
    uint64_t key; /* function, or module instance */
    uint32_t frame;
    uint32_t module;
    size_t slice;    /* index in the list */
    int64_t last_ns; /* until when it was seen while it was the innermost */
} open_function;

/* One thread's state while its events pass by. */
typedef struct open_stack {
    open_function functions[DEPTH_LIMIT]; /* outermost first */
    uint32_t depth;
    uint32_t stack_id; /* that it shows */
    size_t next_border;
} open_stack;

/* One event that has a stack. */
typedef struct sample {
    int64_t start_ns, end_ns;
    uint32_t thread, stack_id;
} sample;

typedef struct builder {
    const mp_recording *recording;
    mp_slice_list *list;
    open_stack **threads; /* by thread id, made at first use */
    int64_t *borders;     /* starts and ends of steps, ascending */
    size_t border_count;
} builder;

static int64_t
later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Ends all but the outermost `depth` functions, at `at` if they lasted so long. Each ends a
 * nanosecond after what it calls, so that the operators in it keep the lengths that were
 * measured when slices are nested. */
static void
close_from(builder *self, open_stack *open, uint32_t depth, int64_t at)
{
    while (open->depth > depth) {
        const open_function *function = &open->functions[--open->depth];
        mp_slice *slice = &self->list->items[function->slice];
        int64_t end = function->last_ns + 1 < at ? function->last_ns + 1 : at;
        slice->end_ns = end;
        if (slice->end_ns <= slice->start_ns) {
            slice->kind = NEVER_SEEN_AGAIN;
        }
        if (open->depth > 0) {
            open_function *caller = &open->functions[open->depth - 1];
            caller->last_ns = later(caller->last_ns, end);
        }
    }
}

/* The functions of a stack, outermost first; returns how many. Module calls are matched
 * with the chain of modules from the innermost up. */
static uint32_t
list_functions(const mp_recording *recording, uint32_t stack_id, open_function *out)
{
    const mp_stack *stack = &MP_ROWS(recording, STACKS, mp_stack)[stack_id];
    const uint32_t *rows = MP_ROWS(recording, STACK_FRAMES, uint32_t) + stack->offset;
    const mp_frame *frames = MP_ROWS(recording, FRAMES, mp_frame);
    const mp_module *modules = MP_ROWS(recording, MODULES, mp_module);
    uint32_t module = stack->module_id;
    uint32_t skipped = stack->depth > DEPTH_LIMIT ? stack->depth - DEPTH_LIMIT : 0;
    for (uint32_t i = 0; i < stack->depth; i++) {
        const mp_frame *frame = &frames[rows[i]];
        uint32_t own = 0;
        if ((frame->flags & MP_FRAME_MODULE_CALL) != 0 && module != 0) {
            own = module;
            module = modules[module - 1].parent_id;
        }
        if (i >= skipped) {
            uint64_t key = (uint64_t)frame->file_id << 32 | frame->function_id;
            out[stack->depth - 1 - i] = (open_function){
                .key = own != 0 ? 1ull << 63 | own : key,
                .frame = rows[i],
                .module = own,
            };
        }
    }
    return stack->depth - skipped;
}

static mp_status
show_stack(builder *self, open_stack *open, const sample *event)
{
    open_function functions[DEPTH_LIMIT];
    uint32_t depth = list_functions(self->recording, event->stack_id, functions);
    uint32_t common = 0;
    while (common < depth && common < open->depth &&
           functions[common].key == open->functions[common].key) {
        common++;
    }
    close_from(self, open, common, event->start_ns);
    for (uint32_t d = common; d < depth; d++) {
        open->functions[d] = functions[d];
        open->functions[d].slice = self->list->count;
        open->functions[d].last_ns = event->start_ns;
        MP_TRY(mp_slices_add(self->list, &(mp_slice){.start_ns = event->start_ns,
                                                     .thread = event->thread,
                                                     .kind = MP_SLICE_PYTHON,
                                                     .row = functions[d].frame,
                                                     .module = functions[d].module}));
    }
    open->depth = depth;
    open->stack_id = event->stack_id;
    return MP_OK;
}

static mp_status
take_sample(builder *self, const sample *event)
{
    const mp_recording *recording = self->recording;
    if (event->stack_id == 0 || event->start_ns < recording->window_start_ns ||
        event->start_ns > recording->stop_ns) {
        return MP_OK;
    }
    open_stack *open = self->threads[event->thread];
    if (open == NULL) {
        open = self->threads[event->thread] = calloc(1, sizeof(*open));
        if (open == NULL) {
            return MP_NO_MEMORY;
        }
    }
    while (open->next_border < self->border_count &&
           self->borders[open->next_border] <= event->start_ns) {
        close_from(self, open, 0, self->borders[open->next_border++]);
        open->stack_id = 0;
    }
    if (event->stack_id != open->stack_id || open->depth == 0) {
        MP_TRY(show_stack(self, open, event));
    }
    if (open->depth > 0) {
        open_function *innermost = &open->functions[open->depth - 1];
        innermost->last_ns = later(innermost->last_ns, event->end_ns);
    }
    return MP_OK;
}

/* Operators and allocations are in order of time each. */
static mp_status
take_samples(builder *self)
{
    const mp_operator *operators = MP_ROWS(self->recording, OPERATORS, mp_operator);
    const mp_allocation *allocations = MP_ROWS(self->recording, ALLOCATIONS, mp_allocation);
    size_t operator_count = MP_COUNT(self->recording, OPERATORS);
    size_t allocation_count = MP_COUNT(self->recording, ALLOCATIONS);
    for (size_t i = 0, j = 0; i < operator_count || j < allocation_count;) {
        if (j == allocation_count ||
            (i < operator_count && operators[i].start_ns <= allocations[j].time_ns)) {
            const mp_operator *row = &operators[i++];
            MP_TRY(take_sample(
                self, &(sample){row->start_ns, row->end_ns, row->thread, row->stack_id}));
        } else {
            const mp_allocation *row = &allocations[j++];
            MP_TRY(take_sample(
                self, &(sample){row->time_ns, row->time_ns, row->thread, row->stack_id}));
        }
    }
    return MP_OK;
}

static mp_status
list_borders(builder *self)
{
    const mp_step *steps = MP_ROWS(self->recording, STEPS, mp_step);
    size_t count = MP_COUNT(self->recording, STEPS);
    self->borders = malloc((2 * count + 1) * sizeof(*self->borders));
    if (self->borders == NULL) {
        return MP_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) { /* steps do not overlap */
        self->borders[self->border_count++] = steps[i].start_ns;
        self->borders[self->border_count++] = steps[i].end_ns;
    }
    return MP_OK;
}

static void
drop_empty(mp_slice_list *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].kind != NEVER_SEEN_AGAIN) {
            list->items[kept++] = list->items[i];
        }
    }
    list->count = kept;
}

mp_status
mp_python_slices_add(const mp_recording *recording, mp_slice_list *list)
{
    builder self = {.recording = recording, .list = list};
    size_t threads = MP_COUNT(recording, THREADS) + 1;
    self.threads = calloc(threads, sizeof(*self.threads));
    mp_status status = self.threads == NULL ? MP_NO_MEMORY : list_borders(&self);
    status = status == MP_OK ? take_samples(&self) : status;
    for (size_t i = 0; self.threads != NULL && i < threads; i++) {
        if (self.threads[i] != NULL && status == MP_OK) {
            close_from(&self, self.threads[i], 0, recording->stop_ns);
        }
        free(self.threads[i]);
    }
    free(self.threads);
    free(self.borders);
    drop_empty(list);
    return status;
}
