/* Whose each GPU activity is: an API call belongs to the innermost operator that is open on
 * its thread when it begins; what the device does belongs to the call with its correlation
 * id. Needs the steps, and forward_id of the operators. */
#ifndef MP_ANALYSIS_LAUNCHES_H
#define MP_ANALYSIS_LAUNCHES_H

#include "base/status.h"
#include "record/recording.h"

/* Fills operator_id, stack_id, launch_id and step of the activities anew. One walk over
 * operators and activities, and a map of the calls. */
mp_status mp_launches_link(mp_recording *recording);

#endif
