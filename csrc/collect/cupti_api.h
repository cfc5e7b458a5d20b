/* CUPTI by dlopen: found, checked and called here. Nothing links against it and no NVIDIA
 * header is needed; ids and result codes are in collect/cupti_ids.h.
 *
 * At most one library is used in a process, the one that torch has loaded where there is
 * one: a second copy would collide with it. Loading makes no CUDA context and starts
 * nothing. */
#ifndef MP_COLLECT_CUPTI_API_H
#define MP_COLLECT_CUPTI_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef int mp_cupti_result; /* MP_CUPTI_SUCCESS, ... */

/* Called by CUPTI: on the application's thread inside a CUDA call; and on CUPTI's own
 * thread or on that of a flush. */
typedef void (*mp_cupti_request)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*mp_cupti_complete)(void *context, uint32_t stream, uint8_t *buffer,
                                  size_t size, size_t valid_size);

/* F(member, symbol, arguments): needed, and used where they are there. */
#define MP_CUPTI_NEEDED(F)                                                               \
    F(get_version, cuptiGetVersion, (uint32_t * version))                                \
    F(get_timestamp, cuptiGetTimestamp, (uint64_t * ns))                                 \
    F(get_result_string, cuptiGetResultString, (mp_cupti_result, const char **))         \
    F(register_callbacks, cuptiActivityRegisterCallbacks,                                \
      (mp_cupti_request, mp_cupti_complete))                                             \
    F(enable, cuptiActivityEnable, (int kind))                                           \
    F(disable, cuptiActivityDisable, (int kind))                                         \
    F(flush_all, cuptiActivityFlushAll, (uint32_t flag))                                 \
    F(get_next_record, cuptiActivityGetNextRecord,                                       \
      (uint8_t * buffer, size_t valid_size, void **record))                              \
    F(get_dropped, cuptiActivityGetNumDroppedRecords,                                    \
      (void *context, uint32_t stream, size_t *count))                                   \
    F(set_attribute, cuptiActivitySetAttribute, (int attribute, size_t *size, void *))   \
    F(set_thread_id_type, cuptiSetThreadIdType, (int type))
#define MP_CUPTI_OPTIONAL(F)                                                             \
    F(enable_runtime_id, cuptiActivityEnableRuntimeApi, (uint32_t id, uint8_t on))       \
    F(enable_driver_id, cuptiActivityEnableDriverApi, (uint32_t id, uint8_t on))

#define MP_CUPTI_MEMBER(member, symbol, arguments) mp_cupti_result(*member) arguments;
typedef struct mp_cupti {
    MP_CUPTI_NEEDED(MP_CUPTI_MEMBER)
    MP_CUPTI_OPTIONAL(MP_CUPTI_MEMBER)
    uint32_t version; /* cuptiGetVersion() */
} mp_cupti;

/* Finds the library once in a process: one that is loaded already, else the first of
 * `paths` that can be loaded; never one in a folder `stubs`. `only`: nothing but `paths`
 * is looked at (tests, and the user's own choice). On failure `reason` says why, and the
 * next call looks again. Takes the loader's lock. */
mp_status mp_cupti_load(const char *const *paths, size_t count, bool only, char *reason,
                        size_t room);

/* The loaded library, or NULL: none yet, or this is the child of a fork, where CUPTI must
 * not be called. */
const mp_cupti *mp_cupti_get(void);

/* File of the loaded library, or "". */
const char *mp_cupti_path(void);

/* "39 (another profiler holds CUPTI)" into `text`. */
void mp_cupti_describe(mp_cupti_result result, char *text, size_t room);

/* The major release of CUDA that a version belongs to; 0 for one that is not known. */
unsigned mp_cupti_cuda_major(uint32_t version);

#endif
