/* What the parts of the trace share while one is written. */
#ifndef MP_OUTPUT_TRACE_WRITER_H
#define MP_OUTPUT_TRACE_WRITER_H

#include "output/chrome_trace.h"
#include "output/escaped.h"
#include "output/json.h"
#include "output/slices.h"

typedef enum mp_name_role {
    MP_NAME_PLAIN,
    MP_NAME_STEP,          /* would count as a step of the training loop */
    MP_NAME_COMMUNICATION, /* whose shapes are read, and must not be nested */
} mp_name_role;

/* `, "pid": P, "tid": T, "ts": ` of a thread. */
typedef struct mp_trace_place {
    uint32_t length;
    char text[MP_JSON_PADDING * 4];
} mp_trace_place;

typedef struct mp_trace_writer {
    const mp_recording *recording;
    const mp_trace_options *options;
    mp_json json;
    mp_escaped escaped;
    mp_slice_list slices;
    int64_t base_ns;        /* times in the file count from here */
    uint32_t *flow_of;      /* operator row -> flow id, 0 none; ends of one flow share it */
    mp_trace_place *places; /* by thread id, 0 included */
    uint8_t *name_role;     /* by string: mp_name_role */
    uint32_t *module_number; /* module row -> its number among instances of its class */
    uint8_t *launches;       /* activity row -> 1: a call that an arrow leaves from */
    uint32_t event_index;    /* "Ev Idx" */
    mp_trace_counts counts;
} mp_trace_writer;

/* Operators, steps, Python functions and spans, each followed by its flow (trace_slices).
 */
void mp_trace_write_slices(mp_trace_writer *writer);

/* [memory] instants and counter tracks (trace_memory). */
void mp_trace_write_memory(mp_trace_writer *writer);
void mp_trace_write_counters(mp_trace_writer *writer);

/* `,"pid":P,"tid":T,"ts":T` of a thread's event. */
void mp_trace_write_place(mp_trace_writer *writer, uint32_t thread, int64_t time_ns);

#endif
