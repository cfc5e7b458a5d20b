#include "record/activity_log.h"

#include <stdlib.h>
#include <sys/mman.h>

void
mp_activity_log_init(mp_activity_log *log, size_t max_bytes, bool ring)
{
    size_t limit = max_bytes / MP_ACTIVITY_CHUNK_BYTES;
    *log = (mp_activity_log){.chunk_limit = limit == 0 ? 1 : limit, .ring = ring};
}

void
mp_activity_log_fini(mp_activity_log *log)
{
    while (log->first != NULL) {
        mp_activity_chunk *next = log->first->next;
        free(log->first);
        log->first = next;
    }
    *log = (mp_activity_log){0};
}

/* A chunk to write into, no longer in the list; NULL at the bound. */
static mp_activity_chunk *
take_chunk(mp_activity_log *log)
{
    if (log->chunks < log->chunk_limit) {
        mp_activity_chunk *chunk =
            aligned_alloc(MP_ACTIVITY_CHUNK_BYTES, MP_ACTIVITY_CHUNK_BYTES);
        if (chunk != NULL) {
            (void)madvise(chunk, MP_ACTIVITY_CHUNK_BYTES, MADV_HUGEPAGE);
            log->chunks++;
            return chunk;
        }
    }
    if (!log->ring || log->first == NULL) {
        return NULL;
    }
    mp_activity_chunk *chunk = log->first;
    log->first = chunk->next;
    if (log->first == NULL) {
        log->last = NULL;
    }
    log->rows -= chunk->count;
    log->overwritten += chunk->count;
    return chunk;
}

void
mp_activity_log_add(mp_activity_log *log, const mp_activity *row)
{
    if (log->last == NULL || log->last->count == MP_ACTIVITY_CHUNK_ROWS) {
        mp_activity_chunk *chunk = take_chunk(log);
        if (chunk == NULL) {
            log->lost++;
            return;
        }
        chunk->next = NULL;
        chunk->count = 0;
        if (log->last != NULL) {
            log->last->next = chunk;
        } else {
            log->first = chunk;
        }
        log->last = chunk;
    }
    log->last->rows[log->last->count++] = *row;
    log->rows++;
}
