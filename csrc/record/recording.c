#include "record/recording.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t row_bytes;
} s_tables[MP_TABLE_COUNT] = {
#define MP_DESCRIBE_TABLE(suffix, name, type, fields) {#name, sizeof(type)},
#define MP_DESCRIBE_VALUES(suffix, name, type) {#name, sizeof(type)},
    MP_TABLES(MP_DESCRIBE_TABLE, MP_DESCRIBE_VALUES)};

mp_recording *
mp_recording_new(void)
{
    mp_recording *recording = calloc(1, sizeof(*recording));
    if (recording != NULL) {
        for (int id = 0; id < MP_TABLE_COUNT; id++) {
            recording->tables[id].row_bytes = s_tables[id].row_bytes;
        }
    }
    return recording;
}

void
mp_recording_free(mp_recording *recording)
{
    if (recording == NULL) {
        return;
    }
    for (int id = 0; id < MP_TABLE_COUNT; id++) {
        free(recording->tables[id].rows);
    }
    free(recording);
}

void *
mp_recording_resize(mp_recording *recording, mp_table_id id, size_t count)
{
    mp_table *table = &recording->tables[id];
    void *rows = NULL;
    if (count > 0) {
        rows = calloc(count, table->row_bytes);
        if (rows == NULL) {
            return NULL;
        }
    }
    free(table->rows);
    table->rows = rows;
    table->count = count;
    return rows;
}

const char *
mp_recording_table_name(mp_table_id id)
{
    return s_tables[id].name;
}

const char *
mp_recording_string(const mp_recording *recording, uint32_t id, size_t *length)
{
    size_t offsets = MP_COUNT(recording, STRING_OFFSETS);
    *length = 0;
    if ((size_t)id + 1 >= offsets) {
        return "";
    }
    const uint64_t *offset = MP_ROWS(recording, STRING_OFFSETS, uint64_t);
    *length = (size_t)(offset[id + 1] - offset[id]);
    return MP_ROWS(recording, STRING_BYTES, char) + offset[id];
}
