/* A CUPTI without a GPU, for tests: serves records that a test asks for through the
 * functions fake_..., in buffers that it requests from its client, in the layout of CUDA
 * 13.0. It can refuse, lie and collide on request. Environment:
 *   FAKE_CUPTI_VERSION  what cuptiGetVersion says (130001)
 *   FAKE_CUPTI_REFUSE   "kind=result" pairs, comma separated: cuptiActivityEnable fails;
 *                       kind 0: cuptiActivityRegisterCallbacks fails */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef void (*request_function)(uint8_t **, size_t *, size_t *);
typedef void (*complete_function)(void *, uint32_t, uint8_t *, size_t, size_t);

static request_function s_request;
static complete_function s_complete;
static uint8_t s_kinds[64];
static uint8_t s_off[2][1024]; /* API ids that are switched off: runtime, driver */
static uint8_t *s_buffer;
static size_t s_size, s_used;
static size_t s_dropped;
static uint32_t s_correlation;
static int s_dirty; /* buffers that came with other than zeros */
static int s_system_thread_ids;
static int64_t s_clock_offset;
static size_t s_room_limit; /* fills no more of a buffer than this; 0: all */
static pthread_mutex_t s_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + (uint64_t)s_clock_offset;
}

static int
refusal(int kind)
{
    const char *text = getenv("FAKE_CUPTI_REFUSE");
    while (text != NULL && *text != '\0') {
        int refused, result;
        if (sscanf(text, "%d=%d", &refused, &result) == 2 && refused == kind) {
            return result;
        }
        text = strchr(text, ',');
        text = text == NULL ? NULL : text + 1;
    }
    return 0;
}

/* ---- CUPTI's functions ---- */

EXPORT int
cuptiGetVersion(uint32_t *version)
{
    const char *text = getenv("FAKE_CUPTI_VERSION");
    *version = text == NULL ? 130001 : (uint32_t)atoi(text);
    return 0;
}

EXPORT int
cuptiGetTimestamp(uint64_t *ns)
{
    *ns = now();
    return 0;
}

EXPORT int
cuptiGetResultString(int result, const char **text)
{
    static char s_text[32];
    snprintf(s_text, sizeof(s_text), "fake result %d", result);
    *text = s_text;
    return 0;
}

EXPORT int
cuptiActivityRegisterCallbacks(request_function request, complete_function complete)
{
    int result = refusal(0);
    if (result == 0) {
        s_request = request;
        s_complete = complete;
    }
    return result;
}

EXPORT int
cuptiActivityEnable(int kind)
{
    int result = refusal(kind);
    if (result == 0) {
        s_kinds[kind] = 1;
        if (kind == 5 || kind == 4) {
            memset(s_off[kind == 4], 0, sizeof(s_off[0])); /* forgotten, as the real one does */
        }
    }
    return result;
}

EXPORT int
cuptiActivityDisable(int kind)
{
    s_kinds[kind] = 0;
    return 0;
}

static int
choose(int driver, uint32_t id, uint8_t on)
{
    if (id == 0 || id > (driver ? 800u : 520u)) {
        return 1;
    }
    s_off[driver][id] = !on;
    return 0;
}

EXPORT int
cuptiActivityEnableRuntimeApi(uint32_t id, uint8_t on)
{
    return choose(0, id, on);
}

EXPORT int
cuptiActivityEnableDriverApi(uint32_t id, uint8_t on)
{
    return choose(1, id, on);
}

EXPORT int
cuptiActivitySetAttribute(int attribute, size_t *size, void *value)
{
    (void)value;
    return *size == 1 && (attribute == 5 || attribute == 9) ? 0 : 1;
}

EXPORT int
cuptiSetThreadIdType(int type)
{
    s_system_thread_ids = type == 1;
    return 0;
}

EXPORT int
cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
    (void)context;
    (void)stream;
    *count = s_dropped;
    s_dropped = 0;
    return 0;
}

static size_t
size_of(uint32_t kind)
{
    switch (kind) {
    case 1:
    case 22:
        return 96;
    case 2:
        return 88;
    case 4:
    case 5:
        return 40;
    case 10:
        return 216;
    case 17:
    case 38:
        return 56;
    case 49:
        return 128;
    case 50:
        return 80;
    case 60: /* a kind of the future */
        return 24;
    default:
        return 0;
    }
}

EXPORT int
cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
    uint8_t *at = buffer;
    uint32_t kind;
    if (*record != NULL) {
        memcpy(&kind, *record, 4);
        at = (uint8_t *)*record + size_of(kind);
    }
    if (at + 4 > buffer + valid) {
        return 12;
    }
    memcpy(&kind, at, 4);
    if (size_of(kind) == 0 || at + size_of(kind) > buffer + valid) {
        return 21;
    }
    *record = at;
    return 0;
}

static void
hand_over(void)
{
    if (s_buffer != NULL) {
        uint8_t *buffer = s_buffer;
        size_t size = s_size, used = s_used;
        s_buffer = NULL;
        s_complete(NULL, 0, buffer, size, used);
    }
}

EXPORT int
cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    pthread_mutex_lock(&s_lock);
    hand_over();
    pthread_mutex_unlock(&s_lock);
    return 0;
}

/* ---- what tests ask for ---- */

static void
note_dirt(void)
{
    for (size_t i = 0; i < s_size; i += 8) {
        uint64_t word;
        memcpy(&word, s_buffer + i, 8);
        s_dirty += word != 0;
    }
}

static uint8_t *
room_for_locked(size_t bytes)
{
    size_t limit = s_room_limit != 0 && s_room_limit < s_size ? s_room_limit : s_size;
    if (s_buffer != NULL && s_used + bytes > limit) {
        hand_over();
    }
    if (s_buffer == NULL) {
        size_t most = 0;
        s_used = 0;
        s_request(&s_buffer, &s_size, &most);
        if (s_buffer == NULL) {
            s_dropped++;
            return NULL;
        }
        note_dirt();
    }
    uint8_t *place = s_buffer + s_used;
    s_used += bytes;
    return place;
}

static void
emit(const uint8_t *record, uint32_t kind)
{
    if (kind < 64 && kind != 60 && !s_kinds[kind]) {
        return;
    }
    pthread_mutex_lock(&s_lock);
    uint8_t *place = s_request == NULL ? NULL : room_for_locked(size_of(kind));
    if (place != NULL) {
        memcpy(place, record, size_of(kind));
    }
    pthread_mutex_unlock(&s_lock);
}

static void
put(uint8_t *record, size_t offset, uint64_t value, size_t bytes)
{
    memcpy(record + offset, &value, bytes);
}

/* A call of id from now on for `ns`; its correlation id. kind 5 or 4. */
EXPORT uint32_t
fake_call(int kind, uint32_t id, uint64_t ns)
{
    uint32_t correlation = __atomic_add_fetch(&s_correlation, 1, __ATOMIC_RELAXED);
    uint8_t record[40] = {0};
    uint64_t start = now();
    put(record, 0, (uint64_t)kind, 4);
    put(record, 4, id, 4);
    put(record, 8, start, 8);
    put(record, 16, start + ns, 8);
    put(record, 24, (uint64_t)getpid(), 4);
    put(record, 28, s_system_thread_ids ? (uint64_t)syscall(SYS_gettid) : 0xdeadbeef, 4);
    put(record, 32, correlation, 4);
    if (!s_off[kind == 4][id]) {
        emit(record, (uint32_t)kind);
    }
    return correlation;
}

static void
place(uint8_t *record, size_t start_at, uint64_t start, uint64_t ns)
{
    put(record, start_at, start, 8);
    put(record, start_at + 8, start + ns, 8);
}

EXPORT void
fake_kernel(const char *name, uint32_t correlation, uint64_t delay_ns, uint64_t ns)
{
    uint8_t record[216] = {0};
    put(record, 0, 10, 4);
    put(record, 6, 40, 2);
    if (ns != 0) { /* 0: a record without times */
        place(record, 16, now() + delay_ns, ns);
    }
    put(record, 40, 0, 4);
    put(record, 44, 1, 4);
    put(record, 48, 7, 4);
    put(record, 52, 132, 4);
    put(record, 56, 2, 4);
    put(record, 60, 1, 4);
    put(record, 64, 256, 4);
    put(record, 68, 1, 4);
    put(record, 72, 1, 4);
    put(record, 76, 1024, 4);
    put(record, 80, 2048, 4);
    put(record, 92, correlation, 4);
    put(record, 104, (uint64_t)(uintptr_t)name, 8);
    emit(record, 10);
}

EXPORT void
fake_copy(int direction, int source, int target, uint64_t bytes, uint32_t correlation,
          uint64_t ns)
{
    uint8_t record[96] = {0};
    put(record, 0, 1, 4);
    put(record, 4, (uint64_t)direction, 1);
    put(record, 5, (uint64_t)source, 1);
    put(record, 6, (uint64_t)target, 1);
    put(record, 7, 1, 1);
    put(record, 8, bytes, 8);
    place(record, 16, now(), ns);
    put(record, 36, 1, 4);
    put(record, 40, 7, 4);
    put(record, 44, correlation, 4);
    emit(record, 1);
}

EXPORT void
fake_set(uint64_t bytes, uint32_t correlation, uint64_t ns)
{
    uint8_t record[88] = {0};
    put(record, 0, 2, 4);
    put(record, 8, bytes, 8);
    place(record, 16, now(), ns);
    put(record, 36, 1, 4);
    put(record, 40, 7, 4);
    put(record, 44, correlation, 4);
    put(record, 50, 3, 2);
    emit(record, 2);
}

EXPORT void
fake_memory(int operation, uint64_t address, uint64_t bytes, uint32_t correlation)
{
    uint8_t record[128] = {0};
    put(record, 0, 49, 4);
    put(record, 4, (uint64_t)operation, 4);
    put(record, 8, 3, 4);
    put(record, 12, correlation, 4);
    put(record, 16, address, 8);
    put(record, 24, bytes, 8);
    put(record, 32, now(), 8);
    put(record, 60, 0xffffffff, 4);
    emit(record, 49);
}

EXPORT void
fake_sync(int type, uint32_t stream, uint32_t correlation, uint64_t ns)
{
    uint8_t record[56] = {0};
    put(record, 0, 38, 4);
    put(record, 4, (uint64_t)type, 4);
    place(record, 8, now(), ns);
    put(record, 24, correlation, 4);
    put(record, 28, 1, 4);
    put(record, 32, stream, 4);
    put(record, 36, 0xffffffff, 4);
    emit(record, 38);
}

EXPORT void
fake_unknown_kind(void)
{
    uint8_t record[24] = {0};
    put(record, 0, 60, 4);
    emit(record, 60);
}

EXPORT void
fake_garbage(void)
{
    uint8_t record[216];
    memset(record, 0xA5, sizeof(record));
    pthread_mutex_lock(&s_lock);
    uint8_t *at = s_request == NULL ? NULL : room_for_locked(sizeof(record));
    if (at != NULL) {
        memcpy(at, record, sizeof(record));
        hand_over();
    }
    pthread_mutex_unlock(&s_lock);
}

/* Gives the client a buffer that another client handed out; returns what is then in it. */
EXPORT int
fake_foreign_buffer(void)
{
    uint8_t *theirs = malloc(4096);
    memset(theirs, 42, 4096);
    s_complete(NULL, 0, theirs, 4096, 4096);
    int intact = theirs[0] == 42 && theirs[4095] == 42;
    free(theirs);
    return intact;
}

/* Another client's callbacks take the place of ours. */
static void
their_request(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = calloc(1, 4096);
    *size = 4096;
    *most = 0;
}

static void
their_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size, (void)valid, (void)buffer;
}

EXPORT void
fake_other_client(void)
{
    s_request = their_request;
    s_complete = their_complete;
}

EXPORT void
fake_settings(int64_t clock_offset, size_t room_limit)
{
    s_clock_offset = clock_offset;
    s_room_limit = room_limit;
}

EXPORT int
fake_dirty(void)
{
    return s_dirty;
}

EXPORT int
fake_kind_is_on(int kind)
{
    return s_kinds[kind];
}

EXPORT int
fake_id_is_on(int driver, uint32_t id)
{
    return !s_off[driver][id];
}

/* So many calls with a kernel each, as fast as it goes. */
EXPORT void
fake_burst(const char *name, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        fake_kernel(name, fake_call(5, 211, 100), 1000, 500);
    }
}
