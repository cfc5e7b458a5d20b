/* GPU activity while a session records: CUPTI started and stopped, its buffers decoded on a
 * thread of their own, its clock compared with ours.
 *
 * CUPTI's activity state belongs to the process: callers make sure that no other profiler
 * uses it (its callbacks would replace ours, and ours theirs). No subscription is held. All
 * functions are called by one thread at a time. */
#ifndef MP_COLLECT_CUPTI_ACTIVITY_H
#define MP_COLLECT_CUPTI_ACTIVITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "collect/cupti_buffers.h"
#include "collect/cupti_decode.h"

/* One instant on the recorder's clock and on CUPTI's. */
typedef struct mp_cupti_bracket {
    uint64_t ticks;
    int64_t cupti_ns;
} mp_cupti_bracket;

typedef struct mp_cupti_options {
    size_t buffer_bytes; /* most memory for buffers */
    size_t row_bytes;    /* and for decoded rows */
    bool ring;
    const char *dump_path; /* raw buffers and names are copied to this file; NULL: no */
} mp_cupti_options;

typedef struct mp_cupti_report {
    bool on; /* records came in until stop */
    uint32_t version;
    bool single_ids;         /* only the API calls of cupti_ids.h gave records */
    uint32_t refused_kinds;  /* as many kinds the library would not enable */
    char refused[96];        /* their names */
    uint64_t dropped;        /* records that CUPTI itself dropped */
    uint64_t lost;           /* at the bound of the rows */
    uint64_t overwritten;
    uint64_t rows;
    uint64_t unknown, unwanted, without_time, backwards, broken;
    mp_cupti_buffer_counts buffers;
} mp_cupti_report;

/* The library must be loaded (cupti_api.h). On failure everything is as before, and
 * `reason` says why in one sentence. */
mp_status mp_cupti_activity_start(const mp_cupti_options *options, char *reason, size_t room);

/* No more records: kinds off, what CUPTI holds flushed and decoded. Blocks until then; does
 * not wait for the device. A second call does nothing. */
void mp_cupti_activity_stop(void);

bool mp_cupti_activity_is_on(void);

/* After stop, until close: what was decoded, with the brackets in order of time. NULL when
 * nothing was started. */
const mp_cupti_decoder *mp_cupti_activity_rows(const mp_cupti_bracket **brackets,
                                               size_t *count);

void mp_cupti_activity_report(mp_cupti_report *report);

/* Gives the rows back. */
void mp_cupti_activity_close(void);

/* In the child of a fork: off, without a call to CUPTI. */
void mp_cupti_activity_after_fork(void);

#endif
