#include "collect/cupti_buffers.h"

#include <string.h>
#include <sys/mman.h>

#include "base/atomics.h"
#include "base/compiler.h"

enum { READY_AHEAD = 3, LEAST_BUFFERS = 2, DISCARD_BYTES = 256 << 10 };

typedef enum slot_state {
    SLOT_COLD = 0, /* no memory yet, or given back to the system */
    SLOT_READY,    /* present and zero */
    SLOT_LENT,     /* CUPTI's */
    SLOT_FULL,     /* valid[] says how far */
    SLOT_TAKEN,    /* the decoder's */
} slot_state;

static struct {
    uint8_t *base; /* NULL before the first open */
    _Atomic(uint8_t) states[MP_CUPTI_BUFFER_LIMIT];
    _Atomic(size_t) valid[MP_CUPTI_BUFFER_LIMIT]; /* written before a slot turns full */
    _Atomic(uint32_t) limit;                      /* slots that may be lent; 0 closed */
    _Atomic(bool) null_allowed;
    _Atomic(uint64_t) lent, unready, refused, foreign, discarded;
    _Atomic(uint32_t) in_use, most;
} s_buffers;

/* For libraries that crash without a buffer. Several threads may be given it at once; what
 * they write is never read. */
static uint8_t s_discard[DISCARD_BYTES] __attribute__((aligned(8)));

static uint8_t *
slot_buffer(size_t slot)
{
    return s_buffers.base + slot * MP_CUPTI_BUFFER_BYTES;
}

/* The slot of an address, or MP_CUPTI_BUFFER_LIMIT when it is no buffer of ours. */
static size_t
slot_of(const uint8_t *buffer)
{
    uintptr_t offset = (uintptr_t)buffer - (uintptr_t)s_buffers.base;
    if (s_buffers.base == NULL || offset % MP_CUPTI_BUFFER_BYTES != 0 ||
        offset / MP_CUPTI_BUFFER_BYTES >= MP_CUPTI_BUFFER_LIMIT) {
        return MP_CUPTI_BUFFER_LIMIT;
    }
    return offset / MP_CUPTI_BUFFER_BYTES;
}

static bool
slot_move(size_t slot, slot_state from, slot_state to)
{
    uint8_t expected = (uint8_t)from;
    return mp_load_relaxed(&s_buffers.states[slot]) == from &&
           mp_cas_acq_rel(&s_buffers.states[slot], &expected, (uint8_t)to);
}

/* ---- opening and closing ---- */

static mp_status
reserve_range(void)
{
    if (s_buffers.base != NULL) {
        return MP_OK;
    }
    void *range = mmap(NULL, MP_CUPTI_BUFFER_LIMIT * MP_CUPTI_BUFFER_BYTES,
                       PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
        return MP_NO_MEMORY;
    }
    s_buffers.base = range;
    return MP_OK;
}

static void
forget_slot(size_t slot)
{
    (void)madvise(slot_buffer(slot), MP_CUPTI_BUFFER_BYTES, MADV_DONTNEED);
}

/* What nobody uses loses its memory; lent slots stay as they are. */
static void
forget_slots(void)
{
    for (size_t slot = 0; slot < MP_CUPTI_BUFFER_LIMIT; slot++) {
        slot_state state = (slot_state)mp_load_acquire(&s_buffers.states[slot]);
        if ((state == SLOT_READY || state == SLOT_FULL) &&
            slot_move(slot, state, SLOT_TAKEN)) {
            forget_slot(slot);
            mp_store_release(&s_buffers.states[slot], SLOT_COLD);
        }
    }
}

mp_status
mp_cupti_buffers_open(size_t bytes, bool null_allowed)
{
    MP_TRY(reserve_range());
    forget_slots(); /* completed since the last session */
    size_t limit = bytes / MP_CUPTI_BUFFER_BYTES;
    limit = limit < LEAST_BUFFERS ? LEAST_BUFFERS : limit;
    limit = limit > MP_CUPTI_BUFFER_LIMIT ? MP_CUPTI_BUFFER_LIMIT : limit;
    mp_store_relaxed(&s_buffers.null_allowed, null_allowed);
    mp_store_relaxed(&s_buffers.lent, 0);
    mp_store_relaxed(&s_buffers.unready, 0);
    mp_store_relaxed(&s_buffers.refused, 0);
    mp_store_relaxed(&s_buffers.foreign, 0);
    mp_store_relaxed(&s_buffers.discarded, 0);
    uint32_t held = 0;
    for (size_t slot = 0; slot < MP_CUPTI_BUFFER_LIMIT; slot++) {
        held += mp_load_relaxed(&s_buffers.states[slot]) == SLOT_LENT;
    }
    mp_store_relaxed(&s_buffers.in_use, held);
    mp_store_relaxed(&s_buffers.most, held);
    /* Acquired by requests. */
    mp_store_release(&s_buffers.limit, (uint32_t)limit);
    mp_cupti_buffers_touch();
    return MP_OK;
}

void
mp_cupti_buffers_close(void)
{
    mp_store_release(&s_buffers.limit, 0);
    if (s_buffers.base != NULL) {
        forget_slots();
    }
}

void
mp_cupti_buffers_after_fork(void)
{
    mp_store_release(&s_buffers.limit, 0);
}

/* ---- CUPTI's side ---- */

/* A slot that was touched before is preferred: the first that is cold comes after all
 * ready ones. */
static size_t
lend_slot(uint32_t limit)
{
    for (size_t slot = 0; slot < limit; slot++) {
        if (slot_move(slot, SLOT_READY, SLOT_LENT)) {
            return slot;
        }
    }
    for (size_t slot = 0; slot < limit; slot++) {
        if (slot_move(slot, SLOT_COLD, SLOT_LENT)) {
            mp_add_relaxed(&s_buffers.unready, 1);
            return slot;
        }
    }
    return MP_CUPTI_BUFFER_LIMIT;
}

static void
count_use(void)
{
    mp_add_relaxed(&s_buffers.lent, 1);
    uint32_t now = mp_add_relaxed(&s_buffers.in_use, 1) + 1;
    uint32_t most = mp_load_relaxed(&s_buffers.most);
    while (most < now && !mp_cas_acq_rel(&s_buffers.most, &most, now)) {
    }
}

void
mp_cupti_buffers_request(uint8_t **buffer, size_t *size, size_t *max_records)
{
    *max_records = 0;
    size_t slot = lend_slot(mp_load_acquire(&s_buffers.limit));
    if (slot < MP_CUPTI_BUFFER_LIMIT) {
        count_use();
        *buffer = slot_buffer(slot);
        *size = MP_CUPTI_BUFFER_BYTES;
        return;
    }
    mp_add_relaxed(&s_buffers.refused, 1);
    bool none = mp_load_relaxed(&s_buffers.null_allowed);
    *buffer = none ? NULL : s_discard;
    *size = none ? 0 : sizeof(s_discard);
}

void
mp_cupti_buffers_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                          size_t valid_size)
{
    (void)context;
    (void)stream;
    (void)size;
    if (buffer == NULL) {
        return;
    }
    if (buffer == s_discard) {
        mp_add_relaxed(&s_buffers.discarded, 1);
        return;
    }
    size_t slot = slot_of(buffer);
    if (slot == MP_CUPTI_BUFFER_LIMIT ||
        mp_load_relaxed(&s_buffers.states[slot]) != SLOT_LENT) {
        mp_add_relaxed(&s_buffers.foreign, 1);
        return;
    }
    valid_size = valid_size > MP_CUPTI_BUFFER_BYTES ? MP_CUPTI_BUFFER_BYTES : valid_size;
    mp_store_relaxed(&s_buffers.valid[slot], valid_size);
    /* Acquired by the taker's compare-and-swap. */
    if (!slot_move(slot, SLOT_LENT, SLOT_FULL)) {
        mp_add_relaxed(&s_buffers.foreign, 1);
    }
}

/* ---- the decoder's side ---- */

uint8_t *
mp_cupti_buffers_take(size_t *valid_size)
{
    for (size_t slot = 0; s_buffers.base != NULL && slot < MP_CUPTI_BUFFER_LIMIT; slot++) {
        if (slot_move(slot, SLOT_FULL, SLOT_TAKEN)) {
            *valid_size = mp_load_relaxed(&s_buffers.valid[slot]);
            return slot_buffer(slot);
        }
    }
    return NULL;
}

/* Zeroed here so that CUPTI need not do it on the user's thread. */
void
mp_cupti_buffers_give_back(uint8_t *buffer)
{
    size_t slot = slot_of(buffer);
    memset(buffer, 0, MP_CUPTI_BUFFER_BYTES);
    mp_add_relaxed(&s_buffers.in_use, (uint32_t)-1);
    mp_store_release(&s_buffers.states[slot], SLOT_READY);
}

void
mp_cupti_buffers_touch(void)
{
    uint32_t limit = mp_load_relaxed(&s_buffers.limit);
    size_t ready = 0;
    for (size_t slot = 0; slot < limit && ready < READY_AHEAD; slot++) {
        if (slot_move(slot, SLOT_COLD, SLOT_TAKEN)) {
            memset(slot_buffer(slot), 0, MP_CUPTI_BUFFER_BYTES);
            mp_store_release(&s_buffers.states[slot], SLOT_READY);
        }
        ready += mp_load_relaxed(&s_buffers.states[slot]) == SLOT_READY;
    }
}

void
mp_cupti_buffers_count(mp_cupti_buffer_counts *counts)
{
    *counts = (mp_cupti_buffer_counts){
        .lent = mp_load_relaxed(&s_buffers.lent),
        .unready = mp_load_relaxed(&s_buffers.unready),
        .refused = mp_load_relaxed(&s_buffers.refused),
        .foreign = mp_load_relaxed(&s_buffers.foreign),
        .discarded = mp_load_relaxed(&s_buffers.discarded),
        .most = mp_load_relaxed(&s_buffers.most),
    };
    for (size_t slot = 0; slot < MP_CUPTI_BUFFER_LIMIT; slot++) {
        counts->held += mp_load_relaxed(&s_buffers.states[slot]) == SLOT_LENT;
    }
}
