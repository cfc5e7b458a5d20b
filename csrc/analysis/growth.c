#include "analysis/growth.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/slope.h"
#include "analysis/steps.h"
#include "analysis/sums.h"

/* A block that is alive at one step's end or more: at those of steps [first, beyond). */
typedef struct survivor {
    uint64_t site; /* stack << 16 | device */
    uint32_t first, beyond;
    int64_t bytes;
} survivor;

typedef struct growth_pass {
    const mp_recording *recording;
    const mp_step *steps;
    size_t step_count;
    survivor *survivors;
    size_t survivor_count;
    int64_t *series; /* [step]: bytes of the site at hand at the step's end */
    mp_growth *out;
    size_t room;
} growth_pass;

/* ---- survivors ---- */

/* The first step that ends after time_ns. */
static uint32_t
first_end_after(const growth_pass *self, int64_t time_ns)
{
    size_t low = 0, high = self->step_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (self->steps[middle].end_ns <= time_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (uint32_t)low;
}

/* A step's end sees the state just before it: what dies at that very time still lives. */
static bool
survivor_of(const growth_pass *self, const mp_block *block, survivor *out)
{
    uint32_t first = first_end_after(self, block->birth_ns);
    uint32_t beyond = block->death_ns == -1 ? (uint32_t)self->step_count
                                            : first_end_after(self, block->death_ns);
    *out = (survivor){
        .site = (uint64_t)block->stack_id << 16 |
                (uint64_t)(uint8_t)block->device_type << 8 | (uint8_t)block->device_index,
        .first = first,
        .beyond = beyond,
        .bytes = block->bytes,
    };
    return first < beyond && block->stack_id != 0;
}

static int
by_site(const void *a, const void *b)
{
    const survivor *x = a, *y = b;
    return (x->site > y->site) - (x->site < y->site);
}

static mp_status
collect_survivors(growth_pass *self)
{
    const mp_block *blocks = MP_ROWS(self->recording, BLOCKS, mp_block);
    size_t count = MP_COUNT(self->recording, BLOCKS);
    survivor unused;
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        found += survivor_of(self, &blocks[i], &unused);
    }
    self->survivors = calloc(found + 1, sizeof(*self->survivors));
    if (self->survivors == NULL) {
        return MP_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        if (survivor_of(self, &blocks[i], &self->survivors[self->survivor_count])) {
            self->survivor_count++;
        }
    }
    qsort(self->survivors, self->survivor_count, sizeof(*self->survivors), by_site);
    return MP_OK;
}

/* ---- one site ---- */

static void
fill_series(growth_pass *self, const survivor *rows, size_t count)
{
    memset(self->series, 0, (self->step_count + 1) * sizeof(*self->series));
    for (size_t i = 0; i < count; i++) {
        int64_t *in = &self->series[rows[i].first], *out = &self->series[rows[i].beyond];
        *in = mp_sum(*in, rows[i].bytes);
        *out = mp_difference(*out, rows[i].bytes);
    }
    for (size_t step = 1; step < self->step_count; step++) {
        self->series[step] = mp_sum(self->series[step - 1], self->series[step]);
    }
}

/* The last step with the lowest value after warm-up: from there on all is higher. */
static size_t
find_onset(const growth_pass *self)
{
    size_t onset = MP_GROWTH_WARM_UP;
    for (size_t step = onset + 1; step < self->step_count; step++) {
        if (self->series[step] <= self->series[onset]) {
            onset = step;
        }
    }
    return onset;
}

static bool
exceeds_what_was(const growth_pass *self, size_t onset)
{
    const int64_t *series = self->series;
    int64_t last = series[self->step_count - 1], highest = series[onset];
    for (size_t step = MP_GROWTH_WARM_UP; step < onset; step++) {
        highest = series[step] > highest ? series[step] : highest;
    }
    return (double)last - (double)highest >= ((double)last - (double)series[onset]) / 2;
}

/* Flat at the end for longer than it ever paused before, or much slower in its last third
 * than on the whole: a cache that has filled up. */
static bool
goes_on(const growth_pass *self, size_t onset)
{
    const int64_t *series = self->series;
    size_t last = self->step_count - 1;
    size_t pause = 0, longest = 0;
    int64_t highest = series[onset];
    for (size_t step = onset + 1; step <= last; step++) {
        if (series[step] > highest) {
            longest = pause > longest ? pause : longest;
            pause = 0;
            highest = series[step];
        } else {
            pause++;
        }
    }
    size_t third = (last - onset + 2) / 3;
    double late = ((double)series[last] - (double)series[last - third]) / (double)third;
    double whole = ((double)series[last] - (double)series[onset]) / (double)(last - onset);
    return pause <= 2 * longest + 1 && late >= whole / 2;
}

static mp_status
add_site(growth_pass *self, const mp_growth_site *site)
{
    mp_growth *out = self->out;
    if (out->count == self->room) {
        size_t room = self->room == 0 ? 16 : self->room * 2;
        mp_growth_site *sites = realloc(out->sites, room * sizeof(*sites));
        if (sites == NULL) {
            return MP_NO_MEMORY;
        }
        out->sites = sites;
        self->room = room;
    }
    out->sites[out->count++] = *site;
    return MP_OK;
}

static mp_status
judge_site(growth_pass *self, const survivor *rows, size_t count)
{
    fill_series(self, rows, count);
    size_t onset = find_onset(self);
    size_t used = self->step_count - onset;
    if (used < MP_GROWTH_STEPS || !exceeds_what_was(self, onset) || !goes_on(self, onset)) {
        return MP_OK;
    }
    mp_slope slope = mp_slope_of(&self->series[onset], used);
    if (!(slope.low > 0)) {
        return MP_OK;
    }
    mp_growth_site site = {
        .bytes_per_step = slope.median,
        .low = slope.low,
        .high = slope.high,
        .bytes_at_end = self->series[self->step_count - 1],
        .first_step = self->steps[onset].number,
        .stack_id = (uint32_t)(rows->site >> 16),
        .steps_used = (uint32_t)used,
        .device_type = (int8_t)(rows->site >> 8 & 0xff),
        .device_index = (int8_t)(rows->site & 0xff),
    };
    for (size_t i = 0; i < count; i++) {
        site.survivors += rows[i].beyond == self->step_count;
    }
    return add_site(self, &site);
}

/* ---- all sites ---- */

static mp_status
judge_sites(growth_pass *self)
{
    size_t begin = 0;
    while (begin < self->survivor_count) {
        size_t end = begin + 1;
        while (end < self->survivor_count &&
               self->survivors[end].site == self->survivors[begin].site) {
            end++;
        }
        /* A site with few survivors cannot have risen often enough. */
        if (end - begin >= 3) {
            MP_TRY(judge_site(self, &self->survivors[begin], end - begin));
        }
        begin = end;
    }
    return MP_OK;
}

static int
by_steepness(const void *a, const void *b)
{
    const mp_growth_site *x = a, *y = b;
    if (x->bytes_per_step != y->bytes_per_step) {
        return x->bytes_per_step < y->bytes_per_step ? 1 : -1;
    }
    return (x->stack_id > y->stack_id) - (x->stack_id < y->stack_id);
}

mp_status
mp_growth_find(const mp_recording *recording, mp_growth *out)
{
    *out = (mp_growth){0};
    growth_pass self = {
        .recording = recording,
        .steps = MP_ROWS(recording, STEPS, mp_step),
        .step_count = MP_COUNT(recording, STEPS),
        .out = out,
    };
    if (self.step_count < MP_GROWTH_WARM_UP + MP_GROWTH_STEPS) {
        return MP_OK;
    }
    self.series = calloc(self.step_count + 1, sizeof(*self.series));
    mp_status status = self.series == NULL ? MP_NO_MEMORY : collect_survivors(&self);
    if (status == MP_OK) {
        status = judge_sites(&self);
    }
    free(self.series);
    free(self.survivors);
    if (status != MP_OK) {
        mp_growth_fini(out);
    } else if (out->count > 1) {
        qsort(out->sites, out->count, sizeof(*out->sites), by_steepness);
    }
    return status;
}

void
mp_growth_fini(mp_growth *growth)
{
    free(growth->sites);
    *growth = (mp_growth){0};
}
