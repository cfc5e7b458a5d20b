/* Rows of GPU activity while a session records: one writer, plain memory in chunks, bounded.
 * At the bound new rows are lost and counted; in ring mode the oldest chunk makes room. */
#ifndef MP_RECORD_ACTIVITY_LOG_H
#define MP_RECORD_ACTIVITY_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/tables.h"

/* A chunk is one huge page where the system has them: the first touch of small pages would
 * cost more than decoding. */
#define MP_ACTIVITY_CHUNK_BYTES ((size_t)2 << 20)
#define MP_ACTIVITY_CHUNK_ROWS                                                           \
    ((MP_ACTIVITY_CHUNK_BYTES - 2 * sizeof(void *)) / sizeof(mp_activity))

typedef struct mp_activity_chunk {
    struct mp_activity_chunk *next;
    size_t count;
    mp_activity rows[MP_ACTIVITY_CHUNK_ROWS];
} mp_activity_chunk;
_Static_assert(sizeof(mp_activity_chunk) <= MP_ACTIVITY_CHUNK_BYTES, "header and rows");

typedef struct mp_activity_log {
    mp_activity_chunk *first, *last; /* owned */
    size_t chunks, chunk_limit;
    bool ring;
    uint64_t rows;        /* kept now */
    uint64_t lost;        /* at the bound, or out of memory */
    uint64_t overwritten; /* ring mode */
} mp_activity_log;

/* At least one chunk. Allocates nothing yet. */
void mp_activity_log_init(mp_activity_log *log, size_t max_bytes, bool ring);
void mp_activity_log_fini(mp_activity_log *log);

/* Copies the row. */
void mp_activity_log_add(mp_activity_log *log, const mp_activity *row);

#endif
