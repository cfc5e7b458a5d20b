#include "base/clock.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

bool g_clock_is_counter;

#if defined(__x86_64__)
/* The kernel drops "tsc" as clock source when cores disagree; the CPU's own invariant
 * flag alone does not notice that. */
static bool
kernel_trusts_tsc(void)
{
    char text[256] = {0};
    FILE *file = fopen(
        "/sys/devices/system/clocksource/clocksource0/available_clocksource", "re");
    if (file == NULL) {
        return true;
    }
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    return length == 0 || strstr(text, "tsc") != NULL || strstr(text, "kvm-clock") != NULL;
}
#endif

void
mp_clock_init(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    bool invariant = __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
    g_clock_is_counter = invariant && kernel_trusts_tsc();
#elif defined(__aarch64__)
    g_clock_is_counter = true;
#endif
}

const char *
mp_clock_source(void)
{
    if (!g_clock_is_counter) {
        return "CLOCK_MONOTONIC";
    }
#if defined(__x86_64__)
    return "time-stamp counter";
#else
    return "virtual counter";
#endif
}

static int64_t
clock_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

mp_clock_pair
mp_clock_pair_now(void)
{
    mp_clock_pair best = {0};
    uint64_t best_width = UINT64_MAX;
    for (int i = 0; i < 32; i++) {
        uint64_t before = mp_clock_ticks();
        int64_t monotonic = clock_ns(CLOCK_MONOTONIC);
        int64_t realtime = clock_ns(CLOCK_REALTIME);
        uint64_t width = mp_clock_ticks() - before;
        if (width < best_width) {
            best_width = width;
            best = (mp_clock_pair){before + width / 2, realtime, monotonic};
        }
    }
    return best;
}

mp_clock_map
mp_clock_map_between(mp_clock_pair first, mp_clock_pair last)
{
    mp_clock_map map = {first.ticks, first.realtime_ns, 1.0};
    if (last.ticks > first.ticks && last.monotonic_ns > first.monotonic_ns) {
        map.ns_per_tick = (double)(last.monotonic_ns - first.monotonic_ns) /
                          (double)(last.ticks - first.ticks);
    }
    return map;
}
