/* From lists of slices by kind to one list by track, strictly nested (see slices.h). */
#ifndef MP_OUTPUT_SLICE_ORDER_H
#define MP_OUTPUT_SLICE_ORDER_H

#include "output/slices.h"

/* Merges MP_SLICE_KIND_COUNT lists, each in order of start, into `out`: by thread (at most
 * `threads`), then by start, the longest first. */
mp_status mp_slices_merge(const mp_slice_list *lists, size_t threads, mp_slice_list *out);

/* Sets depths and parents and shortens what would overlap; returns how many slices were
 * too deep and left out. */
size_t mp_slices_nest(mp_slice_list *list);

#endif
