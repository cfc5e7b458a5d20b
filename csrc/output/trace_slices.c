#include "output/trace_activities.h"
#include "output/trace_writer.h"

#include "record/event.h"

/* c10::ScalarType as torch.profiler names it. */
static const char *const s_dtypes[] = {
    "unsigned char", "signed char", "short int", "int", "long int", "c10::Half", "float",
    "double", "c10::complex<c10::Half>", "c10::complex<float>", "c10::complex<double>", "bool",
    "c10::qint8", "c10::quint8", "c10::qint32", "c10::BFloat16",
};

/* Low byte of a header word of shape_values; see record/tables.h. */
enum { INPUT_TENSOR = 1, INPUT_UNDEFINED = 2, INPUT_LIST = 3 };
enum { TAG_NONE = 0 };

typedef struct shape_run {
    const int64_t *next, *end;
} shape_run;

static shape_run
shapes_of(const mp_recording *recording, uint32_t id)
{
    const uint32_t *offsets = MP_ROWS(recording, SHAPE_OFFSETS, uint32_t);
    const int64_t *values = MP_ROWS(recording, SHAPE_VALUES, int64_t);
    if (id == 0 || (size_t)id + 1 >= MP_COUNT(recording, SHAPE_OFFSETS)) {
        return (shape_run){0};
    }
    return (shape_run){values + offsets[id], values + offsets[id + 1]};
}

static unsigned
header_kind(int64_t word)
{
    return (unsigned)word & 0xff;
}

static unsigned
header_type(int64_t word)
{
    return (unsigned)(word >> 8) & 0xff;
}

static unsigned
header_count(int64_t word)
{
    return (unsigned)(word >> 16) & 0xffff;
}

static void
write_sizes(mp_json *json, shape_run *run, unsigned dims)
{
    mp_json_literal(json, "[");
    for (unsigned d = 0; d < dims && run->next < run->end; d++) {
        if (d > 0) {
            mp_json_literal(json, ", ");
        }
        mp_json_i64(json, *run->next++);
    }
    mp_json_literal(json, "]");
}

/* One input's dimensions: [2, 3] of a tensor, [[2], [3]] of a list, [] of anything else. */
static void
write_input_dims(mp_json *json, shape_run *run)
{
    int64_t word = *run->next++;
    if (header_kind(word) == INPUT_TENSOR) {
        write_sizes(json, run, header_count(word));
        return;
    }
    mp_json_literal(json, "[");
    if (header_kind(word) == INPUT_LIST) {
        bool first = true;
        for (unsigned i = 0; i < header_count(word) && run->next < run->end; i++) {
            int64_t item = *run->next++;
            if (header_kind(item) != INPUT_TENSOR) {
                continue;
            }
            if (!first) {
                mp_json_literal(json, ", ");
            }
            first = false;
            write_sizes(json, run, header_count(item));
        }
    }
    mp_json_literal(json, "]");
}

static void
write_dtype(mp_json *json, unsigned dtype)
{
    if (dtype < MP_COUNT_OF(s_dtypes)) {
        mp_json_bytes(json, s_dtypes[dtype], strlen(s_dtypes[dtype]));
    }
}

static void
write_input_type(mp_json *json, shape_run *run)
{
    int64_t word = *run->next++;
    mp_json_literal(json, "\"");
    if (header_kind(word) == INPUT_TENSOR) {
        write_dtype(json, header_type(word));
        run->next += header_count(word);
    } else if (header_kind(word) == INPUT_LIST) {
        bool tensors = false;
        for (unsigned i = 0; i < header_count(word) && run->next < run->end; i++) {
            int64_t item = *run->next++;
            tensors = tensors || header_kind(item) == INPUT_TENSOR;
            run->next += header_kind(item) == INPUT_TENSOR ? header_count(item) : 0;
        }
        if (tensors) {
            mp_json_literal(json, "TensorList");
        } else {
            mp_json_literal(json, "ScalarList");
        }
    } else if (header_kind(word) != INPUT_UNDEFINED && header_type(word) != TAG_NONE) {
        mp_json_literal(json, "Scalar");
    }
    mp_json_literal(json, "\"");
}

static void
write_inputs(mp_json *json, shape_run run, void (*write_input)(mp_json *, shape_run *))
{
    mp_json_literal(json, "[");
    for (bool first = true; run.next < run.end; first = false) {
        if (!first) {
            mp_json_literal(json, ", ");
        }
        write_input(json, &run);
    }
    mp_json_literal(json, "]");
}

/* ---- beginnings and ends ---- */

void
mp_trace_write_place(mp_trace_writer *writer, uint32_t thread, int64_t time_ns)
{
    const mp_thread *threads = MP_ROWS(writer->recording, THREADS, mp_thread);
    mp_json *json = &writer->json;
    mp_json_literal(json, ", \"pid\": ");
    mp_json_i64(json, writer->options->process_id);
    mp_json_literal(json, ", \"tid\": ");
    mp_json_i64(json, thread == 0 ? 0 : threads[thread - 1].os_id);
    mp_json_literal(json, ", \"ts\": ");
    mp_json_us(json, time_ns - writer->base_ns);
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
    mp_json_literal(json, "\"External id\": ");
    mp_json_u64(json, MP_COUNT(writer->recording, OPERATORS) + slice->row + 1);
    mp_json_literal(json, ", ");
    write_event_index(writer);
    end_event(writer);
}

static void
write_span(mp_trace_writer *writer, const mp_slice *slice)
{
    mp_json *json = &writer->json;
    const mp_span *span = &MP_ROWS(writer->recording, SPANS, mp_span)[slice->row];
    mp_json_literal(json, "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"");
    mp_escaped_string(&writer->escaped, json, span->name_id);
    mp_json_literal(json, "\"");
    write_times(writer, slice);
    write_event_index(writer);
    end_event(writer);
}

static void
write_module_name(mp_trace_writer *writer, uint32_t module_id)
{
    const mp_module *module = &MP_ROWS(writer->recording, MODULES, mp_module)[module_id - 1];
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
    mp_escaped_string(&writer->escaped, json, frame->file_id);
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
    if (options->shapes && op->shapes_id != 0) {
        shape_run run = shapes_of(writer->recording, op->shapes_id);
        mp_json_literal(json, ", \"Input Dims\": ");
        write_inputs(json, run, write_input_dims);
        mp_json_literal(json, ", \"Input type\": ");
        write_inputs(json, run, write_input_type);
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
    /* The plugin drops user_annotation, and with it DataLoader and Optimizer time. */
    bool annotation =
        op->scope == MP_SCOPE_USER && writer->options->dialect != MP_TRACE_TENSORBOARD;
    if (annotation) {
        mp_json_literal(json, "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"");
    } else {
        mp_json_literal(json, "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"");
    }
    mp_escaped_string(&writer->escaped, json, op->name_id);
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
