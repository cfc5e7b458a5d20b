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

static pthread_mutex_t s_chunk_lock = PTHREAD_MUTEX_INITIALIZER; /* see mp_chunk */

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
seal_last_chunk_locked(mp_thread_log *log)
{
    if (log->last != NULL) {
        log->last->end = log->next;
        log->last->sealed = 1;
    }
}

/* Destructors of the thread that run after this one and allocate get another log. */
static void
thread_exits(void *argument)
{
    mp_thread_log *log = argument;
    uint32_t epoch = mp_load_acquire(&g_recorder.epoch);
    if (epoch != 0 && mp_load_relaxed(&log->epoch) == epoch && mp_log_enter() == log) {
        read_thread_name(log);
        pthread_mutex_lock(&s_chunk_lock);
        seal_last_chunk_locked(log);
        pthread_mutex_unlock(&s_chunk_lock);
        mp_log_leave(log);
    }
    t_log = NULL;
    /* Acquired by reuse_log(). */
    mp_store_release(&log->thread_ended, true);
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
    pthread_mutex_init(&s_chunk_lock, NULL);
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
        if (mp_load_acquire(&log->thread_ended) && mp_load_relaxed(&log->epoch) != epoch &&
            mp_cas_acq_rel(&log->busy, &free_mark, 1)) {
            if (mp_load_acquire(&log->thread_ended) &&
                mp_load_relaxed(&log->epoch) != epoch) {
                mp_store_relaxed(&log->thread_ended, false);
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
    /* Acquired by log_of_oldest_sealed_chunk_locked(): no chunk of an older epoch shows. */
    mp_store_release(&log->epoch, epoch);
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
    if (mp_load_relaxed(&log->epoch) != epoch) {
        join_epoch(log, epoch);
    }
    return log;
}

/* ---- chunks ---- */

static mp_thread_log *
log_of_oldest_sealed_chunk_locked(void)
{
    uint32_t epoch = mp_load_relaxed(&g_recorder.epoch);
    mp_thread_log *oldest = NULL;
    for (mp_thread_log *log = mp_load_acquire(&g_recorder.logs); log != NULL;
         log = log->next_log) {
        if (mp_load_acquire(&log->epoch) == epoch && log->first != NULL &&
            log->first->sealed &&
            (oldest == NULL || log->first->serial < oldest->first->serial)) {
            oldest = log;
        }
    }
    return oldest;
}

/* Ring mode: the oldest sealed chunk of all logs, out of its log's list; NULL when every
 * chunk is being written. */
static mp_chunk *
take_over_chunk_locked(void)
{
    mp_thread_log *victim = log_of_oldest_sealed_chunk_locked();
    if (victim == NULL) {
        return NULL;
    }
    mp_chunk *chunk = victim->first;
    victim->first = chunk->next;
    if (chunk == victim->last) { /* its thread has ended */
        victim->last = NULL;
    }
    victim->lost[MP_LOSS_OVERWRITTEN] += (uint64_t)(chunk->end - (mp_event *)(chunk + 1));
    if (chunk->end[-1].ticks > mp_load_relaxed(&g_recorder.overwritten_ticks)) {
        mp_store_relaxed(&g_recorder.overwritten_ticks, chunk->end[-1].ticks);
    }
    return chunk;
}

static void
stop_at_limit(void)
{
    uint64_t none = 0;
    uint64_t now = mp_clock_ticks();
    (void)mp_cas_acq_rel(&g_recorder.limit_ticks, &none, now);
}

static mp_chunk *
take_chunk_locked(void)
{
    mp_chunk *chunk = mp_budget_take_event_chunk(&g_recorder.budget);
    if (chunk == NULL && g_recorder.ring) {
        chunk = take_over_chunk_locked();
    }
    return chunk;
}

static void
link_chunk_locked(mp_thread_log *log, mp_chunk *chunk)
{
    *chunk = (mp_chunk){
        .log = log,
        .serial = mp_add_relaxed(&g_recorder.chunk_serial, 1),
        .first_ordinal = log->op_count,
    };
    seal_last_chunk_locked(log);
    if (log->last != NULL) {
        log->last->next = chunk;
    }
    log->last = chunk;
    if (log->first == NULL) {
        log->first = chunk;
    }
}

MP_NOINLINE mp_event *
mp_log_append_slow(mp_thread_log *log)
{
    mp_chunk *chunk = NULL;
    if (mp_load_relaxed(&g_recorder.limit_ticks) == 0) {
        pthread_mutex_lock(&s_chunk_lock);
        chunk = take_chunk_locked();
        if (chunk != NULL) {
            link_chunk_locked(log, chunk);
        }
        pthread_mutex_unlock(&s_chunk_lock);
    }
    if (chunk == NULL) {
        /* Everything later is dropped in all threads, so that what is kept is complete up
         * to one instant. In ring mode: when every chunk is being written by some thread. */
        stop_at_limit();
        log->lost[MP_LOSS_EVENT]++;
        return NULL;
    }
    mp_event *events = (mp_event *)(chunk + 1);
    log->next = events + 1;
    log->limit = events + MP_CHUNK_EVENTS;
    return events;
}

MP_NOINLINE void
mp_log_complete_in_ring(mp_thread_log *log, mp_event *event, uint32_t ordinal,
                        uint64_t end_ticks)
{
    const mp_chunk *chunk =
        (const mp_chunk *)((uintptr_t)event & ~(uintptr_t)(MP_CHUNK_BYTES - 1));
    pthread_mutex_lock(&s_chunk_lock); /* no chunk changes hands meanwhile */
    if (chunk->log == log && event->kind == MP_EVENT_OPERATOR && event->op_at == ordinal) {
        event->op.end_ticks = end_ticks;
    }
    pthread_mutex_unlock(&s_chunk_lock);
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
        if (mp_load_relaxed(&log->epoch) == g_recorder.last_epoch && log->id > after &&
            (best == NULL || log->id < best->id)) {
            best = log;
        }
    }
    return best;
}
