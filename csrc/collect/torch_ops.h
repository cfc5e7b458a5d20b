/* Operators, seen by one global RecordFunction callback. Which scopes it observes decides
 * the depth: light sees backward nodes and user ranges only, full sees every operator.
 * An operator is one event in the log, written at its start and completed at its end.
 *
 * No tensor is kept: of the inputs only integers are copied, inside the start callback,
 * where alone they are valid. */
#ifndef MP_COLLECT_TORCH_OPS_H
#define MP_COLLECT_TORCH_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "collect/torch_symbols.h"

/* Registers the callback for the process; g_torch is found, g_torch_layout as proved.
 * MP_UNAVAILABLE without the functions for it. Caller holds the session lock. */
mp_status mp_torch_ops_start(bool all_operators, bool shapes);

/* Removes it. Calls in flight finish; their ends are ignored. */
void mp_torch_ops_stop(void);

/* Callbacks that contradicted the proved layout; not zero means that operators of this
 * session are not to be trusted. */
uint64_t mp_torch_ops_contradictions(void);

/* ---- calibration ---- */

/* What one operator on known tensors showed of at::RecordFunction. */
typedef struct mp_torch_probe {
    /* in */
    const char *operator_name;    /* such as "aten::mm" */
    const void *first_input_impl; /* TensorImpl that its first input is, or NULL */
    uint16_t inputs_offset;       /* 0: search for it; else read there */
    /* out */
    uint32_t calls;               /* of that operator on this thread */
    uint32_t matches;             /* places where the inputs could lie (search) */
    uint16_t found_offset;
    uint64_t input_count;         /* by torch's function */
    uint64_t inputs_size;         /* read at the offset */
    uint32_t tags[12];            /* IValue tags of the first inputs */
    int64_t sequence;
    bool thread_id_agrees;
    bool async_agrees;
    bool scope_valid;
    uint8_t name_index[2];        /* byte at NAME + 8 and at NAME + 32 */
    bool failed;                  /* the callback could not be registered */
} mp_torch_probe;

/* Between begin and end the calling thread runs the operator. Not while recording. */
void mp_torch_probe_begin(mp_torch_probe *probe);
void mp_torch_probe_end(mp_torch_probe *probe);

/* Reads a tensor as the shapes code will, at the given offsets: the number of dimensions
 * goes to *dims (at most 16 sizes are copied), the dtype to *dtype. */
void mp_torch_read_impl(const void *impl, uint16_t sizes_offset, uint16_t dtype_offset,
                        int64_t *dims, int64_t sizes[16], uint16_t *dtype);

#endif
