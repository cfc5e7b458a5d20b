/* CUPTI's records to rows of activity, by the offsets of collect/cupti_layout.h. Calls
 * nothing of CUPTI but the function that finds the next record, which it is given. */
#ifndef MP_COLLECT_CUPTI_DECODE_H
#define MP_COLLECT_CUPTI_DECODE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "collect/cupti_ids.h"
#include "collect/cupti_names.h"
#include "record/activity_log.h"

/* cuptiActivityGetNextRecord of the loaded library: *record NULL for the first. 0 while
 * there is one. */
typedef int (*mp_cupti_next_record)(uint8_t *buffer, size_t valid_size, void **record);

enum { MP_CUPTI_API_ID_LIMIT = 1024 };

typedef struct mp_cupti_decoder {
    mp_cupti_next_record next;
    uint32_t version;
    mp_cupti_names names;
    mp_activity_log log;
    uint64_t records[MP_CUPTI_KIND_LIMIT]; /* by kind, what is not kept included */
    uint64_t unknown;      /* of kinds that nobody asked for */
    uint64_t unwanted;     /* API calls outside the list of cupti_ids.h */
    uint64_t without_time; /* the device gave no times: not kept */
    uint64_t backwards;    /* ended before they began: kept with no length */
    uint64_t broken;       /* buffers that end within a record, or whose walk went astray */
    /* Ids of names that are put together, 0 not yet. */
    uint32_t api_names[2][MP_CUPTI_API_ID_LIMIT];
    uint32_t copy_names[16][8][8];
    uint32_t set_names[8];
    uint32_t memory_names[8];
} mp_cupti_decoder;

/* read as in mp_cupti_names_init. max_bytes and ring: of the rows. */
mp_status mp_cupti_decoder_init(mp_cupti_decoder *decoder, mp_cupti_next_record next,
                                uint32_t version, size_t max_bytes, bool ring,
                                const char *(*read)(void *context, uint64_t pointer),
                                void *context);
void mp_cupti_decoder_fini(mp_cupti_decoder *decoder);

/* All records of a buffer. Rows have CUPTI's own times, the id of the name in `names`, and
 * in `thread` the kernel's id of the calling thread. Any bytes are safe as long as `next`
 * gives pointers into the buffer or fails. */
void mp_cupti_decode(mp_cupti_decoder *decoder, uint8_t *buffer, size_t valid_size);

/* For a replay without the library: walks by the sizes that records of `version` have. */
int mp_cupti_next_by_size(uint8_t *buffer, size_t valid_size, void **record,
                          uint32_t version);

#endif
