#include "analysis/slope.h"

#include <math.h>
#include <stdlib.h>

static int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static size_t
pair_slopes(const int64_t *values, size_t count, double *slopes)
{
    size_t points = count < MP_SLOPE_POINTS ? count : MP_SLOPE_POINTS;
    size_t made = 0;
    for (size_t i = 1; i < points; i++) {
        size_t late = i * (count - 1) / (points - 1);
        for (size_t j = 0; j < i; j++) {
            size_t early = j * (count - 1) / (points - 1);
            slopes[made++] =
                ((double)values[late] - (double)values[early]) / (double)(late - early);
        }
    }
    return made;
}

/* How many of the sorted pairs lie outside the interval on each side: under no trend,
 * (pairs up) - (pairs down) is normal with variance n (n - 1) (2 n + 5) / 18. */
static size_t
outside(size_t pairs, size_t count)
{
    double n = (double)(count < MP_SLOPE_POINTS ? count : MP_SLOPE_POINTS);
    double spread = 2.326 * sqrt(n * (n - 1) * (2 * n + 5) / 18);
    double beyond = ((double)pairs - spread) / 2;
    return beyond > 0 ? (size_t)beyond : 0;
}

mp_slope
mp_slope_of(const int64_t *values, size_t count)
{
    double slopes[MP_SLOPE_POINTS * (MP_SLOPE_POINTS - 1) / 2];
    size_t pairs = pair_slopes(values, count, slopes);
    qsort(slopes, pairs, sizeof(*slopes), by_value);
    size_t cut = outside(pairs, count);
    return (mp_slope){
        .median = (slopes[(pairs - 1) / 2] + slopes[pairs / 2]) / 2,
        .low = slopes[cut],
        .high = slopes[pairs - 1 - cut],
    };
}
