// needs: output/*.c record/recording.c base/table.c
#include "output/chrome_trace.h"
#include "output/slices.h"
#include "record/event.h"

#include "check.h"

/* Random recordings, for the sanitizers; what the text says is judged from Python. */

enum { STRINGS = 6, STACKS = 5, FRAMES = 4, THREADS = 3, MODULES = 3, ROWS = 400 };

static uint64_t s_state = 88172645463325252u;

static uint32_t
below(uint32_t limit)
{
    s_state ^= s_state << 13;
    s_state ^= s_state >> 7;
    s_state ^= s_state << 17;
    return (uint32_t)(s_state >> 32) % limit;
}

static void *
rows(mp_recording *recording, mp_table_id id, size_t count)
{
    void *made = mp_recording_resize(recording, id, count);
    CHECK(made != NULL || count == 0);
    return made;
}

static void
fill_texts(mp_recording *recording)
{
    static const char s_text[] = "aten::\"\n\xFF\xE2\x82ProfilerStep#xnccl:all_reduce";
    static const uint64_t s_offsets[STRINGS + 1] = {0, 0, 6, 9, 11, 25, 40};
    memcpy(rows(recording, MP_TABLE_STRING_BYTES, sizeof(s_text)), s_text, sizeof(s_text));
    memcpy(rows(recording, MP_TABLE_STRING_OFFSETS, STRINGS + 1), s_offsets,
           sizeof(s_offsets));
    /* One run that promises more sizes than it has. */
    static const int64_t s_values[] = {1 | 6 << 8 | 2 << 16, 3,           4,
                                       3 | 1 << 16,          1 | 9 << 16, 7};
    static const uint32_t s_runs[] = {0, 0, 3, 6};
    memcpy(rows(recording, MP_TABLE_SHAPE_VALUES, 6), s_values, sizeof(s_values));
    memcpy(rows(recording, MP_TABLE_SHAPE_OFFSETS, 4), s_runs, sizeof(s_runs));
}

static void
fill_stacks(mp_recording *recording)
{
    mp_frame *frames = rows(recording, MP_TABLE_FRAMES, FRAMES);
    for (uint32_t i = 0; i < FRAMES; i++) {
        frames[i] = (mp_frame){.file_id = below(STRINGS),
                               .function_id = i,
                               .line = i,
                               .flags = i % 2 == 0 ? MP_FRAME_MODULE_CALL : 0};
    }
    enum { DEPTH = 300 }; /* deeper than bars are drawn */
    uint32_t *entries = rows(recording, MP_TABLE_STACK_FRAMES, DEPTH);
    for (uint32_t i = 0; i < DEPTH; i++) {
        entries[i] = below(FRAMES);
    }
    mp_stack *stacks = rows(recording, MP_TABLE_STACKS, STACKS);
    for (uint32_t i = 1; i < STACKS; i++) {
        stacks[i] = (mp_stack){.offset = 0,
                               .depth = i == 1 ? DEPTH : below(20),
                               .module_id = below(MODULES + 1)};
    }
    mp_module *modules = rows(recording, MP_TABLE_MODULES, MODULES);
    for (uint32_t i = 0; i < MODULES; i++) {
        modules[i] = (mp_module){.class_id = below(STRINGS), .parent_id = i};
    }
}

static void
fill_events(mp_recording *recording)
{
    int64_t now = 0;
    mp_thread *threads = rows(recording, MP_TABLE_THREADS, THREADS);
    for (uint32_t i = 0; i < THREADS; i++) {
        threads[i] = (mp_thread){.os_id = below(2) + 1, .name_id = below(STRINGS)};
    }
    mp_operator *operators = rows(recording, MP_TABLE_OPERATORS, ROWS);
    for (uint32_t i = 0; i < ROWS; i++) {
        now += below(4);
        operators[i] = (mp_operator){.start_ns = now,
                                     .end_ns = now + below(200),
                                     .sequence = (int64_t)below(3) - 1,
                                     .name_id = below(STRINGS),
                                     .thread = below(THREADS + 1),
                                     .stack_id = below(STACKS),
                                     .shapes_id = below(3),
                                     .forward_id = below(i + 1),
                                     .scope = (uint8_t)(below(2) == 0 ? 0 : below(8))};
    }
    mp_allocation *allocations = rows(recording, MP_TABLE_ALLOCATIONS, ROWS);
    for (uint32_t i = 0; i < ROWS; i++) {
        allocations[i] = (mp_allocation){.time_ns = 2 * i,
                                         .bytes = (int64_t)below(9) - 4,
                                         .kind = (uint8_t)(below(3) + 1),
                                         .device_type = (int8_t)below(2),
                                         .allocated_bytes = below(100),
                                         .reserved_bytes = -1,
                                         .thread = below(THREADS + 1),
                                         .stack_id = below(STACKS)};
    }
    mp_step *steps = rows(recording, MP_TABLE_STEPS, 3);
    for (uint32_t i = 0; i < 3; i++) {
        steps[i] = (mp_step){
            .start_ns = 100 * i, .end_ns = 100 * i + 100, .number = i, .thread = 1};
    }
    mp_device *devices = rows(recording, MP_TABLE_DEVICES, 2);
    devices[1].device_type = 1;
    mp_span *spans = rows(recording, MP_TABLE_SPANS, 1);
    spans[0] = (mp_span){.start_ns = 50,
                         .end_ns = 9000,
                         .name_id = 5,
                         .thread = 2,
                         .kind = MP_SPAN_OPTIMIZER};
    recording->window_start_ns = 20;
    recording->stop_ns = now;
}

static mp_status
count_bytes(void *context, const char *bytes, size_t count)
{
    CHECK(memchr(bytes, '\0', count) == NULL);
    *(size_t *)context += count;
    return MP_OK;
}

static mp_status
refuse(void *context, const char *bytes, size_t count)
{
    (void)bytes;
    ++*(size_t *)context;
    return count > 0 ? MP_ABORTED : MP_OK;
}

static const mp_trace_options s_options = {
    .dialect = MP_TRACE_TENSORBOARD,
    .shapes = true,
    .call_stacks = true,
    .python_functions = true,
    .memory = true,
    .counter_points = 50,
    .process_id = 1,
    .process_name = "p",
    .header = "",
    .trace_name = "t",
};

static mp_recording *
random_recording(void)
{
    mp_recording *recording = mp_recording_new();
    CHECK(recording != NULL);
    fill_texts(recording);
    fill_stacks(recording);
    fill_events(recording);
    return recording;
}

static void
writes_random_recordings(void)
{
    for (int i = 0; i < 60; i++) {
        mp_recording *recording = random_recording();
        mp_trace_options options = s_options;
        options.dialect = i % 2 == 0 ? MP_TRACE_KINETO : MP_TRACE_TENSORBOARD;
        options.counter_points = below(100);
        size_t bytes = 0;
        mp_trace_counts counts = {0};
        CHECK(mp_chrome_trace_write(recording, &options, count_bytes, &bytes, &counts) ==
              MP_OK);
        CHECK(bytes > 1000 && counts.slices > 100 && counts.memory_events > 100);
        mp_recording_free(recording);
    }
}

/* As readers see it: a bar lies within the one that is open when it begins. */
static void
check_nesting(const mp_slice_list *list)
{
    int64_t end[MP_SLICE_DEPTH];
    size_t depth = 0;
    for (size_t k = 0; k < list->count; k++) {
        const mp_slice *slice = &list->items[k];
        if (k > 0 && slice->thread != list->items[k - 1].thread) {
            depth = 0;
        }
        while (depth > 0 && end[depth - 1] <= slice->start_ns) {
            depth--;
        }
        CHECK(depth == 0 || slice->end_ns <= end[depth - 1]);
        CHECK(slice->start_ns <= slice->end_ns);
        CHECK(slice->parent <= k && depth < MP_SLICE_DEPTH);
        end[depth++] = slice->end_ns;
    }
}

static void
nests_what_it_draws(void)
{
    for (int i = 0; i < 60; i++) {
        mp_recording *recording = random_recording();
        mp_slice_list list;
        size_t dropped;
        CHECK(mp_slices_collect(recording, true, &list, &dropped) == MP_OK);
        check_nesting(&list);
        mp_slices_fini(&list);
        mp_recording_free(recording);
    }
}

static void
stops_with_its_sink(void)
{
    mp_recording *recording = random_recording();
    size_t calls = 0;
    mp_trace_counts counts = {0};
    CHECK(mp_chrome_trace_write(recording, &s_options, refuse, &calls, &counts) ==
          MP_ABORTED);
    CHECK_EQUAL(calls, 1);
    mp_recording_free(recording);
}

static void
writes_an_empty_recording(void)
{
    mp_recording *recording = mp_recording_new();
    CHECK(recording != NULL);
    size_t bytes = 0;
    mp_trace_counts counts = {0};
    CHECK(mp_chrome_trace_write(recording, &s_options, count_bytes, &bytes, &counts) ==
          MP_OK);
    CHECK_EQUAL(counts.slices, 1);
    mp_recording_free(recording);
}

int
main(void)
{
    RUN(writes_an_empty_recording);
    RUN(writes_random_recordings);
    RUN(nests_what_it_draws);
    RUN(stops_with_its_sink);
    return 0;
}
