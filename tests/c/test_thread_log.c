// needs: record/thread_log.c record/budget.c record/intern.c base/clock.c
#include "record/thread_log.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"

enum { MIB = 1 << 20, WRITERS = 4 };

static void
open_recorder(size_t bytes, bool ring)
{
    mp_recorder_options options = {.max_bytes = bytes, .ring = ring};
    CHECK_EQUAL(mp_recorder_open(&options), MP_OK);
}

/* What a hook does; false when nothing was recorded. */
static bool
write_event(uint64_t address)
{
    mp_thread_log *log = mp_log_enter();
    if (log == NULL) {
        return false;
    }
    mp_event *event = mp_log_append(log);
    if (event != NULL) {
        *event = (mp_event){.ticks = mp_clock_ticks(), .kind = MP_EVENT_ALLOC};
        event->memory.address = address;
        event->memory.bytes = 64;
        log->event_count++;
    }
    mp_log_leave(log);
    return event != NULL;
}

/* Events of a stopped log, whose addresses must be consecutive; *last gets the last. */
static uint64_t
count_events(const mp_thread_log *log, uint64_t *last)
{
    uint64_t count = 0;
    uint64_t before = 0;
    for (const mp_chunk *chunk = log->first; chunk != NULL; chunk = chunk->next) {
        mp_event *end;
        for (mp_event *event = mp_chunk_events(log, chunk, &end); event < end; event++) {
            CHECK_EQUAL(event->kind, MP_EVENT_ALLOC);
            CHECK(count == 0 || event->memory.address == before + 1);
            before = event->memory.address;
            count++;
        }
    }
    *last = before;
    return count;
}

static uint64_t
count_all(uint64_t *lost)
{
    uint64_t count = 0;
    uint64_t last;
    *lost = 0;
    mp_thread_log *log = NULL;
    while ((log = mp_recorder_next_log(log)) != NULL) {
        count += count_events(log, &last);
        *lost += log->lost[MP_LOSS_EVENT];
    }
    return count;
}

static void
records_nothing_unless_started(void)
{
    CHECK(!write_event(1));
    open_recorder(4 * MIB, false);
    CHECK(!write_event(1));
    mp_recorder_start();
    CHECK(write_event(1));
    mp_recorder_stop();
    CHECK(!write_event(2));
    uint64_t lost;
    CHECK_EQUAL(count_all(&lost), 1);
    mp_recorder_close();
}

static void
counts_reentry_and_goes_on(void)
{
    open_recorder(4 * MIB, false);
    mp_recorder_start();
    mp_thread_log *log = mp_log_enter();
    CHECK(log != NULL);
    CHECK(mp_log_enter() == NULL);
    CHECK(!write_event(1));
    mp_log_leave(log);
    CHECK(write_event(1));
    mp_recorder_stop();
    CHECK_EQUAL(log->lost[MP_LOSS_REENTRANT], 2);
    mp_recorder_close();
}

static void
stops_at_the_limit_and_counts(void)
{
    enum { EVENTS = 100000 };
    open_recorder(4 * MIB, false);
    mp_recorder_start();
    uint64_t written = 0;
    for (uint64_t i = 0; i < EVENTS; i++) {
        written += write_event(i + 1);
    }
    mp_recorder_stop();
    uint64_t lost;
    uint64_t last;
    CHECK_EQUAL(written, g_recorder.budget.event_chunks * MP_CHUNK_EVENTS);
    CHECK_EQUAL(count_all(&lost), written);
    CHECK_EQUAL(lost, EVENTS - written);
    CHECK_EQUAL(count_events(mp_recorder_next_log(NULL), &last), written);
    CHECK_EQUAL(last, written); /* the first ones are kept */
    CHECK(g_recorder.limit_ticks != 0);
    mp_recorder_close();
}

static void
a_ring_keeps_the_newest(void)
{
    enum { EVENTS = 300000 };
    open_recorder(4 * MIB, true);
    mp_recorder_start();
    for (uint64_t i = 0; i < EVENTS; i++) {
        CHECK(write_event(i + 1));
    }
    mp_recorder_stop();
    uint64_t last;
    mp_thread_log *log = mp_recorder_next_log(NULL);
    uint64_t kept = count_events(log, &last);
    CHECK_EQUAL(last, EVENTS);
    CHECK(kept > (g_recorder.budget.event_chunks - 1) * MP_CHUNK_EVENTS);
    CHECK_EQUAL(kept + log->lost[MP_LOSS_OVERWRITTEN], EVENTS);
    CHECK_EQUAL(log->lost[MP_LOSS_EVENT], 0);
    CHECK(g_recorder.overwritten_ticks != 0);
    mp_recorder_close();
}

static _Atomic(bool) s_go;

typedef struct writer {
    uint64_t limit; /* events to write; 0 = until recording ends */
    uint64_t written;
} writer;

static void *
write_events(void *argument)
{
    writer *self = argument;
    while (!mp_load_relaxed(&s_go)) {
        sched_yield();
    }
    while (self->limit == 0 || self->written < self->limit) {
        if (!write_event(self->written + 1)) {
            break;
        }
        self->written++;
    }
    return NULL;
}

static void
a_ring_is_shared_by_threads(void)
{
    static writer s_writers[WRITERS];
    pthread_t threads[WRITERS];
    open_recorder(4 * MIB, true);
    mp_recorder_start();
    for (int i = 0; i < WRITERS; i++) {
        s_writers[i] = (writer){.limit = 60000};
        threads[i] = check_thread(write_events, &s_writers[i]);
    }
    for (int i = 0; i < WRITERS; i++) {
        check_join(threads[i]);
        CHECK_EQUAL(s_writers[i].written, 60000);
    }
    mp_recorder_stop();
    uint64_t kept = 0;
    uint64_t overwritten = 0;
    mp_thread_log *log = NULL;
    while ((log = mp_recorder_next_log(log)) != NULL) {
        uint64_t last;
        uint64_t count = count_events(log, &last);
        CHECK(count == 0 || last == 60000);
        kept += count;
        overwritten += log->lost[MP_LOSS_OVERWRITTEN];
    }
    CHECK_EQUAL(kept + overwritten, WRITERS * 60000);
    mp_recorder_close();
}

static void
a_ring_outlives_many_short_threads(void)
{
    enum { SHORT_THREADS = 300 };
    open_recorder(4 * MIB, true);
    mp_recorder_start();
    for (int i = 0; i < SHORT_THREADS; i++) {
        writer one = {.limit = 10};
        check_join(check_thread(write_events, &one));
        CHECK_EQUAL(one.written, 10);
    }
    CHECK(write_event(1));
    mp_recorder_stop();
    mp_recorder_close();
}

static void
keeps_what_ended_threads_wrote(void)
{
    enum { SHORT_THREADS = 20 };
    open_recorder(8 * MIB, false);
    mp_recorder_start();
    for (uint64_t i = 0; i < SHORT_THREADS; i++) {
        writer some = {.limit = 100 + i};
        check_join(check_thread(write_events, &some));
    }
    mp_recorder_stop();
    uint64_t total = 0;
    uint32_t logs = 0;
    uint32_t id = 0;
    mp_thread_log *log = NULL;
    while ((log = mp_recorder_next_log(log)) != NULL) {
        uint64_t last;
        CHECK(log->id > id && log->os_id > 0);
        id = log->id;
        CHECK_EQUAL(count_events(log, &last), 100 + logs);
        total += last;
        logs++;
    }
    CHECK_EQUAL(logs, SHORT_THREADS);
    CHECK_EQUAL(total, SHORT_THREADS * 100 + SHORT_THREADS * (SHORT_THREADS - 1) / 2);
    mp_recorder_close();
}

static void
logs_of_ended_threads_are_used_again(void)
{
    size_t before = 0;
    for (int round = 0; round < 5; round++) {
        open_recorder(4 * MIB, false);
        mp_recorder_start();
        for (int i = 0; i < 5; i++) {
            writer one = {.limit = 1};
            check_join(check_thread(write_events, &one));
        }
        mp_recorder_stop();
        mp_recorder_close();
        size_t logs = 0;
        for (mp_thread_log *log = mp_load_acquire(&g_recorder.logs); log != NULL;
             log = log->next_log) {
            logs++;
        }
        CHECK(round < 2 || logs == before);
        before = logs;
    }
}

/* From the moment stop returns the logs may be read: nobody writes any more. */
static void
another_thread_stops_four_writers(void)
{
    static writer s_writers[WRITERS];
    for (int round = 0; round < 20; round++) {
        pthread_t threads[WRITERS];
        open_recorder(64 * MIB, false);
        mp_store_relaxed(&s_go, false);
        for (int i = 0; i < WRITERS; i++) {
            s_writers[i] = (writer){0};
            threads[i] = check_thread(write_events, &s_writers[i]);
        }
        mp_recorder_start();
        mp_store_relaxed(&s_go, true);
        usleep(2000);
        mp_recorder_stop();
        uint64_t lost;
        uint64_t count = count_all(&lost);
        uint64_t written = 0;
        for (int i = 0; i < WRITERS; i++) {
            check_join(threads[i]);
            written += s_writers[i].written;
        }
        CHECK_EQUAL(count, written);
        mp_recorder_close();
    }
}

static void *
write_until_told(void *argument)
{
    _Atomic(bool) *stop = argument;
    for (uint64_t i = 1; !mp_load_relaxed(stop); i++) {
        (void)write_event(i);
    }
    return NULL;
}

static void
a_child_records_nothing_and_may_start_anew(void)
{
    static _Atomic(bool) s_stop;
    open_recorder(64 * MIB, false);
    mp_recorder_start();
    CHECK(write_event(1));
    CHECK(!mp_recorder_is_forked_child());
    pthread_t thread = check_thread(write_until_told, &s_stop);
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            bool off = mp_recorder_is_forked_child() && !write_event(2);
            mp_recorder_options options = {.max_bytes = 4 * MIB};
            bool opens = mp_recorder_open(&options) == MP_OK;
            mp_recorder_start();
            bool on = write_event(1) && !mp_recorder_is_forked_child();
            mp_recorder_stop();
            uint64_t lost;
            _exit(off && opens && on && count_all(&lost) == 1 ? 0 : 1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_EQUAL(status, 0);
    }
    CHECK(write_event(2)); /* the parent goes on */
    mp_recorder_stop();
    mp_store_relaxed(&s_stop, true);
    check_join(thread);
    uint64_t last;
    CHECK_EQUAL(count_events(t_log, &last), 2);
    mp_recorder_close();
}

static void
every_loss_has_a_name(void)
{
    for (int i = 0; i < MP_LOSS_COUNT; i++) {
        CHECK(strlen(mp_loss_key((mp_loss)i)) > 0 && strlen(mp_loss_text((mp_loss)i)) > 0);
        CHECK(strchr(mp_loss_key((mp_loss)i), ' ') == NULL);
    }
}

int
main(void)
{
    mp_clock_init();
    mp_store_relaxed(&s_go, true);
    RUN(records_nothing_unless_started);
    RUN(counts_reentry_and_goes_on);
    RUN(stops_at_the_limit_and_counts);
    RUN(a_ring_keeps_the_newest);
    RUN(a_ring_is_shared_by_threads);
    RUN(a_ring_outlives_many_short_threads);
    RUN(keeps_what_ended_threads_wrote);
    RUN(logs_of_ended_threads_are_used_again);
    RUN(another_thread_stops_four_writers);
    RUN(a_child_records_nothing_and_may_start_anew);
    RUN(every_loss_has_a_name);
    return 0;
}
