#include "output/chrome_trace.h"

#include <inttypes.h>
#include <stdio.h>
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
    mp_json_literal(
        json, "{\"ph\": \"X\", \"cat\": \"Trace\", \"name\": \"PyTorch Profiler (0)\", "
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
    mp_json_literal(json,
                    "},\n{\"ph\": \"i\", \"s\": \"g\", \"name\": \"Record Window End\", "
                    "\"pid\": \"\", \"tid\": \"\", \"ts\": ");
    mp_json_us(json, stop);
    mp_json_literal(json, "}\n],\n\"traceName\": \"");
    write_text(json, writer->options->trace_name);
    mp_json_literal(json, "\"}\n");
}

/* Readers bind the ends of a flow to bars with a length. */
static void
mark_bars(const mp_trace_writer *writer, uint32_t *flow_of, uint32_t mark)
{
    for (size_t i = 0; i < writer->slices.count; i++) {
        const mp_slice *slice = &writer->slices.items[i];
        if (slice->kind == MP_SLICE_OPERATOR && slice->end_ns > slice->start_ns) {
            flow_of[slice->row] = mark;
        }
    }
}

/* Each forward operator gives one flow, to the first backward node of it. */
static mp_status
number_flows(mp_trace_writer *writer)
{
    enum { NO_FLOW_YET = UINT32_MAX };
    const mp_operator *operators = MP_ROWS(writer->recording, OPERATORS, mp_operator);
    size_t count = MP_COUNT(writer->recording, OPERATORS);
    uint32_t *flow_of = writer->flow_of = calloc(count + 1, sizeof(*flow_of));
    if (flow_of == NULL) {
        return MP_NO_MEMORY;
    }
    mark_bars(writer, flow_of, NO_FLOW_YET);
    uint32_t flows = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t forward = operators[i].forward_id;
        if (operators[i].scope == MP_SCOPE_BACKWARD_FUNCTION && forward != 0 &&
            operators[forward - 1].scope != MP_SCOPE_BACKWARD_FUNCTION &&
            flow_of[i] == NO_FLOW_YET && flow_of[forward - 1] == NO_FLOW_YET) {
            flow_of[i] = flow_of[forward - 1] = ++flows;
        }
    }
    for (size_t i = 0; i < count; i++) {
        flow_of[i] = flow_of[i] == NO_FLOW_YET ? 0 : flow_of[i];
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
make_places(mp_trace_writer *writer)
{
    const mp_thread *threads = MP_ROWS(writer->recording, THREADS, mp_thread);
    size_t count = MP_COUNT(writer->recording, THREADS);
    writer->places = calloc(count + 1, sizeof(*writer->places));
    if (writer->places == NULL) {
        return MP_NO_MEMORY;
    }
    for (size_t i = 0; i <= count; i++) {
        mp_trace_place *place = &writer->places[i];
        int length =
            snprintf(place->text, sizeof(place->text),
                     ", \"pid\": %" PRId64 ", \"tid\": %" PRId64 ", \"ts\": ",
                     writer->options->process_id, i == 0 ? 0 : threads[i - 1].os_id);
        place->length = (uint32_t)length;
    }
    return MP_OK;
}

/* Names that readers take for more than a name. */
static uint8_t
role_of(const char *name, size_t length)
{
    static const struct {
        const char *start;
        mp_name_role role;
    } s_roles[] = {
        {"ProfilerStep", MP_NAME_STEP},
        {"nccl:", MP_NAME_COMMUNICATION},
        {"gloo:", MP_NAME_COMMUNICATION},
    };
    for (size_t i = 0; i < MP_COUNT_OF(s_roles); i++) {
        size_t part = strlen(s_roles[i].start);
        if (length >= part && memcmp(name, s_roles[i].start, part) == 0) {
            return (uint8_t)s_roles[i].role;
        }
    }
    return MP_NAME_PLAIN;
}

static mp_status
mark_names(mp_trace_writer *writer)
{
    size_t count = writer->escaped.string_count;
    writer->name_role = calloc(count + 1, sizeof(*writer->name_role));
    if (writer->name_role == NULL) {
        return MP_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        size_t length;
        const char *name = mp_recording_string(writer->recording, (uint32_t)i, &length);
        writer->name_role[i] = role_of(name, length);
    }
    return MP_OK;
}

static mp_status
prepare(mp_trace_writer *writer)
{
    writer->base_ns = writer->recording->window_start_ns / BASE_STEP_NS * BASE_STEP_NS;
    MP_TRY(mp_escaped_init(&writer->escaped, writer->recording, STACK_FRAMES_TOLD));
    MP_TRY(number_modules(writer));
    MP_TRY(mp_trace_find_launches(writer));
    MP_TRY(mark_names(writer));
    MP_TRY(make_places(writer));
    size_t dropped = 0;
    MP_TRY(mp_slices_collect(writer->recording, writer->options->python_functions,
                             &writer->slices, &dropped));
    writer->counts.dropped_slices = dropped;
    return number_flows(writer);
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
            status = status == MP_OK ? writer.escaped.status : status;
        } else {
            writer.json.next = writer.json.buffer;
            (void)mp_json_close(&writer.json);
        }
    }
    mp_slices_fini(&writer.slices);
    mp_escaped_fini(&writer.escaped);
    free(writer.flow_of);
    free(writer.name_role);
    free(writer.places);
    free(writer.module_number);
    free(writer.launches);
    *counts = writer.counts;
    return status;
}
