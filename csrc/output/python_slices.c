#include "output/python_slices.h"

#include <stdlib.h>

enum { DEPTH_LIMIT = 256 }; /* frames of a stack, counted from the outermost */

typedef struct open_function {
    uint64_t key; /* function, or module instance */
    uint32_t frame;
    uint32_t module;
    int64_t start_ns;
} open_function;

/* One thread's state while its events pass by. */
typedef struct open_stack {
    open_function functions[DEPTH_LIMIT]; /* outermost first */
    uint32_t depth;
    uint32_t stack_id; /* that it shows */
    int64_t last_ns;   /* until when the innermost was seen */
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
    sample *samples;
    size_t sample_count;
    int64_t *borders; /* starts and ends of steps, ascending */
    size_t border_count;
} builder;

static mp_status
close_from(builder *self, open_stack *open, uint32_t thread, uint32_t depth, int64_t at)
{
    int64_t end = open->last_ns < at ? open->last_ns : at - MP_SLICE_GAP_NS;
    while (open->depth > depth) {
        const open_function *function = &open->functions[--open->depth];
        if (end > function->start_ns) {
            MP_TRY(mp_slices_add(self->list, &(mp_slice){.start_ns = function->start_ns,
                                                         .end_ns = end,
                                                         .thread = thread,
                                                         .kind = MP_SLICE_PYTHON,
                                                         .row = function->frame,
                                                         .module = function->module}));
        }
    }
    return MP_OK;
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
    uint32_t depth = stack->depth - skipped;
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
    return depth;
}

static mp_status
take_sample(builder *self, open_stack *open, const sample *event)
{
    while (open->next_border < self->border_count &&
           self->borders[open->next_border] <= event->start_ns) {
        MP_TRY(close_from(self, open, event->thread, 0, self->borders[open->next_border]));
        open->stack_id = 0;
        open->next_border++;
    }
    if (event->stack_id != open->stack_id || open->depth == 0) {
        open_function functions[DEPTH_LIMIT];
        uint32_t depth = list_functions(self->recording, event->stack_id, functions);
        uint32_t common = 0;
        while (common < depth && common < open->depth &&
               functions[common].key == open->functions[common].key) {
            common++;
        }
        MP_TRY(close_from(self, open, event->thread, common, event->start_ns));
        for (uint32_t d = common; d < depth; d++) {
            functions[d].start_ns = event->start_ns;
            open->functions[d] = functions[d];
        }
        open->depth = depth;
        open->stack_id = event->stack_id;
    }
    open->last_ns = event->end_ns > open->last_ns ? event->end_ns : open->last_ns;
    return MP_OK;
}

static int
by_thread_and_time(const void *left, const void *right)
{
    const sample *a = left, *b = right;
    if (a->thread != b->thread) {
        return a->thread < b->thread ? -1 : 1;
    }
    if (a->start_ns != b->start_ns) {
        return a->start_ns < b->start_ns ? -1 : 1;
    }
    return 0;
}

static int
by_value(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static mp_status
list_samples(builder *self)
{
    const mp_recording *recording = self->recording;
    const mp_operator *operators = MP_ROWS(recording, OPERATORS, mp_operator);
    const mp_allocation *allocations = MP_ROWS(recording, ALLOCATIONS, mp_allocation);
    size_t most = MP_COUNT(recording, OPERATORS) + MP_COUNT(recording, ALLOCATIONS);
    self->samples = malloc((most + 1) * sizeof(*self->samples));
    if (self->samples == NULL) {
        return MP_NO_MEMORY;
    }
    for (size_t i = 0; i < MP_COUNT(recording, OPERATORS); i++) {
        if (operators[i].stack_id != 0 && operators[i].start_ns >= recording->window_start_ns) {
            self->samples[self->sample_count++] =
                (sample){operators[i].start_ns, operators[i].end_ns, operators[i].thread,
                         operators[i].stack_id};
        }
    }
    for (size_t i = 0; i < MP_COUNT(recording, ALLOCATIONS); i++) {
        if (allocations[i].stack_id != 0 &&
            allocations[i].time_ns >= recording->window_start_ns) {
            self->samples[self->sample_count++] =
                (sample){allocations[i].time_ns, allocations[i].time_ns,
                         allocations[i].thread, allocations[i].stack_id};
        }
    }
    qsort(self->samples, self->sample_count, sizeof(*self->samples), by_thread_and_time);
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
    for (size_t i = 0; i < count; i++) {
        self->borders[self->border_count++] = steps[i].start_ns;
        self->borders[self->border_count++] = steps[i].end_ns;
    }
    qsort(self->borders, self->border_count, sizeof(*self->borders), by_value);
    return MP_OK;
}

static mp_status
build(builder *self)
{
    MP_TRY(list_samples(self));
    MP_TRY(list_borders(self));
    open_stack *open = calloc(1, sizeof(*open));
    if (open == NULL) {
        return MP_NO_MEMORY;
    }
    mp_status status = MP_OK;
    uint32_t thread = 0;
    for (size_t i = 0; i < self->sample_count && status == MP_OK; i++) {
        const sample *event = &self->samples[i];
        if (event->thread != thread) {
            status = close_from(self, open, thread, 0, INT64_MAX);
            *open = (open_stack){0};
            thread = event->thread;
        }
        status = status == MP_OK ? take_sample(self, open, event) : status;
    }
    status = status == MP_OK ? close_from(self, open, thread, 0, INT64_MAX) : status;
    free(open);
    return status;
}

mp_status
mp_python_slices_add(const mp_recording *recording, mp_slice_list *list)
{
    builder self = {.recording = recording, .list = list};
    mp_status status = build(&self);
    free(self.samples);
    free(self.borders);
    return status;
}
