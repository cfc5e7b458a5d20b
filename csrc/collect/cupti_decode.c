#include "collect/cupti_decode.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "collect/cupti_layout.h"

/* ---- names ---- */

#define MEMORY_NAME(value, name) [value] = name,
static const char *const s_memory_names[8] = {MP_MEMORY_KINDS(MEMORY_NAME)};

static const char *const s_directions[16] = {"Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                             "AtoD",    "DtoA", "DtoD", "HtoH", "PtoP"};

/* Nothing for calls that are not in the list; see also callback_flags(). */
static const char *
runtime_name(uint32_t id)
{
#define API_NAME(name, value, gives)                                                     \
    case value:                                                                          \
        return #name;
    switch (id) {
        MP_CUPTI_RUNTIME_IDS(API_NAME)
    }
    return NULL;
}

static const char *
driver_name(uint32_t id)
{
    switch (id) {
        MP_CUPTI_DRIVER_IDS(API_NAME)
    }
    return NULL;
#undef API_NAME
}

static uint8_t
callback_flags(bool driver, uint32_t id)
{
#define API_GIVES(name, value, gives)                                                    \
    case value:                                                                          \
        return gives ? MP_ACTIVITY_GIVES : 0;
    if (driver) {
        switch (id) {
            MP_CUPTI_DRIVER_IDS(API_GIVES)
        }
    } else {
        switch (id) {
            MP_CUPTI_RUNTIME_IDS(API_GIVES)
        }
    }
#undef API_GIVES
    return 0;
}

static uint32_t
api_name(mp_cupti_decoder *self, bool driver, uint32_t id)
{
    if (id >= MP_CUPTI_API_ID_LIMIT) {
        return 0;
    }
    uint32_t *known = &self->api_names[driver][id];
    if (*known == 0) {
        *known = mp_cupti_names_add(&self->names, driver ? driver_name(id) : runtime_name(id));
    }
    return *known;
}

static const char *
memory_name(unsigned kind)
{
    return kind < MP_COUNT_OF(s_memory_names) ? s_memory_names[kind] : s_memory_names[0];
}

static uint32_t
copy_name(mp_cupti_decoder *self, unsigned direction, unsigned source, unsigned target)
{
    uint32_t *known = &self->copy_names[direction & 15][source & 7][target & 7];
    if (*known == 0) {
        const char *way = s_directions[direction & 15];
        char text[96];
        snprintf(text, sizeof(text), "Memcpy %s (%s -> %s)", way != NULL ? way : "Unknown",
                 memory_name(source), memory_name(target));
        *known = mp_cupti_names_add(&self->names, text);
    }
    return *known;
}

static uint32_t
set_name(mp_cupti_decoder *self, unsigned target)
{
    uint32_t *known = &self->set_names[target & 7];
    if (*known == 0) {
        char text[48];
        snprintf(text, sizeof(text), "Memset (%s)", memory_name(target));
        *known = mp_cupti_names_add(&self->names, text);
    }
    return *known;
}

static const char *
sync_name(uint32_t operation)
{
    static const char *const s_names[] = {"Unknown Sync", "Event Sync", "Stream Wait Event",
                                          "Stream Sync", "Context Sync"};
    return s_names[operation < MP_COUNT_OF(s_names) ? operation : 0];
}

static const char *
pool_name(uint32_t operation)
{
    static const char *const s_names[] = {"Pool", "Pool created", "Pool destroyed",
                                          "Pool trimmed"};
    return s_names[operation < MP_COUNT_OF(s_names) ? operation : 0];
}

static const char *
overhead_name(uint32_t operation)
{
    static const char *const s_names[] = {
        "Buffer Flush",        "Instrumentation",       "Resource",
        "Module Loading",      "Lazy Function Loading", "Command Buffer Full",
        "Activity Buffer Request", "UVM Activity Init"};
    uint32_t place = operation >> 16;
    return operation == 1 ? "Driver Compiler"
           : place >= 1 && place <= MP_COUNT_OF(s_names) ? s_names[place - 1]
                                                         : "Overhead";
}

/* ---- records ---- */

static int8_t
device_index(uint32_t device)
{
    return device <= INT8_MAX ? (int8_t)device : -1;
}

static uint16_t
narrow(uint32_t value)
{
    return (uint16_t)(value <= UINT16_MAX ? value : UINT16_MAX);
}

static void
keep(mp_cupti_decoder *self, mp_activity *row)
{
    row->step = -1;
    if (row->start_ns <= 0) {
        self->without_time++;
        return;
    }
    if (row->end_ns < row->start_ns) {
        self->backwards++;
        row->end_ns = row->start_ns;
    }
    mp_activity_log_add(&self->log, row);
}

static void
decode_api(mp_cupti_decoder *self, const uint8_t *bytes, bool driver)
{
    uint32_t id = mp_cupti_API_id(bytes);
    uint32_t name = api_name(self, driver, id);
    if (name == 0) {
        self->unwanted++;
        return;
    }
    uint32_t result = mp_cupti_API_result(bytes);
    keep(self, &(mp_activity){
                   .kind = driver ? MP_ACTIVITY_DRIVER : MP_ACTIVITY_RUNTIME,
                   .start_ns = (int64_t)mp_cupti_API_start(bytes),
                   .end_ns = (int64_t)mp_cupti_API_end(bytes),
                   .thread = mp_cupti_API_thread(bytes),
                   .correlation = mp_cupti_API_correlation(bytes),
                   .value = result,
                   .callback_id = (uint16_t)id,
                   .name_id = name,
                   .stream = UINT32_MAX,
                   .device_index = -1,
                   .flags = (uint8_t)(callback_flags(driver, id) |
                                      (result != 0 ? MP_ACTIVITY_FAILED : 0)),
               });
}

static void
decode_kernel(mp_cupti_decoder *self, const uint8_t *bytes)
{
    keep(self, &(mp_activity){
                   .kind = MP_ACTIVITY_KERNEL,
                   .start_ns = (int64_t)mp_cupti_KERNEL_start(bytes),
                   .end_ns = (int64_t)mp_cupti_KERNEL_end(bytes),
                   .correlation = mp_cupti_KERNEL_correlation(bytes),
                   .context = mp_cupti_KERNEL_context(bytes),
                   .stream = mp_cupti_KERNEL_stream(bytes),
                   .device_index = device_index(mp_cupti_KERNEL_device(bytes)),
                   .name_id =
                       mp_cupti_names_at_pointer(&self->names, mp_cupti_KERNEL_name(bytes)),
                   .grid_x = mp_cupti_KERNEL_grid_x(bytes),
                   .grid_y = mp_cupti_KERNEL_grid_y(bytes),
                   .grid_z = mp_cupti_KERNEL_grid_z(bytes),
                   .block_x = narrow(mp_cupti_KERNEL_block_x(bytes)),
                   .block_y = narrow(mp_cupti_KERNEL_block_y(bytes)),
                   .block_z = narrow(mp_cupti_KERNEL_block_z(bytes)),
                   .registers = mp_cupti_KERNEL_registers(bytes),
                   .static_shared_bytes = mp_cupti_KERNEL_static_shared(bytes),
                   .dynamic_shared_bytes = mp_cupti_KERNEL_dynamic_shared(bytes),
                   .graph_id = mp_cupti_KERNEL_graph(bytes),
                   .graph_node = mp_cupti_KERNEL_graph_node(bytes),
               });
}

static void
decode_copy(mp_cupti_decoder *self, const uint8_t *bytes)
{
    unsigned direction = mp_cupti_MEMCPY_direction(bytes);
    unsigned source = mp_cupti_MEMCPY_source(bytes), target = mp_cupti_MEMCPY_target(bytes);
    keep(self, &(mp_activity){
                   .kind = MP_ACTIVITY_MEMCPY,
                   .start_ns = (int64_t)mp_cupti_MEMCPY_start(bytes),
                   .end_ns = (int64_t)mp_cupti_MEMCPY_end(bytes),
                   .bytes = (int64_t)mp_cupti_MEMCPY_bytes(bytes),
                   .correlation = mp_cupti_MEMCPY_correlation(bytes),
                   .context = mp_cupti_MEMCPY_context(bytes),
                   .stream = mp_cupti_MEMCPY_stream(bytes),
                   .device_index = device_index(mp_cupti_MEMCPY_device(bytes)),
                   .name_id = copy_name(self, direction, source, target),
                   .operation = (uint8_t)direction,
                   .source_memory = (uint8_t)source,
                   .target_memory = (uint8_t)target,
                   .graph_id = mp_cupti_MEMCPY_graph(bytes),
                   .graph_node = mp_cupti_MEMCPY_graph_node(bytes),
                   .flags = (uint8_t)(mp_cupti_MEMCPY_flags(bytes) & MP_ACTIVITY_ASYNC),
               });
}

static void
decode_peer_copy(mp_cupti_decoder *self, const uint8_t *bytes)
{
    unsigned direction = mp_cupti_MEMCPY_PEER_direction(bytes);
    unsigned source = mp_cupti_MEMCPY_PEER_source(bytes);
    unsigned target = mp_cupti_MEMCPY_PEER_target(bytes);
    keep(self, &(mp_activity){
                   .kind = MP_ACTIVITY_MEMCPY,
                   .start_ns = (int64_t)mp_cupti_MEMCPY_PEER_start(bytes),
                   .end_ns = (int64_t)mp_cupti_MEMCPY_PEER_end(bytes),
                   .bytes = (int64_t)mp_cupti_MEMCPY_PEER_bytes(bytes),
                   .correlation = mp_cupti_MEMCPY_PEER_correlation(bytes),
                   .context = mp_cupti_MEMCPY_PEER_context(bytes),
                   .stream = mp_cupti_MEMCPY_PEER_stream(bytes),
                   .device_index = device_index(mp_cupti_MEMCPY_PEER_device(bytes)),
                   .name_id = copy_name(self, direction, source, target),
                   .operation = (uint8_t)direction,
                   .source_memory = (uint8_t)source,
                   .target_memory = (uint8_t)target,
                   .graph_id = mp_cupti_MEMCPY_PEER_graph(bytes),
                   .graph_node = mp_cupti_MEMCPY_PEER_graph_node(bytes),
                   .value = mp_cupti_MEMCPY_PEER_source_device(bytes) << 16 |
                            (mp_cupti_MEMCPY_PEER_target_device(bytes) & 0xffff),
                   .flags = (uint8_t)(MP_ACTIVITY_PEER |
                                      (mp_cupti_MEMCPY_PEER_flags(bytes) & MP_ACTIVITY_ASYNC)),
               });
}

static void
decode_set(mp_cupti_decoder *self, const uint8_t *bytes)
{
    unsigned target = mp_cupti_MEMSET_target(bytes);
    keep(self, &(mp_activity){
                   .kind = MP_ACTIVITY_MEMSET,
                   .start_ns = (int64_t)mp_cupti_MEMSET_start(bytes),
                   .end_ns = (int64_t)mp_cupti_MEMSET_end(bytes),
                   .bytes = (int64_t)mp_cupti_MEMSET_bytes(bytes),
                   .correlation = mp_cupti_MEMSET_correlation(bytes),
                   .context = mp_cupti_MEMSET_context(bytes),
                   .stream = mp_cupti_MEMSET_stream(bytes),
                   .device_index = device_index(mp_cupti_MEMSET_device(bytes)),
                   .name_id = set_name(self, target),
                   .target_memory = (uint8_t)target,
                   .value = mp_cupti_MEMSET_value(bytes),
                   .graph_id = mp_cupti_MEMSET_graph(bytes),
                   .graph_node = mp_cupti_MEMSET_graph_node(bytes),
                   .flags = (uint8_t)(mp_cupti_MEMSET_flags(bytes) & MP_ACTIVITY_ASYNC),
               });
}

static void
decode_memory(mp_cupti_decoder *self, const uint8_t *bytes)
{
    unsigned target = mp_cupti_MEMORY_target(bytes);
    int64_t size = (int64_t)(mp_cupti_MEMORY_bytes(bytes) & INT64_MAX);
    int64_t time = (int64_t)mp_cupti_MEMORY_time(bytes);
    bool is_free = mp_cupti_MEMORY_operation(bytes) == 2;
    uint32_t *name = &self->memory_names[target & 7];
    if (*name == 0) {
        *name = mp_cupti_names_add(&self->names, memory_name(target));
    }
    keep(self, &(mp_activity){
                   .kind = is_free ? MP_ACTIVITY_FREE : MP_ACTIVITY_ALLOC,
                   .start_ns = time,
                   .end_ns = time,
                   .bytes = is_free ? -size : size,
                   .address = mp_cupti_MEMORY_address(bytes),
                   .correlation = mp_cupti_MEMORY_correlation(bytes),
                   .context = mp_cupti_MEMORY_context(bytes),
                   .stream = mp_cupti_MEMORY_stream(bytes),
                   .device_index = device_index(mp_cupti_MEMORY_device(bytes)),
                   .name_id = *name,
                   .target_memory = (uint8_t)(target & 7),
                   .flags = mp_cupti_MEMORY_is_async(bytes) != 0 ? MP_ACTIVITY_ASYNC : 0,
               });
}

static void
decode_pool(mp_cupti_decoder *self, const uint8_t *bytes)
{
    int64_t time = (int64_t)mp_cupti_POOL_time(bytes);
    uint32_t operation = mp_cupti_POOL_operation(bytes);
    keep(self, &(mp_activity){
                   .kind = MP_ACTIVITY_POOL,
                   .start_ns = time,
                   .end_ns = time,
                   .bytes = (int64_t)(mp_cupti_POOL_bytes(bytes) & INT64_MAX),
                   .address = mp_cupti_POOL_address(bytes),
                   .correlation = mp_cupti_POOL_correlation(bytes),
                   .stream = UINT32_MAX,
                   .device_index = device_index(mp_cupti_POOL_device(bytes)),
                   .name_id = mp_cupti_names_add(&self->names, pool_name(operation)),
                   .operation = (uint8_t)operation,
               });
}

static void
decode_sync(mp_cupti_decoder *self, const uint8_t *bytes)
{
    uint32_t operation = mp_cupti_SYNC_operation(bytes);
    keep(self, &(mp_activity){
                   .kind = MP_ACTIVITY_SYNC,
                   .start_ns = (int64_t)mp_cupti_SYNC_start(bytes),
                   .end_ns = (int64_t)mp_cupti_SYNC_end(bytes),
                   .correlation = mp_cupti_SYNC_correlation(bytes),
                   .context = mp_cupti_SYNC_context(bytes),
                   .stream = mp_cupti_SYNC_stream(bytes),
                   .device_index = -1,
                   .name_id = mp_cupti_names_add(&self->names, sync_name(operation)),
                   .operation = (uint8_t)operation,
                   .value = mp_cupti_SYNC_event(bytes),
               });
}

static void
decode_overhead(mp_cupti_decoder *self, const uint8_t *bytes)
{
    uint32_t operation = mp_cupti_OVERHEAD_operation(bytes);
    keep(self, &(mp_activity){
                   .kind = MP_ACTIVITY_OVERHEAD,
                   .start_ns = (int64_t)mp_cupti_OVERHEAD_start(bytes),
                   .end_ns = (int64_t)mp_cupti_OVERHEAD_end(bytes),
                   .stream = UINT32_MAX,
                   .device_index = -1,
                   .name_id = mp_cupti_names_add(&self->names, overhead_name(operation)),
                   .value = operation,
               });
}

/* ---- buffers ---- */

static uint32_t
kind_of(const uint8_t *record)
{
    uint32_t kind;
    memcpy(&kind, record, sizeof(kind));
    return kind;
}

/* Bytes that the decoder reads of a record, or of its kind alone. */
static size_t
bytes_read(uint32_t kind)
{
    switch (kind) {
    case MP_CUPTI_KIND_RUNTIME:
    case MP_CUPTI_KIND_DRIVER:
        return MP_CUPTI_API_BYTES;
    case MP_CUPTI_KIND_CONCURRENT_KERNEL:
        return MP_CUPTI_KERNEL_BYTES;
    case MP_CUPTI_KIND_MEMCPY:
        return MP_CUPTI_MEMCPY_BYTES;
    case MP_CUPTI_KIND_MEMCPY2:
        return MP_CUPTI_MEMCPY_PEER_BYTES;
    case MP_CUPTI_KIND_MEMSET:
        return MP_CUPTI_MEMSET_BYTES;
    case MP_CUPTI_KIND_MEMORY2:
        return MP_CUPTI_MEMORY_BYTES;
    case MP_CUPTI_KIND_MEMORY_POOL:
        return MP_CUPTI_POOL_BYTES;
    case MP_CUPTI_KIND_SYNCHRONIZATION:
        return MP_CUPTI_SYNC_BYTES;
    case MP_CUPTI_KIND_OVERHEAD:
        return MP_CUPTI_OVERHEAD_BYTES;
    default:
        return sizeof(kind);
    }
}

static void
decode_record(mp_cupti_decoder *self, const uint8_t *record, uint32_t kind)
{
    self->records[kind < MP_CUPTI_KIND_LIMIT ? kind : 0]++;
    switch (kind) {
    case MP_CUPTI_KIND_RUNTIME:
    case MP_CUPTI_KIND_DRIVER:
        decode_api(self, record, kind == MP_CUPTI_KIND_DRIVER);
        break;
    case MP_CUPTI_KIND_CONCURRENT_KERNEL:
        decode_kernel(self, record);
        break;
    case MP_CUPTI_KIND_MEMCPY:
        decode_copy(self, record);
        break;
    case MP_CUPTI_KIND_MEMCPY2:
        decode_peer_copy(self, record);
        break;
    case MP_CUPTI_KIND_MEMSET:
        decode_set(self, record);
        break;
    case MP_CUPTI_KIND_MEMORY2:
        decode_memory(self, record);
        break;
    case MP_CUPTI_KIND_MEMORY_POOL:
        decode_pool(self, record);
        break;
    case MP_CUPTI_KIND_SYNCHRONIZATION:
        decode_sync(self, record);
        break;
    case MP_CUPTI_KIND_OVERHEAD:
        decode_overhead(self, record);
        break;
    default:
        self->unknown++;
        break;
    }
}

void
mp_cupti_decode(mp_cupti_decoder *self, uint8_t *buffer, size_t valid_size)
{
    void *record = NULL;
    size_t begins = 0; /* the next record may not lie before */
    for (;;) {
        int result = self->next(buffer, valid_size, &record);
        if (result != MP_CUPTI_SUCCESS) {
            /* An incomplete last record reads as a kind that is not valid. */
            self->broken += result != MP_CUPTI_MAX_LIMIT_REACHED;
            return;
        }
        size_t at = (size_t)((uintptr_t)record - (uintptr_t)buffer);
        if (at < begins || at >= valid_size || valid_size - at < sizeof(uint32_t) ||
            valid_size - at < bytes_read(kind_of(record))) {
            self->broken++;
            return;
        }
        decode_record(self, record, kind_of(record));
        begins = at + sizeof(uint32_t);
    }
}

mp_status
mp_cupti_decoder_init(mp_cupti_decoder *self, mp_cupti_next_record next, uint32_t version,
                      size_t max_bytes, bool ring, const char *(*read)(void *, uint64_t),
                      void *context)
{
    *self = (mp_cupti_decoder){.next = next, .version = version};
    mp_activity_log_init(&self->log, max_bytes, ring);
    return mp_cupti_names_init(&self->names, read, context);
}

void
mp_cupti_decoder_fini(mp_cupti_decoder *self)
{
    mp_activity_log_fini(&self->log);
    mp_cupti_names_fini(&self->names);
}

/* ---- replay ---- */

/* Kind, and the size of its record from each version on, newest first. */
typedef struct record_size {
    uint32_t kind, version, bytes;
} record_size;

static const record_size s_sizes[] = {
    {MP_CUPTI_KIND_RUNTIME, 0, 40},
    {MP_CUPTI_KIND_DRIVER, 0, 40},
    {MP_CUPTI_KIND_CONCURRENT_KERNEL, 130000, 216},
    {MP_CUPTI_KIND_CONCURRENT_KERNEL, 19, 208},
    {MP_CUPTI_KIND_CONCURRENT_KERNEL, 18, 200},
    {MP_CUPTI_KIND_CONCURRENT_KERNEL, 0, 176},
    {MP_CUPTI_KIND_MEMCPY, 26, 96},
    {MP_CUPTI_KIND_MEMCPY, 0, 88},
    {MP_CUPTI_KIND_MEMCPY2, 0, 96},
    {MP_CUPTI_KIND_MEMSET, 0, 88},
    {MP_CUPTI_KIND_MEMORY2, 24, 128},
    {MP_CUPTI_KIND_MEMORY2, 0, 120},
    {MP_CUPTI_KIND_MEMORY_POOL, 130000, 80},
    {MP_CUPTI_KIND_MEMORY_POOL, 0, 72},
    {MP_CUPTI_KIND_SYNCHRONIZATION, 26, 56},
    {MP_CUPTI_KIND_SYNCHRONIZATION, 0, 40},
    {MP_CUPTI_KIND_OVERHEAD, 22, 56},
    {MP_CUPTI_KIND_OVERHEAD, 20, 48},
    {MP_CUPTI_KIND_OVERHEAD, 0, 40},
};

static size_t
size_of_record(uint32_t kind, uint32_t version)
{
    for (size_t i = 0; i < MP_COUNT_OF(s_sizes); i++) {
        if (s_sizes[i].kind == kind && version >= s_sizes[i].version) {
            return s_sizes[i].bytes;
        }
    }
    return 0;
}

int
mp_cupti_next_by_size(uint8_t *buffer, size_t valid_size, void **record, uint32_t version)
{
    size_t at = 0;
    if (*record != NULL) {
        at = (size_t)((uint8_t *)*record - buffer);
        size_t bytes = size_of_record(kind_of(*record), version);
        if (bytes == 0) {
            return MP_CUPTI_INVALID_KIND;
        }
        at += bytes;
    }
    if (at + sizeof(uint32_t) > valid_size) {
        return MP_CUPTI_MAX_LIMIT_REACHED;
    }
    if (size_of_record(kind_of(buffer + at), version) == 0) {
        return MP_CUPTI_INVALID_KIND;
    }
    *record = buffer + at;
    return MP_CUPTI_SUCCESS;
}
