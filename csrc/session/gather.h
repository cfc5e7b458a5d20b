/* First half of assembly: what the logs interned (stacks, names, shapes, modules) becomes
 * tables of the recording, each content once, with a map from every log's local ids. Runs
 * while the interpreter can still be asked for texts; its work grows with the number of
 * distinct entries, not of events. */
#ifndef MP_SESSION_GATHER_H
#define MP_SESSION_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/table.h"
#include "record/recording.h"
#include "record/thread_log.h"
#include "session/text_table.h"

/* Supplied from above: where an instruction of a captured code object lies. */
typedef struct mp_line_text {
    const char *file, *function; /* borrowed until the call after */
    size_t file_bytes, function_bytes;
    int line;
} mp_line_text;
typedef bool (*mp_describe_line)(uint32_t code_id, uint32_t instruction, mp_line_text *out);

/* What is known of a module instance, by object id. Texts are owned. */
typedef struct mp_module_name {
    uint32_t object_id;
    uint32_t parent_object_id;
    char *path;
    char *class_name;
} mp_module_name;

typedef struct mp_code_role {
    uint32_t object_id;
    uint32_t frame_flags; /* MP_FRAME_... */
} mp_code_role;

/* Local ids of one log -> ids of the recording. Index 0 is 0. */
typedef struct mp_log_map {
    mp_thread_log *log;
    uint32_t *stacks;
    uint32_t *names;
    uint32_t *overloads;
    uint32_t *shapes;
} mp_log_map;

typedef struct mp_gather_input {
    mp_describe_line describe;
    const mp_module_name *modules;
    size_t module_count;
    const mp_code_role *roles;
    size_t role_count;
} mp_gather_input;

typedef struct mp_gathered {
    mp_recording *recording; /* filled: frames, stacks, stack_frames, modules, shapes */
    mp_text_table texts;     /* stored into the recording at the very end */
    mp_log_map *maps;
    size_t map_count;
} mp_gathered;

/* All logs of the epoch that ended. On failure nothing is owned. */
mp_status mp_gather(const mp_gather_input *input, mp_gathered *out);

/* Frees the maps and texts, and the recording unless it was taken (set to NULL). */
void mp_gathered_fini(mp_gathered *gathered);

#endif
