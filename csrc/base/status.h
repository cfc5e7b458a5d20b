/* The one result type below Python. python/errors translates it into an exception. */
#ifndef MP_BASE_STATUS_H
#define MP_BASE_STATUS_H

typedef enum mp_status {
    MP_OK = 0,
    MP_NO_MEMORY,   /* the recorder's own allocation failed */
    MP_BUSY,        /* another session records */
    MP_INVALID,     /* an argument or a loaded file contradicts itself */
    MP_UNAVAILABLE, /* a library, symbol or layout is not there: the feature is off */
    MP_OS_ERROR,    /* errno tells */
    MP_ABORTED,     /* a callback asked to stop; its own error is pending */
} mp_status;

/* Static text, never NULL. */
const char *mp_status_name(mp_status status);

/* Forwards a failure where nothing is owned. */
#define MP_TRY(expression)                                                               \
    do {                                                                                 \
        mp_status mp_try_status = (expression);                                          \
        if (mp_try_status != MP_OK) {                                                    \
            return mp_try_status;                                                        \
        }                                                                                \
    } while (0)

#endif
