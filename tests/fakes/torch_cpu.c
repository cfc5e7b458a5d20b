/* Shaped like libtorch_cpu: calls c10 through its own slots, and takes free_cpu's address
 * (a GLOB_DAT slot, inside RELRO). */
#include <stddef.h>
#include <stdint.h>

typedef struct device {
    int8_t type, index;
} device;

void *alloc_cpu(size_t bytes) __asm__("_ZN3c109alloc_cpuEm");
void free_cpu(void *address) __asm__("_ZN3c108free_cpuEPv");
void report_usage(void *address, int64_t bytes, size_t allocated, size_t reserved,
                  device where) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

void *
fake_torch_allocate(size_t bytes)
{
    return alloc_cpu(bytes);
}

void (*fake_torch_deleter(void))(void *)
{
    return free_cpu;
}

void
fake_torch_map(void *address, int64_t bytes)
{
    report_usage(address, bytes, 0, bytes > 0 ? (size_t)bytes : 0, (device){0, -1});
}
