/* An operator's inputs as the trace tells them: `Input Dims` and `Input type`. */
#ifndef MP_OUTPUT_TRACE_SHAPES_H
#define MP_OUTPUT_TRACE_SHAPES_H

#include <stdbool.h>
#include <stdint.h>

#include "output/json.h"
#include "record/recording.h"

/* `, "Input Dims": ..., "Input type": ...`; nothing where none were recorded, nor, unless
 * `nested`, where an input is a list of tensors. */
void mp_trace_write_shapes(mp_json *json, const mp_recording *recording, uint32_t shapes_id,
                           bool nested);

#endif
