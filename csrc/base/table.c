#include "base/table.h"

#include <stdlib.h>

static uint64_t
stored_key(uint64_t key)
{
    return key == 0 ? MP_TABLE_ZERO_KEY : key;
}

static size_t
first_place(uint64_t key, size_t mask)
{
    uint64_t mixed = key * 0x9E3779B97F4A7C15u;
    return (size_t)(mixed ^ mixed >> 32) & mask;
}

mp_status
mp_table_init(mp_table_map *map, size_t expected)
{
    size_t size = 64;
    while (size < expected * 2) {
        size *= 2;
    }
    *map = (mp_table_map){
        .keys = calloc(size, sizeof(*map->keys)),
        .values = calloc(size, sizeof(*map->values)),
        .mask = size - 1,
    };
    if (map->keys == NULL || map->values == NULL) {
        mp_table_fini(map);
        return MP_NO_MEMORY;
    }
    return MP_OK;
}

void
mp_table_fini(mp_table_map *map)
{
    free(map->keys);
    free(map->values);
    *map = (mp_table_map){0};
}

static size_t
place_of(const mp_table_map *map, uint64_t key)
{
    size_t at = first_place(key, map->mask);
    while (map->keys[at] != 0 && map->keys[at] != key) {
        at = (at + 1) & map->mask;
    }
    return at;
}

static mp_status
grow(mp_table_map *map)
{
    mp_table_map larger;
    MP_TRY(mp_table_init(&larger, map->mask + 1));
    for (size_t i = 0; i <= map->mask; i++) {
        if (map->keys[i] != 0) {
            size_t at = place_of(&larger, map->keys[i]);
            larger.keys[at] = map->keys[i];
            larger.values[at] = map->values[i];
        }
    }
    larger.count = map->count;
    mp_table_fini(map);
    *map = larger;
    return MP_OK;
}

uint32_t *
mp_table_at(mp_table_map *map, uint64_t key)
{
    key = stored_key(key);
    size_t at = place_of(map, key);
    if (map->keys[at] == 0) {
        if ((map->count + 1) * 2 > map->mask + 1) {
            if (grow(map) != MP_OK) {
                return NULL;
            }
            at = place_of(map, key);
        }
        map->keys[at] = key;
        map->count++;
    }
    return &map->values[at];
}

uint32_t *
mp_table_find(const mp_table_map *map, uint64_t key)
{
    key = stored_key(key);
    size_t at = place_of(map, key);
    return map->keys[at] == 0 ? NULL : &map->values[at];
}
