#include "collect/cupti_activity.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "collect/cupti_api.h"
#include "collect/cupti_dump.h"

enum {
    POLL_MS = 5,
    BRACKET_EVERY_MS = 1000,
    BRACKET_TRIES = 50,
    BRACKET_LIMIT = 4096,
    UNKNOWN_IDS_IN_A_ROW = 64, /* then the library has no more */
};

/* Kernels are what it is for; the others can be missing. */
static const struct {
    int kind;
    const char *name;
} s_kinds[] = {
    {MP_CUPTI_KIND_CONCURRENT_KERNEL, "kernels"}, {MP_CUPTI_KIND_MEMCPY, "copies"},
    {MP_CUPTI_KIND_MEMCPY2, "peer copies"},       {MP_CUPTI_KIND_MEMSET, "memsets"},
    {MP_CUPTI_KIND_RUNTIME, "runtime calls"},     {MP_CUPTI_KIND_DRIVER, "driver calls"},
    {MP_CUPTI_KIND_MEMORY2, "driver memory"},     {MP_CUPTI_KIND_MEMORY_POOL, "memory pools"},
    {MP_CUPTI_KIND_SYNCHRONIZATION, "synchronisation"},
    {MP_CUPTI_KIND_OVERHEAD, "overhead"},
};

static struct {
    bool open; /* the decoder holds rows */
    bool on;
    bool enabled[MP_COUNT_OF(s_kinds)];
    mp_cupti_report report;
    mp_cupti_decoder decoder; /* the helper's while it runs, then the caller's */
    mp_cupti_dump dump;
    /* In order of time; the helper's while it runs. Beyond the limit every second one goes
     * and they are taken half as often. */
    mp_cupti_bracket brackets[BRACKET_LIMIT];
    size_t bracket_count;
    long bracket_every_ms;
    pthread_t helper;
    _Atomic(bool) helper_ends;
} s_activity;

/* ---- clock ---- */

/* The closest of several readings: ours before and after theirs. */
static bool
read_bracket(const mp_cupti *cupti, mp_cupti_bracket *best)
{
    uint64_t narrowest = UINT64_MAX;
    for (int i = 0; i < BRACKET_TRIES; i++) {
        uint64_t theirs = 0;
        uint64_t before = mp_clock_ticks();
        mp_cupti_result result = cupti->get_timestamp(&theirs);
        uint64_t after = mp_clock_ticks();
        if (result == MP_CUPTI_SUCCESS && theirs != 0 && after - before < narrowest) {
            narrowest = after - before;
            *best = (mp_cupti_bracket){before + narrowest / 2, (int64_t)theirs};
        }
    }
    return narrowest != UINT64_MAX;
}

static void
thin_brackets(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < s_activity.bracket_count; i += 2) {
        s_activity.brackets[kept++] = s_activity.brackets[i];
    }
    s_activity.bracket_count = kept;
    s_activity.bracket_every_ms *= 2;
}

static bool
add_bracket(const mp_cupti *cupti)
{
    if (s_activity.bracket_count == BRACKET_LIMIT) {
        thin_brackets();
    }
    mp_cupti_bracket *place = &s_activity.brackets[s_activity.bracket_count];
    bool known = read_bracket(cupti, place);
    s_activity.bracket_count += known;
    return known;
}

/* ---- helper thread ---- */

static size_t
decode_full_buffers(void)
{
    size_t count = 0, valid;
    for (uint8_t *buffer; (buffer = mp_cupti_buffers_take(&valid)) != NULL; count++) {
        mp_cupti_dump_buffer(&s_activity.dump, buffer, valid);
        mp_cupti_decode(&s_activity.decoder, buffer, valid);
        mp_cupti_buffers_give_back(buffer);
    }
    return count;
}

static void *
helper_main(void *argument)
{
    (void)argument;
    pthread_setname_np(pthread_self(), "memprof-gpu");
    const mp_cupti *cupti = mp_cupti_get();
    long since_ms = 0;
    while (!mp_load_acquire(&s_activity.helper_ends)) {
        mp_cupti_buffers_touch();
        (void)decode_full_buffers();
        struct timespec pause = {0, POLL_MS * 1000000L};
        nanosleep(&pause, NULL);
        since_ms += POLL_MS;
        if (since_ms >= s_activity.bracket_every_ms && cupti != NULL) {
            (void)add_bracket(cupti);
            since_ms = 0;
        }
    }
    return NULL;
}

/* ---- start ---- */

/* For those that a library may not know: what it refuses stays as it is. */
static void
set_flag(const mp_cupti *cupti, int attribute)
{
    uint8_t on = 1;
    size_t size = sizeof(on);
    (void)cupti->set_attribute(attribute, &size, &on);
}

static void
set_attributes(const mp_cupti *cupti)
{
    set_flag(cupti, MP_CUPTI_ATTRIBUTE_ZEROED_BUFFERS);
    if (cupti->version >= MP_CUPTI_VERSION_PER_THREAD_BUFFERS) {
        set_flag(cupti, MP_CUPTI_ATTRIBUTE_PER_THREAD_BUFFERS);
    }
    (void)cupti->set_thread_id_type(MP_CUPTI_THREAD_ID_SYSTEM);
}

static bool
is_wanted(bool driver, uint32_t id)
{
#define WANTED(name, value, gives)                                                       \
    case value:                                                                          \
        return true;
    if (driver) {
        switch (id) {
            MP_CUPTI_DRIVER_IDS(WANTED)
        }
    } else {
        switch (id) {
            MP_CUPTI_RUNTIME_IDS(WANTED)
        }
    }
#undef WANTED
    return false;
}

/* The choice is forgotten whenever the kind is enabled anew. Enabling single ids without
 * the kind gives no records at all. */
static void
choose_ids(mp_cupti_result (*choose)(uint32_t, uint8_t), bool driver)
{
    int unknown = 0;
    for (uint32_t id = 1; id < MP_CUPTI_API_ID_LIMIT && unknown < UNKNOWN_IDS_IN_A_ROW; id++) {
        if (!is_wanted(driver, id)) {
            unknown = choose(id, 0) == MP_CUPTI_SUCCESS ? 0 : unknown + 1;
        }
    }
}

static void
note_refused(const char *name)
{
    char *text = s_activity.report.refused;
    size_t used = strlen(text);
    snprintf(text + used, sizeof(s_activity.report.refused) - used, "%s%s",
             used > 0 ? ", " : "", name);
    s_activity.report.refused_kinds++;
}

/* Whether kernels are on. */
static bool
enable_kinds(const mp_cupti *cupti, mp_cupti_result *failure)
{
    for (size_t i = 0; i < MP_COUNT_OF(s_kinds); i++) {
        mp_cupti_result result = cupti->enable(s_kinds[i].kind);
        s_activity.enabled[i] = result == MP_CUPTI_SUCCESS;
        if (result != MP_CUPTI_SUCCESS) {
            note_refused(s_kinds[i].name);
            if (i == 0) {
                *failure = result;
                return false;
            }
        }
        bool single = cupti->enable_runtime_id != NULL && cupti->enable_driver_id != NULL;
        if (single && s_kinds[i].kind == MP_CUPTI_KIND_RUNTIME) {
            choose_ids(cupti->enable_runtime_id, false);
        } else if (single && s_kinds[i].kind == MP_CUPTI_KIND_DRIVER) {
            choose_ids(cupti->enable_driver_id, true);
        }
        s_activity.report.single_ids = single;
    }
    return true;
}

static void
disable_kinds(const mp_cupti *cupti)
{
    for (size_t i = 0; i < MP_COUNT_OF(s_kinds); i++) {
        if (s_activity.enabled[i]) {
            (void)cupti->disable(s_kinds[i].kind);
            s_activity.enabled[i] = false;
        }
    }
}

static mp_status
begin_records(const mp_cupti *cupti, char *reason, size_t room)
{
    char text[128];
    mp_cupti_result result;
    set_attributes(cupti);
    result = cupti->register_callbacks(mp_cupti_buffers_request, mp_cupti_buffers_complete);
    if (result == MP_CUPTI_SUCCESS && enable_kinds(cupti, &result)) {
        size_t stale = 0; /* reading resets the count */
        (void)cupti->get_dropped(NULL, 0, &stale);
        return MP_OK;
    }
    disable_kinds(cupti);
    mp_cupti_describe(result, text, sizeof(text));
    snprintf(reason, room, "CUPTI refused to record: error %s", text);
    return MP_UNAVAILABLE;
}

static mp_status
open_memory(const mp_cupti *cupti, const mp_cupti_options *options)
{
    MP_TRY(mp_cupti_buffers_open(options->buffer_bytes,
                                 cupti->version >= MP_CUPTI_VERSION_NULL_BUFFER));
    mp_status status =
        mp_cupti_decoder_init(&s_activity.decoder, cupti->get_next_record, cupti->version,
                              options->row_bytes, options->ring, NULL, NULL);
    if (status != MP_OK) {
        mp_cupti_buffers_close();
    }
    return status;
}

static mp_status
start_helper(char *reason, size_t room)
{
    mp_store_relaxed(&s_activity.helper_ends, false);
    int error = pthread_create(&s_activity.helper, NULL, helper_main, NULL);
    if (error != 0) {
        snprintf(reason, room, "no thread to decode records: %s", strerror(error));
        return MP_OS_ERROR;
    }
    return MP_OK;
}

static void
end_helper(void)
{
    mp_store_release(&s_activity.helper_ends, true);
    pthread_join(s_activity.helper, NULL);
}

static mp_status
start_records(const mp_cupti *cupti, char *reason, size_t room)
{
    if (!add_bracket(cupti)) {
        snprintf(reason, room, "CUPTI's clock does not tell the time");
        return MP_UNAVAILABLE;
    }
    MP_TRY(start_helper(reason, room));
    mp_status status = begin_records(cupti, reason, room);
    if (status != MP_OK) {
        end_helper();
    }
    return status;
}

mp_status
mp_cupti_activity_start(const mp_cupti_options *options, char *reason, size_t room)
{
    const mp_cupti *cupti = mp_cupti_get();
    if (cupti == NULL || s_activity.open) {
        snprintf(reason, room, cupti == NULL ? "CUPTI is not loaded" : "it was on already");
        return MP_UNAVAILABLE;
    }
    s_activity.report = (mp_cupti_report){.version = cupti->version};
    s_activity.bracket_count = 0;
    s_activity.bracket_every_ms = BRACKET_EVERY_MS;
    mp_status status = open_memory(cupti, options);
    if (status != MP_OK) {
        snprintf(reason, room, "no memory for CUPTI's buffers");
        return status;
    }
    s_activity.open = true;
    if (options->dump_path != NULL &&
        !mp_cupti_dump_open(&s_activity.dump, options->dump_path, cupti->version)) {
        snprintf(reason, room, "%s: %s", options->dump_path, strerror(errno));
        status = MP_OS_ERROR;
    }
    if (status == MP_OK) {
        status = start_records(cupti, reason, room);
    }
    if (status != MP_OK) {
        mp_cupti_buffers_close();
        mp_cupti_activity_close();
        return status;
    }
    s_activity.on = true;
    return MP_OK;
}

bool
mp_cupti_activity_is_on(void)
{
    return s_activity.on;
}

/* ---- stop ---- */

static void
finish_report(void)
{
    mp_cupti_report *report = &s_activity.report;
    const mp_cupti_decoder *decoder = &s_activity.decoder;
    report->rows = decoder->log.rows;
    report->lost = decoder->log.lost;
    report->overwritten = decoder->log.overwritten;
    report->unknown = decoder->unknown;
    report->unwanted = decoder->unwanted;
    report->without_time = decoder->without_time;
    report->backwards = decoder->backwards;
    report->broken = decoder->broken;
    mp_cupti_buffers_count(&report->buffers);
}

void
mp_cupti_activity_stop(void)
{
    const mp_cupti *cupti = mp_cupti_get();
    if (!s_activity.on || cupti == NULL) {
        return;
    }
    s_activity.on = false;
    disable_kinds(cupti);
    (void)cupti->flush_all(MP_CUPTI_FLUSH_FORCED);
    size_t dropped = 0;
    if (cupti->get_dropped(NULL, 0, &dropped) == MP_CUPTI_SUCCESS) {
        s_activity.report.dropped = dropped;
    }
    end_helper();
    (void)decode_full_buffers();
    (void)add_bracket(cupti);
    s_activity.report.on = true;
    finish_report();
    mp_cupti_dump_close(&s_activity.dump, &s_activity.decoder.names);
    mp_cupti_buffers_close();
}

const mp_cupti_decoder *
mp_cupti_activity_rows(const mp_cupti_bracket **brackets, size_t *count)
{
    if (!s_activity.open || s_activity.on) {
        return NULL;
    }
    *brackets = s_activity.brackets;
    *count = s_activity.bracket_count;
    return &s_activity.decoder;
}

void
mp_cupti_activity_report(mp_cupti_report *report)
{
    *report = s_activity.report;
    if (s_activity.on) {
        mp_cupti_buffers_count(&report->buffers);
    }
}

void
mp_cupti_activity_close(void)
{
    mp_cupti_activity_stop();
    if (s_activity.open) {
        mp_cupti_dump_close(&s_activity.dump, &s_activity.decoder.names);
        mp_cupti_decoder_fini(&s_activity.decoder);
        s_activity.open = false;
    }
    s_activity.report = (mp_cupti_report){0};
}

void
mp_cupti_activity_after_fork(void)
{
    /* The helper's thread is not here; its memory may be in any state and is left. */
    mp_cupti_buffers_after_fork();
    s_activity.on = false;
    s_activity.open = false;
}
