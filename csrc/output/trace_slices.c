#include "output/trace_activities.h"
#include "output/trace_writer.h"

#include "output/trace_shapes.h"
#include "record/event.h"

void
mp_trace_write_place(mp_trace_writer *writer, uint32_t thread, int64_t time_ns)
{
    const mp_trace_place *place = &writer->places[thread];
    mp_json_padded(&writer->json, place->text, place->length);
    mp_json_us(&writer->json, time_ns - writer->base_ns);
}

static void
write_times(mp_trace_writer *writer, const mp_slice *slice)
{
    mp_trace_write_place(writer, slice->thread, slice->start_ns);
    mp_json_literal(&writer->json, ", \"dur\": ");
    mp_json_us(&writer->json, slice->end_ns - slice->start_ns);
    mp_json_literal(&writer->json, ", \"args\": {");
}

static void
end_event(mp_trace_writer *writer)
{
    mp_json_literal(&writer->json, "}},\n");
    writer->counts.slices++;
}

static void
write_event_index(mp_trace_writer *writer)
{
    mp_json_literal(&writer->json, "\"Ev Idx\": ");
    mp_json_u64(&writer->json, writer->event_index++);
}

/* ---- each kind ---- */

/* Only the steps that we recorded are steps: another profiler's mark of one, or a user's
 * range of such a name, would count twice. */
static void
write_range_name(mp_trace_writer *writer, uint32_t name_id)
{
    if (writer->name_role[name_id] == MP_NAME_STEP) {
        mp_json_literal(&writer->json, "range ");
    }
    mp_escaped_string(&writer->escaped, &writer->json, name_id);
}

/* A range that is no step: the plugin drops user_annotation, and with it the time of
 * DataLoader and optimizer. */
static void
write_range_start(mp_trace_writer *writer, bool annotation)
{
    if (annotation && writer->options->dialect != MP_TRACE_TENSORBOARD) {
        mp_json_literal(&writer->json,
                        "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"");
    } else {
        mp_json_literal(&writer->json, "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"");
    }
}

static void
write_external_id(mp_trace_writer *writer, size_t id)
{
    mp_json_literal(&writer->json, "\"External id\": ");
    mp_json_u64(&writer->json, id);
    mp_json_literal(&writer->json, ", \"Record function id\": 0, ");
}

static void
write_step(mp_trace_writer *writer, const mp_slice *slice)
{
    mp_json *json = &writer->json;
    const mp_step *step = &MP_ROWS(writer->recording, STEPS, mp_step)[slice->row];
    mp_json_literal(json, "{\"ph\": \"X\", \"cat\": \"user_annotation\", "
                          "\"name\": \"ProfilerStep#");
    mp_json_i64(json, step->number);
    mp_json_literal(json, "\"");
    write_times(writer, slice);
    write_external_id(writer, MP_COUNT(writer->recording, OPERATORS) + slice->row + 1);
    write_event_index(writer);
    end_event(writer);
}

static void
write_span(mp_trace_writer *writer, const mp_slice *slice)
{
    const mp_recording *recording = writer->recording;
    const mp_span *span = &MP_ROWS(recording, SPANS, mp_span)[slice->row];
    write_range_start(writer, true);
    write_range_name(writer, span->name_id);
    mp_json_literal(&writer->json, "\"");
    write_times(writer, slice);
    write_external_id(writer, MP_COUNT(recording, OPERATORS) + MP_COUNT(recording, STEPS) +
                                  slice->row + 1);
    write_event_index(writer);
    end_event(writer);
}

static void
write_window(mp_trace_writer *writer, const mp_slice *slice)
{
    write_range_start(writer, false);
    mp_json_literal(&writer->json, "memprof: recording\"");
    write_times(writer, slice);
    write_event_index(writer);
    end_event(writer);
}

static void
write_module_name(mp_trace_writer *writer, uint32_t module_id)
{
    const mp_module *module =
        &MP_ROWS(writer->recording, MODULES, mp_module)[module_id - 1];
    mp_json_literal(&writer->json, "nn.Module: ");
    mp_escaped_string(&writer->escaped, &writer->json, module->class_id);
    mp_json_literal(&writer->json, "_");
    mp_json_u64(&writer->json, writer->module_number[module_id - 1]);
}

static void
write_function_name(mp_trace_writer *writer, const mp_slice *slice)
{
    mp_json *json = &writer->json;
    const mp_frame *frame = &MP_ROWS(writer->recording, FRAMES, mp_frame)[slice->row];
    mp_escaped_file(&writer->escaped, json, frame->file_id);
    mp_json_literal(json, "(");
    mp_json_u64(json, frame->line);
    mp_json_literal(json, "): ");
    mp_escaped_string(&writer->escaped, json, frame->function_id);
}

static void
write_python(mp_trace_writer *writer, const mp_slice *slice)
{
    mp_json *json = &writer->json;
    mp_json_literal(json, "{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"");
    if (slice->module != 0) {
        write_module_name(writer, slice->module);
    } else {
        write_function_name(writer, slice);
    }
    mp_json_literal(json, "\"");
    write_times(writer, slice);
    mp_json_literal(json, "\"Python id\": ");
    mp_json_u64(json, (uint64_t)(slice - writer->slices.items) + 1);
    mp_json_literal(json, ", \"Python parent id\": ");
    if (slice->parent != 0) {
        mp_json_u64(json, slice->parent);
    } else {
        mp_json_literal(json, "null");
    }
    if (slice->module != 0) {
        mp_json_literal(json, ", \"Python module id\": ");
        mp_json_u64(json, slice->module - 1);
        mp_json_literal(json, ", \"Module path\": \"");
        const mp_module *module =
            &MP_ROWS(writer->recording, MODULES, mp_module)[slice->module - 1];
        mp_escaped_string(&writer->escaped, json, module->path_id);
        mp_json_literal(json, "\"");
    }
    mp_json_literal(json, ", ");
    write_event_index(writer);
    end_event(writer);
}

static void
write_operator_args(mp_trace_writer *writer, const mp_operator *op, uint32_t row)
{
    mp_json *json = &writer->json;
    const mp_trace_options *options = writer->options;
    mp_json_literal(json, "\"External id\": ");
    mp_json_u64(json, (uint64_t)row + 1);
    mp_json_literal(json, ", \"Record function id\": 0");
    if (op->sequence >= 0) {
        mp_json_literal(json, ", \"Sequence number\": ");
        mp_json_i64(json, op->sequence);
        mp_json_literal(json, ", \"Fwd thread id\": ");
        mp_json_u64(json, op->forward_thread);
    }
    if (options->shapes) {
        bool communicates = writer->name_role[op->name_id] == MP_NAME_COMMUNICATION;
        mp_trace_write_shapes(json, writer->recording, op->shapes_id, !communicates);
    }
    if (options->call_stacks && op->stack_id != 0) {
        mp_json_literal(json, ", \"Call stack\": \"");
        mp_escaped_stack(&writer->escaped, json, op->stack_id);
        mp_json_literal(json, "\"");
    }
    if ((op->flags & MP_FLAG_UNFINISHED) != 0) {
        mp_json_literal(json, ", \"finished\": \"false\"");
    }
    mp_json_literal(json, ", ");
    write_event_index(writer);
}

/* A flow joins a forward operator with the backward node of it; written right after its
 * slice, at the slice's own start. */
static void
write_flow(mp_trace_writer *writer, const mp_slice *slice, bool is_end)
{
    mp_json *json = &writer->json;
    mp_json_literal(json, "{\"ph\": \"");
    if (is_end) {
        mp_json_literal(json, "f");
    } else {
        mp_json_literal(json, "s");
    }
    mp_json_literal(json, "\", \"id\": ");
    mp_json_u64(json, writer->flow_of[slice->row]);
    mp_trace_write_place(writer, slice->thread, slice->start_ns);
    mp_json_literal(json, ", \"cat\": \"fwdbwd\", \"name\": \"fwdbwd\"");
    if (is_end) {
        mp_json_literal(json, ", \"bp\": \"e\"");
    }
    mp_json_literal(json, "},\n");
    writer->counts.flows++;
}

static void
write_operator(mp_trace_writer *writer, const mp_slice *slice)
{
    mp_json *json = &writer->json;
    const mp_operator *op = &MP_ROWS(writer->recording, OPERATORS, mp_operator)[slice->row];
    write_range_start(writer, op->scope == MP_SCOPE_USER);
    write_range_name(writer, op->name_id);
    mp_json_literal(json, "\"");
    write_times(writer, slice);
    write_operator_args(writer, op, slice->row);
    end_event(writer);
    if (writer->flow_of[slice->row] != 0) {
        write_flow(writer, slice, op->scope == MP_SCOPE_BACKWARD_FUNCTION);
    }
}

void
mp_trace_write_slices(mp_trace_writer *writer)
{
    for (size_t i = 0; i < writer->slices.count && writer->json.status == MP_OK; i++) {
        const mp_slice *slice = &writer->slices.items[i];
        switch ((mp_slice_kind)slice->kind) {
        case MP_SLICE_WINDOW:
            write_window(writer, slice);
            break;
        case MP_SLICE_KIND_COUNT:
            break;
        case MP_SLICE_STEP:
            write_step(writer, slice);
            break;
        case MP_SLICE_SPAN:
            write_span(writer, slice);
            break;
        case MP_SLICE_PYTHON:
            write_python(writer, slice);
            break;
        case MP_SLICE_OPERATOR:
            write_operator(writer, slice);
            break;
        case MP_SLICE_CALL:
            mp_trace_write_call(writer, slice);
            break;
        }
    }
}
