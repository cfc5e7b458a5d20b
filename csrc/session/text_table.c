#include "session/text_table.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_TEXTS = 1024, FIRST_BYTES = 64 << 10 };

mp_status
mp_text_table_init(mp_text_table *table)
{
    *table = (mp_text_table){
        .bytes = malloc(FIRST_BYTES),
        .room = FIRST_BYTES,
        .offsets = calloc(FIRST_TEXTS + 1, sizeof(*table->offsets)),
        .offsets_room = FIRST_TEXTS,
    };
    uint32_t empty;
    if (table->bytes == NULL || table->offsets == NULL ||
        mp_table_init(&table->ids, FIRST_TEXTS) != MP_OK ||
        mp_text_table_add(table, "", 0, &empty) != MP_OK) {
        mp_text_table_fini(table);
        return MP_NO_MEMORY;
    }
    return MP_OK;
}

void
mp_text_table_fini(mp_text_table *table)
{
    free(table->bytes);
    free(table->offsets);
    mp_table_fini(&table->ids);
    *table = (mp_text_table){0};
}

static uint64_t
hash_bytes(const char *text, size_t length, uint64_t seed)
{
    uint64_t hash = 0xCBF29CE484222325u ^ seed ^ length;
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (uint8_t)text[i]) * 0x100000001B3u;
        hash ^= hash >> 31;
    }
    return hash;
}

static mp_status
make_room(mp_text_table *table, size_t length)
{
    if (table->count == table->offsets_room) {
        uint32_t room = table->offsets_room * 2;
        uint64_t *offsets = realloc(table->offsets, ((size_t)room + 1) * sizeof(*offsets));
        if (offsets == NULL) {
            return MP_NO_MEMORY;
        }
        table->offsets = offsets;
        table->offsets_room = room;
    }
    if (table->room - table->used < length) {
        size_t room = (table->room + length) * 2;
        char *bytes = realloc(table->bytes, room);
        if (bytes == NULL) {
            return MP_NO_MEMORY;
        }
        table->bytes = bytes;
        table->room = room;
    }
    return MP_OK;
}

static int
equals(const mp_text_table *table, uint32_t id, const char *text, size_t length)
{
    uint64_t from = table->offsets[id];
    return table->offsets[id + 1] - from == length &&
           memcmp(table->bytes + from, text, length) == 0;
}

mp_status
mp_text_table_add(mp_text_table *table, const char *text, size_t length, uint32_t *id)
{
    for (uint64_t seed = 0;; seed++) { /* a colliding hash goes on under another seed */
        uint32_t *known = mp_table_at(&table->ids, hash_bytes(text, length, seed));
        if (known == NULL) {
            return MP_NO_MEMORY;
        }
        if (*known == 0) {
            MP_TRY(make_room(table, length));
            memcpy(table->bytes + table->used, text, length);
            table->used += length;
            *id = table->count++;
            table->offsets[table->count] = table->used;
            *known = *id + 1;
            return MP_OK;
        }
        if (equals(table, *known - 1, text, length)) {
            *id = *known - 1;
            return MP_OK;
        }
    }
}

mp_status
mp_text_table_store(const mp_text_table *table, mp_recording *recording)
{
    uint64_t *offsets =
        mp_recording_resize(recording, MP_TABLE_STRING_OFFSETS, (size_t)table->count + 1);
    if (offsets == NULL) {
        return MP_NO_MEMORY;
    }
    memcpy(offsets, table->offsets, ((size_t)table->count + 1) * sizeof(*offsets));
    char *bytes = mp_recording_resize(recording, MP_TABLE_STRING_BYTES, table->used);
    if (bytes == NULL && table->used > 0) {
        return MP_NO_MEMORY;
    }
    if (table->used > 0) {
        memcpy(bytes, table->bytes, table->used);
    }
    return MP_OK;
}
