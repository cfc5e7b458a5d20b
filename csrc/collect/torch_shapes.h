/* Shapes and dtypes of an operator's inputs as a run of int64 words, in the layout that
 * tables.h states, interned per thread: loops repeat them. */
#ifndef MP_COLLECT_TORCH_SHAPES_H
#define MP_COLLECT_TORCH_SHAPES_H

#include <stdint.h>

#include "record/thread_log.h"

/* The id in log->shapes, 0 for none. Call inside the start callback only; the layout has
 * been proved. `record_function` is torch's. */
uint32_t mp_torch_shapes_intern(mp_thread_log *log, const void *record_function);

#endif
