/* What is drawn as a bar on a thread's track: steps, operators, Python functions and user
 * spans of the window, per thread strictly nested: no bar ends after the one around it,
 * the outer one first, at most MP_SLICE_DEPTH deep. */
#ifndef MP_OUTPUT_SLICES_H
#define MP_OUTPUT_SLICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "record/recording.h"

#define MP_SLICE_DEPTH 512
#define MP_SLICE_GAP_NS 2 /* between neighbours that we cut ourselves */

/* In the order of nesting where times are equal. */
typedef enum mp_slice_kind {
    MP_SLICE_STEP,
    MP_SLICE_SPAN,
    MP_SLICE_PYTHON,
    MP_SLICE_OPERATOR,
} mp_slice_kind;

typedef struct mp_slice {
    int64_t start_ns, end_ns;
    uint32_t thread; /* 1-based */
    uint8_t kind;
    uint32_t row;    /* of its table, 0-based; MP_SLICE_PYTHON: a row of `frames` */
    uint32_t module; /* MP_SLICE_PYTHON: module id where it is a module's call, else 0 */
    uint32_t parent; /* MP_SLICE_PYTHON: index + 1 of the Python slice around it, else 0 */
} mp_slice;

typedef struct mp_slice_list {
    mp_slice *items;
    size_t count, room;
} mp_slice_list;

mp_status mp_slices_add(mp_slice_list *list, const mp_slice *slice);
void mp_slices_fini(mp_slice_list *list);

/* All slices of the window, sorted by thread, then in the order to write; slices that
 * cannot be nested are left out and counted in *dropped. */
mp_status mp_slices_collect(const mp_recording *recording, bool python_functions,
                            mp_slice_list *list, size_t *dropped);

#endif
