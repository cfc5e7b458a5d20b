#include <stdlib.h>

#include "output/trace_writer.h"
#include "record/event.h"

static bool
in_window(const mp_trace_writer *writer, const mp_allocation *row)
{
    return row->time_ns >= writer->recording->window_start_ns &&
           row->time_ns <= writer->recording->stop_ns;
}

/* What readers know of devices: CPU is type 0 with index -1, CUDA type 1. A free without a
 * size would count as an event of 0 bytes. */
static bool
is_shown(const mp_trace_writer *writer, const mp_allocation *row)
{
    bool known = row->device_type == MP_DEVICE_CPU || row->device_type == MP_DEVICE_CUDA;
    return row->bytes != 0 && (known || writer->options->dialect != MP_TRACE_TENSORBOARD);
}

static int64_t
not_negative(int64_t bytes)
{
    return bytes > 0 ? bytes : 0;
}

static void
write_device(mp_json *json, const mp_allocation *row)
{
    mp_json_literal(json, ", \"Device Id\": ");
    mp_json_i64(json, row->device_type == MP_DEVICE_CPU ? -1 : row->device_index);
    mp_json_literal(json, ", \"Device Type\": ");
    mp_json_i64(json, row->device_type);
}

static void
write_event_index(mp_trace_writer *writer)
{
    mp_json_literal(&writer->json, ", \"Ev Idx\": ");
    mp_json_u64(&writer->json, writer->event_index++);
    mp_json_literal(&writer->json, "}},\n");
    writer->counts.memory_events++;
}

static void
write_memory_event(mp_trace_writer *writer, const mp_allocation *row)
{
    mp_json *json = &writer->json;
    mp_json_literal(json, "{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", "
                          "\"name\": \"[memory]\"");
    mp_trace_write_place(writer, row->thread, row->time_ns);
    mp_json_literal(json, ", \"args\": {\"Total Reserved\": ");
    mp_json_i64(json, not_negative(row->reserved_bytes));
    mp_json_literal(json, ", \"Total Allocated\": ");
    mp_json_i64(json, not_negative(row->allocated_bytes));
    mp_json_literal(json, ", \"Bytes\": ");
    mp_json_i64(json, row->bytes);
    write_device(json, row);
    mp_json_literal(json, ", \"Addr\": ");
    mp_json_u64(json, row->address);
    write_event_index(writer);
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
    write_device(json, row);
    write_event_index(writer);
}

void
mp_trace_write_memory(mp_trace_writer *writer)
{
    const mp_allocation *rows = MP_ROWS(writer->recording, ALLOCATIONS, mp_allocation);
    size_t count = MP_COUNT(writer->recording, ALLOCATIONS);
    for (size_t i = 0; i < count && writer->json.status == MP_OK; i++) {
        if (!in_window(writer, &rows[i])) {
            continue;
        }
        if (rows[i].kind == MP_ALLOCATION_OOM) {
            write_oom(writer, &rows[i]);
        } else if (is_shown(writer, &rows[i])) {
            write_memory_event(writer, &rows[i]);
        }
    }
}

/* ---- counter tracks ---- */

/* Two points at the window's borders, and up to three of each run of events. */
enum { POINTS_OF_A_RUN = 3, POINTS_AT_BORDERS = 2 };

/* c10::DeviceType as torch.device prints it, "" where the number stands for itself. */
static const char *const s_device_names[] = {
    "cpu", "cuda", "",    "",     "",    "", "hip", "", "",     "xla",           "",
    "",    "xpu",  "mps", "meta", "hpu", "", "",    "", "mtia", "privateuseone",
};

typedef struct run {
    const mp_allocation *low, *high, *reserved; /* extremes so far, NULL at its start */
} run;

static void
write_device_name(mp_json *json, const mp_device *device)
{
    size_t type = (size_t)device->device_type;
    if (type < MP_COUNT_OF(s_device_names) && s_device_names[type][0] != '\0') {
        mp_json_bytes(json, s_device_names[type], strlen(s_device_names[type]));
    } else {
        mp_json_literal(json, "device");
        mp_json_i64(json, device->device_type);
    }
    if (device->device_type != MP_DEVICE_CPU) {
        mp_json_literal(json, ":");
        mp_json_i64(json, device->device_index);
    }
}

/* A reserved value of -1 is unknown and left out. */
static void
write_counter(mp_trace_writer *writer, const mp_device *device, int64_t time_ns,
              int64_t allocated, int64_t reserved)
{
    mp_json *json = &writer->json;
    mp_json_literal(json,
                    "{\"ph\": \"C\", \"cat\": \"memory_counter\", \"name\": \"Memory ");
    write_device_name(json, device);
    mp_json_literal(json, "\"");
    mp_trace_write_place(writer, 0, time_ns);
    mp_json_literal(json, ", \"args\": {\"allocated\": ");
    mp_json_i64(json, not_negative(allocated));
    if (reserved >= 0 && device->device_type != MP_DEVICE_CPU) {
        mp_json_literal(json, ", \"reserved\": ");
        mp_json_i64(json, reserved);
    }
    mp_json_literal(json, "}},\n");
    writer->counts.counters++;
}

static bool
of_device(const mp_trace_writer *writer, const mp_allocation *row, const mp_device *device)
{
    return row->device_type == device->device_type &&
           row->device_index == device->device_index && row->kind != MP_ALLOCATION_OOM &&
           in_window(writer, row);
}

static void
extend_run(run *self, const mp_allocation *row)
{
    if (self->low == NULL || row->allocated_bytes < self->low->allocated_bytes) {
        self->low = row;
    }
    if (self->high == NULL || row->allocated_bytes > self->high->allocated_bytes) {
        self->high = row;
    }
    if (self->reserved == NULL || row->reserved_bytes > self->reserved->reserved_bytes) {
        self->reserved = row;
    }
}

/* Its lowest and highest points, in the order of time, each once. */
static void
write_run(mp_trace_writer *writer, const mp_device *device, run *self)
{
    const mp_allocation *last = NULL;
    for (int i = 0; i < POINTS_OF_A_RUN; i++) {
        const mp_allocation *const points[] = {self->low, self->high, self->reserved};
        const mp_allocation *next = NULL;
        for (int k = 0; k < POINTS_OF_A_RUN; k++) {
            if (points[k] > last && (next == NULL || points[k] < next)) {
                next = points[k];
            }
        }
        if (next == NULL) {
            break;
        }
        write_counter(writer, device, next->time_ns, next->allocated_bytes,
                      next->reserved_bytes);
        last = next;
    }
    *self = (run){0};
}

/* How many events make a run, so that no more than the wanted points come out. */
static size_t
events_of_a_run(const mp_trace_writer *writer, const mp_device *device)
{
    const mp_allocation *rows = MP_ROWS(writer->recording, ALLOCATIONS, mp_allocation);
    size_t count = MP_COUNT(writer->recording, ALLOCATIONS);
    size_t events = 0;
    for (size_t i = 0; i < count; i++) {
        events += of_device(writer, &rows[i], device);
    }
    size_t most = writer->options->counter_points;
    most = most > POINTS_AT_BORDERS ? most - POINTS_AT_BORDERS : 1;
    if (events <= most) {
        return 1;
    }
    size_t runs = most / POINTS_OF_A_RUN;
    return runs == 0 ? events : (events + runs - 1) / runs;
}

static void
write_device_counters(mp_trace_writer *writer, const mp_device *device)
{
    const mp_allocation *rows = MP_ROWS(writer->recording, ALLOCATIONS, mp_allocation);
    size_t count = MP_COUNT(writer->recording, ALLOCATIONS);
    size_t length = events_of_a_run(writer, device);
    size_t in_run = 0;
    int64_t reserved = -1;
    run current = {0};
    write_counter(writer, device, writer->recording->window_start_ns, device->start_bytes,
                  -1);
    for (size_t i = 0; i < count && writer->json.status == MP_OK; i++) {
        if (!of_device(writer, &rows[i], device)) {
            continue;
        }
        extend_run(&current, &rows[i]);
        reserved = rows[i].reserved_bytes;
        if (++in_run == length) {
            write_run(writer, device, &current);
            in_run = 0;
        }
    }
    write_run(writer, device, &current);
    write_counter(writer, device, writer->recording->stop_ns, device->end_bytes, reserved);
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
