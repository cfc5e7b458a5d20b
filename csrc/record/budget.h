/* The recorder's memory: one address range of the size that the user allowed, reserved at
 * start, handed out in 64 KiB chunks (interned data: 4 KiB units) by one atomic addition, and given back as a whole. A
 * helper thread makes pages present ahead of use, so that a hook seldom meets a page fault.
 *
 *   base                              side_base                         base + bytes
 *   | event chunks, 3/4  ->           | interned data, 1/4  ->          |
 *
 * The two parts are apart so that a flood of events cannot take the room that stacks and
 * names need. In ring mode event chunks are used again, oldest first (thread_log). */
#ifndef MP_RECORD_BUDGET_H
#define MP_RECORD_BUDGET_H

#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"
#include "base/status.h"

#define MP_CHUNK_BYTES ((size_t)64 << 10)
#define MP_SIDE_UNIT_BYTES ((size_t)4 << 10)
#define MP_BUDGET_LEAST_BYTES ((size_t)4 << 20)

typedef struct mp_budget {
    void *mapped;
    size_t mapped_bytes;
    uint8_t *base; /* aligned to MP_CHUNK_BYTES; NULL when closed */
    size_t bytes;
    size_t event_chunks; /* capacity of each part */
    size_t side_units;
    _Atomic(size_t) event_taken; /* may run past the capacity: takers check */
    _Atomic(size_t) side_taken;
    size_t event_touched; /* the toucher's own */
    size_t side_touched;
} mp_budget;

/* Reserves the range (no memory is committed yet) and touches the first chunks of both
 * parts. bytes >= MP_BUDGET_LEAST_BYTES. */
mp_status mp_budget_open(mp_budget *budget, size_t bytes);

/* Returns the range to the system; nothing handed out may be used any more. */
void mp_budget_close(mp_budget *budget);

/* One event chunk, or NULL when all are taken. Any thread, no lock. */
void *mp_budget_take_event_chunk(mp_budget *budget);

/* `bytes` of zeroed side memory, rounded up to whole units, or NULL. Any thread. */
void *mp_budget_take_side(mp_budget *budget, size_t bytes);

/* Touches up to `ahead` chunks beyond what is taken. Called by one thread at a time.
 * Returns the chunks of events taken so far. */
size_t mp_budget_touch(mp_budget *budget, size_t ahead);

/* Bytes handed out so far. */
size_t mp_budget_used(const mp_budget *budget);

#endif
