/* The Chrome trace format (JSON) of a recording, for TensorBoard's profiler plugin,
 * Perfetto and HTA. Written in one pass to a sink, in chunks. No Python. */
#ifndef MP_OUTPUT_CHROME_TRACE_H
#define MP_OUTPUT_CHROME_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "output/json.h"
#include "record/recording.h"

typedef enum mp_trace_dialect {
    MP_TRACE_KINETO = 0,      /* as today's torch.profiler writes */
    MP_TRACE_TENSORBOARD = 1, /* as torch-tb-profiler 0.4.3 reads */
} mp_trace_dialect;

/* Limits of one multiprocessor, for estimates of occupancy; 0: not known. */
typedef struct mp_trace_gpu {
    uint32_t multiprocessors; /* of the device */
    uint32_t threads, registers, shared_bytes;
} mp_trace_gpu;

typedef struct mp_trace_options {
    mp_trace_dialect dialect;
    bool shapes;             /* Input Dims and Input type where recorded */
    bool call_stacks;        /* the text `Call stack` on operators */
    bool python_functions;   /* bars rebuilt from stacks */
    bool memory;             /* [memory] instants */
    uint32_t counter_points; /* most per device and track; 0: no counter tracks */
    int64_t process_id;
    const char *process_name; /* JSON-escaped already */
    const char *header;       /* JSON members `"key": value, ` before traceEvents, or "" */
    const char *trace_name;   /* JSON-escaped */
    const mp_trace_gpu *gpus; /* by device index */
    size_t gpu_count;
} mp_trace_options;

typedef struct mp_trace_counts {
    uint64_t slices, memory_events, counters, flows, dropped_slices;
} mp_trace_counts;

mp_status mp_chrome_trace_write(const mp_recording *recording,
                                const mp_trace_options *options, mp_json_sink sink,
                                void *context, mp_trace_counts *counts);

#endif
