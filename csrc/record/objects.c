#include "record/objects.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Room for a million code objects; untouched pages cost nothing. */
enum { OBJECT_LIMIT = 1 << 20, SLOT_COUNT = 1 << 21 };

_Atomic(uint32_t) g_objects_generation;

/* The lock protects everything below. It is a leaf: see objects.h. */
static pthread_mutex_t s_lock = PTHREAD_MUTEX_INITIALIZER;
static mp_object *s_objects; /* NULL when closed */
static uint32_t *s_slots;    /* object id; 0 empty; struck ids stay as tombstones */
static _Atomic(uint32_t) s_count;

static void *
reserve(size_t bytes)
{
    void *range = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return range == MAP_FAILED ? NULL : range;
}

static void
release_locked(void)
{
    if (s_objects != NULL) {
        munmap(s_objects, sizeof(*s_objects) * OBJECT_LIMIT);
    }
    if (s_slots != NULL) {
        munmap(s_slots, sizeof(*s_slots) * SLOT_COUNT);
    }
    s_objects = NULL;
    s_slots = NULL;
    mp_store_relaxed(&s_count, 0);
}

bool
mp_objects_open(void)
{
    static bool s_fork_handled;
    if (!s_fork_handled) {
        s_fork_handled = pthread_atfork(NULL, NULL, mp_objects_after_fork) == 0;
    }
    pthread_mutex_lock(&s_lock);
    release_locked();
    s_objects = reserve(sizeof(*s_objects) * OBJECT_LIMIT);
    s_slots = reserve(sizeof(*s_slots) * SLOT_COUNT);
    bool ok = s_objects != NULL && s_slots != NULL;
    if (!ok) {
        release_locked();
    }
    pthread_mutex_unlock(&s_lock);
    mp_add_relaxed(&g_objects_generation, 1);
    return ok;
}

void
mp_objects_close(void)
{
    pthread_mutex_lock(&s_lock);
    release_locked();
    pthread_mutex_unlock(&s_lock);
}

static uint32_t
first_slot(const void *address)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)address >> 4) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(mixed >> 43) & (SLOT_COUNT - 1);
}

/* The slot of a live address, or of the empty place where it would go. */
static uint32_t *
slot_of_locked(const void *address)
{
    uint32_t at = first_slot(address);
    while (s_slots[at] != 0) {
        const mp_object *object = &s_objects[s_slots[at] - 1];
        if (object->address == address && !object->dead) {
            break;
        }
        at = (at + 1) & (SLOT_COUNT - 1);
    }
    return &s_slots[at];
}

uint32_t
mp_objects_intern(mp_object_kind kind, const void *address, const char *class_name)
{
    uint32_t id = 0;
    pthread_mutex_lock(&s_lock);
    if (s_objects != NULL) {
        uint32_t *slot = slot_of_locked(address);
        uint32_t count = mp_load_relaxed(&s_count);
        if (*slot == 0 && count < OBJECT_LIMIT) {
            mp_object *object = &s_objects[count];
            object->address = address;
            object->kind = (uint8_t)kind;
            if (class_name != NULL) {
                strncpy(object->class_name, class_name, sizeof(object->class_name) - 1);
            }
            *slot = count + 1;
            mp_store_release(&s_count, count + 1);
        }
        id = *slot;
    }
    pthread_mutex_unlock(&s_lock);
    return id;
}

uint32_t
mp_objects_find(const void *address)
{
    uint32_t id = 0;
    pthread_mutex_lock(&s_lock);
    if (s_objects != NULL) {
        id = *slot_of_locked(address);
    }
    pthread_mutex_unlock(&s_lock);
    return id;
}

void
mp_objects_strike(const void *address)
{
    bool struck = false;
    pthread_mutex_lock(&s_lock);
    if (s_objects != NULL) {
        uint32_t *slot = slot_of_locked(address);
        if (*slot != 0) {
            s_objects[*slot - 1].dead = true;
            struck = true;
        }
    }
    pthread_mutex_unlock(&s_lock);
    if (struck) {
        mp_add_relaxed(&g_objects_generation, 1);
    }
}

uint32_t
mp_objects_count(void)
{
    return mp_load_acquire(&s_count);
}

mp_object *
mp_objects_at(uint32_t id)
{
    return &s_objects[id - 1];
}

void
mp_objects_after_fork(void)
{
    pthread_mutex_init(&s_lock, NULL);
    s_objects = NULL;
    s_slots = NULL;
    mp_store_relaxed(&s_count, 0);
}
