/* Raw buffers on disk, to decode them again elsewhere: "MPCUPTI1", then blocks of
 * {u32 type, u32 unused, u64 key, u64 bytes} and their bytes. Type 1: the library's version
 * (key); 2: a buffer; 3: a name, its pointer as key. Written by one thread; after a failure
 * nothing more is written. */
#ifndef MP_COLLECT_CUPTI_DUMP_H
#define MP_COLLECT_CUPTI_DUMP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "collect/cupti_names.h"

typedef struct mp_cupti_dump {
    FILE *file; /* NULL: closed, or failed */
} mp_cupti_dump;

/* Whether the file could be made; errno tells. */
int mp_cupti_dump_open(mp_cupti_dump *dump, const char *path, uint32_t version);
void mp_cupti_dump_buffer(mp_cupti_dump *dump, const uint8_t *buffer, size_t bytes);

/* Writes all names that have a pointer, and closes. */
void mp_cupti_dump_close(mp_cupti_dump *dump, const mp_cupti_names *names);

#endif
