/* Slope of a series by the median over pairs (Theil-Sen), with its interval. */
#ifndef MP_ANALYSIS_SLOPE_H
#define MP_ANALYSIS_SLOPE_H

#include <stddef.h>
#include <stdint.h>

/* Longer series are thinned to so many evenly spread points: the work stays constant. */
#define MP_SLOPE_POINTS 64

typedef struct mp_slope {
    double median, low, high; /* 98 % interval, from the ranks of Kendall's statistic */
} mp_slope;

/* Values at 0, 1, ... count - 1; count is at least 2. */
mp_slope mp_slope_of(const int64_t *values, size_t count);

#endif
