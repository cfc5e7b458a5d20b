/* The states of collection in this process: closed -> recording -> stopped -> closed. One
 * session at a time. The caller (python/session_type) holds the GIL for every call except
 * mp_session_assemble, so calls never overlap; hooks run at any moment. */
#ifndef MP_SESSION_SESSION_H
#define MP_SESSION_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "collect/cupti_activity.h"
#include "collect/torch_alloc.h"
#include "record/recording.h"
#include "record/thread_log.h"
#include "session/gather.h"

typedef struct mp_session_options {
    bool memory;
    bool stacks;
    bool operators; /* all of them; else backward nodes and user ranges only */
    bool shapes;
    bool ring;
    bool activities; /* GPU activity may be started: half of max_bytes is kept for it */
    size_t max_bytes;
    /* From above; NULL switches stacks off. */
    uint32_t (*capture_stack)(mp_thread_log *log);
    const void *(*innermost_frame)(void);
} mp_session_options;

/* Why sources are on or off, and what was lost: read after stop, until close. */
typedef struct mp_session_report {
    bool memory_on, operators_on, stacks_on, shapes_on;
    mp_torch_alloc_state alloc;
    uint64_t contradictions;
    uint64_t lost[MP_LOSS_COUNT];
    uint64_t threads;
    uint64_t used_bytes;
    bool stopped_at_limit;
    mp_cupti_report activities;
} mp_session_report;

/* Opens the recorder and the object set and puts the hooks in place. torch may be absent:
 * nothing of it is then hooked; call mp_session_attach_torch() when it has come. MP_BUSY
 * while a session is open. On failure everything is as before. */
mp_status mp_session_start(const mp_session_options *options);

/* Looks for torch again and hooks what was not hooked yet: for torch imported, or CUDA
 * loaded, after the start. */
mp_status mp_session_attach_torch(void);

/* GPU activity from here on, through the CUPTI that mp_cupti_load() finds with `paths` and
 * `only`. Where it cannot be, `reason` says why and the rest goes on. dump_path: see
 * collect/cupti_dump.h; or NULL. */
mp_status mp_session_start_activities(const char *const *paths, size_t count, bool only,
                                      const char *dump_path, char *reason, size_t room);

/* Ends GPU activity for this session, ahead of its stop; what was seen is kept. */
void mp_session_stop_activities(void);

bool mp_session_is_open(void);

/* The window that outputs show begins now. */
void mp_session_begin_window(void);

/* Step `number` begins on the calling thread; a negative number only ends the one before. */
void mp_session_mark_step(int64_t number);

/* At stop, the step that is then open is not shown: what follows the last optimizer step
 * of a program is no step. */
void mp_session_drop_open_step(void);

/* A finished range of the calling thread. */
void mp_session_add_span(const char *name, size_t length, uint32_t kind, uint32_t object_id,
                         uint64_t start_ticks, uint64_t end_ticks);

/* Takes over `blocks` (malloc'ed), live when recording began. */
void mp_session_set_baseline(mp_baseline *blocks, size_t count);

/* For assembly: copies the texts; later names of an object replace earlier ones. */
mp_status mp_session_name_module(uint32_t object_id, uint32_t parent_object_id,
                                 const char *path, const char *class_name);
mp_status mp_session_mark_code(uint32_t object_id, uint32_t frame_flags);

/* Hooks out; returns when no hook writes any more. A second call does nothing. */
void mp_session_stop(void);

/* After stop: gathers texts (the GIL is held), then merges and analyses (no GIL needed):
 * two calls, so that the caller can release it in between. *out is the caller's. */
mp_status mp_session_gather(mp_describe_line describe);
mp_status mp_session_assemble(mp_recording **out);

void mp_session_report_to(mp_session_report *report);

/* Gives all memory of the session back. */
void mp_session_close(void);

/* In a forked child: nothing records, nothing is held; slots are put back. */
void mp_session_after_fork(void);

#endif
