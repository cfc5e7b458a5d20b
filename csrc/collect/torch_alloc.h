/* torch's allocators, seen through the GOT slots that call c10: CPU blocks at alloc_cpu
 * and free_cpu (or, where those calls are direct, at the reporter's New and Delete), file
 * mappings and CUDA blocks at the report function, failures at the out-of-memory reports.
 *
 * Every hook calls on. A birth is recorded after the original returned, a death before it
 * is called, so that an address never shows twice alive. CUDA hooks run under the
 * device's mutex: they take no lock, make no call into CUDA or Python, raise nothing. */
#ifndef MP_COLLECT_TORCH_ALLOC_H
#define MP_COLLECT_TORCH_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum mp_cpu_route {
    MP_CPU_ROUTE_NONE = 0,
    MP_CPU_ROUTE_ALLOC = 1,    /* alloc_cpu, free_cpu: frees of older blocks are seen */
    MP_CPU_ROUTE_REPORTER = 2, /* ProfiledCPUMemoryReporter::New, ::Delete */
} mp_cpu_route;

typedef struct mp_torch_alloc_state {
    bool on;
    mp_cpu_route cpu_route;
    size_t cpu_slots;     /* patched for births and deaths of CPU blocks */
    size_t mapping_slots; /* file mappings and shared memory */
    size_t device_slots;  /* CUDA, HIP, XPU */
    size_t oom_slots;
    size_t left_in_place; /* slots that another tool chained onto at the last stop */
    bool found_foreign;
} mp_torch_alloc_state;

/* Patches the slots; g_torch has been filled. MP_UNAVAILABLE when torch or its functions
 * are missing. Twice without stop is MP_BUSY. Caller holds the session lock. */
mp_status mp_torch_alloc_start(mp_cpu_route route);

/* Puts the slots back. Hooks that run at this moment finish; they stay mapped. */
void mp_torch_alloc_stop(void);

const mp_torch_alloc_state *mp_torch_alloc_inspect(void);

#endif
