/* A growing map from 64-bit keys to 32-bit values, open addressing with linear probing.
 * Plain malloc: for use after recording, never in a hook. One thread at a time. */
#ifndef MP_BASE_TABLE_H
#define MP_BASE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mp_table_map {
    uint64_t *keys; /* 0 = empty; the key 0 itself is stored as MP_TABLE_ZERO_KEY */
    uint32_t *values;
    size_t mask;
    size_t count;
} mp_table_map;

#define MP_TABLE_ZERO_KEY 0x8BADF00D5EED0001u

/* Room for `expected` keys before the first growth. */
mp_status mp_table_init(mp_table_map *map, size_t expected);

/* Frees; a zeroed map is fine. */
void mp_table_fini(mp_table_map *map);

/* The value of a key; a new key gets 0. The pointer holds until the next call. NULL when
 * out of memory. */
uint32_t *mp_table_at(mp_table_map *map, uint64_t key);

/* The value of a key, or NULL when it is absent. Never changes the map. */
uint32_t *mp_table_find(const mp_table_map *map, uint64_t key);

#endif
