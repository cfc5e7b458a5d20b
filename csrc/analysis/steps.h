/* Which step a time belongs to, for times that come in order: one walk over the steps. */
#ifndef MP_ANALYSIS_STEPS_H
#define MP_ANALYSIS_STEPS_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "record/recording.h"

typedef struct mp_step_cursor {
    const mp_step *rows;
    size_t count;
    size_t at; /* first step that ends after the last time asked */
} mp_step_cursor;

MP_INLINE mp_step_cursor
mp_step_cursor_of(const mp_recording *recording)
{
    return (mp_step_cursor){
        .rows = MP_ROWS(recording, STEPS, mp_step),
        .count = MP_COUNT(recording, STEPS),
    };
}

/* Numbers of blocks and devices are 32 bits wide. */
MP_INLINE int32_t
mp_step_number(const mp_step *step)
{
    return (int32_t)(step->number > INT32_MAX ? INT32_MAX
                     : step->number < -1      ? -1
                                              : step->number);
}

/* The number of the step [start, end) around time_ns, or -1. Times must not fall. */
MP_INLINE int32_t
mp_step_cursor_number(mp_step_cursor *cursor, int64_t time_ns)
{
    while (cursor->at < cursor->count && cursor->rows[cursor->at].end_ns <= time_ns) {
        cursor->at++;
    }
    if (cursor->at == cursor->count || cursor->rows[cursor->at].start_ns > time_ns) {
        return -1;
    }
    return mp_step_number(&cursor->rows[cursor->at]);
}

#endif
