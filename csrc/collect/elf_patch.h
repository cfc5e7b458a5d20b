/* Redirects calls between shared objects by their GOT slots: find the slots of some
 * symbols in some loaded objects, store hooks, put the old values back.
 *
 * Slots come from DT_JMPREL (JUMP_SLOT) and DT_RELA (GLOB_DAT). A page under RELRO is made
 * writable for the store and read-only again; a lazily bound .got.plt stays writable, as
 * the loader needs it. Objects found are kept open, so a slot's address stays valid. */
#ifndef MP_COLLECT_ELF_PATCH_H
#define MP_COLLECT_ELF_PATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define MP_PATCH_SLOT_LIMIT 64

/* What to redirect. `original` is the function itself (from dlsym on its own library, not
 * from a slot, which may hold a stub or another tool's hook). */
typedef struct mp_patch_want {
    const char *symbol;
    const char *object_prefix; /* base name of the calling object begins with this */
    void *original;
    void *hook;
} mp_patch_want;

typedef struct mp_patch_slot {
    void **address;
    void *previous; /* what the slot held when it was patched */
    void *original;
    void *hook;
    void *library; /* dlopen handle that keeps the object mapped */
    const char *symbol;
    bool in_relro;
    bool patched;
    bool foreign; /* it held neither the original nor a stub of its own object */
} mp_patch_slot;

typedef struct mp_patch {
    mp_patch_slot slots[MP_PATCH_SLOT_LIMIT];
    size_t count;
    size_t overlooked; /* slots found beyond the limit */
} mp_patch;

/* Fills `patch` with the slots of all wanted symbols in objects loaded now. Wants without
 * an original are skipped. Stores nothing. */
void mp_patch_find(mp_patch *patch, const mp_patch_want *wants, size_t want_count);

/* Stores the hooks. If one store is refused, undoes the others: MP_OS_ERROR. */
mp_status mp_patch_apply(mp_patch *patch);

/* Puts back what each slot held, where it still holds our hook; a slot that somebody
 * chained onto is left (the hook must forward when inactive). Returns how many were left.
 * The patch is empty afterwards. */
size_t mp_patch_undo(mp_patch *patch);

/* How many of the slots call `symbol`. */
size_t mp_patch_count(const mp_patch *patch, const char *symbol);

/* True when a slot held another tool's function, which the hook displaces until undo. */
bool mp_patch_found_foreign(const mp_patch *patch);

#endif
