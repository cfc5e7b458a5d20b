#include "session/session.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "analysis/analyse.h"
#include "collect/cupti_api.h"
#include "collect/torch_ops.h"
#include "collect/torch_symbols.h"
#include "record/objects.h"
#include "session/activities.h"
#include "session/merge.h"

enum {
    TOUCH_AHEAD_CHUNKS = 128, /* 8 MiB of events */
    TOUCH_FASTEST_MS = 1,
    TOUCH_SLOWEST_MS = 64,
    LEAST_BYTES_FOR_ACTIVITIES = 32 << 20,
};

/* The session, guarded by the caller's GIL, except the helper's members. */
static struct {
    bool open;
    bool stopped;
    mp_session_options options;
    mp_session_report report;
    mp_clock_pair start;
    mp_clock_pair stop;
    uint64_t window_ticks;
    bool drop_open_step;
    mp_gathered gathered;
    mp_baseline *baseline;
    size_t baseline_count;
    mp_module_name *modules;
    size_t module_count, module_room;
    mp_code_role *roles;
    size_t role_count, role_room;
    /* Helper thread that touches memory ahead of use. */
    pthread_t helper;
    bool helper_runs;
    pthread_mutex_t helper_lock; /* protects helper_ends */
    pthread_cond_t helper_wakes;
    bool helper_ends;
} s_session = {
    .helper_lock = PTHREAD_MUTEX_INITIALIZER,
};

static mp_clock_pair s_first_pair; /* of the process: the longer the base, the finer the rate */

/* ---- helper thread ---- */

static bool
helper_wait(long milliseconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += milliseconds * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&s_session.helper_lock);
    if (!s_session.helper_ends) {
        pthread_cond_timedwait(&s_session.helper_wakes, &s_session.helper_lock, &until);
    }
    bool ends = s_session.helper_ends;
    pthread_mutex_unlock(&s_session.helper_lock);
    return !ends;
}

/* Wakes often while events pour in and seldom when they do not. */
static void *
helper_main(void *argument)
{
    (void)argument;
    pthread_setname_np(pthread_self(), "memprof");
    long pause_ms = TOUCH_FASTEST_MS;
    size_t taken_before = 0;
    do {
        size_t taken = mp_budget_touch(&g_recorder.budget, TOUCH_AHEAD_CHUNKS);
        bool busy = taken - taken_before > TOUCH_AHEAD_CHUNKS / 8;
        pause_ms = busy ? TOUCH_FASTEST_MS : pause_ms * 2;
        pause_ms = pause_ms > TOUCH_SLOWEST_MS ? TOUCH_SLOWEST_MS : pause_ms;
        taken_before = taken;
    } while (helper_wait(pause_ms));
    return NULL;
}

static void
helper_start(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&s_session.helper_wakes, &attributes);
    pthread_condattr_destroy(&attributes);
    s_session.helper_ends = false;
    s_session.helper_runs = pthread_create(&s_session.helper, NULL, helper_main, NULL) == 0;
}

static void
helper_stop(void)
{
    if (!s_session.helper_runs) {
        return;
    }
    pthread_mutex_lock(&s_session.helper_lock);
    s_session.helper_ends = true;
    pthread_cond_signal(&s_session.helper_wakes);
    pthread_mutex_unlock(&s_session.helper_lock);
    pthread_join(s_session.helper, NULL);
    pthread_cond_destroy(&s_session.helper_wakes);
    s_session.helper_runs = false;
}

/* ---- start ---- */

mp_status
mp_session_attach_torch(void)
{
    if (!s_session.open || s_session.stopped) {
        return MP_UNAVAILABLE;
    }
    if (!mp_torch_find()) {
        return MP_UNAVAILABLE;
    }
    g_recorder.torch_thread_id = g_torch.thread_id;
    g_recorder.next_sequence = g_torch.next_sequence;
    mp_session_report *report = &s_session.report;
    const mp_torch_alloc_state *alloc = mp_torch_alloc_inspect();
    bool device_came = g_torch.has_c10_cuda && alloc->device_slots == 0;
    if (s_session.options.memory && (!alloc->on || device_came)) {
        mp_torch_alloc_stop();
        mp_cpu_route route =
            g_torch.alloc_cpu != NULL && g_torch.free_cpu != NULL ? MP_CPU_ROUTE_ALLOC
            : g_torch.reporter_new != NULL && g_torch.reporter_delete != NULL
                ? MP_CPU_ROUTE_REPORTER
                : MP_CPU_ROUTE_NONE;
        report->memory_on = mp_torch_alloc_start(route) == MP_OK;
    }
    if (!report->operators_on && g_torch_layout.operators) {
        report->operators_on =
            mp_torch_ops_start(s_session.options.operators, s_session.options.shapes) == MP_OK;
        report->shapes_on = report->operators_on && s_session.options.shapes &&
                            g_torch_layout.shapes && g_torch.op_input_count != NULL;
    }
    return MP_OK;
}

mp_status
mp_session_start(const mp_session_options *options)
{
    if (s_session.open) {
        return MP_BUSY;
    }
    if (s_first_pair.ticks == 0) {
        s_first_pair = mp_clock_pair_now();
    }
    bool stacks = options->stacks && options->capture_stack != NULL;
    mp_recorder_options recorder = {
        .max_bytes = options->activities ? options->max_bytes / 2 : options->max_bytes,
        .ring = options->ring,
        .want_stacks = stacks,
        .want_shapes = options->shapes,
    };
    if (!mp_objects_open()) {
        return MP_NO_MEMORY;
    }
    mp_status status = mp_recorder_open(&recorder);
    if (status != MP_OK) {
        mp_objects_close();
        return status;
    }
    g_recorder.capture_stack = options->capture_stack;
    g_recorder.innermost_frame = options->innermost_frame;
    s_session.options = *options;
    s_session.report = (mp_session_report){.stacks_on = stacks};
    s_session.open = true;
    s_session.stopped = false;
    s_session.drop_open_step = false;
    s_session.start = mp_clock_pair_now();
    s_session.window_ticks = s_session.start.ticks;
    mp_recorder_start();
    helper_start();
    (void)mp_session_attach_torch();
    return MP_OK;
}

mp_status
mp_session_start_activities(const char *const *paths, size_t count, bool only,
                            const char *dump_path, char *reason, size_t room)
{
    size_t bytes = s_session.options.max_bytes;
    if (!s_session.open || s_session.stopped || !s_session.options.activities) {
        snprintf(reason, room, "not asked for");
        return MP_UNAVAILABLE;
    }
    if (bytes < LEAST_BYTES_FOR_ACTIVITIES) {
        snprintf(reason, room, "max_memory of %zu bytes is too little: give at least 32 MiB",
                 bytes);
        return MP_UNAVAILABLE;
    }
    MP_TRY(mp_cupti_load(paths, count, only, reason, room));
    mp_cupti_options options = {
        .buffer_bytes = bytes / 8,
        .row_bytes = bytes / 8 * 3,
        .ring = s_session.options.ring,
        .dump_path = dump_path,
    };
    return mp_cupti_activity_start(&options, reason, room);
}

void
mp_session_stop_activities(void)
{
    mp_cupti_activity_stop();
}

bool
mp_session_is_open(void)
{
    return s_session.open;
}

/* ---- marks ---- */

void
mp_session_begin_window(void)
{
    s_session.window_ticks = mp_clock_ticks();
}

void
mp_session_mark_step(int64_t number)
{
    mp_thread_log *log = mp_log_enter();
    if (log == NULL) {
        return;
    }
    mp_event *event = mp_log_append(log);
    if (event != NULL) {
        memset(event, 0, sizeof(*event));
        event->kind = MP_EVENT_STEP;
        event->step.number = number;
        event->ticks = mp_clock_ticks();
    }
    mp_log_leave(log);
}

void
mp_session_drop_open_step(void)
{
    s_session.drop_open_step = true;
}

static uint32_t
span_name(mp_thread_log *log, const char *name, size_t length)
{
    enum { ROOM = 512 };
    uint64_t words[1 + ROOM / 8] = {0};
    length = length > ROOM ? ROOM : length;
    words[0] = length;
    memcpy(&words[1], name, length);
    uint64_t hash = 0x6C62272E07BB0142u;
    size_t count = 1 + (length + 7) / 8;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    hash |= 1;
    uint32_t id = mp_intern_find(&log->names, hash);
    if (id == 0) {
        id = mp_intern_add(&log->names, &g_recorder.budget, hash, words, (uint32_t)count);
        log->lost[MP_LOSS_NAME] += id == 0;
    }
    return id;
}

void
mp_session_add_span(const char *name, size_t length, uint32_t kind, uint32_t object_id,
                    uint64_t start_ticks, uint64_t end_ticks)
{
    mp_thread_log *log = mp_log_enter();
    if (log == NULL) {
        return;
    }
    uint32_t name_id = span_name(log, name, length);
    mp_event *event = mp_log_append(log);
    if (event != NULL) {
        memset(event, 0, sizeof(*event));
        event->kind = MP_EVENT_SPAN;
        event->scope = (uint8_t)kind;
        event->op.name = name_id;
        event->op.parent = object_id;
        event->op.end_ticks = end_ticks;
        event->ticks = start_ticks;
    }
    mp_log_leave(log);
}

void
mp_session_set_baseline(mp_baseline *blocks, size_t count)
{
    free(s_session.baseline);
    s_session.baseline = blocks;
    s_session.baseline_count = count;
}

/* Room for one more row in an array that doubles; false when out of memory. */
static bool
room_for_one(void **rows, size_t count, size_t *room, size_t row_bytes)
{
    if (count < *room) {
        return true;
    }
    size_t more = *room == 0 ? 64 : *room * 2;
    void *grown = realloc(*rows, more * row_bytes);
    if (grown == NULL) {
        return false;
    }
    *rows = grown;
    *room = more;
    return true;
}

mp_status
mp_session_name_module(uint32_t object_id, uint32_t parent_object_id, const char *path,
                       const char *class_name)
{
    char *own_path = strdup(path);
    char *own_class = strdup(class_name);
    if (own_path == NULL || own_class == NULL ||
        !room_for_one((void **)&s_session.modules, s_session.module_count,
                      &s_session.module_room, sizeof(*s_session.modules))) {
        free(own_path);
        free(own_class);
        return MP_NO_MEMORY;
    }
    s_session.modules[s_session.module_count++] = (mp_module_name){
        .object_id = object_id,
        .parent_object_id = parent_object_id,
        .path = own_path,
        .class_name = own_class,
    };
    return MP_OK;
}

mp_status
mp_session_mark_code(uint32_t object_id, uint32_t frame_flags)
{
    if (!room_for_one((void **)&s_session.roles, s_session.role_count, &s_session.role_room,
                      sizeof(*s_session.roles))) {
        return MP_NO_MEMORY;
    }
    s_session.roles[s_session.role_count++] = (mp_code_role){object_id, frame_flags};
    return MP_OK;
}

/* ---- stop ---- */

static void
take_report(void)
{
    mp_session_report *report = &s_session.report;
    report->alloc = *mp_torch_alloc_inspect();
    report->contradictions = mp_torch_ops_contradictions();
    report->used_bytes = mp_budget_used(&g_recorder.budget);
    mp_cupti_activity_report(&report->activities);
    report->stopped_at_limit = mp_load_relaxed(&g_recorder.limit_ticks) != 0;
    for (mp_thread_log *log = mp_recorder_next_log(NULL); log != NULL;
         log = mp_recorder_next_log(log)) {
        report->threads++;
        for (int i = 0; i < MP_LOSS_COUNT; i++) {
            report->lost[i] += log->lost[i];
        }
    }
    report->lost[MP_LOSS_LOG] += mp_load_relaxed(&g_recorder.lost_logs);
}

void
mp_session_stop(void)
{
    if (!s_session.open || s_session.stopped) {
        return;
    }
    s_session.stopped = true;
    mp_cupti_activity_stop();
    mp_torch_ops_stop();
    mp_torch_alloc_stop();
    mp_recorder_stop();
    s_session.stop = mp_clock_pair_now();
    helper_stop();
    take_report();
}

mp_status
mp_session_gather(mp_describe_line describe)
{
    mp_gather_input input = {
        .describe = describe,
        .modules = s_session.modules,
        .module_count = s_session.module_count,
        .roles = s_session.roles,
        .role_count = s_session.role_count,
    };
    return mp_gather(&input, &s_session.gathered);
}

static mp_status
store_baseline(mp_recording *recording)
{
    if (s_session.baseline_count == 0) {
        return MP_OK;
    }
    mp_baseline *rows =
        mp_recording_resize(recording, MP_TABLE_BASELINE, s_session.baseline_count);
    if (rows == NULL) {
        return MP_NO_MEMORY;
    }
    memcpy(rows, s_session.baseline, s_session.baseline_count * sizeof(*rows));
    return MP_OK;
}

mp_status
mp_session_assemble(mp_recording **out)
{
    mp_merge_window window = {
        .clock = mp_clock_map_between(s_first_pair, s_session.stop),
        .start_ticks = s_session.start.ticks,
        .window_ticks = s_session.window_ticks,
        .stop_ticks = s_session.stop.ticks,
        .keep_after = mp_load_relaxed(&g_recorder.overwritten_ticks),
        .keep_before = mp_load_relaxed(&g_recorder.limit_ticks),
        .drop_open_step = s_session.drop_open_step,
    };
    /* The rate comes from the whole process, the origin from this session: a step of the
     * realtime clock since then shifts nothing inside the recording. */
    window.clock.origin_ticks = s_session.start.ticks;
    window.clock.origin_ns = s_session.start.realtime_ns;
    MP_TRY(mp_merge(&s_session.gathered, &window));
    MP_TRY(mp_activities_store(&s_session.gathered, &window.clock));
    MP_TRY(mp_text_table_store(&s_session.gathered.texts, s_session.gathered.recording));
    MP_TRY(store_baseline(s_session.gathered.recording));
    MP_TRY(mp_analyse(s_session.gathered.recording));
    *out = s_session.gathered.recording;
    s_session.gathered.recording = NULL;
    return MP_OK;
}

void
mp_session_report_to(mp_session_report *report)
{
    *report = s_session.report;
    if (s_session.open && !s_session.stopped) {
        report->alloc = *mp_torch_alloc_inspect();
        report->used_bytes = mp_budget_used(&g_recorder.budget);
        mp_cupti_activity_report(&report->activities);
    }
}

static void
free_lists(void)
{
    for (size_t i = 0; i < s_session.module_count; i++) {
        free(s_session.modules[i].path);
        free(s_session.modules[i].class_name);
    }
    free(s_session.modules);
    free(s_session.roles);
    free(s_session.baseline);
    s_session.modules = NULL;
    s_session.module_count = s_session.module_room = 0;
    s_session.roles = NULL;
    s_session.role_count = s_session.role_room = 0;
    s_session.baseline = NULL;
    s_session.baseline_count = 0;
}

void
mp_session_close(void)
{
    mp_session_stop();
    mp_cupti_activity_close();
    mp_gathered_fini(&s_session.gathered);
    free_lists();
    mp_objects_close();
    mp_recorder_close();
    s_session.open = false;
}

void
mp_session_after_fork(void)
{
    /* The recorder's own handler has cleared what it owned. */
    mp_objects_after_fork();
    mp_cupti_activity_after_fork();
    mp_torch_alloc_stop();
    mp_torch_ops_stop();
    pthread_mutex_init(&s_session.helper_lock, NULL);
    s_session.helper_runs = false;
    free_lists();
    s_session.open = false;
    s_session.stopped = true;
}
