/* Strings of a recording while it is put together: each text once, numbered; 0 is "". */
#ifndef MP_SESSION_TEXT_TABLE_H
#define MP_SESSION_TEXT_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/table.h"
#include "record/recording.h"

typedef struct mp_text_table {
    char *bytes;
    size_t used, room;
    uint64_t *offsets; /* count + 1 of them */
    uint32_t count;
    uint32_t offsets_room;
    mp_table_map ids; /* content hash -> id + 1 */
} mp_text_table;

mp_status mp_text_table_init(mp_text_table *table);
void mp_text_table_fini(mp_text_table *table);

/* The id of a text, added when new. The bytes are copied. */
mp_status mp_text_table_add(mp_text_table *table, const char *text, size_t length,
                            uint32_t *id);

/* Moves all texts into the recording's string tables. */
mp_status mp_text_table_store(const mp_text_table *table, mp_recording *recording);

#endif
