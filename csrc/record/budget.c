#include "record/budget.h"

#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { FIRST_TOUCH_CHUNKS = 32, PAGE = 4096 };

/* The system makes the pages present without a store; where it cannot (before Linux 5.14)
 * a store of the value that is there does it: the page may already be in use. */
static void
touch(uint8_t *from, size_t bytes)
{
    if (madvise(from, bytes, MADV_POPULATE_WRITE) == 0) {
        return;
    }
    for (size_t at = 0; at < bytes; at += PAGE) {
        __atomic_fetch_add(from + at, 0, __ATOMIC_RELAXED);
    }
}

static size_t
smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static uint8_t *
side_at(const mp_budget *budget, size_t unit)
{
    return budget->base + budget->event_chunks * MP_CHUNK_BYTES + unit * MP_SIDE_UNIT_BYTES;
}

static size_t
larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

mp_status
mp_budget_open(mp_budget *budget, size_t bytes)
{
    size_t chunks = bytes / MP_CHUNK_BYTES;
    if (bytes < MP_BUDGET_LEAST_BYTES) {
        return MP_INVALID;
    }
    size_t mapped_bytes = (chunks + 1) * MP_CHUNK_BYTES;
    void *mapped = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        return MP_NO_MEMORY;
    }
    (void)madvise(mapped, mapped_bytes, MADV_DONTFORK);
    uintptr_t base = ((uintptr_t)mapped + MP_CHUNK_BYTES - 1) & ~(uintptr_t)(MP_CHUNK_BYTES - 1);
    size_t side_chunks = chunks / 4;
    *budget = (mp_budget){
        .mapped = mapped,
        .mapped_bytes = mapped_bytes,
        .base = (uint8_t *)base,
        .bytes = chunks * MP_CHUNK_BYTES,
        .event_chunks = chunks - side_chunks,
        .side_units = side_chunks * (MP_CHUNK_BYTES / MP_SIDE_UNIT_BYTES),
    };
    mp_budget_touch(budget, FIRST_TOUCH_CHUNKS);
    return MP_OK;
}

void
mp_budget_close(mp_budget *budget)
{
    if (budget->base != NULL) {
        munmap(budget->mapped, budget->mapped_bytes);
    }
    *budget = (mp_budget){0};
}

void *
mp_budget_take_event_chunk(mp_budget *budget)
{
    size_t index = mp_add_relaxed(&budget->event_taken, 1);
    if (index >= budget->event_chunks) {
        return NULL;
    }
    return budget->base + index * MP_CHUNK_BYTES;
}

void *
mp_budget_take_side(mp_budget *budget, size_t bytes)
{
    size_t units = (bytes + MP_SIDE_UNIT_BYTES - 1) / MP_SIDE_UNIT_BYTES;
    size_t index = mp_load_relaxed(&budget->side_taken);
    do {
        if (units > budget->side_units - index) {
            return NULL;
        }
    } while (!mp_cas_acq_rel(&budget->side_taken, &index, index + units));
    return side_at(budget, index);
}

size_t
mp_budget_touch(mp_budget *budget, size_t ahead)
{
    size_t taken = smaller(mp_load_relaxed(&budget->event_taken), budget->event_chunks);
    size_t goal = smaller(taken + ahead, budget->event_chunks);
    size_t from = larger(budget->event_touched, taken);
    if (goal > from) {
        touch(budget->base + from * MP_CHUNK_BYTES, (goal - from) * MP_CHUNK_BYTES);
        budget->event_touched = goal;
    }
    size_t side_taken = mp_load_relaxed(&budget->side_taken);
    goal = smaller(side_taken + ahead * 2, budget->side_units);
    from = larger(budget->side_touched, side_taken);
    if (goal > from) {
        touch(side_at(budget, from), (goal - from) * MP_SIDE_UNIT_BYTES);
        budget->side_touched = goal;
    }
    return taken;
}

size_t
mp_budget_used(const mp_budget *budget)
{
    size_t chunks = smaller(mp_load_relaxed(&budget->event_taken), budget->event_chunks);
    return chunks * MP_CHUNK_BYTES + mp_load_relaxed(&budget->side_taken) * MP_SIDE_UNIT_BYTES;
}
