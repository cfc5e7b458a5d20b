// needs: base/clock.c
#include "base/clock.h"

#include <unistd.h>

#include "check.h"

static void
names_its_source(void)
{
    CHECK(strlen(mp_clock_source()) > 0);
}

static void
never_runs_backwards(void)
{
    uint64_t before = mp_clock_ticks();
    for (int i = 0; i < 100000; i++) {
        uint64_t now = mp_clock_ticks();
        CHECK(now >= before);
        before = now;
    }
}

static void
maps_ticks_to_epoch_time(void)
{
    mp_clock_pair first = mp_clock_pair_now();
    usleep(50 * 1000);
    uint64_t inside = mp_clock_ticks();
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t wall_ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec;
    mp_clock_pair last = mp_clock_pair_now();
    mp_clock_map map = mp_clock_map_between(first, last);

    int64_t error = mp_clock_to_ns(&map, inside) - wall_ns;
    CHECK(error > -5000000 && error < 5000000); /* a busy machine may part the readings */
    CHECK_EQUAL(mp_clock_to_ns(&map, first.ticks), first.realtime_ns);
    int64_t span = mp_clock_to_ns(&map, last.ticks) - first.realtime_ns;
    int64_t wanted = last.monotonic_ns - first.monotonic_ns;
    CHECK(span - wanted > -2 && span - wanted < 2);
}

static void
follows_the_monotonic_clock_when_wall_time_is_set(void)
{
    mp_clock_pair first = {1000, 5000000000, 100};
    mp_clock_pair last = {3000, 1, 2100}; /* the wall clock was set back in between */
    mp_clock_map map = mp_clock_map_between(first, last);
    CHECK_EQUAL(mp_clock_to_ns(&map, 2000), 5000001000);
    CHECK_EQUAL(mp_clock_to_ns(&map, 500), 5000000000 - 500); /* before the first pair */
}

static void
survives_two_pairs_of_one_instant(void)
{
    mp_clock_pair pair = mp_clock_pair_now();
    mp_clock_map map = mp_clock_map_between(pair, pair);
    CHECK_EQUAL(mp_clock_to_ns(&map, pair.ticks), pair.realtime_ns);
}

int
main(void)
{
    RUN(never_runs_backwards); /* with CLOCK_MONOTONIC, the source before the choice */
    mp_clock_init();
    RUN(names_its_source);
    RUN(never_runs_backwards);
    RUN(maps_ticks_to_epoch_time);
    RUN(follows_the_monotonic_clock_when_wall_time_is_set);
    RUN(survives_two_pairs_of_one_instant);
    return 0;
}
