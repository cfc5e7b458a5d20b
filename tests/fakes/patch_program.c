/* Patches the fakes of this folder as it would torch, and checks what the hooks record and
 * what they leave behind. usage: patch_program DIR [rounds], DIR holding the libraries.
 * With rounds it only allocates and frees so often while recording, for counting
 * instructions. Built and run by tests/test_patching.py. */
#include <dlfcn.h>
#include <link.h>

#include "../c/check.h"
#include "base/clock.h"
#include "collect/elf_patch.h"
#include "collect/torch_alloc.h"
#include "collect/torch_symbols.h"
#include "record/thread_log.h"

static void *(*c10_allocate)(size_t);
static void (*c10_free)(void *);
static void (*c10_fail)(size_t);
static void *(*torch_allocate)(size_t);
static void (*(*torch_deleter)(void))(void *);
static void (*torch_map)(void *, int64_t);
static void (*cuda_report)(void *, int64_t, size_t, size_t, int);
static void (*cuda_fail)(int64_t, size_t, size_t, int);
static int64_t *allocs, *frees, *reports;

static void *
open_library(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

static void
load(void *library, const char *name, void *pointer)
{
    void *address = dlsym(library, name);
    CHECK(address != NULL);
    memcpy(pointer, &address, sizeof(address));
}

static void
load_fakes(const char *folder)
{
    void *c10 = open_library(folder, "libc10.so");
    void *cuda = open_library(folder, "libc10_cuda.so");
    void *torch = open_library(folder, "libtorch_cpu.so");
    load(c10, "fake_c10_allocate", &c10_allocate);
    load(c10, "fake_c10_free", &c10_free);
    load(c10, "fake_c10_fail", &c10_fail);
    load(c10, "fake_allocs", &allocs);
    load(c10, "fake_frees", &frees);
    load(c10, "fake_reports", &reports);
    load(torch, "fake_torch_allocate", &torch_allocate);
    load(torch, "fake_torch_deleter", &torch_deleter);
    load(torch, "fake_torch_map", &torch_map);
    load(cuda, "fake_cuda_report", &cuda_report);
    load(cuda, "fake_cuda_fail", &cuda_fail);
}

static void
start(void)
{
    mp_recorder_options options = {.max_bytes = (size_t)64 << 20};
    CHECK_EQUAL(mp_recorder_open(&options), MP_OK);
    mp_recorder_start();
    CHECK(mp_torch_find());
    CHECK_EQUAL(mp_torch_alloc_start(MP_CPU_ROUTE_ALLOC), MP_OK);
}

static void
stop(void)
{
    mp_torch_alloc_stop();
    mp_recorder_stop();
}

/* The events of this thread, after stop. */
static const mp_event *
events(size_t *count)
{
    mp_thread_log *log = mp_recorder_next_log(NULL);
    *count = 0;
    if (log == NULL) {
        return NULL;
    }
    mp_event *end;
    const mp_event *first = mp_chunk_events(log, log->first, &end);
    *count = (size_t)(end - first);
    return first;
}

static void
check_event(const mp_event *event, int kind, const void *address, int64_t bytes, int device)
{
    CHECK_EQUAL(event->kind, kind);
    CHECK(event->memory.address == (uint64_t)(uintptr_t)address);
    CHECK_EQUAL(event->memory.bytes, bytes);
    CHECK_EQUAL(event->device_type, device);
}

static void
every_route_is_recorded(void)
{
    void *before = c10_allocate(10); /* binds lazily bound slots, and is an older block */
    start();
    int64_t allocs_before = *allocs, frees_before = *frees, reports_before = *reports;
    void *a = c10_allocate(100);
    void *b = torch_allocate(200);
    CHECK(c10_allocate(0) == NULL);
    torch_deleter()(b);
    c10_free(a);
    c10_free(before);
    c10_free(NULL);
    torch_map((void *)0x1000, 4096);
    torch_map((void *)0x1000, -4096);
    cuda_report((void *)0x2000, 512, 512, 2 << 20, 3);
    cuda_report((void *)0x2000, -512, 0, 2 << 20, 3);
    cuda_fail(1 << 30, 0, 2 << 20, 3);
    c10_fail(77);
    stop();
    CHECK_EQUAL(*allocs - allocs_before, 3);
    CHECK_EQUAL(*frees - frees_before, 4);
    CHECK_EQUAL(*reports - reports_before, 6);
    size_t count;
    const mp_event *event = events(&count);
    CHECK_EQUAL(count, 11);
    check_event(&event[0], MP_EVENT_ALLOC, a, 100, MP_DEVICE_CPU);
    check_event(&event[1], MP_EVENT_ALLOC, b, 200, MP_DEVICE_CPU);
    check_event(&event[2], MP_EVENT_FREE, b, 0, MP_DEVICE_CPU);
    check_event(&event[3], MP_EVENT_FREE, a, 0, MP_DEVICE_CPU);
    check_event(&event[4], MP_EVENT_FREE, before, 0, MP_DEVICE_CPU);
    check_event(&event[5], MP_EVENT_ALLOC, (void *)0x1000, 4096, MP_DEVICE_CPU);
    CHECK_EQUAL(event[5].flags, MP_FLAG_MAPPED);
    check_event(&event[6], MP_EVENT_FREE, (void *)0x1000, -4096, MP_DEVICE_CPU);
    check_event(&event[7], MP_EVENT_ALLOC, (void *)0x2000, 512, MP_DEVICE_CUDA);
    CHECK_EQUAL(event[7].device_index, 3);
    CHECK_EQUAL(event[7].memory.reserved_bytes, 2 << 20);
    check_event(&event[8], MP_EVENT_FREE, (void *)0x2000, -512, MP_DEVICE_CUDA);
    check_event(&event[9], MP_EVENT_OOM, NULL, 1 << 30, MP_DEVICE_CUDA);
    check_event(&event[10], MP_EVENT_OOM, NULL, 77, MP_DEVICE_CPU);
    CHECK_EQUAL(mp_torch_alloc_inspect()->left_in_place, 0);
    mp_recorder_close();
}

static void
after_stop_nothing_is_recorded(void)
{
    for (int round = 0; round < 3; round++) {
        start();
        stop();
        c10_free(c10_allocate(5));
        torch_deleter()(torch_allocate(5));
        size_t count;
        events(&count);
        CHECK_EQUAL(count, 0);
        mp_recorder_close();
    }
}

static void *(*real_alloc)(size_t);
static int other_calls;

static void *
other_tool(size_t bytes)
{
    other_calls++;
    return real_alloc(bytes);
}

/* Another tool sits in a slot before us: both see the call, and it gets its slot back. */
static void
another_tool_is_called_on(void)
{
    CHECK(mp_torch_find());
    memcpy(&real_alloc, &g_torch.alloc_cpu, sizeof(real_alloc));
    mp_patch theirs;
    mp_patch_want want = {mp_torch_symbol_of("alloc_cpu"), "libc10.so",
                          (void *)g_torch.alloc_cpu, (void *)other_tool};
    mp_patch_find(&theirs, &want, 1);
    CHECK_EQUAL(theirs.count, 1);
    CHECK_EQUAL(mp_patch_apply(&theirs), MP_OK);
    other_calls = 0;
    start();
    CHECK(mp_torch_alloc_inspect()->found_foreign);
    c10_free(c10_allocate(64));
    stop();
    CHECK_EQUAL(other_calls, 1);
    size_t count;
    events(&count);
    CHECK_EQUAL(count, 2);
    mp_recorder_close();
    c10_free(c10_allocate(64));
    CHECK_EQUAL(other_calls, 2);
    CHECK_EQUAL(mp_patch_undo(&theirs), 0);
    c10_free(c10_allocate(64));
    CHECK_EQUAL(other_calls, 2);
}

/* Another tool chains onto our hook: its slot is left alone, our hook forwards. */
static void
a_later_tool_keeps_its_slot(void)
{
    start();
    mp_patch theirs;
    mp_patch_want want = {mp_torch_symbol_of("alloc_cpu"), "libc10.so",
                          (void *)g_torch.alloc_cpu, (void *)other_tool};
    mp_patch_find(&theirs, &want, 1);
    void *ours = *theirs.slots[0].address;
    memcpy(&real_alloc, &ours, sizeof(real_alloc));
    CHECK_EQUAL(mp_patch_apply(&theirs), MP_OK);
    stop();
    CHECK_EQUAL(mp_torch_alloc_inspect()->left_in_place, 1);
    other_calls = 0;
    void *block = c10_allocate(8);
    CHECK(block != NULL);
    CHECK_EQUAL(other_calls, 1);
    c10_free(block);
    CHECK_EQUAL(mp_patch_undo(&theirs), 0);
    mp_recorder_close();
}

static void
count_instructions(long rounds)
{
    start();
    for (long i = 0; i < rounds; i++) {
        c10_free(c10_allocate(16));
    }
    stop();
}

int
main(int argc, char **argv)
{
    CHECK(argc >= 2);
    mp_clock_init();
    load_fakes(argv[1]);
    if (argc > 2) {
        count_instructions(atol(argv[2]));
        return 0;
    }
    RUN(every_route_is_recorded);
    RUN(after_stop_nothing_is_recorded);
    RUN(another_tool_is_called_on);
    RUN(a_later_tool_keeps_its_slot);
    RUN(every_route_is_recorded);
    return 0;
}
