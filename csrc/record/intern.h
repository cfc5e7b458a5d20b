/* One thread's table from a 64-bit fingerprint to a small id, with the words that stand
 * behind each id: stacks, names, shapes. One writer; read by others only when the writer
 * has stopped. A hit compares fingerprints alone: with n distinct entries the chance of
 * one wrong hit is about n*n / 2^65, 10^-10 for 60,000 stacks. */
#ifndef MP_RECORD_INTERN_H
#define MP_RECORD_INTERN_H

#include <stdint.h>

#include "base/compiler.h"
#include "record/budget.h"

typedef struct mp_intern_slot {
    uint64_t fingerprint; /* 0 = empty */
    uint32_t id;
    uint32_t unused;
} mp_intern_slot;

typedef struct mp_intern {
    mp_intern_slot *slots; /* mask + 1 of them, a power of two; NULL before first use */
    uint64_t **entries;    /* entries[id - 1] -> word count, then the words */
    uint64_t *store;       /* where the next entry goes */
    uint64_t *store_end;
    uint32_t mask;
    uint32_t used;         /* slots in use; used <= (mask + 1) / 2 */
    uint32_t count;        /* ids given; ids are 1..count */
    uint32_t entries_room;
} mp_intern;

/* The id of a fingerprint (never 0), or 0. Hook context. */
MP_INLINE uint32_t
mp_intern_find(const mp_intern *table, uint64_t fingerprint)
{
    if (MP_UNLIKELY(table->slots == 0)) {
        return 0;
    }
    uint32_t at = (uint32_t)(fingerprint >> 40) & table->mask;
    for (;;) {
        const mp_intern_slot *slot = &table->slots[at];
        if (MP_LIKELY(slot->fingerprint == fingerprint)) {
            return slot->id;
        }
        if (slot->fingerprint == 0) {
            return 0;
        }
        at = (at + 1) & table->mask;
    }
}

/* Adds an absent fingerprint with its words (copied) and returns the new id, or 0 when
 * the budget is spent. Hook context. */
uint32_t mp_intern_add(mp_intern *table, mp_budget *budget, uint64_t fingerprint,
                       const uint64_t *words, uint32_t count);

/* The words of an id in 1..count; *count gets how many. */
const uint64_t *mp_intern_words(const mp_intern *table, uint32_t id, uint32_t *count);

/* Makes every fingerprint unknown; ids and words stay valid. For when the pointers behind
 * the fingerprints may mean something else from now on. */
void mp_intern_forget(mp_intern *table);

#endif
