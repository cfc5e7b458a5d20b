/* Shaped like libc10_cuda: a caching allocator's reports, with its totals. */
#include <stddef.h>
#include <stdint.h>

typedef struct device {
    int8_t type, index;
} device;

void report_usage(void *address, int64_t bytes, size_t allocated, size_t reserved,
                  device where) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
void report_oom(int64_t bytes, size_t allocated, size_t reserved,
                device where) __asm__("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");

void
fake_cuda_report(void *address, int64_t bytes, size_t allocated, size_t reserved, int index)
{
    report_usage(address, bytes, allocated, reserved, (device){1, (int8_t)index});
}

void
fake_cuda_fail(int64_t bytes, size_t allocated, size_t reserved, int index)
{
    report_oom(bytes, allocated, reserved, (device){1, (int8_t)index});
}
