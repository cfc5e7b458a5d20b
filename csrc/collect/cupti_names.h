/* Names of kernels and calls while records are decoded: each text once, under a small id
 * (0 is ""). Texts are copied at once, since CUPTI's pointers outlive neither a module's
 * reload nor the session. One thread at a time. */
#ifndef MP_COLLECT_CUPTI_NAMES_H
#define MP_COLLECT_CUPTI_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/table.h"

typedef struct mp_cupti_names {
    /* The text at a pointer that a record holds, valid until the next call; NULL: none.
     * For a replay the pointers are those of a process that is gone. */
    const char *(*read)(void *context, uint64_t pointer);
    void *context;
    char **texts; /* owned, [id] */
    uint32_t count, room;
    mp_table_map by_pointer, by_hash;
} mp_cupti_names;

/* read NULL: pointers are this process's own. */
mp_status mp_cupti_names_init(mp_cupti_names *names,
                              const char *(*read)(void *context, uint64_t pointer),
                              void *context);
void mp_cupti_names_fini(mp_cupti_names *names);

/* 0 when there is no text or no memory. */
uint32_t mp_cupti_names_add(mp_cupti_names *names, const char *text);
uint32_t mp_cupti_names_at_pointer(mp_cupti_names *names, uint64_t pointer);

/* The name as its source has it: "at::native::f(int)" for "_ZN2at6native1fEi". The
 * caller's, malloc'ed; NULL where it is no such name, or no C++ runtime is in the process. */
char *mp_cupti_names_demangle(const char *name);

#endif
