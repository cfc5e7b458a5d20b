/* A recording: the tables of tables.h in one owner. Filled once (by assembly or by
 * loading), completed by the analysis passes, then immutable. Knows no Python. */
#ifndef MP_RECORD_RECORDING_H
#define MP_RECORD_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "record/tables.h"

#define MP_ENUM_TABLE(suffix, name, type, fields) MP_TABLE_##suffix,
#define MP_ENUM_VALUES(suffix, name, type) MP_TABLE_##suffix,
typedef enum mp_table_id { MP_TABLES(MP_ENUM_TABLE, MP_ENUM_VALUES) MP_TABLE_COUNT } mp_table_id;

typedef struct mp_table {
    void *rows; /* owned, malloc'ed; NULL when count is 0 */
    size_t count;
    size_t row_bytes;
} mp_table;

typedef struct mp_recording {
    mp_table tables[MP_TABLE_COUNT];
    int64_t start_ns;        /* collection began (hooks in place) */
    int64_t window_start_ns; /* what the user asked to see begins: after warm-up */
    int64_t stop_ns;
} mp_recording;

/* All tables empty with their row sizes set; never fails after allocation. NULL when out
 * of memory. The caller owns it. */
mp_recording *mp_recording_new(void);

/* NULL is fine. */
void mp_recording_free(mp_recording *recording);

/* Replaces a table by `count` zeroed rows and returns them; NULL when out of memory (the
 * old table then stays) or when count is 0 (the table is then empty). */
void *mp_recording_resize(mp_recording *recording, mp_table_id id, size_t count);

const char *mp_recording_table_name(mp_table_id id);

/* Rows of a table with their type: MP_ROWS(recording, BLOCKS, mp_block). */
#define MP_ROWS(recording, suffix, type)                                                 \
    ((type *)(recording)->tables[MP_TABLE_##suffix].rows)
#define MP_COUNT(recording, suffix) ((recording)->tables[MP_TABLE_##suffix].count)

/* Text of a string id; *length gets its bytes. Not terminated. Unknown ids give "". */
const char *mp_recording_string(const mp_recording *recording, uint32_t id, size_t *length);

/* Every id within its table, offsets monotonic, times in order: what a loaded file must
 * satisfy before any pass may trust it. On failure *what says which rule, static text. */
mp_status mp_recording_check(const mp_recording *recording, const char **what);

#endif
