/* GPU activity in the Chrome trace: a process for each device with a track for each stream,
 * and arrows from the calls to what they launched. */
#ifndef MP_OUTPUT_TRACE_ACTIVITIES_H
#define MP_OUTPUT_TRACE_ACTIVITIES_H

#include "output/trace_writer.h"

/* Finds the calls that an arrow leaves from; before the slices. */
mp_status mp_trace_find_launches(mp_trace_writer *writer);

/* An API call, which is a slice of its thread, with its end of the arrow. */
void mp_trace_write_call(mp_trace_writer *writer, const mp_slice *slice);

/* What the devices did, and the names of their tracks. */
void mp_trace_write_activities(mp_trace_writer *writer);

#endif
