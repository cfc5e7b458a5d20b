/* Shaped like libc10: the functions whose slots memprof patches, and callers of them that
 * go through this library's own GOT. Blocks come from malloc. */
#include <stdint.h>
#include <stdlib.h>

typedef struct device {
    int8_t type, index;
} device;

void *alloc_cpu(size_t bytes) __asm__("_ZN3c109alloc_cpuEm");
void free_cpu(void *address) __asm__("_ZN3c108free_cpuEPv");
void report_usage(void *address, int64_t bytes, size_t allocated, size_t reserved,
                  device where) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
void report_oom(int64_t bytes, size_t allocated, size_t reserved,
                device where) __asm__("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
void reporter_oom(void *self,
                  size_t bytes) __asm__("_ZN3c1025ProfiledCPUMemoryReporter11OutOfMemoryEm");

int64_t fake_reports; /* calls that reached the originals */
int64_t fake_allocs;
int64_t fake_frees;

void *
alloc_cpu(size_t bytes)
{
    fake_allocs++;
    return bytes == 0 ? NULL : malloc(bytes);
}

void
free_cpu(void *address)
{
    fake_frees++;
    free(address);
}

void
report_usage(void *address, int64_t bytes, size_t allocated, size_t reserved, device where)
{
    fake_reports++;
}

void
report_oom(int64_t bytes, size_t allocated, size_t reserved, device where)
{
    fake_reports++;
}

void
reporter_oom(void *self, size_t bytes)
{
    fake_reports++;
}

void *
fake_c10_allocate(size_t bytes)
{
    return alloc_cpu(bytes);
}

void
fake_c10_free(void *address)
{
    free_cpu(address);
}

void
fake_c10_fail(size_t bytes)
{
    reporter_oom(NULL, bytes);
}
