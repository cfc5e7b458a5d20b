/* Event time. Hooks read a raw counter (time-stamp counter, CNTVCT, or CLOCK_MONOTONIC
 * where the counter cannot be trusted); after the session two bracketed readings of
 * CLOCK_REALTIME turn ticks into nanoseconds since the epoch. */
#ifndef MP_BASE_CLOCK_H
#define MP_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/compiler.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* True once mp_clock_init() found a counter that runs at one rate on all cores. */
extern bool g_clock_is_counter;

/* Decides the source; call once before the first read. Blocks under 1 ms. */
void mp_clock_init(void);

/* Name of the source for reports, static. */
const char *mp_clock_source(void);

MP_INLINE uint64_t
mp_clock_ticks(void)
{
#if defined(__x86_64__)
    if (MP_LIKELY(g_clock_is_counter)) {
        return __rdtsc();
    }
#elif defined(__aarch64__)
    if (MP_LIKELY(g_clock_is_counter)) {
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
    }
#endif
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One instant on both clocks. */
typedef struct mp_clock_pair {
    uint64_t ticks;
    int64_t realtime_ns;
    int64_t monotonic_ns;
} mp_clock_pair;

/* Best of several bracketed readings; about 5 us. */
mp_clock_pair mp_clock_pair_now(void);

/* Linear map ticks -> epoch nanoseconds through two pairs. The rate comes from the
 * monotonic clock, so a step of the realtime clock moves no interval. */
typedef struct mp_clock_map {
    uint64_t origin_ticks;
    int64_t origin_ns;
    double ns_per_tick;
} mp_clock_map;

mp_clock_map mp_clock_map_between(mp_clock_pair first, mp_clock_pair last);

MP_INLINE int64_t
mp_clock_to_ns(const mp_clock_map *map, uint64_t ticks)
{
    return map->origin_ns +
           (int64_t)((double)(int64_t)(ticks - map->origin_ticks) * map->ns_per_tick);
}

#endif
