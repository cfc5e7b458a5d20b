/* Names for addresses: code objects and modules seen on stacks get a small id at first
 * sight, from any thread, without the GIL. An id outlives its object. When an object dies
 * its address is struck out, so that a later object at the same address gets an id of its
 * own, and the generation rises, which makes every log forget its stack fingerprints.
 *
 * One leaf lock: nothing is called while it is held, so it may be taken in a hook. */
#ifndef MP_RECORD_OBJECTS_H
#define MP_RECORD_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"

typedef enum mp_object_kind { MP_OBJECT_CODE = 1, MP_OBJECT_MODULE = 2 } mp_object_kind;

typedef struct mp_object {
    const void *address;
    char class_name[56]; /* modules: copied at first sight, cut to fit; codes: "" */
    uint8_t kind;
    bool dead;           /* the address means something else by now */
    bool resolved;       /* python/ has copied what it needs */
    uint32_t parked;     /* python/: 1 while it keeps a dying code object in memory */
} mp_object;

/* Empties the set for a new session. Returns false when out of memory. */
bool mp_objects_open(void);
void mp_objects_close(void);

/* The id (1-based) of a live address, adding it when new; 0 when the set is full or
 * closed. class_name may be NULL. Hook context; `address` is alive. */
uint32_t mp_objects_intern(mp_object_kind kind, const void *address, const char *class_name);

/* The id of a live address, or 0. */
uint32_t mp_objects_find(const void *address);

/* Strikes an address out: its id is dead, the generation rises. No-op when unknown. */
void mp_objects_strike(const void *address);

/* Rises with every strike; a log whose object_generation differs calls
 * mp_intern_forget(&log->stacks) before it probes. */
extern _Atomic(uint32_t) g_objects_generation;

uint32_t mp_objects_count(void);

/* The object of an id in 1..count. The pointer stays valid until close. */
mp_object *mp_objects_at(uint32_t id);

/* After fork, in the child: the lock is free again and the set is closed. */
void mp_objects_after_fork(void);

#endif
