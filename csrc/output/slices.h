/* What is drawn as a bar on a thread's track: steps, operators, Python functions and user
 * spans of the window, per track strictly nested: a bar ends before the one around it and
 * before its next neighbour begins, the outer one first, at most MP_SLICE_DEPTH deep.
 *
 * Before, because readers add start and duration as floating-point numbers: an end that is
 * equal to another may come out behind it, and they then drop the bar. */
#ifndef MP_OUTPUT_SLICES_H
#define MP_OUTPUT_SLICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "record/recording.h"

#define MP_SLICE_DEPTH 512

/* In the order of nesting where times are equal. */
typedef enum mp_slice_kind {
    MP_SLICE_WINDOW, /* the whole window, where nothing else gives the trace a length */
    MP_SLICE_STEP,
    MP_SLICE_SPAN,
    MP_SLICE_PYTHON,
    MP_SLICE_OPERATOR,
    MP_SLICE_CALL, /* of CUDA's API: a row of `activities` */
    MP_SLICE_KIND_COUNT
} mp_slice_kind;

typedef struct mp_slice {
    int64_t start_ns, end_ns;
    uint32_t
        thread;   /* 1-based, 0 unknown; in the result the first one with its kernel id */
    uint32_t row; /* of its table, 0-based; MP_SLICE_PYTHON: a row of `frames` */
    uint32_t module; /* MP_SLICE_PYTHON: module id where it is a module's call, else 0 */
    uint32_t parent; /* MP_SLICE_PYTHON: index + 1 of the Python slice around it, else 0 */
    uint16_t depth;
    uint8_t kind;
} mp_slice;

typedef struct mp_slice_list {
    mp_slice *items;
    size_t count, room;
} mp_slice_list;

mp_status mp_slices_add(mp_slice_list *list, const mp_slice *slice);
void mp_slices_fini(mp_slice_list *list);

/* All slices of the window, by track, then in the order to write; those deeper than
 * MP_SLICE_DEPTH are left out and counted in *dropped. */
mp_status mp_slices_collect(const mp_recording *recording, bool python_functions,
                            mp_slice_list *list, size_t *dropped);

#endif
