/* Python functions as bars, rebuilt from the stacks at successive events of a thread: a
 * function is open from the first to the last event seen under it, so calls without an
 * event do not show and neighbouring calls of one function may show as one. A call of a
 * module shows as that module. Open functions are cut at the borders of steps. */
#ifndef MP_OUTPUT_PYTHON_SLICES_H
#define MP_OUTPUT_PYTHON_SLICES_H

#include "base/status.h"
#include "output/slices.h"
#include "record/recording.h"

/* In order of start, the outer one first. `list` is empty. */
mp_status mp_python_slices_add(const mp_recording *recording, mp_slice_list *list);

#endif
