#include "record/intern.h"

#include <string.h>

enum { FIRST_SLOTS = 1024, STORE_BYTES = 16 << 10 };

static void
place(mp_intern_slot *slots, uint32_t mask, uint64_t fingerprint, uint32_t id)
{
    uint32_t at = (uint32_t)(fingerprint >> 40) & mask;
    while (slots[at].fingerprint != 0) {
        at = (at + 1) & mask;
    }
    slots[at] = (mp_intern_slot){.fingerprint = fingerprint, .id = id};
}

static int
grow_slots(mp_intern *table, mp_budget *budget)
{
    uint32_t size = table->slots == NULL ? FIRST_SLOTS : (table->mask + 1) * 2;
    mp_intern_slot *slots = mp_budget_take_side(budget, size * sizeof(*slots));
    if (slots == NULL) {
        return 0;
    }
    if (table->slots != NULL) {
        for (uint32_t i = 0; i <= table->mask; i++) {
            if (table->slots[i].fingerprint != 0) {
                place(slots, size - 1, table->slots[i].fingerprint, table->slots[i].id);
            }
        }
    }
    table->slots = slots;
    table->mask = size - 1;
    return 1;
}

static int
grow_entries(mp_intern *table, mp_budget *budget)
{
    uint32_t room = table->entries_room == 0 ? (uint32_t)(MP_SIDE_UNIT_BYTES / sizeof(uint64_t *))
                                             : table->entries_room * 2;
    uint64_t **entries = mp_budget_take_side(budget, room * sizeof(*entries));
    if (entries == NULL) {
        return 0;
    }
    if (table->count > 0) {
        memcpy(entries, table->entries, table->count * sizeof(*entries));
    }
    table->entries = entries;
    table->entries_room = room;
    return 1;
}

static uint64_t *
store_take(mp_intern *table, mp_budget *budget, size_t words)
{
    if ((size_t)(table->store_end - table->store) < words) {
        size_t least = words * sizeof(uint64_t);
        size_t bytes = STORE_BYTES;
        while (bytes < least) {
            bytes *= 2;
        }
        uint64_t *store = mp_budget_take_side(budget, bytes);
        if (store == NULL) {
            return NULL;
        }
        table->store = store;
        table->store_end = store + bytes / sizeof(uint64_t);
    }
    uint64_t *taken = table->store;
    table->store += words;
    return taken;
}

uint32_t
mp_intern_add(mp_intern *table, mp_budget *budget, uint64_t fingerprint,
              const uint64_t *words, uint32_t count)
{
    MP_ASSERT(fingerprint != 0);
    if (table->slots == NULL || table->used >= (table->mask + 1) / 2) {
        if (!grow_slots(table, budget)) {
            return 0;
        }
    }
    if (table->count >= table->entries_room && !grow_entries(table, budget)) {
        return 0;
    }
    uint64_t *entry = store_take(table, budget, (size_t)count + 1);
    if (entry == NULL) {
        return 0;
    }
    entry[0] = count;
    if (count > 0) {
        memcpy(entry + 1, words, count * sizeof(*words));
    }
    table->entries[table->count++] = entry;
    place(table->slots, table->mask, fingerprint, table->count);
    table->used++;
    return table->count;
}

const uint64_t *
mp_intern_words(const mp_intern *table, uint32_t id, uint32_t *count)
{
    MP_ASSERT(id >= 1 && id <= table->count);
    const uint64_t *entry = table->entries[id - 1];
    *count = (uint32_t)entry[0];
    return entry + 1;
}

void
mp_intern_forget(mp_intern *table)
{
    if (table->slots != NULL) {
        memset(table->slots, 0, ((size_t)table->mask + 1) * sizeof(*table->slots));
    }
    table->used = 0;
}
