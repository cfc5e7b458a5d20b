#include <stdlib.h>

#include "output/trace_writer.h"
#include "record/event.h"

/* What readers know of devices: CPU is type 0 with index -1, CUDA type 1. */
static bool
is_shown(const mp_trace_writer *writer, const mp_allocation *row)
{
    bool known = row->device_type == MP_DEVICE_CPU || row->device_type == MP_DEVICE_CUDA;
    return row->kind != MP_ALLOCATION_OOM && row->bytes != 0 &&
           row->time_ns >= writer->recording->window_start_ns &&
           (known || writer->options->dialect != MP_TRACE_TENSORBOARD);
}

static void
write_memory_event(mp_trace_writer *writer, const mp_allocation *row)
{
    mp_json *json = &writer->json;
    mp_json_literal(json, "{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", "
                          "\"name\": \"[memory]\"");
    mp_trace_write_place(writer, row->thread, row->time_ns);
    mp_json_literal(json, ", \"args\": {\"Total Reserved\": ");
    mp_json_i64(json, row->reserved_bytes > 0 ? row->reserved_bytes : 0);
    mp_json_literal(json, ", \"Total Allocated\": ");
    mp_json_i64(json, row->allocated_bytes > 0 ? row->allocated_bytes : 0);
    mp_json_literal(json, ", \"Bytes\": ");
    mp_json_i64(json, row->bytes);
    mp_json_literal(json, ", \"Device Id\": ");
    mp_json_i64(json, row->device_type == MP_DEVICE_CPU ? -1 : row->device_index);
    mp_json_literal(json, ", \"Device Type\": ");
    mp_json_i64(json, row->device_type);
    mp_json_literal(json, ", \"Addr\": ");
    mp_json_u64(json, row->address);
    mp_json_literal(json, ", \"Ev Idx\": ");
    mp_json_u64(json, writer->event_index++);
    mp_json_literal(json, "}},\n");
    writer->counts.memory_events++;
}

static void
write_oom(mp_trace_writer *writer, const mp_allocation *row)
{
    mp_json *json = &writer->json;
    mp_json_literal(json, "{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", "
                          "\"name\": \"[OutOfMemory]\"");
    mp_trace_write_place(writer, row->thread, row->time_ns);
    mp_json_literal(json, ", \"args\": {\"Bytes\": ");
    mp_json_i64(json, row->bytes);
    mp_json_literal(json, ", \"Device Id\": ");
    mp_json_i64(json, row->device_type == MP_DEVICE_CPU ? -1 : row->device_index);
    mp_json_literal(json, ", \"Device Type\": ");
    mp_json_i64(json, row->device_type);
    mp_json_literal(json, "}},\n");
}

void
mp_trace_write_memory(mp_trace_writer *writer)
{
    const mp_allocation *rows = MP_ROWS(writer->recording, ALLOCATIONS, mp_allocation);
    size_t count = MP_COUNT(writer->recording, ALLOCATIONS);
    for (size_t i = 0; i < count && writer->json.status == MP_OK; i++) {
        if (is_shown(writer, &rows[i])) {
            write_memory_event(writer, &rows[i]);
        } else if (rows[i].kind == MP_ALLOCATION_OOM &&
                   rows[i].time_ns >= writer->recording->window_start_ns) {
            write_oom(writer, &rows[i]);
        }
    }
}

/* ---- counter tracks ---- */

static void
write_counter(mp_trace_writer *writer, const mp_allocation *row)
{
    mp_json *json = &writer->json;
    mp_json_literal(json, "{\"ph\": \"C\", \"cat\": \"memory_counter\", \"name\": \"Memory ");
    if (row->device_type == MP_DEVICE_CPU) {
        mp_json_literal(json, "cpu");
    } else {
        mp_json_literal(json, "cuda:");
        mp_json_i64(json, row->device_index);
    }
    mp_json_literal(json, "\"");
    mp_trace_write_place(writer, 0, row->time_ns);
    mp_json_literal(json, ", \"args\": {\"allocated\": ");
    mp_json_i64(json, row->allocated_bytes > 0 ? row->allocated_bytes : 0);
    if (row->device_type != MP_DEVICE_CPU) {
        mp_json_literal(json, ", \"reserved\": ");
        mp_json_i64(json, row->reserved_bytes > 0 ? row->reserved_bytes : 0);
    }
    mp_json_literal(json, "}},\n");
    writer->counts.counters++;
}

static bool
of_device(const mp_trace_writer *writer, const mp_allocation *row, const mp_device *device)
{
    return row->device_type == device->device_type && row->device_index == device->device_index &&
           row->kind != MP_ALLOCATION_OOM && row->time_ns >= writer->recording->window_start_ns;
}

/* Of each run of `stride` events the lowest and the highest stay, in their order, so that
 * every peak of the curve is exact. */
static void
write_device_counters(mp_trace_writer *writer, const mp_device *device)
{
    const mp_allocation *rows = MP_ROWS(writer->recording, ALLOCATIONS, mp_allocation);
    size_t count = MP_COUNT(writer->recording, ALLOCATIONS);
    size_t events = 0;
    for (size_t i = 0; i < count; i++) {
        events += of_device(writer, &rows[i], device);
    }
    size_t half = writer->options->counter_points / 2;
    size_t stride = half == 0 || events <= writer->options->counter_points
                        ? 1
                        : (events + half - 1) / half;
    const mp_allocation *low = NULL, *high = NULL;
    size_t in_run = 0;
    for (size_t i = 0; i < count && writer->json.status == MP_OK; i++) {
        if (!of_device(writer, &rows[i], device)) {
            continue;
        }
        low = low == NULL || rows[i].allocated_bytes < low->allocated_bytes ? &rows[i] : low;
        high = high == NULL || rows[i].allocated_bytes > high->allocated_bytes ? &rows[i] : high;
        if (++in_run == stride) {
            write_counter(writer, low < high ? low : high);
            if (low != high) {
                write_counter(writer, low < high ? high : low);
            }
            low = high = NULL;
            in_run = 0;
        }
    }
    if (low != NULL) {
        write_counter(writer, low < high ? low : high);
        if (low != high) {
            write_counter(writer, low < high ? high : low);
        }
    }
}

void
mp_trace_write_counters(mp_trace_writer *writer)
{
    const mp_device *devices = MP_ROWS(writer->recording, DEVICES, mp_device);
    for (size_t i = 0; i < MP_COUNT(writer->recording, DEVICES); i++) {
        if (writer->options->counter_points > 0) {
            write_device_counters(writer, &devices[i]);
        }
    }
}
