/* Per-thread logs: each thread writes 64-byte events into chunks of its own, without lock
 * or system call, while one recorder is active in the process. The hooks' side is inline;
 * the session's side opens, closes and walks the logs.
 *
 * A hook does:   log = mp_log_enter();  if (log) { ...append...; mp_log_leave(log); }
 *
 * Closing: the session stores epoch 0, issues a process-wide barrier (membarrier) and
 * waits until no log is busy; from then on no hook writes and all that was written is
 * visible to the closer. The hooks pay two plain stores for that, no fence. */
#ifndef MP_RECORD_THREAD_LOG_H
#define MP_RECORD_THREAD_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"
#include "base/compiler.h"
#include "base/status.h"
#include "record/budget.h"
#include "record/event.h"
#include "record/intern.h"

#define MP_PREFETCH_EVENTS 6
#define MP_OPEN_OP_LIMIT 512 /* nesting beyond this is counted, not recorded */

/* Why something is not in the recording: suffix, key in `coverage`, explanation. */
#define MP_LOSSES(L)                                                                     \
    L(EVENT, "events_at_limit", "memory limit reached: events after it are missing")     \
    L(OVERWRITTEN, "events_overwritten", "ring mode: older events made room for newer")  \
    L(REENTRANT, "events_reentrant", "raised inside a hook of the same thread")          \
    L(STACK, "stacks_at_limit", "no room for a new Python stack")                        \
    L(NAME, "names_at_limit", "no room for a new name")                                  \
    L(SHAPE, "shapes_at_limit", "no room for new shapes, or more than are kept")         \
    L(NESTING, "operators_too_deep", "operators nested more than 512 deep")              \
    L(OBJECT, "objects_at_limit", "more code objects or modules than can be told apart") \
    L(LOG, "threads_without_log", "no memory for a new thread's log")

#define MP_ENUM_LOSS(suffix, key, text) MP_LOSS_##suffix,
typedef enum mp_loss { MP_LOSSES(MP_ENUM_LOSS) MP_LOSS_COUNT } mp_loss;
const char *mp_loss_key(mp_loss loss);
const char *mp_loss_text(mp_loss loss);

/* Chunk header, in the place of the chunk's first event. While recording, `next`, `end`,
 * `sealed` and the logs' `first` and `last` change under the chunk lock, which is taken once
 * a chunk and is a leaf: nothing is called while it is held. */
typedef struct mp_chunk {
    struct mp_chunk *next;  /* this log's next chunk, or NULL */
    struct mp_thread_log *log;
    uint64_t serial;        /* order of taking, over all logs */
    uint64_t first_ordinal; /* log's op_count when the chunk was taken */
    mp_event *end;          /* one past the last event, set when the chunk is sealed */
    uint32_t sealed;        /* 1: nobody writes into it any more; ring mode may reuse it */
    uint32_t unused[5];
} mp_chunk;
_Static_assert(sizeof(mp_chunk) == sizeof(mp_event), "takes one event's place");
#define MP_CHUNK_EVENTS (MP_CHUNK_BYTES / sizeof(mp_event) - 1)

typedef struct mp_open_op {
    const void *key;  /* address of torch's RecordFunction, or of a span */
    mp_event *event;  /* NULL when the start was not recorded */
    const void *frame; /* innermost Python frame, while the operator keeps it from moving; or NULL */
    uint32_t ordinal;
    uint32_t stack;
} mp_open_op;

typedef struct mp_thread_log {
    /* Written by the owner thread in hooks. */
    _Atomic(uint32_t) busy;  /* 1 inside a hook; read by the closer */
    _Atomic(uint32_t) epoch; /* recorder epoch this log belongs to */
    mp_event *next;          /* next free event; == limit when the chunk is full */
    mp_event *limit;
    uint32_t op_depth;
    uint32_t op_count;       /* operators begun; ordinals are 1..op_count */
    uint32_t op_untracked;   /* starts beyond MP_OPEN_OP_LIMIT */
    uint32_t object_generation; /* of the fingerprints in `stacks`; see objects.h */
    mp_intern stacks;
    mp_intern names;
    mp_intern shapes;
    uint64_t event_count;
    uint64_t lost[MP_LOSS_COUNT];
    mp_chunk *first;
    mp_chunk *last;

    /* Set when the log joins an epoch. */
    uint32_t id;        /* 1-based within the recording */
    _Atomic(bool) thread_ended;
    int64_t os_id;      /* gettid() */
    uint64_t torch_id;  /* torch's logical thread id, 0 unknown */
    char name[16];      /* as the kernel knows it, at join or at the thread's end */
    struct mp_thread_log *next_log; /* registry, newest first; logs are never freed */

    /* open_ops[1..op_depth], outermost first. Entry 0 is empty, so that the innermost is
     * there to read without a question. */
    mp_open_op open_ops[MP_OPEN_OP_LIMIT + 1];
} mp_thread_log;

/* The one active recorder of the process. */
typedef struct mp_recorder {
    _Atomic(uint32_t) epoch; /* 0 = not recording */
    bool want_stacks;
    bool want_shapes;
    bool ring;
    uint32_t last_epoch;
    /* What higher layers supply; NULL where the source is off. Hook context. */
    uint32_t (*capture_stack)(mp_thread_log *log);
    const void *(*innermost_frame)(void);
    uint64_t (*torch_thread_id)(void);
    int64_t (*next_sequence)(void);
    mp_budget budget;
    _Atomic(uint64_t) chunk_serial;
    _Atomic(uint64_t) overwritten_ticks; /* ring: nothing before this is complete */
    _Atomic(uint64_t) limit_ticks;       /* when the limit stopped collection, or 0 */
    _Atomic(uint64_t) lost_logs;
    _Atomic(mp_thread_log *) logs;
} mp_recorder;

extern mp_recorder g_recorder;
extern MP_THREAD_LOCAL mp_thread_log *t_log;

mp_thread_log *mp_log_enter_slow(mp_thread_log *log);
mp_event *mp_log_append_slow(mp_thread_log *log);

/* The calling thread's log, marked busy; or NULL when nothing records, the thread is
 * already inside a hook, or no log could be made. A non-NULL result must be left. */
MP_INLINE mp_thread_log *
mp_log_enter(void)
{
    mp_thread_log *log = t_log;
    uint32_t epoch = mp_load_relaxed(&g_recorder.epoch);
    if (MP_UNLIKELY(epoch == 0)) {
        return 0;
    }
    if (MP_UNLIKELY(log == 0 || mp_load_relaxed(&log->epoch) != epoch ||
                    mp_load_relaxed(&log->busy) != 0)) {
        return mp_log_enter_slow(log);
    }
    mp_store_relaxed(&log->busy, 1);
    /* Pairs with the closer's membarrier: either it sees busy, or we see epoch 0. */
    MP_COMPILER_BARRIER();
    if (MP_UNLIKELY(mp_load_relaxed(&g_recorder.epoch) != epoch)) {
        mp_store_release(&log->busy, 0);
        return 0;
    }
    return log;
}

MP_INLINE void
mp_log_leave(mp_thread_log *log)
{
    /* Acquired by the closer's read of busy: it then sees the events. */
    mp_store_release(&log->busy, 0);
}

/* A slot to fill completely (its old content is undefined), or NULL with the loss
 * counted. The caller is between enter and leave. */
MP_INLINE mp_event *
mp_log_append(mp_thread_log *log)
{
    if (MP_UNLIKELY(log->next == log->limit)) {
        return mp_log_append_slow(log);
    }
    /* A log is read once, long after: its lines are never in the cache when they are
     * written. Asking for one a few events ahead hides that. */
    __builtin_prefetch(log->next + MP_PREFETCH_EVENTS, 1);
    return log->next++;
}

/* Ring mode: sets the end of an operator whose event may have made room for a newer one
 * meanwhile; `ordinal` tells whether the place is still its own. */
void mp_log_complete_in_ring(mp_thread_log *log, mp_event *event, uint32_t ordinal,
                             uint64_t end_ticks);

/* ---- the session's side; callers hold the session lock (see session.h) ---- */

typedef struct mp_recorder_options {
    size_t max_bytes;
    bool ring;
    bool want_stacks;
    bool want_shapes;
} mp_recorder_options;

/* Prepares the budget and the fork and thread-exit handlers. Nothing records yet. */
mp_status mp_recorder_open(const mp_recorder_options *options);

/* Begins or ends an epoch. stop returns when no hook writes any more; logs stay readable.
 * Starting again after stop continues nothing: use close and open. */
void mp_recorder_start(void);
void mp_recorder_stop(void);

/* Gives the budget back. The recorder is stopped. */
void mp_recorder_close(void);

/* True in a child process that was forked while recording. */
bool mp_recorder_is_forked_child(void);

/* Logs that took part in the epoch that mp_recorder_stop() ended, in order of joining:
 * call with NULL for the first. */
mp_thread_log *mp_recorder_next_log(mp_thread_log *previous);

/* Events of a chunk of a stopped log: *end is one past the last. */
mp_event *mp_chunk_events(const mp_thread_log *log, const mp_chunk *chunk, mp_event **end);

#endif
