#include "output/trace_activities.h"

#include <stdlib.h>

#include "record/event.h"

enum {
    DEVICE_LIMIT = 64,         /* TensorBoard's page has room for so many */
    DEVICE_SORT_INDEX = 5000000, /* behind all host processes */
    SYNC_TRACK = 1000000,      /* track of waits for stream n: n + this */
    WARP = 32,
    BLOCKS_LIMIT = 32,         /* resident on one multiprocessor, at most */
    REGISTER_UNIT = 256,       /* registers are given to a warp in such units */
};

#define NO_STREAM UINT32_MAX

static const mp_activity *
activities_of(const mp_trace_writer *writer)
{
    return MP_ROWS(writer->recording, ACTIVITIES, mp_activity);
}

static bool
is_shown(const mp_trace_writer *writer, const mp_activity *row)
{
    return row->start_ns >= writer->recording->window_start_ns &&
           row->start_ns <= writer->recording->stop_ns;
}

static bool
is_work(const mp_activity *row)
{
    return (row->kind == MP_ACTIVITY_KERNEL || row->kind == MP_ACTIVITY_MEMCPY ||
            row->kind == MP_ACTIVITY_MEMSET) &&
           row->device_index >= 0 && row->device_index < DEVICE_LIMIT;
}

mp_status
mp_trace_find_launches(mp_trace_writer *writer)
{
    size_t count = MP_COUNT(writer->recording, ACTIVITIES);
    const mp_activity *rows = activities_of(writer);
    writer->launches = calloc(count + 1, sizeof(*writer->launches));
    if (writer->launches == NULL) {
        return MP_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        if (is_work(&rows[i]) && is_shown(writer, &rows[i]) && rows[i].launch_id != 0 &&
            is_shown(writer, &rows[rows[i].launch_id - 1])) {
            writer->launches[rows[i].launch_id - 1] = 1;
        }
    }
    return MP_OK;
}

/* ---- parts of events ---- */

/* The operator's id, so that readers find it; 0 where the trace does not show it. */
static void
write_external_id(mp_trace_writer *writer, const mp_activity *row)
{
    const mp_operator *operators = MP_ROWS(writer->recording, OPERATORS, mp_operator);
    uint32_t id = row->operator_id;
    if (id != 0 && operators[id - 1].start_ns < writer->recording->window_start_ns) {
        id = 0;
    }
    if (id != 0 || writer->options->dialect == MP_TRACE_TENSORBOARD) {
        mp_json_literal(&writer->json, "\"External id\": ");
        mp_json_u64(&writer->json, id);
        mp_json_literal(&writer->json, ", ");
    }
}

static void
write_number(mp_trace_writer *writer, const char *key, uint64_t value)
{
    mp_json_literal(&writer->json, ", \"");
    mp_json_bytes(&writer->json, key, strlen(key));
    mp_json_literal(&writer->json, "\": ");
    mp_json_u64(&writer->json, value);
}

static void
write_stream_place(mp_trace_writer *writer, int64_t device, int64_t track, int64_t time_ns)
{
    mp_json *json = &writer->json;
    mp_json_literal(json, ", \"pid\": ");
    mp_json_i64(json, device);
    mp_json_literal(json, ", \"tid\": ");
    mp_json_i64(json, track);
    mp_json_literal(json, ", \"ts\": ");
    mp_json_us(json, time_ns - writer->base_ns);
}

static void
begin_device_event(mp_trace_writer *writer, const char *category, const mp_activity *row,
                   int64_t device, int64_t track)
{
    mp_json *json = &writer->json;
    mp_json_literal(json, "{\"ph\": \"X\", \"cat\": \"");
    mp_json_bytes(json, category, strlen(category));
    mp_json_literal(json, "\", \"name\": \"");
    mp_escaped_string(&writer->escaped, json, row->name_id);
    mp_json_literal(json, "\"");
    write_stream_place(writer, device, track, row->start_ns);
    mp_json_literal(json, ", \"dur\": ");
    mp_json_us(json, row->end_ns - row->start_ns);
    mp_json_literal(json, ", \"args\": {");
}

static void
end_event(mp_trace_writer *writer)
{
    mp_json_literal(&writer->json, "}},\n");
    writer->counts.slices++;
}

/* ---- calls ---- */

static void
write_flow_start(mp_trace_writer *writer, const mp_slice *slice, uint32_t correlation)
{
    mp_json *json = &writer->json;
    mp_json_literal(json, "{\"ph\": \"s\", \"id\": ");
    mp_json_u64(json, correlation);
    mp_trace_write_place(writer, slice->thread, slice->start_ns);
    mp_json_literal(json, ", \"cat\": \"ac2g\", \"name\": \"ac2g\"},\n");
    writer->counts.flows++;
}

void
mp_trace_write_call(mp_trace_writer *writer, const mp_slice *slice)
{
    mp_json *json = &writer->json;
    const mp_activity *row = &activities_of(writer)[slice->row];
    /* TensorBoard's page knows one category, and takes a driver's call for unknown. */
    if (writer->options->dialect == MP_TRACE_TENSORBOARD) {
        mp_json_literal(json, "{\"ph\": \"X\", \"cat\": \"Runtime\", \"name\": \"");
    } else if (row->kind == MP_ACTIVITY_DRIVER) {
        mp_json_literal(json, "{\"ph\": \"X\", \"cat\": \"cuda_driver\", \"name\": \"");
    } else {
        mp_json_literal(json, "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"");
    }
    mp_escaped_string(&writer->escaped, json, row->name_id);
    mp_json_literal(json, "\"");
    mp_trace_write_place(writer, slice->thread, slice->start_ns);
    mp_json_literal(json, ", \"dur\": ");
    mp_json_us(json, slice->end_ns - slice->start_ns);
    mp_json_literal(json, ", \"args\": {");
    write_external_id(writer, row);
    mp_json_literal(json, "\"cbid\": ");
    mp_json_u64(json, row->callback_id);
    write_number(writer, "correlation", row->correlation);
    if ((row->flags & MP_ACTIVITY_FAILED) != 0) {
        write_number(writer, "error", row->value);
    }
    end_event(writer);
    if (writer->launches[slice->row] != 0) {
        write_flow_start(writer, slice, row->correlation);
    }
}

/* ---- devices ---- */

static uint64_t
blocks_resident(const mp_trace_gpu *gpu, const mp_activity *row, uint64_t threads)
{
    uint64_t warps = (threads + WARP - 1) / WARP;
    uint64_t per_warp = ((uint64_t)row->registers * WARP + REGISTER_UNIT - 1) / REGISTER_UNIT *
                        REGISTER_UNIT;
    uint64_t shared = (uint64_t)row->static_shared_bytes + row->dynamic_shared_bytes;
    uint64_t most = BLOCKS_LIMIT;
    uint64_t limits[] = {
        gpu->threads / (warps * WARP),
        per_warp == 0 || gpu->registers == 0 ? most : gpu->registers / (per_warp * warps),
        shared == 0 || gpu->shared_bytes == 0 ? most : gpu->shared_bytes / shared,
    };
    for (size_t i = 0; i < MP_COUNT_OF(limits); i++) {
        most = limits[i] < most ? limits[i] : most;
    }
    return most;
}

/* Estimates, as readers expect them, from the device's limits. */
static void
write_occupancy(mp_trace_writer *writer, const mp_activity *row)
{
    const mp_trace_options *options = writer->options;
    uint64_t blocks = (uint64_t)row->grid_x * row->grid_y * row->grid_z;
    uint64_t threads = (uint64_t)row->block_x * row->block_y * row->block_z;
    if ((size_t)row->device_index >= options->gpu_count || threads == 0) {
        return;
    }
    const mp_trace_gpu *gpu = &options->gpus[row->device_index];
    if (gpu->multiprocessors == 0 || gpu->threads == 0) {
        return;
    }
    mp_json *json = &writer->json;
    uint64_t thousandths = blocks * 1000 / gpu->multiprocessors;
    mp_json_literal(json, ", \"blocks per SM\": ");
    mp_json_us(json, (int64_t)thousandths);
    mp_json_literal(json, ", \"warps per SM\": ");
    mp_json_us(json, (int64_t)(thousandths * ((threads + WARP - 1) / WARP)));
    uint64_t resident = blocks_resident(gpu, row, threads) * 1000;
    resident = thousandths < resident ? thousandths : resident;
    write_number(writer, "est. achieved occupancy %",
                 resident * threads * 100 / 1000 / gpu->threads);
}

static void
write_kernel_args(mp_trace_writer *writer, const mp_activity *row)
{
    mp_json *json = &writer->json;
    write_number(writer, "registers per thread", row->registers);
    write_number(writer, "shared memory",
                 (uint64_t)row->static_shared_bytes + row->dynamic_shared_bytes);
    write_occupancy(writer, row);
    mp_json_literal(json, ", \"grid\": [");
    mp_json_u64(json, row->grid_x);
    mp_json_literal(json, ", ");
    mp_json_u64(json, row->grid_y);
    mp_json_literal(json, ", ");
    mp_json_u64(json, row->grid_z);
    mp_json_literal(json, "], \"block\": [");
    mp_json_u64(json, row->block_x);
    mp_json_literal(json, ", ");
    mp_json_u64(json, row->block_y);
    mp_json_literal(json, ", ");
    mp_json_u64(json, row->block_z);
    mp_json_literal(json, "]");
}

static void
write_copy_args(mp_trace_writer *writer, const mp_activity *row)
{
    mp_json *json = &writer->json;
    int64_t ns = row->end_ns - row->start_ns;
    write_number(writer, "bytes", (uint64_t)row->bytes);
    if ((row->flags & MP_ACTIVITY_PEER) != 0) {
        write_number(writer, "fromDevice", row->value >> 16);
        write_number(writer, "toDevice", row->value & 0xffff);
    }
    if (ns > 0 && row->bytes >= 0 && row->bytes < INT64_MAX / 1000) {
        mp_json_literal(json, ", \"memory bandwidth (GB/s)\": ");
        mp_json_us(json, row->bytes * 1000 / ns);
    }
}

static void
write_flow_end(mp_trace_writer *writer, const mp_activity *row)
{
    mp_json *json = &writer->json;
    mp_json_literal(json, "{\"ph\": \"f\", \"id\": ");
    mp_json_u64(json, row->correlation);
    write_stream_place(writer, row->device_index, row->stream, row->start_ns);
    mp_json_literal(json, ", \"cat\": \"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"},\n");
    writer->counts.flows++;
}

static void
write_work(mp_trace_writer *writer, const mp_activity *row)
{
    mp_json *json = &writer->json;
    bool kernel = row->kind == MP_ACTIVITY_KERNEL;
    begin_device_event(writer,
                       kernel                            ? "kernel"
                       : row->kind == MP_ACTIVITY_MEMCPY ? "gpu_memcpy"
                                                         : "gpu_memset",
                       row, row->device_index, row->stream);
    write_external_id(writer, row);
    if (kernel) {
        mp_json_literal(json, "\"queued\": 0, ");
    }
    mp_json_literal(json, "\"device\": ");
    mp_json_i64(json, row->device_index);
    write_number(writer, "context", row->context);
    write_number(writer, "stream", row->stream);
    write_number(writer, "correlation", row->correlation);
    if (kernel) {
        write_kernel_args(writer, row);
    } else {
        write_copy_args(writer, row);
    }
    if (row->graph_id != 0) {
        write_number(writer, "graph id", row->graph_id);
        write_number(writer, "graph node id", row->graph_node);
    }
    end_event(writer);
    if (row->launch_id != 0 && writer->launches[row->launch_id - 1] != 0) {
        write_flow_end(writer, row);
    }
}

static void
write_sync(mp_trace_writer *writer, const mp_activity *row, int64_t device)
{
    mp_json *json = &writer->json;
    int64_t stream = row->stream == NO_STREAM ? -1 : (int64_t)row->stream;
    begin_device_event(writer, "cuda_sync", row, device, stream + SYNC_TRACK);
    write_external_id(writer, row);
    mp_json_literal(json, "\"cuda_sync_kind\": \"");
    mp_escaped_string(&writer->escaped, json, row->name_id);
    mp_json_literal(json, "\", \"stream\": ");
    mp_json_i64(json, stream);
    write_number(writer, "correlation", row->correlation);
    mp_json_literal(json, ", \"device\": ");
    mp_json_i64(json, device);
    write_number(writer, "context", row->context);
    end_event(writer);
}

static void
write_overhead(mp_trace_writer *writer, const mp_activity *row)
{
    begin_device_event(writer, "overhead", row, -1, 0);
    end_event(writer);
}

/* ---- names of tracks ---- */

typedef struct track_names {
    uint64_t devices;       /* bit per device that was named */
    int64_t last_device;    /* the track that was named last: most rows repeat it */
    int64_t last_track;
    uint64_t *seen;         /* device << 32 | track */
    size_t count, room;
} track_names;

static void
write_meta(mp_trace_writer *writer, const char *kind, int64_t device, int64_t track)
{
    mp_json_literal(&writer->json, "{\"ph\": \"M\", \"name\": \"");
    mp_json_bytes(&writer->json, kind, strlen(kind));
    mp_json_literal(&writer->json, "\"");
    write_stream_place(writer, device, track, writer->recording->window_start_ns);
    mp_json_literal(&writer->json, ", \"args\": {");
}

static void
name_device(mp_trace_writer *writer, int64_t device)
{
    mp_json *json = &writer->json;
    write_meta(writer, "process_name", device, 0);
    mp_json_literal(json, "\"name\": \"");
    mp_json_bytes(json, writer->options->process_name, strlen(writer->options->process_name));
    mp_json_literal(json, "\"}},\n");
    write_meta(writer, "process_labels", device, 0);
    mp_json_literal(json, "\"labels\": \"GPU ");
    mp_json_i64(json, device);
    mp_json_literal(json, "\"}},\n");
    write_meta(writer, "process_sort_index", device, 0);
    mp_json_literal(json, "\"sort_index\": ");
    mp_json_i64(json, device + DEVICE_SORT_INDEX);
    mp_json_literal(json, "}},\n");
}

static void
name_track(mp_trace_writer *writer, int64_t device, int64_t track)
{
    mp_json *json = &writer->json;
    write_meta(writer, "thread_name", device, track);
    mp_json_literal(json, "\"name\": \"stream ");
    mp_json_i64(json, track >= SYNC_TRACK - 1 ? track - SYNC_TRACK : track);
    if (track >= SYNC_TRACK - 1) {
        mp_json_literal(json, " (sync)\"}},\n");
    } else {
        mp_json_literal(json, " \"}},\n");
    }
    write_meta(writer, "thread_sort_index", device, track);
    mp_json_literal(json, "\"sort_index\": ");
    mp_json_i64(json, track);
    mp_json_literal(json, "}},\n");
}

/* Names a track at its first event; without memory it stays without a name. */
static void
name_once(mp_trace_writer *writer, track_names *names, int64_t device, int64_t track)
{
    if (names->count > 0 && device == names->last_device && track == names->last_track) {
        return;
    }
    names->last_device = device;
    names->last_track = track;
    uint64_t key = (uint64_t)device << 32 | (uint32_t)track;
    for (size_t i = 0; i < names->count; i++) {
        if (names->seen[i] == key) {
            return;
        }
    }
    if (names->count == names->room) {
        size_t room = names->room == 0 ? 64 : 2 * names->room;
        uint64_t *grown = realloc(names->seen, room * sizeof(*grown));
        if (grown == NULL) {
            return;
        }
        names->seen = grown;
        names->room = room;
    }
    names->seen[names->count++] = key;
    if ((names->devices >> device & 1) == 0) {
        names->devices |= (uint64_t)1 << device;
        name_device(writer, device);
    }
    name_track(writer, device, track);
}

/* ---- all ---- */

enum { CONTEXT_LIMIT = 64 };

/* Waits are told with their context only; the device is that of the context's work. */
typedef struct context_devices {
    uint32_t contexts[CONTEXT_LIMIT];
    int8_t devices[CONTEXT_LIMIT];
    size_t count;
} context_devices;

static int8_t
device_of(const context_devices *known, uint32_t context)
{
    for (size_t i = 0; i < known->count; i++) {
        if (known->contexts[i] == context) {
            return known->devices[i];
        }
    }
    return -1;
}

static void
learn_contexts(const mp_trace_writer *writer, context_devices *known)
{
    const mp_activity *rows = activities_of(writer);
    for (size_t i = 0; i < MP_COUNT(writer->recording, ACTIVITIES); i++) {
        if (is_work(&rows[i]) && known->count < CONTEXT_LIMIT &&
            device_of(known, rows[i].context) < 0) {
            known->contexts[known->count] = rows[i].context;
            known->devices[known->count++] = rows[i].device_index;
        }
    }
}

void
mp_trace_write_activities(mp_trace_writer *writer)
{
    const mp_activity *rows = activities_of(writer);
    context_devices contexts = {.count = 0};
    track_names names = {.count = 0};
    bool sync_shown = writer->options->dialect != MP_TRACE_TENSORBOARD;
    learn_contexts(writer, &contexts);
    for (size_t i = 0; i < MP_COUNT(writer->recording, ACTIVITIES); i++) {
        const mp_activity *row = &rows[i];
        if (writer->json.status != MP_OK) {
            break;
        }
        if (!is_shown(writer, row)) {
            continue;
        }
        if (is_work(row)) {
            name_once(writer, &names, row->device_index, row->stream);
            write_work(writer, row);
        } else if (row->kind == MP_ACTIVITY_SYNC && sync_shown) {
            int8_t device = device_of(&contexts, row->context);
            if (device >= 0) {
                int64_t stream = row->stream == NO_STREAM ? -1 : (int64_t)row->stream;
                name_once(writer, &names, device, stream + SYNC_TRACK);
                write_sync(writer, row, device);
            }
        } else if (row->kind == MP_ACTIVITY_OVERHEAD && sync_shown) {
            write_overhead(writer, row);
        }
    }
    free(names.seen);
}
