/* Sums of sizes. A loaded file may hold any numbers: they wrap, they never trap. */
#ifndef MP_ANALYSIS_SUMS_H
#define MP_ANALYSIS_SUMS_H

#include <stdint.h>

#include "base/compiler.h"

MP_INLINE int64_t
mp_sum(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

MP_INLINE int64_t
mp_difference(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

#endif
