/* Buffers for CUPTI's records, all within one address range of the process, so that one
 * comparison tells ours from somebody else's: a completed buffer that we did not hand out is
 * left alone and counted.
 *
 *   cold --touch--> ready --request--> lent --complete--> full --take--> taken
 *                     ^                                                    | give_back
 *                     +------------------- zeroed -------------------------+
 *
 * Requests and completions come on any thread, inside CUDA calls: they move a slot from one
 * state to the next with one compare-and-swap, take no lock and call nothing. Touching,
 * taking and giving back are one thread's. The range stays for the life of the process: CUPTI
 * may hold a buffer longer than a session lasts. */
#ifndef MP_COLLECT_CUPTI_BUFFERS_H
#define MP_COLLECT_CUPTI_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MP_CUPTI_BUFFER_BYTES ((size_t)2 << 20)
#define MP_CUPTI_BUFFER_LIMIT 512 /* slots of the range: 1 GiB of addresses */

typedef struct mp_cupti_buffer_counts {
    uint64_t lent;      /* buffers handed out */
    uint64_t unready;   /* of these, not touched before: page faults on the user's thread */
    uint64_t refused;   /* requests at the limit: records were lost */
    uint64_t foreign;   /* completed buffers that were not ours */
    uint64_t discarded; /* records of the discard buffer: completions at the limit */
    uint32_t held;      /* buffers that CUPTI holds now */
    uint32_t most;      /* buffers in use at once */
} mp_cupti_buffer_counts;

/* Opens for requests: at most `bytes` of buffers (at least two). null_allowed: at the limit
 * the library takes no buffer for an answer; else it gets one whose records are lost. Counts
 * begin at 0. Touches the first few buffers. */
mp_status mp_cupti_buffers_open(size_t bytes, bool null_allowed);

/* From here on every request is refused and what completes is dropped. Memory of buffers
 * that CUPTI does not hold goes back to the system. */
void mp_cupti_buffers_close(void);

/* The two callbacks (cupti_api.h). */
void mp_cupti_buffers_request(uint8_t **buffer, size_t *size, size_t *max_records);
void mp_cupti_buffers_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                               size_t valid_size);

/* The next full buffer with its valid bytes, or NULL; ours until it is given back. */
uint8_t *mp_cupti_buffers_take(size_t *valid_size);
void mp_cupti_buffers_give_back(uint8_t *buffer);

/* Keeps a few buffers ready beyond those in use. */
void mp_cupti_buffers_touch(void);

void mp_cupti_buffers_count(mp_cupti_buffer_counts *counts);

/* In the child of a fork: closed, without a call to anybody. */
void mp_cupti_buffers_after_fork(void);

#endif
