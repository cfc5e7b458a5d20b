#include "collect/torch_alloc.h"

#include <stdint.h>

#include "base/clock.h"
#include "collect/elf_patch.h"
#include "collect/torch_symbols.h"
#include "record/thread_log.h"

static mp_patch s_patch;
static mp_torch_alloc_state s_state;

/* Where hooks forward to. Written before any slot is patched and never cleared, since a
 * hook may run after stop. */
static void *(*s_alloc_cpu)(size_t);
static void (*s_free_cpu)(void *);
static void (*s_reporter_new)(void *, void *, size_t);
static void (*s_reporter_delete)(void *, void *);
static void (*s_reporter_oom)(void *, size_t);
static void (*s_report_usage)(void *, int64_t, size_t, size_t, mp_torch_device);
static void (*s_report_oom)(int64_t, size_t, size_t, mp_torch_device);

/* The stack of the innermost open operator serves as long as its C call still runs in the
 * same Python frame: that frame cannot have moved. */
MP_INLINE uint32_t
stack_now(mp_thread_log *log)
{
    if (!g_recorder.want_stacks) {
        return 0;
    }
    const mp_open_op *open = &log->open_ops[log->op_depth];
    if (open->frame != NULL && open->frame == g_recorder.innermost_frame()) {
        return open->stack;
    }
    return g_recorder.capture_stack(log);
}

typedef struct memory_report {
    void *address;
    int64_t bytes;
    int64_t allocated_bytes;
    int64_t reserved_bytes;
    mp_torch_device device;
    uint8_t kind;
    uint8_t flags;
} memory_report;

MP_INLINE void
record(const memory_report *report)
{
    mp_thread_log *log = mp_log_enter();
    if (MP_UNLIKELY(log == NULL)) {
        return;
    }
    bool is_free = report->kind == MP_EVENT_FREE;
    uint32_t stack = is_free ? 0 : stack_now(log);
    mp_event *event = mp_log_append(log);
    if (MP_LIKELY(event != NULL)) {
        event->memory.address = (uint64_t)(uintptr_t)report->address;
        event->memory.bytes = report->bytes;
        event->memory.allocated_bytes = report->allocated_bytes;
        event->memory.reserved_bytes = report->reserved_bytes;
        event->memory.sequence =
            !is_free && g_recorder.next_sequence != NULL ? g_recorder.next_sequence()
                                                         : MP_NO_SEQUENCE;
        event->stack = stack;
        event->op_at = log->open_ops[log->op_depth].ordinal;
        event->kind = report->kind;
        event->device_type = report->device.type;
        event->device_index = report->device.index;
        event->flags = report->flags;
        event->ticks = mp_clock_ticks();
    }
    mp_log_leave(log);
}

static const mp_torch_device s_cpu = {MP_DEVICE_CPU, -1};

MP_INLINE void
record_cpu(uint8_t kind, void *address, int64_t bytes)
{
    record(&(memory_report){address, bytes, -1, -1, s_cpu, kind, 0});
}

static void *
hook_alloc_cpu(size_t bytes)
{
    /* Throws on failure; the exception passes through this frame. */
    void *address = s_alloc_cpu(bytes);
    if (address != NULL) {
        record_cpu(MP_EVENT_ALLOC, address, (int64_t)bytes);
    }
    return address;
}

static void
hook_free_cpu(void *address)
{
    if (address != NULL) {
        record_cpu(MP_EVENT_FREE, address, 0);
    }
    s_free_cpu(address);
}

static void
hook_reporter_new(void *self, void *address, size_t bytes)
{
    if (address != NULL && bytes > 0) {
        record_cpu(MP_EVENT_ALLOC, address, (int64_t)bytes);
    }
    s_reporter_new(self, address, bytes);
}

static void
hook_reporter_delete(void *self, void *address)
{
    if (address != NULL) {
        record_cpu(MP_EVENT_FREE, address, 0);
    }
    s_reporter_delete(self, address);
}

static void
hook_reporter_oom(void *self, size_t bytes)
{
    record_cpu(MP_EVENT_OOM, NULL, (int64_t)bytes);
    s_reporter_oom(self, bytes);
}

/* From libtorch_cpu: at::MapAllocator, whose totals say nothing of the device. */
static void
hook_report_mapping(void *address, int64_t bytes, size_t allocated, size_t reserved,
                    mp_torch_device device)
{
    if (bytes != 0) {
        record(&(memory_report){address, bytes, -1, -1, device,
                                bytes > 0 ? MP_EVENT_ALLOC : MP_EVENT_FREE, MP_FLAG_MAPPED});
    }
    s_report_usage(address, bytes, allocated, reserved, device);
}

/* From a device's caching allocator, under its mutex. */
static void
hook_report_device(void *address, int64_t bytes, size_t allocated, size_t reserved,
                   mp_torch_device device)
{
    if (bytes != 0) {
        record(&(memory_report){address, bytes, (int64_t)allocated, (int64_t)reserved, device,
                                bytes > 0 ? MP_EVENT_ALLOC : MP_EVENT_FREE, 0});
    }
    s_report_usage(address, bytes, allocated, reserved, device);
}

static void
hook_report_oom(int64_t bytes, size_t allocated, size_t reserved, mp_torch_device device)
{
    record(&(memory_report){NULL, bytes, (int64_t)allocated, (int64_t)reserved, device,
                            MP_EVENT_OOM, 0});
    s_report_oom(bytes, allocated, reserved, device);
}

/* ---- start and stop ---- */

#define SYMBOL(member) mp_torch_symbol_of(#member)
#define FUNCTION(pointer) ((void *)(pointer))

/* Another tool's function in a slot goes on being called: it becomes the place that the
 * hook forwards to. Two different tools in two slots of one symbol cannot both be kept;
 * the first is. */
static void *
forward_to(const char *symbol, void *original)
{
    for (size_t i = 0; i < s_patch.count; i++) {
        const mp_patch_slot *slot = &s_patch.slots[i];
        if (slot->foreign && slot->symbol == symbol) {
            return *slot->address;
        }
    }
    return original;
}

static void
set_forwards(void)
{
#define MP_FORWARD(member)                                                               \
    do {                                                                                 \
        void *target = forward_to(SYMBOL(member), FUNCTION(g_torch.member));             \
        __atomic_store_n((void **)&s_##member, target, __ATOMIC_RELEASE);                \
    } while (0)
    MP_FORWARD(alloc_cpu);
    MP_FORWARD(free_cpu);
    MP_FORWARD(reporter_new);
    MP_FORWARD(reporter_delete);
    MP_FORWARD(reporter_oom);
    MP_FORWARD(report_usage);
    MP_FORWARD(report_oom);
#undef MP_FORWARD
}

static size_t
list_wants(mp_patch_want *wants, mp_cpu_route route)
{
    size_t n = 0;
    if (route == MP_CPU_ROUTE_ALLOC) {
        void *alloc = FUNCTION(g_torch.alloc_cpu), *free_ = FUNCTION(g_torch.free_cpu);
        void *on_alloc = FUNCTION(hook_alloc_cpu), *on_free = FUNCTION(hook_free_cpu);
        wants[n++] = (mp_patch_want){SYMBOL(alloc_cpu), "libc10.so", alloc, on_alloc};
        wants[n++] = (mp_patch_want){SYMBOL(free_cpu), "libc10.so", free_, on_free};
        wants[n++] = (mp_patch_want){SYMBOL(alloc_cpu), "libtorch_cpu.so", alloc, on_alloc};
        wants[n++] = (mp_patch_want){SYMBOL(free_cpu), "libtorch_cpu.so", free_, on_free};
    } else if (route == MP_CPU_ROUTE_REPORTER) {
        wants[n++] = (mp_patch_want){SYMBOL(reporter_new), "libc10.so",
                                     FUNCTION(g_torch.reporter_new), FUNCTION(hook_reporter_new)};
        wants[n++] =
            (mp_patch_want){SYMBOL(reporter_delete), "libc10.so",
                            FUNCTION(g_torch.reporter_delete), FUNCTION(hook_reporter_delete)};
    }
    void *usage = FUNCTION(g_torch.report_usage), *oom = FUNCTION(g_torch.report_oom);
    void *on_device = FUNCTION(hook_report_device), *on_oom = FUNCTION(hook_report_oom);
    wants[n++] = (mp_patch_want){SYMBOL(reporter_oom), "libc10.so",
                                 FUNCTION(g_torch.reporter_oom), FUNCTION(hook_reporter_oom)};
    wants[n++] = (mp_patch_want){SYMBOL(report_usage), "libtorch_cpu.so", usage,
                                 FUNCTION(hook_report_mapping)};
    static const char *const s_devices[] = {"libc10_cuda.so", "libc10_hip.so", "libc10_xpu.so"};
    for (size_t d = 0; d < MP_COUNT_OF(s_devices); d++) {
        wants[n++] = (mp_patch_want){SYMBOL(report_usage), s_devices[d], usage, on_device};
        wants[n++] = (mp_patch_want){SYMBOL(report_oom), s_devices[d], oom, on_oom};
    }
    return n;
}

static void
count_slots(void)
{
    for (size_t i = 0; i < s_patch.count; i++) {
        void *hook = s_patch.slots[i].hook;
        s_state.cpu_slots +=
            hook == FUNCTION(hook_alloc_cpu) || hook == FUNCTION(hook_free_cpu) ||
            hook == FUNCTION(hook_reporter_new) || hook == FUNCTION(hook_reporter_delete);
        s_state.mapping_slots += hook == FUNCTION(hook_report_mapping);
        s_state.device_slots += hook == FUNCTION(hook_report_device);
        s_state.oom_slots +=
            hook == FUNCTION(hook_report_oom) || hook == FUNCTION(hook_reporter_oom);
    }
    s_state.found_foreign = mp_patch_found_foreign(&s_patch);
}

mp_status
mp_torch_alloc_start(mp_cpu_route route)
{
    if (s_state.on) {
        return MP_BUSY;
    }
    if (!g_torch.found) {
        return MP_UNAVAILABLE;
    }
    mp_patch_want wants[16];
    size_t count = list_wants(wants, route);
    mp_patch_find(&s_patch, wants, count);
    s_state = (mp_torch_alloc_state){.cpu_route = route};
    set_forwards();
    count_slots();
    MP_TRY(mp_patch_apply(&s_patch));
    s_state.on = true;
    return MP_OK;
}

void
mp_torch_alloc_stop(void)
{
    if (s_state.on) {
        s_state.left_in_place = mp_patch_undo(&s_patch);
        s_state.on = false;
    }
}

const mp_torch_alloc_state *
mp_torch_alloc_inspect(void)
{
    return &s_state;
}
