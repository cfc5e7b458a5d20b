/* The recording's strings and call stacks as JSON text, each made at first use and kept:
 * an event then only copies bytes. */
#ifndef MP_OUTPUT_ESCAPED_H
#define MP_OUTPUT_ESCAPED_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "output/json.h"
#include "record/recording.h"

typedef struct mp_escaped_text {
    char *bytes; /* NULL before first use */
    size_t length;
    size_t tail; /* a file: where its name within its library begins, else 0 */
} mp_escaped_text;

typedef struct mp_escaped {
    const mp_recording *recording;
    mp_escaped_text *strings;
    size_t string_count;
    mp_escaped_text *stacks;
    size_t stack_count;
    uint32_t stack_depth; /* frames told of a stack, innermost first */
    mp_status status;     /* MP_NO_MEMORY once a text could not be made */
} mp_escaped;

mp_status mp_escaped_init(mp_escaped *escaped, const mp_recording *recording,
                          uint32_t stack_depth);
void mp_escaped_fini(mp_escaped *escaped);

/* The inside of a JSON string, without quotes. */
void mp_escaped_string(mp_escaped *escaped, mp_json *json, uint32_t string_id);

/* The same of a file, from its library's folder on: "torch/nn/modules/linear.py". */
void mp_escaped_file(mp_escaped *escaped, mp_json *json, uint32_t string_id);

/* "file(line): function;file(line): function", innermost first. */
void mp_escaped_stack(mp_escaped *escaped, mp_json *json, uint32_t stack_id);

#endif
