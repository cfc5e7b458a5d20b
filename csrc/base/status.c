#include "base/status.h"

const char *
mp_status_name(mp_status status)
{
    switch (status) {
    case MP_OK:
        return "ok";
    case MP_NO_MEMORY:
        return "out of memory";
    case MP_BUSY:
        return "busy";
    case MP_INVALID:
        return "invalid";
    case MP_UNAVAILABLE:
        return "unavailable";
    case MP_OS_ERROR:
        return "operating system error";
    case MP_ABORTED:
        return "aborted";
    }
    return "unknown status";
}
