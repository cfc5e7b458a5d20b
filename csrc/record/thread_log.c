#include "record/thread_log.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/membarrier.h>

#include "base/clock.h"

mp_recorder g_recorder;
MP_THREAD_LOCAL mp_thread_log *t_log;

static pthread_key_t s_exit_key;
static bool s_exit_key_made;
static bool s_forked_child;
static bool s_has_membarrier;

/* Chunk states. A full chunk may be taken over by any log in ring mode. */
enum { CHUNK_WRITING = 0, CHUNK_FULL = 1, CHUNK_TAKEN = 2 };

#define MP_LOSS_KEY_CASE(suffix, key, text)                                              \
    case MP_LOSS_##suffix:                                                               \
        return key;
#define MP_LOSS_TEXT_CASE(suffix, key, text)                                             \
    case MP_LOSS_##suffix:                                                               \
        return text;

const char *
mp_loss_key(mp_loss loss)
{
    switch (loss) {
        MP_LOSSES(MP_LOSS_KEY_CASE)
    case MP_LOSS_COUNT:
        break;
    }
    return "";
}

const char *
mp_loss_text(mp_loss loss)
{
    switch (loss) {
        MP_LOSSES(MP_LOSS_TEXT_CASE)
    case MP_LOSS_COUNT:
        break;
    }
    return "";
}

/* ---- threads come and go ---- */

static void
read_thread_name(mp_thread_log *log)
{
    char name[16] = {0};
    if (prctl(PR_GET_NAME, name, 0, 0, 0) == 0) {
        memcpy(log->name, name, sizeof(log->name));
        log->name[sizeof(log->name) - 1] = '\0';
    }
}

static void
thread_exits(void *argument)
{
    mp_thread_log *log = argument;
    read_thread_name(log);
    log->thread_ended = true;
    t_log = NULL;
}

static void
after_fork_in_child(void)
{
    /* The budget was MADV_DONTFORK: nothing of it exists here. Logs of other threads are
     * unreachable copies, left alone. */
    s_forked_child = mp_load_relaxed(&g_recorder.epoch) != 0 || s_forked_child;
    mp_store_relaxed(&g_recorder.epoch, 0);
    mp_store_relaxed(&g_recorder.logs, NULL);
    g_recorder.budget = (mp_budget){0};
    t_log = NULL;
}

static mp_status
prepare_process(void)
{
    if (s_exit_key_made) {
        return MP_OK;
    }
    if (pthread_key_create(&s_exit_key, thread_exits) != 0) {
        return MP_NO_MEMORY;
    }
    if (pthread_atfork(NULL, NULL, after_fork_in_child) != 0) {
        return MP_NO_MEMORY;
    }
    s_has_membarrier =
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    s_exit_key_made = true;
    return MP_OK;
}

/* Logs outlive their threads and sessions: a late hook may still hold the pointer. A log
 * whose thread ended and that no epoch uses is taken over by a new thread. */
static mp_thread_log *
reuse_log(uint32_t epoch)
{
    for (mp_thread_log *log = mp_load_acquire(&g_recorder.logs); log != NULL;
         log = log->next_log) {
        uint32_t free_mark = 0;
        if (log->thread_ended && log->epoch != epoch &&
            log->epoch != g_recorder.last_epoch &&
            mp_cas_acq_rel(&log->busy, &free_mark, 1)) {
            if (log->thread_ended && log->epoch != epoch) {
                log->thread_ended = false;
                return log;
            }
            mp_store_release(&log->busy, 0);
        }
    }
    return NULL;
}

static mp_thread_log *
make_log(void)
{
    mp_thread_log *log = mmap(NULL, sizeof(*log), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (log == MAP_FAILED) {
        return NULL;
    }
    mp_store_relaxed(&log->busy, 1);
    mp_thread_log *head = mp_load_acquire(&g_recorder.logs);
    do {
        log->next_log = head;
    } while (!mp_cas_acq_rel(&g_recorder.logs, &head, log));
    return log;
}

static void
join_epoch(mp_thread_log *log, uint32_t epoch)
{
    static _Atomic(uint32_t) s_ids;
    log->next = NULL;
    log->limit = NULL;
    log->op_depth = 0;
    log->op_count = 0;
    log->op_untracked = 0;
    log->object_generation = 0;
    log->stacks = (mp_intern){0};
    log->names = (mp_intern){0};
    log->shapes = (mp_intern){0};
    log->event_count = 0;
    memset(log->lost, 0, sizeof(log->lost));
    log->first = NULL;
    log->last = NULL;
    log->id = mp_add_relaxed(&s_ids, 1) + 1;
    log->os_id = (int64_t)syscall(SYS_gettid);
    log->torch_id = g_recorder.torch_thread_id != NULL ? g_recorder.torch_thread_id() : 0;
    read_thread_name(log);
    log->epoch = epoch;
}

/* Off the hot path: first hook of a thread, first hook of an epoch, or re-entry. */
MP_NOINLINE mp_thread_log *
mp_log_enter_slow(mp_thread_log *log)
{
    uint32_t epoch = mp_load_acquire(&g_recorder.epoch);
    if (epoch == 0) {
        return NULL;
    }
    if (log != NULL && mp_load_relaxed(&log->busy) != 0) {
        log->lost[MP_LOSS_REENTRANT]++;
        return NULL;
    }
    if (log == NULL) {
        log = reuse_log(epoch);
        if (log == NULL) {
            log = make_log();
        }
        if (log == NULL || pthread_setspecific(s_exit_key, log) != 0) {
            mp_add_relaxed(&g_recorder.lost_logs, 1);
            return NULL;
        }
        t_log = log;
    }
    mp_store_relaxed(&log->busy, 1);
    MP_COMPILER_BARRIER(); /* as in mp_log_enter() */
    if (mp_load_relaxed(&g_recorder.epoch) != epoch) {
        mp_store_release(&log->busy, 0);
        return NULL;
    }
    if (log->epoch != epoch) {
        join_epoch(log, epoch);
    }
    return log;
}

/* ---- chunks ---- */

static mp_chunk *
oldest_full_chunk(void)
{
    mp_chunk *oldest = NULL;
    for (mp_thread_log *log = mp_load_acquire(&g_recorder.logs); log != NULL;
         log = log->next_log) {
        if (log->epoch != mp_load_relaxed(&g_recorder.epoch)) {
            continue;
        }
        mp_chunk *chunk = log->first;
        if (chunk != NULL && mp_load_acquire(&chunk->state) == CHUNK_FULL &&
            (oldest == NULL || chunk->serial < oldest->serial)) {
            oldest = chunk;
        }
    }
    return oldest;
}

static void
raise_overwritten(uint64_t ticks)
{
    uint64_t seen = mp_load_relaxed(&g_recorder.overwritten_ticks);
    while (seen < ticks && !mp_cas_acq_rel(&g_recorder.overwritten_ticks, &seen, ticks)) {
    }
}

/* Ring mode: unlinks the oldest full chunk of all logs. Only the winner of the state's
 * exchange touches the victim's list head, and a log's first chunk is never the one that
 * it is writing (that one is not FULL). */
static mp_chunk *
take_over_chunk(void)
{
    for (int attempt = 0; attempt < 64; attempt++) {
        mp_chunk *chunk = oldest_full_chunk();
        if (chunk == NULL) {
            return NULL;
        }
        uint32_t full = CHUNK_FULL;
        if (!mp_cas_acq_rel(&chunk->state, &full, CHUNK_TAKEN)) {
            continue;
        }
        mp_thread_log *victim = chunk->log;
        mp_event *events = (mp_event *)(chunk + 1);
        raise_overwritten(events[MP_CHUNK_EVENTS - 1].ticks);
        __atomic_fetch_add(&victim->lost[MP_LOSS_OVERWRITTEN], MP_CHUNK_EVENTS,
                           __ATOMIC_RELAXED);
        __atomic_store_n(&victim->first, chunk->next, __ATOMIC_RELEASE);
        return chunk;
    }
    return NULL;
}

static void
stop_at_limit(void)
{
    uint64_t none = 0;
    uint64_t now = mp_clock_ticks();
    (void)mp_cas_acq_rel(&g_recorder.limit_ticks, &none, now);
}

MP_NOINLINE mp_event *
mp_log_append_slow(mp_thread_log *log)
{
    mp_chunk *chunk = NULL;
    if (mp_load_relaxed(&g_recorder.limit_ticks) == 0) {
        chunk = mp_budget_take_event_chunk(&g_recorder.budget);
        if (chunk == NULL && g_recorder.ring) {
            chunk = take_over_chunk();
        }
    }
    if (chunk == NULL) {
        /* Everything later is dropped in all threads, so that what is kept is complete up
         * to one instant. In ring mode only a thread without any chunk comes here. */
        stop_at_limit();
        log->lost[MP_LOSS_EVENT]++;
        return NULL;
    }
    memset(chunk, 0, sizeof(*chunk));
    chunk->log = log;
    chunk->serial = mp_add_relaxed(&g_recorder.chunk_serial, 1);
    chunk->first_ordinal = log->op_count;
    mp_event *events = (mp_event *)(chunk + 1);
    if (log->last != NULL) {
        mp_chunk *last = log->last;
        last->end = log->limit;
        last->next = chunk;
        __atomic_store_n(&log->last, chunk, __ATOMIC_RELEASE);
        if (log->first == NULL) {
            __atomic_store_n(&log->first, chunk, __ATOMIC_RELEASE);
        }
        /* Acquired by take_over_chunk(): it then sees `next`. */
        mp_store_release(&last->state, CHUNK_FULL);
    } else {
        log->last = chunk;
        __atomic_store_n(&log->first, chunk, __ATOMIC_RELEASE);
    }
    log->next = events + 1;
    log->limit = events + MP_CHUNK_EVENTS;
    return events;
}

mp_event *
mp_chunk_events(const mp_thread_log *log, const mp_chunk *chunk, mp_event **end)
{
    *end = chunk == log->last ? log->next : chunk->end;
    return (mp_event *)(chunk + 1);
}

/* ---- the session's side ---- */

mp_status
mp_recorder_open(const mp_recorder_options *options)
{
    MP_TRY(prepare_process());
    MP_TRY(mp_budget_open(&g_recorder.budget, options->max_bytes));
    g_recorder.ring = options->ring;
    g_recorder.want_stacks = options->want_stacks;
    g_recorder.want_shapes = options->want_shapes;
    mp_store_relaxed(&g_recorder.overwritten_ticks, 0);
    mp_store_relaxed(&g_recorder.limit_ticks, 0);
    mp_store_relaxed(&g_recorder.lost_logs, 0);
    mp_store_relaxed(&g_recorder.chunk_serial, 0);
    s_forked_child = false;
    return MP_OK;
}

void
mp_recorder_start(void)
{
    g_recorder.last_epoch++;
    if (g_recorder.last_epoch == 0) {
        g_recorder.last_epoch = 1;
    }
    mp_store_release(&g_recorder.epoch, g_recorder.last_epoch);
}

static void
process_barrier(void)
{
    if (s_has_membarrier &&
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) {
        return;
    }
    /* Without membarrier: a store is visible to all cores long before this ends. */
    struct timespec pause = {0, 5 * 1000 * 1000};
    nanosleep(&pause, NULL);
    atomic_thread_fence(memory_order_seq_cst);
}

void
mp_recorder_stop(void)
{
    mp_store_release(&g_recorder.epoch, 0);
    process_barrier();
    mp_thread_log *own = t_log;
    for (mp_thread_log *log = mp_load_acquire(&g_recorder.logs); log != NULL;
         log = log->next_log) {
        /* Our own log is busy only if we were called from inside a hook, which nobody
         * does; waiting for it would never end. */
        while (log != own && mp_load_acquire(&log->busy) != 0) {
            sched_yield();
        }
    }
}

mp_status
mp_recorder_restart(void)
{
    size_t bytes = g_recorder.budget.bytes;
    mp_recorder_stop();
    mp_budget_close(&g_recorder.budget);
    MP_TRY(mp_budget_open(&g_recorder.budget, bytes));
    mp_store_relaxed(&g_recorder.overwritten_ticks, 0);
    mp_store_relaxed(&g_recorder.limit_ticks, 0);
    mp_recorder_start();
    return MP_OK;
}

void
mp_recorder_close(void)
{
    mp_budget_close(&g_recorder.budget);
}

bool
mp_recorder_is_forked_child(void)
{
    return s_forked_child;
}

mp_thread_log *
mp_recorder_next_log(mp_thread_log *previous)
{
    /* Ids grow in order of joining; the registry is in order of making. Quadratic in the
     * number of threads, which is small beside the events. */
    uint32_t after = previous == NULL ? 0 : previous->id;
    mp_thread_log *best = NULL;
    for (mp_thread_log *log = mp_load_acquire(&g_recorder.logs); log != NULL;
         log = log->next_log) {
        if (log->epoch == g_recorder.last_epoch && log->id > after &&
            (best == NULL || log->id < best->id)) {
            best = log;
        }
    }
    return best;
}
