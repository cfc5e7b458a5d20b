#include "output/chrome_trace.h"

#include <stdlib.h>

#include "output/trace_activities.h"
#include "output/trace_writer.h"
#include "record/event.h"

/* Times in the file count from the whole second before the window, so that microseconds
 * with three decimals keep their precision in a reader's floating-point numbers. */
#define BASE_STEP_NS 1000000000ll

enum { STACK_FRAMES_TOLD = 48 };

static void
write_text(mp_json *json, const char *text)
{
    mp_json_bytes(json, text, strlen(text));
}

static void
write_start(mp_trace_writer *writer)
{
    mp_json *json = &writer->json;
    mp_json_literal(json, "{\"schemaVersion\": 1,\n");
    write_text(json, writer->options->header);
    mp_json_literal(json, "\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": ");
    mp_json_i64(json, writer->base_ns);
    mp_json_literal(json, ",\n\"traceEvents\": [\n");
}

static void
write_meta(mp_trace_writer *writer, const char *kind, int64_t thread)
{
    mp_json *json = &writer->json;
    mp_json_literal(json, "{\"ph\": \"M\", \"name\": \"");
    write_text(json, kind);
    mp_json_literal(json, "\", \"ts\": ");
    mp_json_us(json, writer->recording->window_start_ns - writer->base_ns);
    mp_json_literal(json, ", \"pid\": ");
    mp_json_i64(json, writer->options->process_id);
    mp_json_literal(json, ", \"tid\": ");
    mp_json_i64(json, thread);
    mp_json_literal(json, ", \"args\": {");
}

static void
write_process(mp_trace_writer *writer)
{
    mp_json *json = &writer->json;
    write_meta(writer, "process_name", 0);
    mp_json_literal(json, "\"name\": \"");
    write_text(json, writer->options->process_name);
    mp_json_literal(json, "\"}},\n");
    write_meta(writer, "process_labels", 0);
    mp_json_literal(json, "\"labels\": \"CPU\"}},\n");
    write_meta(writer, "process_sort_index", 0);
    mp_json_literal(json, "\"sort_index\": ");
    mp_json_i64(json, writer->options->process_id);
    mp_json_literal(json, "}},\n");
}

/* Several logs can be of one thread id: the kernel gives ids of ended threads anew. */
static void
write_threads(mp_trace_writer *writer)
{
    mp_json *json = &writer->json;
    const mp_thread *threads = MP_ROWS(writer->recording, THREADS, mp_thread);
    for (size_t i = 0; i < MP_COUNT(writer->recording, THREADS); i++) {
        write_meta(writer, "thread_name", threads[i].os_id);
        mp_json_literal(json, "\"name\": \"thread ");
        mp_json_i64(json, threads[i].os_id);
        mp_json_literal(json, " (");
        mp_escaped_string(&writer->escaped, json, threads[i].name_id);
        mp_json_literal(json, ")\"}},\n");
        write_meta(writer, "thread_sort_index", threads[i].os_id);
        mp_json_literal(json, "\"sort_index\": ");
        mp_json_i64(json, threads[i].os_id);
        mp_json_literal(json, "}},\n");
    }
}

/* Readers look for the span and the last two instants by their names and places. */
static void
write_end(mp_trace_writer *writer)
{
    mp_json *json = &writer->json;
    int64_t start = writer->recording->window_start_ns - writer->base_ns;
    int64_t stop = writer->recording->stop_ns - writer->base_ns;
    mp_json_literal(json, "{\"ph\": \"X\", \"cat\": \"Trace\", \"name\": \"PyTorch Profiler (0)\", "
                          "\"pid\": \"Spans\", \"tid\": \"PyTorch Profiler\", \"ts\": ");
    mp_json_us(json, start);
    mp_json_literal(json, ", \"dur\": ");
    mp_json_us(json, stop - start);
    mp_json_literal(json, ", \"args\": {\"Op count\": 0}},\n"
                          "{\"ph\": \"M\", \"name\": \"process_sort_index\", \"ts\": ");
    mp_json_us(json, start);
    mp_json_literal(json, ", \"pid\": \"Spans\", \"tid\": 0, "
                          "\"args\": {\"sort_index\": 536870912}},\n"
                          "{\"ph\": \"i\", \"s\": \"g\", \"name\": "
                          "\"Iteration Start: PyTorch Profiler\", \"pid\": \"Traces\", "
                          "\"tid\": \"Trace PyTorch Profiler\", \"ts\": ");
    mp_json_us(json, start);
    mp_json_literal(json, "},\n{\"ph\": \"i\", \"s\": \"g\", \"name\": \"Record Window End\", "
                          "\"pid\": \"\", \"tid\": \"\", \"ts\": ");
    mp_json_us(json, stop);
    mp_json_literal(json, "}\n],\n\"traceName\": \"");
    write_text(json, writer->options->trace_name);
    mp_json_literal(json, "\"}\n");
}

/* Each forward operator gives one flow, to the first backward node of it. */
static mp_status
number_flows(mp_trace_writer *writer)
{
    const mp_operator *operators = MP_ROWS(writer->recording, OPERATORS, mp_operator);
    size_t count = MP_COUNT(writer->recording, OPERATORS);
    writer->flow_of = calloc(count + 1, sizeof(*writer->flow_of));
    if (writer->flow_of == NULL) {
        return MP_NO_MEMORY;
    }
    uint32_t flows = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t forward = operators[i].forward_id;
        bool in_window = operators[i].start_ns >= writer->recording->window_start_ns;
        if (operators[i].scope != MP_SCOPE_BACKWARD_FUNCTION || forward == 0 || !in_window ||
            operators[forward - 1].start_ns < writer->recording->window_start_ns ||
            operators[forward - 1].scope == MP_SCOPE_BACKWARD_FUNCTION ||
            writer->flow_of[forward - 1] != 0) {
            continue;
        }
        writer->flow_of[i] = writer->flow_of[forward - 1] = ++flows;
    }
    return MP_OK;
}

/* Linear_0, Linear_1, ...: instances of one class by order of sight. */
static mp_status
number_modules(mp_trace_writer *writer)
{
    const mp_module *modules = MP_ROWS(writer->recording, MODULES, mp_module);
    size_t count = MP_COUNT(writer->recording, MODULES);
    size_t strings = writer->escaped.string_count;
    writer->module_number = calloc(count + 1, sizeof(*writer->module_number));
    uint32_t *seen = calloc(strings + 1, sizeof(*seen));
    if (writer->module_number == NULL || seen == NULL) {
        free(seen);
        return MP_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        writer->module_number[i] = seen[modules[i].class_id]++;
    }
    free(seen);
    return MP_OK;
}

static mp_status
prepare(mp_trace_writer *writer)
{
    writer->base_ns = writer->recording->window_start_ns / BASE_STEP_NS * BASE_STEP_NS;
    MP_TRY(mp_escaped_init(&writer->escaped, writer->recording, STACK_FRAMES_TOLD));
    MP_TRY(number_flows(writer));
    MP_TRY(number_modules(writer));
    MP_TRY(mp_trace_find_launches(writer));
    size_t dropped = 0;
    MP_TRY(mp_slices_collect(writer->recording, writer->options->python_functions,
                             &writer->slices, &dropped));
    writer->counts.dropped_slices = dropped;
    return MP_OK;
}

mp_status
mp_chrome_trace_write(const mp_recording *recording, const mp_trace_options *options,
                      mp_json_sink sink, void *context, mp_trace_counts *counts)
{
    mp_trace_writer writer = {.recording = recording, .options = options};
    mp_status status = mp_json_open(&writer.json, sink, context);
    if (status == MP_OK) {
        status = prepare(&writer);
        if (status == MP_OK) {
            write_start(&writer);
            write_process(&writer);
            write_threads(&writer);
            mp_trace_write_slices(&writer);
            mp_trace_write_activities(&writer);
            if (options->memory) {
                mp_trace_write_memory(&writer);
            }
            mp_trace_write_counters(&writer);
            write_end(&writer);
            status = mp_json_close(&writer.json);
        } else {
            writer.json.next = writer.json.buffer;
            (void)mp_json_close(&writer.json);
        }
    }
    mp_slices_fini(&writer.slices);
    mp_escaped_fini(&writer.escaped);
    free(writer.flow_of);
    free(writer.module_number);
    free(writer.launches);
    *counts = writer.counts;
    return status;
}
